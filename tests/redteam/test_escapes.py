"""Programs that try to leave the sandbox, to harm its host, or to earn a reward that they did not work for.

Each is contained, the report says how it ended, and the jail is as good for the next program as it was before.
"""

from __future__ import annotations

import asyncio
import platform
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from gymnast.sandbox import Execution, Limits, Program, Sandbox, SandboxSettings, open_sandbox
from tests.helpers.parts import needs, skip_without
from tests.redteam.attempts import HEAD, PROGRAMS, TAIL, X86_ONLY

pytestmark = [
    needs("bubblewrap"),
    pytest.mark.asyncio(loop_scope="module"),
]
MANY_HOARDERS = """
import os, time
for _ in range(12):
    if os.fork() == 0:
        held = bytearray(os.urandom(1) * (60 << 20))
        break
time.sleep(30)
"""
QUICK = Limits(wall_s=60, cpu_s=10, memory_mb=256, processes=24, file_mb=4, tmp_mb=16, output_bytes=1 << 18)
READ_OWN_MEMORY = """
import re
seen = set()
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:
    for line in maps:
        begin, end, mode = re.match(r'(\\w+)-(\\w+) (\\S+)', line).groups()
        try:
            memory.seek(int(begin, 16))
            held = memory.read(int(end, 16) - int(begin, 16))
            seen.update(re.findall(rb'SECRET-(?:source|stdin|argument|step)', held))
        except (OSError, ValueError, OverflowError):
            continue
print(sorted(seen))
"""
SHARED_HOARDERS = """
import mmap, os, time
for _ in range(12):
    if os.fork() == 0:
        held = mmap.mmap(-1, 60 << 20)
        for at in range(0, len(held), 4096): held[at] = 1
        break
time.sleep(30)
"""
"""Pages that are marked as shared, though nobody shares them."""


async def contained(sandbox: Sandbox, code: str, limits: Limits = QUICK) -> Execution:
    result = await sandbox.run_python(HEAD + code + TAIL, limits=limits)
    assert "ESCAPED" not in result.stdout, result
    assert (result.ending, result.exit_code) == ("exited", 0), result
    assert result.stdout.endswith("CONTAINED\n"), result
    return result


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_does_not_reach(sandbox: Sandbox, name: str) -> None:
    if name in X86_ONLY and platform.machine() != "x86_64":
        skip_without("x86_64")
    await contained(sandbox, PROGRAMS[name])


async def test_a_listener_of_the_host_is_out_of_reach(
    sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = str(tmp_path_factory.mktemp("s") / "s")
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for address in (path, "\0gymnast-redteam"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        await contained(
            sandbox,
            f"refused('tcp', lambda: socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 2))\n"
            f"refused('named', lambda: socket.socket(socket.AF_UNIX).connect({path!r}))\n"
            "refused('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0gymnast-redteam'))",
        )


async def test_our_environment_variables_stay_with_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_API_KEY", "sk-very-secret")
    async with open_sandbox(SandboxSettings(pool_size=1)) as sandbox:
        found = await contained(sandbox, "print(dict(os.environ))\nprint(open('/proc/self/environ').read())")
        assert "secret" not in found.stdout


async def test_files_of_the_host_outside_the_system_do_not_exist(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "expected.json").write_text("42")
    project = Path(__file__).parents[2]
    await contained(
        sandbox,
        f"for path in ({str(tmp_path / 'expected.json')!r}, {str(project)!r}, {str(Path.cwd())!r}):\n"
        "    refused(path, lambda: os.stat(path))\n"
        f"os.symlink({str(tmp_path / 'expected.json')!r}, 'link')\nrefused('link', lambda: open('link').read())",
    )


async def test_signals_reach_only_the_program_itself(sandbox: Sandbox) -> None:
    result = await sandbox.run_python(
        "import os\nfor n in (1, 2, 9, 10, 15, 19): os.kill(1, n)\nos.kill(os.getppid(), 9)\nprint('still here')"
    )
    assert (result.ending, result.exit_code, result.stdout) == ("exited", 0, "still here\n")
    result = await sandbox.run_python("import os\nos.kill(0, 9)\nprint('unreachable')")
    assert (result.ending, result.exit_code, result.stdout) == ("killed", None, "")


async def test_a_program_cannot_signal_another_one(sandbox: Sandbox) -> None:
    victim = asyncio.create_task(sandbox.run_python("import time\ntime.sleep(0.6)\nprint('alive')"))
    await asyncio.sleep(0.2)
    attacker = await sandbox.run_python(
        "import os\nfor pid in {*range(2, 3000)} - {os.getpid()}:\n  try: os.kill(pid, 9)\n  except OSError: pass"
    )
    assert attacker.ok
    assert (await victim).stdout == "alive\n"


async def test_a_fork_bomb_is_bounded(sandbox: Sandbox) -> None:
    bomb = """
import os, time
made = 0
try:
    while os.fork(): made += 1
    time.sleep(30)
except OSError:
    print(made)
"""
    result = await sandbox.run_python(bomb, limits=QUICK)
    assert result.ok
    assert int(result.stdout) in range(QUICK.processes - 4, QUICK.processes + 1)
    worst = await sandbox.run(
        Program(command=["bash", "-c", "f() { f | f & }; f; sleep 30"], limits=Limits(wall_s=1.5, processes=24))
    )
    assert worst.ending in ("timeout", "output", "killed"), worst


async def test_a_memory_bomb_is_stopped_and_named(sandbox: Sandbox) -> None:
    result = await sandbox.run_python("held = []\nwhile True: held.append(bytearray(1 << 22))", limits=QUICK)
    assert (result.ending, result.exit_code) == ("memory", None)
    result = await sandbox.run_python(MANY_HOARDERS, limits=QUICK)
    assert result.ending == "memory", result


@pytest.mark.parametrize("cgroup", ["auto", "off"])
@pytest.mark.parametrize("code", [MANY_HOARDERS, SHARED_HOARDERS], ids=["private", "shared"])
async def test_memory_of_many_processes_is_summed_with_and_without_control_groups(cgroup: str, code: str) -> None:
    async with open_sandbox(SandboxSettings(pool_size=1, cgroup=cgroup)) as sandbox:
        assert (await sandbox.run_python(code, limits=QUICK)).ending == "memory"
        assert (await sandbox.run_python("print(1)")).ok


async def test_the_disk_cannot_be_filled(sandbox: Sandbox) -> None:
    await contained(
        sandbox,
        """
import itertools, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
refused('one file', lambda: [open('big', 'wb').write(bytes(1 << 20)) and open('big', 'ab').write(bytes(8 << 20))])
def fill(folder):
    for n in itertools.count(): open(f'{folder}/f{n}', 'wb').write(bytes(1 << 20))
refused('many files', lambda: fill('/tmp'))
refused('shared memory', lambda: fill('/dev/shm'))
for name in os.listdir('/tmp'):
    if name.startswith('f'): os.unlink('/tmp/' + name)
def empty():
    for n in itertools.count(): open(f'/tmp/e{n}', 'x').close()
refused('inodes', empty)
""",
    )


async def test_a_file_past_its_limit_ends_the_program_with_a_signal(sandbox: Sandbox) -> None:
    result = await sandbox.run(
        Program(command=["sh", "-c", "exec dd if=/dev/zero of=big bs=1M count=64"], limits=QUICK)
    )
    assert (result.ending, result.exit_code) == ("killed", None)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_endless_output_is_cut(sandbox: Sandbox, stream: str) -> None:
    result = await sandbox.run_python(f"import sys\nwhile True: sys.{stream}.write('x' * 10000)", limits=QUICK)
    assert (result.ending, result.exit_code) == ("output", None)
    assert len(getattr(result, stream)) == QUICK.output_bytes


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import signal, time\nfor n in {*range(1, 32)} - {9, 19}: signal.signal(n, print)\nwhile True: time.sleep(1)",
        "import os, time\nfor _ in range(4): os.fork()\nwhile True: pass",
        "all(x == 0 for x in iter(int, 1))",
        "import signal, os; os.kill(os.getpid(), signal.SIGSTOP)",
        "10 ** 10 ** 9",
        "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
    ],
    ids=[
        "loop",
        "sleep",
        "ignores every signal",
        "children",
        "generator",
        "stops itself",
        "one long operation",
        "regular expression",
    ],
)
async def test_the_grader_is_not_timed_out(sandbox: Sandbox, code: str) -> None:
    result = await sandbox.run_python(code, limits=Limits(wall_s=0.6))
    assert (result.ending, result.exit_code) == ("timeout", None)


async def test_time_on_the_processor_is_summed_over_processes(sandbox: Sandbox) -> None:
    burn = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    result = await sandbox.run_python(burn, limits=Limits(wall_s=600, cpu_s=1))
    assert (result.ending, result.exit_code) == ("timeout", None)
    assert result.cpu_seconds >= 0.9


async def test_waiting_for_input_that_never_comes_ends_at_once(sandbox: Sandbox) -> None:
    result = await sandbox.run_python("import sys\nprint(repr(sys.stdin.read()))", limits=QUICK)
    assert result.stdout == "''\n"
    closed = await sandbox.run_python(
        "import os\nos.close(0); os.close(1); os.close(2)\nimport time; time.sleep(0.1)", limits=QUICK
    )
    assert closed.ending == "exited"


def _host_processes(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = entry.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if marker in text:
            found.append(text)
    return found


async def test_a_daemon_does_not_survive_its_program(sandbox: Sandbox) -> None:
    marker = f"9{time.monotonic_ns()}"
    code = f"""
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{marker}"])  # it holds the output open, and not the grader
    os._exit(0)
os.wait()
import time; time.sleep(0.1)
print("left a daemon")
"""
    result = await sandbox.run_python(code, limits=QUICK)
    assert (result.ok, result.stdout) == (True, "left a daemon\n")
    assert _host_processes(f"sleep {marker}") == []


async def test_zombies_and_orphans_do_no_harm(sandbox: Sandbox) -> None:
    code = "import os, time\nfor _ in range(15):\n    if os.fork() == 0: os._exit(0)\ntime.sleep(0.2)\nprint('done')"
    assert (await sandbox.run_python(code, limits=QUICK)).stdout == "done\n"


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.abort()",
        "import ctypes; ctypes.string_at(0)",
        "import faulthandler; faulthandler._stack_overflow()",
        "import sys; sys.setrecursionlimit(10**9)\nclass A:\n  def __getattr__(s, n): return getattr(s, n)\nA().x",
    ],
    ids=["abort", "null pointer", "stack overflow", "recursion"],
)
async def test_a_crash_is_reported_and_leaves_no_core(sandbox: Sandbox, code: str) -> None:
    result = await sandbox.run_python(code, limits=QUICK)
    assert result.ending in ("killed", "memory"), result
    assert result.exit_code is None
    dumped = await sandbox.run(Program(command=["sh", "-c", "ulimit -c; sh -c 'kill -SEGV $$'; ls"], limits=QUICK))
    assert dumped.stdout == "0\n"


@needs("x86_64")
async def test_system_calls_of_another_abi_kill_the_program(sandbox: Sandbox) -> None:
    result = await sandbox.run_python("import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39); print('ESCAPED')")
    assert (result.ending, result.stdout) == ("killed", "")


async def test_nothing_of_a_program_is_left_for_the_next(sandbox: Sandbox) -> None:
    leave = """
import builtins, json, os, random, socket, sys, threading
for path in ('/tmp/left', '/dev/shm/left', 'left.py', '/tmp/sitecustomize.py'): open(path, 'w').write('x = 1')
os.symlink('/etc/passwd', 'main2.py')
builtins.print = builtins.open = None
json.dumps = lambda *a, **k: '{"status": 0}'
sys.modules['math'] = None
os.environ['LEFT'] = '1'
os.chmod('/tmp', 0)
if os.fork() == 0:
    s = socket.create_server(('127.0.0.1', 4444)); a = socket.socket(socket.AF_UNIX); a.bind('\\0left'); a.listen()
    import time; time.sleep(60)
"""
    look = """
import os, socket, json, math
assert sorted(os.listdir('/tmp')) == ['.shm', 'work'] and os.listdir('/dev/shm') == []
assert os.listdir('.') == ['main.py']
assert 'LEFT' not in os.environ and json.dumps(1) == '1'
refused('port', lambda: socket.create_connection(('127.0.0.1', 4444), 1))
refused('socket', lambda: socket.socket(socket.AF_UNIX).connect('\\0left'))
"""
    for _ in range(2):
        assert (await sandbox.run_python(leave, limits=QUICK)).ok
        await contained(sandbox, look)


async def test_an_earlier_program_is_not_in_the_memory_of_the_next(sandbox: Sandbox) -> None:
    """A warm jail forks: what its server had read of one program, every later one would have inherited."""
    for _ in range(2):
        given = await sandbox.run_python(
            "note = 'SECRET-source'\nprint(input() * 3)", stdin=b"SECRET-stdin", limits=QUICK
        )
        assert given.stdout == "SECRET-stdin" * 3 + "\n"
        returned = await sandbox.call_function("def f(x): return x * 3", "f", [["SECRET-argument"]], QUICK)
        assert returned.results[0].value == "SECRET-argument" * 3
        async with sandbox.python_session() as session:
            await session.execute("kept = 'SECRET-step'", QUICK)
        result = await sandbox.run_python(READ_OWN_MEMORY, limits=QUICK)
        assert (result.ok, result.stdout) == (True, "[]\n"), result


async def test_programs_do_not_draw_the_same_random_numbers(sandbox: Sandbox) -> None:
    drawn = {(await sandbox.run_python("import random; print(random.random())")).stdout for _ in range(3)}
    assert len(drawn) == 3


async def test_files_cannot_be_put_outside_of_the_working_directory(sandbox: Sandbox) -> None:
    for name in ("../x", "/tmp/x", "a/../../x", ""):
        with pytest.raises(ValueError, match="below the program's working directory"):
            await sandbox.run(Program(files={name: b"x"}))


async def test_a_session_is_as_confined_as_a_program(sandbox: Sandbox) -> None:
    async with sandbox.python_session() as session:
        result = await session.execute(HEAD + PROGRAMS["another user"] + PROGRAMS["password files and homes"], QUICK)
        assert (result.ending, result.exit_code) == ("exited", 0), result
        assert (await session.execute("import os; os.kill(-1, 9)", QUICK)).ending == "exited"
        killed = await session.execute("import os; os.kill(os.getpid(), 9)", QUICK)
        assert (killed.ending, session.alive) == ("killed", False)


async def test_nothing_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    marker = f"8{time.monotonic_ns()}"
    script = f"""
import asyncio, os, signal
from gymnast.sandbox import *
async def main():
    async with open_sandbox(SandboxSettings(pool_size=1)) as sandbox:
        asyncio.get_running_loop().call_later(0.5, os.kill, os.getpid(), signal.SIGKILL)
        await sandbox.run(Program(command=["sleep", "{marker}"]))
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await process.wait() == -9
    for _ in range(100):
        if not _host_processes(f"sleep {marker}"):
            return
        await asyncio.sleep(0.05)
    pytest.fail("the program outlived us")
