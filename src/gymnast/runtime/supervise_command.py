"""Runs one command and leaves none of its processes behind. Started by `runtime.command` in a Python without packages.

    supervise_command.py STDIN PROGRAM ARGUMENT...

It is the reaper of everything the command starts, so daemons that left the group and cleared their environment are its
children, too. Once the command ends, or our standard input does because Gymnast ended, they are killed. SIGTERM goes to
the command's group. It ends as the command did: with the same code, or by the same signal.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time

_SET_CHILD_SUBREAPER = 36
_CLEANUP_S = 60.0
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def main(stdin: str, argv: list[str]) -> None:
    """Run the command to its end."""
    with contextlib.suppress(AttributeError, OSError):  # not on Linux
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until there is a command to pass it on to
    child = os.fork()
    if child == 0:
        _become(stdin, argv)
    signal.signal(signal.SIGTERM, lambda *_: _signal_group(child, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for stream in (1, 2):  # the output ends when the command's processes have closed it
        os.close(stream)
    status = _wait(child, woken)
    _kill_children()
    _end_like(status)


def _become(stdin: str, argv: list[str]) -> None:
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.dup2(os.open(stdin, os.O_RDONLY), 0)
        os.execvp(argv[0], argv)  # noqa: S606 - what this program is for
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        reason = "not found" if is_missing else error.strerror
        os.write(2, f"cannot start {argv[0]}: {reason}\n".encode(errors="replace"))
        os._exit(_NOT_FOUND if is_missing else _NOT_EXECUTABLE)


def _wait(child: int, woken: int) -> int:
    """The status of the command; it is killed if our standard input ends first."""
    is_killed = False
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return status
        if pid:
            continue
        watched = [woken] if is_killed else [woken, 0]
        ready, _, _ = select.select(watched, [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
        if 0 in ready and not os.read(0, 4096):
            is_killed = True
            _signal_group(child, signal.SIGKILL)
            _signal(child, signal.SIGKILL)


def _kill_children() -> None:
    """Kill what is left. All are stopped first: what forks and ends faster than it can be killed stays out of reach."""
    deadline = time.monotonic() + _CLEANUP_S
    while time.monotonic() < deadline:
        stopped = _stop_descendants(deadline)
        for pid in stopped:
            _signal(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def _stop_descendants(deadline: float) -> set[int]:
    """Stop every process below us, each child as soon as its parent is stopped, until no other one appears."""
    stopped: set[int] = set()
    while time.monotonic() < deadline:
        before, pending = len(stopped), [os.getpid()]
        while pending:
            for pid in _children(pending.pop()):
                if pid not in stopped:
                    _signal(pid, signal.SIGSTOP)
                    stopped.add(pid)
                pending.append(pid)
        if len(stopped) == before and not any(map(_is_running, stopped)):
            break
    return stopped


def _is_running(pid: int) -> bool:
    """Whether it may still fork: a stop that was sent has not arrived yet."""
    return _stat(str(pid))[:1] not in ([b"T"], [b"t"], [b"Z"], [b"X"], [])


def _children(parent: int) -> list[int]:
    try:
        children = []
        for task in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208 - pathlib takes longer to import than this
            with open(f"/proc/{parent}/task/{task}/children") as file:  # noqa: PTH123
                children += [int(word) for word in file.read().split()]
    except OSError:
        if os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):  # noqa: PTH110
            return []  # it has ended
        return [int(name) for name in os.listdir("/proc") if _stat(name)[1:2] == [b"%d" % parent]]  # noqa: PTH208
    return children


def _stat(pid: str) -> list[bytes]:
    """State, parent and further fields; nothing for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _end_like(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.set_wakeup_fd(-1)
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(code, 0))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
