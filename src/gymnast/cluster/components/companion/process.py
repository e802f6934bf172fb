"""The component's process: behind a guard (`runtime.guard`), so that nothing of it outlives it, us or our parent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, BinaryIO

from gymnast.cluster.components.companion.surroundings import environment
from gymnast.runtime.guard import descendants

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_KILL_AFTER_S = 5.0


class Guarded:
    """One run of the command. What it says goes to the log, and to our own output where that is asked for."""

    def __init__(self, words: Sequence[str], env: dict[str, str], *, cwd: str | None, log: Path, stop_s: float) -> None:
        self._stop_s = stop_s
        self._control, theirs = socket.socketpair()
        try:
            self.guard = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "gymnast.runtime.guard", f"--control-fd={theirs.fileno()}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=environment({"PYTHONPATH": os.pathsep.join(path for path in sys.path[:1] if path)}),
                cwd=cwd,
            )
        finally:
            theirs.close()
        told = {"argv": list(words), "env": env, "stop_s": stop_s}
        self._control.sendall(json.dumps(told).encode() + b"\n")
        self._log = log

    @property
    def pid(self) -> int:
        """The guard's, which leads the process group."""
        return self.guard.pid

    def copy_output(self, *, aloud: bool) -> threading.Thread:
        """Copy what it says to its log, in the background."""
        out = self.guard.stdout
        assert out is not None
        thread = threading.Thread(target=_copy, args=(out, self._log, aloud), daemon=True)
        thread.start()
        return thread

    def ended(self, within_s: float) -> int | None:
        """Its exit code, negative for a signal; None if it still runs after that long."""
        try:
            return self.guard.wait(within_s)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Tell the command itself to finish, and leave it all the time it wants."""
        for pid in descendants(self.pid)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def ask_end(self) -> None:
        """Tell it to end; the guard kills what is left of it after its time."""
        with contextlib.suppress(OSError):
            self._control.sendall(b"stop\n")

    def end(self) -> int:
        """End it and everything it started; its exit code."""
        self.ask_end()
        code = self.ended(self._stop_s + _KILL_AFTER_S)
        if code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            code = self.guard.wait()
        self._control.close()
        return code


def _copy(out: BinaryIO, log: Path, aloud: bool) -> None:  # noqa: FBT001 - a thread's arguments
    """Whatever becomes of the log, the pipe is emptied: whoever speaks into a full or a closed one hangs or dies."""
    with out, contextlib.closing(_Log(log)) as kept:
        while data := os.read(out.fileno(), 1 << 16):
            kept.write(data)
            if aloud:
                with contextlib.suppress(OSError):
                    _write_all(sys.stdout.fileno(), data)


class _Log:
    """A file on a file system that may refuse writes for a while. What it did not take is said when it takes again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._lost = 0

    def write(self, data: bytes) -> None:
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            if self._lost:
                _write_all(self._fd, b"\n[up to %d bytes could not be written here]\n" % self._lost)
                self._lost = 0
            _write_all(self._fd, data)
        except OSError:
            self._lost += len(data)
            self.close()  # a handle may be stale for good

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def described(code: int) -> str:
    """How something ended, in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
