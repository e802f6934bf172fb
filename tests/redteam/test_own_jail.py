"""Programs that attack what watches them: between the steps of a session, from within a run, and through the kernel.

What a program does to its own jail is the program's outcome; only what fails without it is a failure of the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import indent
from typing import NoReturn

import psutil
import pytest
import pytest_asyncio

from gymnast.sandbox import Limits, Program, Sandbox, SandboxError, SandboxSettings, cgroups, jail, open_sandbox
from gymnast.sandbox.pool import JailPool
from tests.helpers.parts import needs, skip_without

pytestmark = [
    needs("bubblewrap"),
    pytest.mark.asyncio(loop_scope="module"),
]
QUICK = Limits(wall_s=60, cpu_s=30, memory_mb=256, processes=24, file_mb=4, tmp_mb=16, output_bytes=1 << 18)
SHORT = Limits(wall_s=0.6, memory_mb=256, processes=24)
GUARD_S = 300
FAILURES = ("timeout", "killed", "memory", "output")
SPIN = "\n  while True: pass"
LEFTOVERS = {
    "a thread": f"import threading\ndef f():{SPIN}\nthreading.Thread(target=f, daemon=True).start()",
    "a child": f"import os\nif os.fork() == 0:{SPIN}",
    "a daemon": """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: pass
    os._exit(0)
""",
    "an alarm": """
import signal
signal.signal(signal.SIGALRM, lambda *_: sum(range(10 ** 5)))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
""",
    "children that continue each other": """
import os, signal
for _ in range(3):
    if os.fork() == 0:
        os.setpgid(0, 0)
        while True:
            try: os.kill(-1, signal.SIGCONT)
            except OSError: pass
""",
    "children that replace themselves": """
import os
for _ in range(3):
    if os.fork() == 0:
        while True:
            try:
                if os.fork(): os._exit(0)
                os.setsid()
            except OSError: pass
""",
    "threads that fork": """
import os, threading
def fork():
    while True:
        try: pid = os.fork()
        except OSError: continue
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
for _ in range(3): threading.Thread(target=fork, daemon=True).start()
""",
    "a process whose first thread has ended": """
import ctypes, os, threading
if os.fork() == 0:
    def spin():
        while True: pass
    threading.Thread(target=spin).start()
    ctypes.PyDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)
""",
    "a timer that continues it": """
import ctypes, os, threading
class Event(ctypes.Structure):
    _fields_ = [('value', ctypes.c_void_p), ('number', ctypes.c_int), ('kind', ctypes.c_int), ('r', ctypes.c_int * 12)]
libc, timer, number = ctypes.CDLL(None), ctypes.c_int(), 222 if os.uname().machine == 'x86_64' else 107
libc.syscall(number, 1, ctypes.byref(Event(None, 18, 0)), ctypes.byref(timer))
libc.syscall(number + (1 if number == 222 else 3), timer, 0, (ctypes.c_long * 4)(0, 10 ** 7, 0, 10 ** 7), None)
""",
    "a file that continues it": """
import fcntl, os, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
r, w = os.pipe()
try: fcntl.fcntl(r, 10, 18)
except OSError: pass
fcntl.fcntl(r, fcntl.F_SETOWN, os.getpid()); fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
if os.fork() == 0:
    while True: os.write(w, b'x')
""",
}
"""What a step of a session leaves running."""

HOARDERS = """
import os, time
r, w = os.pipe()
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(os.urandom(1) * (60 << 20))
        os.write(w, b'x')
        time.sleep(3600)
for _ in range(8): os.read(r, 1)
"""
WATCHER_ATTACKS = {
    "stops its parent": "os.kill(os.getppid(), signal.SIGSTOP)",
    "stops all": "os.kill(-1, signal.SIGSTOP)",
    "kills all": "os.kill(-1, signal.SIGKILL)",
    "kills the first process": "os.kill(1, signal.SIGKILL); os.kill(os.getppid(), signal.SIGKILL)",
    "kills its group": "os.kill(0, signal.SIGKILL)",
    "sends every signal": "[os.kill(t, n) for n in {*range(1, 32)} - {9, 19} for t in (1, os.getppid()) if t]",
    "starves it": """
for attempt in (
    lambda: os.setpriority(os.PRIO_USER, 0, 19), lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
    lambda: os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.sched_setaffinity(1, {0}),
):
    try: attempt()
    except OSError: pass
for _ in range(16):
    if os.fork() == 0: break
while True: pass
""",
    "takes its limits": """
import resource
for name in 'CPU NOFILE AS FSIZE NPROC'.split():
    try: resource.prlimit(os.getppid(), getattr(resource, 'RLIMIT_' + name), (0, 0))
    except OSError: pass
""",
    "has it killed for memory": """
for pid in (1, os.getppid()):
    try: open(f'/proc/{pid}/oom_score_adj', 'w').write('1000')
    except OSError: pass
held = []
for _ in range(8):
    if os.fork() == 0: break
while True: held.append(bytearray(os.urandom(1) * (8 << 20)))
""",
    "closes everything": "os.closerange(0, 4096)",
    "stops all processes for ever": """
if os.fork() == 0:
    while True:
        for pid in {*range(1, 12)} - {os.getpid()}:
            try: os.kill(pid, signal.SIGSTOP)
            except OSError: pass
""",
}
"""Statements after which a program does nothing but wait."""
WAIT = "\nimport time\ntime.sleep(3600)"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def without_groups() -> AsyncIterator[Sandbox]:
    async with open_sandbox(SandboxSettings(pool_size=2, cgroup="off")) as opened:
        yield opened


def attack(name: str) -> str:
    return f"import os, signal\ntry:\n{indent(WATCHER_ATTACKS[name], '    ')}\nexcept OSError: pass{WAIT}"


def confined_processes() -> list[int]:
    """The processes of programs: those with a filter of system calls."""
    pids = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "\nSeccomp:\t2\n" in Path(f"/proc/{process.pid}/status").read_text():
                pids.append(process.pid)
        except OSError:
            continue
    return pids


def running_threads() -> list[str]:
    """The threads of programs that are not stopped."""
    running = []
    for pid in confined_processes():
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            try:
                state = stat.read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state not in "TtZXxD":
                running.append(f"{stat}: {state}")
    return running


async def until_stopped() -> None:
    async with asyncio.timeout(GUARD_S):
        while running_threads():
            await asyncio.sleep(0.02)


# --- between the steps of a session -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEFTOVERS)
async def test_nothing_runs_between_two_steps(sandbox: Sandbox, name: str) -> None:
    async with sandbox.python_session() as session:
        left = await session.execute(LEFTOVERS[name], QUICK)
        assert left.ending in ("exited", "killed"), left
        # A thread other than the first may still be on its way out of the kernel.
        await until_stopped()
        assert confined_processes() or not session.alive
        for _ in range(20):
            assert running_threads() == []
            await asyncio.sleep(0.01)
        if session.alive:
            after = await session.execute("6 * 7", QUICK)
            assert (after.ending, after.result) == ("exited", "42"), after


async def test_what_a_step_started_goes_on_during_the_next(sandbox: Sandbox) -> None:
    async with sandbox.python_session() as session:
        started = "import subprocess\np = subprocess.Popen(['sh', '-c', 'read x; echo got $x'], stdin=-1, stdout=-1)"
        assert (await session.execute(started, QUICK)).ok
        assert (await session.execute("p.poll()", QUICK)).result is None
        assert (await session.execute("p.communicate(b'it')[0], p.returncode", QUICK)).result == "(b'got it\\n', 0)"
        stopped = "import os, signal\nq = subprocess.Popen(['sleep', '600'])\nos.kill(q.pid, signal.SIGSTOP)"
        assert (await session.execute(stopped, QUICK)).ok
        look = "open(f'/proc/{q.pid}/stat').read().split()[2]"
        assert (await session.execute(look, QUICK)).result == "'T'", "it had stopped that one itself"


async def test_a_session_that_wakes_up_is_stopped_again(sandbox: Sandbox) -> None:
    async with sandbox.python_session() as session:
        assert (await session.execute(LEFTOVERS["a child"], QUICK)).ok
        for pid in confined_processes():
            os.kill(pid, signal.SIGCONT)
        await until_stopped()
        assert (await session.execute("1 + 1", QUICK)).result == "2"


@pytest.mark.parametrize("groups", ["with", "without"])
async def test_a_step_cannot_leave_more_memory_in_use_than_allowed(
    sandbox: Sandbox, without_groups: Sandbox, groups: str
) -> None:
    chosen = sandbox if groups == "with" else without_groups
    async with chosen.python_session() as session:
        assert (await session.execute(HOARDERS, QUICK)).ending == "memory"
        assert (await session.execute("1", QUICK)).ending == "killed"


async def test_a_session_that_is_lost_says_so_as_an_outcome(sandbox: Sandbox) -> None:
    """An environment that does not look at `alive` must not turn an exit into a failure of the sandbox."""
    for code in ("import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)", "import os; os.closerange(0, 99)"):
        async with sandbox.python_session() as session:
            await session.execute(code, SHORT)
            assert (await session.execute("1", SHORT)).ending == "killed"


# --- what watches a program -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WATCHER_ATTACKS)
async def test_attacks_on_what_watches_are_outcomes(sandbox: Sandbox, name: str) -> None:
    code = attack(name)
    assert (await sandbox.run_python(code, limits=SHORT)).ending in FAILURES
    command = Program(command=["python3", "-c", code], limits=SHORT)
    assert (await sandbox.run(command)).ending in FAILURES
    function = f"def f(x):\n{indent(code, '    ')}"
    assert (await sandbox.call_function(function, "f", [[1]], SHORT)).results[0].outcome in FAILURES
    async with sandbox.python_session() as session:
        assert (await session.execute(code, SHORT)).ending in FAILURES
        assert (await session.execute("1", SHORT)).ending == "killed"


def _process_in(opened: Sandbox) -> tuple[psutil.Process, psutil.Process]:
    """The process that holds the only jail, and the first process in it."""
    assert isinstance(opened, JailPool)
    holder = psutil.Process(opened._idle[0].result().process.pid)
    return holder, next(child for child in holder.children(recursive=True) if "python" in child.name())


async def _run_and(opened: Sandbox, action: str) -> str:
    """Do something to a jail while a program runs in it. Returns how the program ended."""
    holder, first = _process_in(opened)
    running = asyncio.create_task(opened.run_python("import time; time.sleep(3600)", limits=Limits(wall_s=600)))
    async with asyncio.timeout(GUARD_S):
        while not confined_processes():
            await asyncio.sleep(0.01)
    if action == "kill what holds it":
        holder.kill()
    elif action == "kill its server":
        first.kill()
    else:
        for process in [first, *first.children()]:
            process.suspend()
    return (await running).ending


async def test_a_jail_that_is_lost_is_the_programs_outcome_if_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_sandbox(SandboxSettings(pool_size=1, cgroup="off")) as opened:
        assert await _run_and(opened, "kill its server") == "killed"
        assert (await opened.run_python("print(1)")).ok
    async with open_sandbox(SandboxSettings(pool_size=1, cgroup="off")) as opened:
        with pytest.raises(SandboxError, match="ended"):
            await _run_and(opened, "kill what holds it")
    async with open_sandbox(SandboxSettings(pool_size=1, cgroup="off")) as opened:
        assert isinstance(opened, JailPool)

        async def refuse(_: Limits) -> NoReturn:
            raise SandboxError("no more jails")

        monkeypatch.setattr(opened, "_open", refuse)
        with pytest.raises(SandboxError, match="the jail ended"):
            await _run_and(opened, "kill its server")


async def test_a_jail_that_is_silent_is_the_programs_outcome_if_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_sandbox(SandboxSettings(pool_size=1, cgroup="off")) as opened:
        # Nothing but the deadline of the jail itself ends this program.
        monkeypatch.setattr(jail, "GRACE_S", -598.0)
        running = asyncio.create_task(_run_and(opened, "stop its server"))
        async with asyncio.timeout(GUARD_S):
            while not confined_processes():
                await asyncio.sleep(0.01)
        monkeypatch.undo()
        assert await running == "timeout"
        assert (await opened.run_python("print(1)")).ok


# --- time on the processor --------------------------------------------------------------------------------------------

LOST_CHILDREN = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        until = time.process_time() + {seconds}
        while time.process_time() < until: pass
        os._exit(0)
    try: os.wait()
    except OSError: pass
"""


async def test_children_that_nothing_waits_for_use_the_programs_time(without_groups: Sandbox) -> None:
    result = await without_groups.run_python(LOST_CHILDREN.format(seconds=0.4), limits=Limits(wall_s=600, cpu_s=1))
    assert (result.ending, result.cpu_seconds > 0.9) == ("timeout", True), result


async def test_control_groups_count_children_that_are_never_seen(sandbox: Sandbox) -> None:
    group = cgroups.create_cgroup(cgroups.find_cgroup_parents("auto"), "test")
    counts = group is not None and group.cpu_s() is not None
    if group is not None:
        group.remove()
    if not counts:
        skip_without("memory control groups", "they do not count CPU time")
    result = await sandbox.run_python(LOST_CHILDREN.format(seconds=0.02), limits=Limits(wall_s=600, cpu_s=1))
    assert result.ending == "timeout", result


async def test_a_call_gets_its_arguments_when_its_time_starts(sandbox: Sandbox) -> None:
    """A program that knows all arguments could spend the time of easy calls on a hard one."""
    code = """
import gc, sys
def f(x):
    seen, frame = [], sys._getframe()
    while frame: seen.append(repr(frame.f_locals)); frame = frame.f_back
    seen += [repr(value) for value in gc.get_objects() if isinstance(value, (list, dict))]
    return any('later-' + 'argument' in text for text in seen)
"""
    found = await sandbox.call_function(code, "f", [["first"], ["later-argument"]], QUICK)
    assert [result.value for result in found.results] == [False, True]
