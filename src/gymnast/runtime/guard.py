"""The main program of a guard: runs one command and kills all its processes in the end.

The command and all it started are killed when the command ends, when the parent says so, and when the parent dies. The
guard then exits as the command did. Standard library only: it must start fast, also in containers without Gymnast.
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
    """Receive the command, run it, exit with it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--control-fd", type=int, required=True)
    control = socket.socket(fileno=parser.parse_args().control_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # schedulers signal every process; the parent decides when we stop
    _prctl(_SET_CHILD_SUBREAPER, 1)  # orphans of the command become our children
    stream = control.makefile("rb")
    message = stream.readline()
    if not message:
        return
    spec = json.loads(message)
    try:
        command = subprocess.Popen(  # noqa: S603 - running the given command is the purpose
            spec["argv"],
            env=spec["env"],
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_guard,  # noqa: PLW1509 - there is no other thread yet
        )
    except OSError as error:
        sys.stderr.write(f"cannot run {spec['argv'][0]}: {error.strerror or error}\n")
        sys.exit(127)
    threading.Thread(
        target=_wait_for_parent, args=(stream, command, spec["stop_s"]), name="control", daemon=True
    ).start()
    code = command.wait()
    kill_descendants()
    _exit_like(code)


def _exit_like(code: int) -> None:
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)  # without cleanup: our thread still waits for the parent


def _die_with_guard() -> None:
    """Runs in the command's process, before the command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_parent(stream: BinaryIO, command: subprocess.Popen[bytes], stop_s: float) -> None:
    """Wait for the parent to say stop, or to die; then kill everything."""
    message = b""
    with contextlib.suppress(OSError):
        message = stream.readline()
    if message:
        with contextlib.suppress(ProcessLookupError):
            command.terminate()
        time.sleep(stop_s)
    kill_descendants()
    os.killpg(0, signal.SIGKILL)


def kill_descendants() -> None:
    """Kill all descendants of this process, including those that they start meanwhile."""
    while pids := descendants(os.getpid()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def descendants(pid: int) -> list[int]:
    """The living descendants of a process, from /proc."""
    pids: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                pids += [child, *descendants(child)] if not _is_zombie(child) else descendants(child)
    return pids


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not supported here: the process group is killed all the same
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
