"""The component's process, behind a guard (`runtime.guard`), so that nothing of it outlives it, us or our parent."""

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

from gymnast.runtime.guard import descendants
from gymnast.sidecars.sidecar.host_environment import environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_KILL_AFTER_S = 5.0


class GuardedProcess:
    """One run of the command. Its output goes to the log, and to our own output with `echo`."""

    def __init__(
        self, command: Sequence[str], env: dict[str, str], *, cwd: str | None, log: Path, stop_s: float
    ) -> None:
        self._stop_s = stop_s
        self._control, guard_end = socket.socketpair()
        try:
            self.guard = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "gymnast.runtime.guard", f"--control-fd={guard_end.fileno()}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(guard_end.fileno(),),
                start_new_session=True,
                env=environment({"PYTHONPATH": os.pathsep.join(path for path in sys.path[:1] if path)}),
                cwd=cwd,
            )
        finally:
            guard_end.close()
        message = {"argv": list(command), "env": env, "stop_s": stop_s}
        self._control.sendall(json.dumps(message).encode() + b"\n")
        self._log = log

    @property
    def pid(self) -> int:
        """The guard's, which leads the process group."""
        return self.guard.pid

    def copy_output(self, *, echo: bool) -> threading.Thread:
        """Copy its output to its log, in the background."""
        out = self.guard.stdout
        assert out is not None
        thread = threading.Thread(target=_copy, args=(out, self._log, echo), daemon=True)
        thread.start()
        return thread

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, negative for a signal; None if it still runs after the timeout."""
        try:
            return self.guard.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Tell the command itself to finish, without a time limit."""
        for pid in descendants(self.pid)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def request_stop(self) -> None:
        """Ask it to stop. The guard kills its remaining processes after its stop time."""
        with contextlib.suppress(OSError):
            self._control.sendall(b"stop\n")

    def stop(self) -> int:
        """End it and everything it started. Returns its exit code."""
        self.request_stop()
        code = self.wait(self._stop_s + _KILL_AFTER_S)
        if code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            code = self.guard.wait()
        self._control.close()
        return code


def _copy(out: BinaryIO, log: Path, echo: bool) -> None:  # noqa: FBT001 - a thread's arguments
    """Empty the pipe whatever happens to the log: a program that writes to a full or closed pipe hangs or dies."""
    with out, contextlib.closing(_Log(log)) as file:
        while data := os.read(out.fileno(), 1 << 16):
            file.write(data)
            if echo:
                with contextlib.suppress(OSError):
                    _write_all(sys.stdout.fileno(), data)


class _Log:
    """A file on a file system that may refuse writes for a while. What was lost is noted when it recovers."""

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
            self.close()  # the handle may be stale permanently

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
