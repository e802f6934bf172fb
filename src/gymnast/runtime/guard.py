"""The main program of a guard: runs one foreign command and sees to it that nothing of it outlives anybody.

The command and all it starts end when the command itself ends, when the parent says so, and when the parent is gone,
however it went. The guard then ends as the command did. Only the standard library: it has to start at once.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import BinaryIO

_SET_CHILD_SUBREAPER: Final = 36
_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Receive the command, run it, end with it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--control-fd", type=int, required=True)
    control = socket.socket(fileno=parser.parse_args().control_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # schedulers signal every process; the parent decides when we end
    _prctl(_SET_CHILD_SUBREAPER, 1)  # whatever the command starts and leaves behind becomes ours to end
    stream = control.makefile("rb")
    told = stream.readline()
    if not told:
        return
    order = json.loads(told)
    try:
        command = subprocess.Popen(  # noqa: S603 - to run what we are told to run is what we are for
            order["argv"],
            env=order["env"],
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_guard,  # noqa: PLW1509 - there is no other thread yet
        )
    except OSError as error:
        sys.stderr.write(f"cannot run {order['argv'][0]}: {error.strerror or error}\n")
        sys.exit(127)
    threading.Thread(target=_obey, args=(stream, command, order["stop_s"]), name="control", daemon=True).start()
    code = command.wait()
    end_descendants()
    _end_like(code)


def _end_like(code: int) -> None:
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)  # at once: a thread of ours still waits for the parent


def _die_with_guard() -> None:
    """In the command's process, before it begins."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _obey(stream: BinaryIO, command: subprocess.Popen[bytes], stop_s: float) -> None:
    """Wait for the parent to say stop, or to be gone."""
    told = b""
    with contextlib.suppress(OSError):
        told = stream.readline()
    if told:
        with contextlib.suppress(ProcessLookupError):
            command.terminate()
        time.sleep(stop_s)
    end_descendants()
    os.killpg(0, signal.SIGKILL)


def end_descendants() -> None:
    """Kill everything that was started below us, including what such processes start while we look."""
    while found := descendants(os.getpid()):
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def descendants(pid: int) -> list[int]:
    """Every living process below one, as /proc shows them."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)] if not _is_zombie(child) else descendants(child)
    return found


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not on this system: the process group is still ended
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
