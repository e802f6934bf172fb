"""Runs inside the sandbox, in a session: executes one program on one test after the other, each in a forked process.

It gets a test's input when that test starts. Expected outputs stay outside, so that the program cannot read them, and
forging a report requires the right answer. A program that stops or kills this process ends the session, whose limits
apply to each test. Standard library only: it must not import gymnast, which the sandbox does not have.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import linecache
import os
import resource
import select
import signal
import sys
import threading
import time
import traceback
import types
from typing import Any

_MODULES = (
    "bisect cmath collections copy datetime fractions functools heapq itertools math operator os queue random re"
    " statistics string sys time typing"
)
_CONTENTS = {
    "bisect": "bisect_left bisect_right insort insort_left insort_right",
    "collections": "Counter OrderedDict defaultdict deque namedtuple",
    "functools": "cache cmp_to_key lru_cache reduce",
    "heapq": "heapify heappop heappush heappushpop heapreplace nlargest nsmallest",
    "itertools": "accumulate chain combinations combinations_with_replacement count cycle groupby islice pairwise"
    " permutations product repeat zip_longest",
    "math": "ceil comb factorial floor gcd inf isqrt log2 sqrt",
    "string": "ascii_lowercase ascii_uppercase",
    "typing": "Any Callable Deque Dict List Optional Set Tuple Union",
}
PROVIDED = {name: name for name in _MODULES.split()} | {
    name: module for module, names in _CONTENTS.items() for name in names.split()
}
"""Names that programs often use without importing them, and their modules."""

PROGRAM = "solution.py"
_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36
_WORK_DIR = "/tmp/work"  # noqa: S108 - where a sandbox with a /tmp of its own starts programs
_OWN_FOLDERS: dict[str, set[str]] = {_WORK_DIR: set(), "/tmp": {"work", ".shm"}, "/dev/shm": set()}  # noqa: S108 - as above
"""Folders that only this session writes to, and what is always there."""
_CHUNK = 1 << 16
_MAX_STDERR = 4000


class _State:
    """What the session keeps from one test to the next."""

    code: types.CodeType
    children: _ChildRunner
    job: dict[str, Any]


def start(job: str) -> bool:
    """Compile the program; False if that fails."""
    _State.job = json.loads(job)
    _set_process_options((_SET_DUMPABLE, 0), (_SET_CHILD_SUBREAPER, 1))
    source = _State.job["source"]
    try:
        _State.code = compile(source, PROGRAM, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        _report({"how": "uncompiled", "stderr": f"{type(error).__name__}: {error}"})
        return False
    linecache.cache[PROGRAM] = len(source), None, source.splitlines(keepends=True), PROGRAM
    _State.children = _ChildRunner()
    return True


def run_test(test_input: str) -> None:
    """Run the program on one test, and report."""
    report = _State.children.run(_State.code, json.loads(test_input), _State.job)
    _report(report | {"is_clean": _is_clean()})


def _set_process_options(*options: tuple[int, int]) -> None:
    """Keep a test's process out of this one's memory and files, and become the parent of processes it leaves behind."""
    libc = ctypes.CDLL(None)
    for option, value in options:
        libc.prctl(option, value, 0, 0, 0)


def _is_clean() -> bool:
    """Whether the test left no process and no file to the next one."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return False
    work_dir = os.getcwd()  # noqa: PTH109 - pathlib costs an import
    for folder, usual in _OWN_FOLDERS.items() if work_dir == _WORK_DIR else [(work_dir, set())]:
        try:
            if not usual.issuperset(os.listdir(folder)):  # noqa: PTH208 - as above
                return False
        except OSError:
            return False
    return True


def _report(report: dict[str, Any]) -> None:
    view = memoryview(json.dumps(report).encode() + b"\n")
    while view:
        view = view[os.write(1, view) :]


class _ChildRunner:
    """Runs one child at a time; a pipe signals its end, so that waiting needs no polling."""

    def __init__(self) -> None:
        self._ended, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._ended, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def run(self, code: types.CodeType, test_input: Any, job: dict[str, Any]) -> dict[str, Any]:
        """Run one test; returns its report."""
        stdin = test_input.encode("utf-8", "surrogatepass") if job["function"] is None else b""
        pipes = [os.pipe() for _ in range(4)]  # standard input, output and error, and the value of a function
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _run_child(code, test_input, job, pipes)
        ours = [pipes[0][1], *(reading for reading, _ in pipes[1:])]
        for theirs in (pipes[0][0], *(writing for _, writing in pipes[1:])):
            os.close(theirs)
        try:
            watched = _Child(pid, ours, stdin, job["cap"], started + job["timeout_s"])
            how, status = watched.wait(self._ended)
        finally:
            for descriptor in ours:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        return watched.report(how, status, time.monotonic() - started)


class _Child:
    """A child process, its output so far, and the input it has not read yet."""

    def __init__(self, pid: int, descriptors: list[int], stdin: bytes, cap: int, deadline: float) -> None:
        self._pid = pid
        self._stdin, *self._outputs = descriptors
        self._unread = memoryview(stdin)
        self._written = {descriptor: bytearray() for descriptor in self._outputs}
        self._cap = cap
        self._deadline = deadline
        for descriptor in descriptors:
            os.set_blocking(descriptor, False)

    def wait(self, ended: int) -> tuple[str, int]:
        reading = {*self._outputs, ended}
        feeding = self._feed()
        how, status = "exited", None
        while status is None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                how, status = "timeout", self._kill()
                break
            ready, writable, _ = select.select(list(reading), [self._stdin] if feeding else [], [], left)
            if writable:
                feeding = self._feed()
            reading -= {descriptor for descriptor in ready if descriptor != ended and not self._read(descriptor)}
            if any(len(written) > self._cap for written in self._written.values()):
                how, status = "output", self._kill()
            elif ended in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(ended, _CHUNK)
                waited, code = os.waitpid(self._pid, os.WNOHANG)
                status = code if waited else None
        self._kill_group()
        self._drain()
        return how, status

    def report(self, how: str, status: int, seconds: float) -> dict[str, Any]:
        out, err, value = (bytes(written) for written in self._written.values())
        if how == "exited" and os.WIFSIGNALED(status):
            how = "timeout" if os.WTERMSIG(status) == signal.SIGXCPU else "signal"
        return {
            "how": how,
            "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status),
            "stdout": out[: self._cap].decode("utf-8", "replace"),
            "stderr": err[-_MAX_STDERR:].decode("utf-8", "replace"),
            "value": value[: self._cap].decode("utf-8", "replace") if value else None,
            "seconds": round(seconds, 4),
        }

    def _feed(self) -> bool:
        """Write more of the input; True if some is left."""
        try:
            while self._unread:
                self._unread = self._unread[os.write(self._stdin, self._unread[:_CHUNK]) :]
        except BlockingIOError:
            return True
        except OSError:
            self._unread = memoryview(b"")  # the child closed its input
        os.close(self._stdin)
        return False

    def _read(self, descriptor: int) -> bool:
        """Read what is available; False at the end of the stream."""
        try:
            block = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return True
        self._written[descriptor] += block
        return bool(block)

    def _drain(self) -> None:
        """Read what it wrote before it ended, without waiting: an orphan of it may still hold the pipe open."""
        for descriptor in self._outputs:
            while len(self._written[descriptor]) <= self._cap:
                before = len(self._written[descriptor])
                if not self._read(descriptor) or len(self._written[descriptor]) == before:
                    break

    def _kill(self) -> int:
        os.kill(self._pid, signal.SIGKILL)
        self._kill_group()
        return os.waitpid(self._pid, 0)[1]

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)


def _run_child(code: types.CodeType, test_input: Any, job: dict[str, Any], pipes: list[tuple[int, int]]) -> None:
    """Run the program in this process and exit. Never returns: the interpreter is a copy of the parent's."""
    status = 1
    try:
        os.setsid()
        _set_process_options((_SET_DUMPABLE, 1), (_SET_CHILD_SUBREAPER, 0))
        _remap_descriptors([pipes[0][0], *(writing for _, writing in pipes[1:])])
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _limit_cpu(job["timeout_s"])
        sys.setrecursionlimit(50_000)
        status = _execute(code, test_input, job["function"])
    except BaseException as error:  # noqa: BLE001 - the program may raise anything
        _print_traceback(error)
    finally:
        _exit(status)


def _remap_descriptors(wanted: list[int]) -> None:
    """Make these descriptors 0, 1, 2 and 3, and close all others."""
    high = [os.dup2(descriptor, 100 + place) for place, descriptor in enumerate(wanted)]
    for place, descriptor in enumerate(high):
        os.dup2(descriptor, place)
    os.closerange(len(wanted), 4096)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _limit_cpu(seconds: float) -> None:
    """Set the kernel's limit, which even a program that attacks the parent process cannot lift."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(seconds) + 2 if hard == resource.RLIM_INFINITY else min(int(seconds) + 2, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (limit - 1, limit))


def _execute(code: types.CodeType, test_input: Any, function: str | None) -> int:
    module = types.ModuleType("__main__")
    module.__file__ = PROGRAM
    sys.modules["__main__"] = module
    sys.argv = [PROGRAM]
    _provide(module, code)
    try:
        exec(code, module.__dict__)  # noqa: S102 - in the sandbox
        if function is not None:
            _send_value(_callable(module, function)(*_arguments(test_input)))
    except SystemExit as end:
        return _exit_code(end.code) if function is None else 1
    return 0


def _provide(module: types.ModuleType, code: types.CodeType) -> None:
    used: set[str] = set()
    todo = [code]
    while todo:
        block = todo.pop()
        used.update(block.co_names)
        todo += [constant for constant in block.co_consts if isinstance(constant, types.CodeType)]
    for name in used & PROVIDED.keys():
        origin = PROVIDED[name]
        imported = __import__(origin)
        provided = imported if origin == name else getattr(imported, name, None)
        if provided is not None:
            module.__dict__[name] = provided


def _callable(module: types.ModuleType, name: str) -> Any:
    solution = getattr(module, "Solution", None)
    if solution is not None and hasattr(solution, name):
        return getattr(solution(), name)
    return getattr(module, name)


def _arguments(test_input: Any) -> list[Any]:
    if isinstance(test_input, str):
        return [json.loads(line) for line in test_input.split("\n")]
    return list(test_input) if isinstance(test_input, list) else [test_input]


def _send_value(value: Any) -> None:
    encoded = json.dumps(value, default=_plain).encode("utf-8", "replace")
    with open(3, "wb", closefd=False) as channel:
        channel.write(encoded)


def _plain(value: Any) -> Any:
    """Convert numbers and arrays of other packages, and iterators, to JSON types."""
    for method in ("tolist", "item"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset, dict)):
        raise TypeError(f"a {type(value).__name__} is not a JSON value")
    return list(value)


def _print_traceback(error: BaseException) -> None:
    """Print the traceback as if the program ran on its own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != PROGRAM:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _exit(status: int) -> None:
    """Exit as an interpreter does, without unwinding into the code of the parent."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for the program's threads
        atexit._run_exitfuncs()  # noqa: SLF001
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - as above
        status = status or 1
    with contextlib.suppress(Exception):
        sys.stderr.flush()
    os._exit(status)
