"""The sandbox as its users see it: programs, functions and sessions run, and their ends are told apart."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from gymnast.errors import UserError
from gymnast.sandbox import Limits, Program, Sandbox, SandboxError, SandboxSettings, launch, open_sandbox
from gymnast.sandbox.drivers import isolate_launch
from gymnast.sandbox.interpreter import find_interpreter
from gymnast.sandbox.jail import Jail, start_jail
from gymnast.sandbox.pool import JailPool
from tests.helpers.parts import needs, skip_without

pytestmark = [
    needs("bubblewrap"),
    pytest.mark.asyncio(loop_scope="module"),
]
UNSAFE = SandboxSettings(driver="none", unsafe_no_sandbox=True, pool_size=2)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_sandbox(SandboxSettings(pool_size=2)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("code", "exit_code", "stdout", "stderr"),
    [
        ("print('héllo ✓')", 0, "héllo ✓\n", ""),
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('a message')", 1, "", "a message\n"),
        ("exit()", 0, "", ""),
        ("import os; os._exit(7)", 7, "", ""),
        ("import atexit; atexit.register(print, 'last'); print('first')", 0, "first\nlast\n", ""),
        ("import threading; threading.Thread(target=lambda: print('thread')).start()", 0, "thread\n", ""),
        ("print(__name__, __file__); import sys; print(sys.argv)", 0, "__main__ main.py\n['main.py']\n", ""),
        ("import main; print('twice')", 0, "twice\ntwice\n", ""),
        ("import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, -2]))", 0, "[1, 2]\n", ""),
        ("import subprocess; print(subprocess.check_output(['echo', 'hi']))", 0, "b'hi\\n'\n", ""),
        ("import asyncio; print(asyncio.run(asyncio.sleep(0, 5)))", 0, "5\n", ""),
        ("import tempfile; print(tempfile.TemporaryFile().write(b'xx'))", 0, "2\n", ""),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')", 0, "\ufffd\ufffd", ""),
        ("print({'a', 'b', 'c'} == set('cab')); print(hash('x') == hash('x'))", 0, "True\nTrue\n", ""),
    ],
)
async def test_a_python_program_runs_as_with_python(
    sandbox: Sandbox, code: str, exit_code: int, stdout: str, stderr: str
) -> None:
    result = await sandbox.run_python(code)
    assert (result.ending, result.exit_code, result.stdout, result.stderr) == ("exited", exit_code, stdout, stderr)
    assert result.seconds > 0
    assert result.cpu_seconds > 0


async def test_a_traceback_starts_at_the_program(sandbox: Sandbox) -> None:
    result = await sandbox.run_python("def f():\n    1 / 0\nf()")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        'Traceback (most recent call last):\n  File "main.py", line 3, in <module>\n    f()\n'
    )
    assert "sandbox" not in result.stderr
    broken = await sandbox.run_python("def f(:")
    assert broken.exit_code == 1
    assert "SyntaxError" in broken.stderr
    assert "sandbox" not in broken.stderr


async def test_the_same_program_gives_the_same_output(sandbox: Sandbox) -> None:
    code = "print(list({str(n) for n in range(50)}))"
    assert len({(await sandbox.run_python(code)).stdout for _ in range(3)}) == 1


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
async def test_standard_input_of_any_size(sandbox: Sandbox, size: int) -> None:
    result = await sandbox.run_python("import sys; print(len(sys.stdin.buffer.read()))", stdin=b"x" * size)
    assert result.stdout == f"{size}\n"
    unread = await sandbox.run_python("print('not interested')", stdin=b"x" * size)
    assert unread.stdout == "not interested\n"


async def test_a_program_in_any_language_with_files_and_environment(sandbox: Sandbox) -> None:
    result = await sandbox.run(
        Program(
            command=["sh", "-c", "cat data/in.txt; echo $WORD; pwd; cat; exit 4"],
            files={"data/in.txt": b"file\n"},
            environment={"WORD": "word"},
            stdin=b"input",
        )
    )
    assert (result.exit_code, result.stdout) == (4, "file\nword\n/tmp/work\ninput")
    assert (await sandbox.run(Program(command=["no-such-program"]))).exit_code == 127
    helped = Program(files={"lib/__init__.py": b"x = 5", "main.py": b"import lib, os; print(lib.x, os.environ['A'])"})
    assert (await sandbox.run(Program(files=helped.files, environment={"A": "b"}))).stdout == "5 b\n"


@needs("gcc")
async def test_a_compiled_program(sandbox: Sandbox) -> None:
    source = b'#include <stdio.h>\nint main() { printf("%d\\n", 6 * 7); return 0; }'
    command = ["sh", "-c", "gcc main.c -o main && ./main"]
    result = await sandbox.run(Program(command=command, files={"main.c": source}, limits=Limits(file_mb=32)))
    assert result.stdout == "42\n", result


async def test_programs_run_at_once_up_to_the_size_of_the_pool(sandbox: Sandbox) -> None:
    code = "import time; print(time.monotonic()); time.sleep(0.5); print(time.monotonic())"
    results = await asyncio.gather(*(sandbox.run_python(code) for _ in range(4)))
    spans = [tuple(map(float, execution.stdout.split())) for execution in results]
    at_once = [sum(start <= moment < end for start, end in spans) for moment, _ in spans]
    assert max(at_once) == 2


async def test_functions_are_called_and_their_values_come_back(sandbox: Sandbox) -> None:
    found = await sandbox.call_function(
        "def f(a, b):\n    print('talk')\n    return {'q': a // b, 't': (1, 2)}", "f", [[7, 2], [1, 0]]
    )
    assert found.results[0].value == {"q": 3, "t": [1, 2]}
    assert found.results[1].outcome == "raised"
    assert found.results[1].error.startswith("ZeroDivisionError")
    assert found.execution.stdout == "talk\ntalk\n"
    assert found.execution.ok
    assert (await sandbox.call_function("class Solution:\n    def two(self, x): return x * 2", "two", [[4]])).results[
        0
    ].value == 8
    assert (await sandbox.call_function("class C:\n    def two(self, x): return x * 2", "C.two", [[4]])).results[
        0
    ].value == 8
    none = await sandbox.call_function("def f(): pass", "f", [])
    assert none.results == ()
    assert none.execution.ok
    missing = await sandbox.call_function("x = 1", "f", [[], []])
    assert [result.error for result in missing.results] == ["NameError: the code does not define 'f'"] * 2


async def test_each_call_has_the_whole_deadline(sandbox: Sandbox) -> None:
    code = "import time\ndef f(s):\n    time.sleep(s)\n    return s"
    found = await sandbox.call_function(code, "f", [[0.4], [0.4], [0.4], [5], [0]], Limits(wall_s=0.7))
    assert [result.outcome for result in found.results] == ["returned"] * 3 + ["timeout", "not_reached"]


async def test_a_session_keeps_its_variables(sandbox: Sandbox) -> None:
    limits = Limits(wall_s=2)
    async with sandbox.python_session() as session, sandbox.python_session() as other:
        assert (await session.execute("x = 20\nprint('set')", limits)).stdout == "set\n"
        step = await session.execute("import sys\nprint('err', file=sys.stderr)\nx * 2 + 2", limits)
        assert (step.result, step.stderr, step.exit_code) == ("42", "err\n", 0)
        assert (await other.execute("'x' in globals()", limits)).result == "False"
        failed = await session.execute("x = 1\nx / 0", limits)
        assert (failed.ending, failed.exit_code, failed.result) == ("exited", 1, None)
        assert "ZeroDivisionError" in failed.stderr
        assert (await session.execute("def f():\n    return x\nf()", limits)).result == "1"
        assert (await session.execute("import sys; sys.exit(5)", limits)).exit_code == 5
        assert (await session.execute("big = '" + "y" * 200_000 + "'\nlen(big)", limits)).result == "200000"
        assert (await session.execute("", limits)).ok
        assert session.alive


async def test_sessions_leave_nothing_to_those_that_get_their_jail() -> None:
    async with open_sandbox(SandboxSettings(pool_size=1)) as sandbox:
        jails = set()
        for last in ("x = 1; open('/tmp/left', 'w').close()", "import os; os._exit(0)", "while True: pass"):
            async with sandbox.python_session() as session:
                look = await session.execute("import os; ('x' in globals(), os.path.exists('/tmp/left'))", Limits())
                assert look.result == "(False, False)"
                await session.execute(last, Limits(wall_s=0.3))
            jails.update(_idle_jails(sandbox))
        assert len(jails) == 1, "a jail serves one session after the other"
        assert (await sandbox.run_python("print(1)")).ok


async def test_a_session_that_is_killed_is_lost(sandbox: Sandbox) -> None:
    async with sandbox.python_session() as session:
        slow = await session.execute("print('before', flush=True)\nwhile True: pass", Limits(wall_s=0.3))
        assert (slow.ending, slow.exit_code, slow.stdout, session.alive) == ("timeout", None, "before\n", False)
        again = await session.execute("1", Limits())
        assert (again.ending, again.stderr) == ("killed", "this session has ended: open another\n")
    async with sandbox.python_session() as session:
        left = await session.execute("import os; os._exit(3)", Limits())
        assert (left.ending, left.exit_code, session.alive) == ("exited", 3, False)


async def test_a_caller_that_gives_up_takes_its_program_with_it(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await sandbox.run_python("import time; time.sleep(30)")
    assert (await sandbox.run_python("print(1)")).ok


def _idle_jails(sandbox: Sandbox) -> list[Jail]:
    assert isinstance(sandbox, JailPool)
    return [waiting.result() for waiting in sandbox._idle]


async def test_a_jail_that_died_idle_is_replaced() -> None:
    async with open_sandbox(SandboxSettings(pool_size=1)) as sandbox:
        jail = _idle_jails(sandbox)[0]
        jail.process.kill()
        await jail.process.wait()
        assert (await sandbox.run_python("print(1)")).ok


async def test_a_jail_that_dies_under_a_program_is_our_failure_not_its() -> None:
    async with open_sandbox(SandboxSettings(pool_size=1)) as sandbox:
        jail = _idle_jails(sandbox)[0]
        asyncio.get_running_loop().call_later(0.2, jail.process.kill)
        with pytest.raises(SandboxError, match="ended"):
            await sandbox.run_python("import time; time.sleep(5)")
        assert (await sandbox.run_python("print(1)")).ok


@pytest.mark.parametrize("recycle_after", [1, 2])
async def test_jails_are_recycled(recycle_after: int) -> None:
    async with open_sandbox(SandboxSettings(pool_size=1, recycle_after=recycle_after)) as sandbox:
        assert isinstance(sandbox, JailPool)
        used = set()
        for _ in range(4):
            used.add(await sandbox._idle[0])
            assert (await sandbox.run_python("print(1)")).ok
        assert len(used) == 4 // recycle_after


@pytest.mark.parametrize("version", ["3.12", "3.13"])
async def test_programs_get_the_python_that_is_asked_for(version: str) -> None:
    found = _another_python(version)
    if found is None:
        skip_without("other Pythons")
    async with open_sandbox(SandboxSettings(pool_size=1, python=found)) as sandbox:
        execution = await sandbox.run_python("import sys, os; print(sys.version_info[:2], os.getpid() < 10)")
        assert execution.stdout == f"({version.replace('.', ', ')}) True\n"


def _another_python(version: str) -> Path | None:
    beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}*/bin/python{version}"))
    return beside[0] if beside else None


@pytest.fixture
def shown() -> Iterator[Path]:
    """A folder with a page and a hidden folder; not below /tmp, for a jail has a /tmp of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "hidden").mkdir()
        (folder / "hidden" / "secret.txt").write_text("x")
        (folder / "page.md").write_text("# A page")
        (folder / "page.md").chmod(0o644)
        yield folder


async def test_programs_import_the_packages_they_are_given_and_no_others() -> None:
    async with open_sandbox(SandboxSettings(pool_size=1, packages=("numpy",))) as opened:
        assert (await opened.run_python("import numpy; print(numpy.arange(4).sum())")).stdout == "6\n"
        for hidden in ("orjson", "gymnast", "pydantic"):
            assert "ModuleNotFoundError" in (await opened.run_python(f"import {hidden}")).stderr
        assert (await opened.run_python("import os; os.remove('/packages/numpy/__init__.py')")).exit_code == 1
    for missing in ("no_such_package", "numpy.linalg", "json.decoder", "math"):
        with pytest.raises(UserError, match="is installed with Gymnast"):
            async with open_sandbox(SandboxSettings(packages=(missing,))):
                pass


async def test_packages_that_only_root_can_read_are_importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an installation with umask 077: `nobody` found an empty package."""
    package = tmp_path / "site" / "private_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from private_package.inner import WORD\n")
    (package / "inner.py").write_text("WORD = 'here'\n")
    for path in (*package.iterdir(), package):
        path.chmod(0o700)
    monkeypatch.syspath_prepend(package.parent)
    async with open_sandbox(SandboxSettings(pool_size=1, packages=("private_package",))) as opened:
        result = await opened.run_python("import private_package; print(private_package.WORD)")
    assert (result.stdout, result.stderr) == ("here\n", "")


async def test_programs_see_the_standard_library_only_unless_configured_otherwise(
    sandbox: Sandbox, shown: Path
) -> None:
    assert (await sandbox.run_python("import pip")).exit_code == 1
    hidden = shown / "hidden"
    look = f"import os; print(open({str(shown / 'page.md')!r}).read(1), os.listdir({str(hidden)!r}))"
    async with open_sandbox(SandboxSettings(pool_size=1, read_only=(shown,), hide=(hidden,))) as opened:
        assert (await opened.run_python(look)).stdout == "# []\n"


async def test_folders_that_a_jail_would_cover_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot show .* to programs"):
        async with open_sandbox(SandboxSettings(read_only=(tmp_path,))):
            pass


async def test_a_python_with_gymnast_inside_is_refused() -> None:
    with pytest.raises(UserError, match="programs could read its environments"):
        async with open_sandbox(SandboxSettings(python=Path(sys.executable))):
            pass


async def test_a_missing_program_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for driver in ("auto", "bubblewrap", "docker", "podman", "apptainer"):
        with pytest.raises(UserError, match="not installed") as caught:
            async with open_sandbox(SandboxSettings(driver=driver)):
                pass
        assert "install" in (caught.value.next or "")
        assert "unsafe_no_sandbox" in (caught.value.next or "")


async def test_a_driver_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    refusal = "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1"
    fake.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap $VERSION || {{ {refusal}; }}\n')
    fake.chmod(0o755)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):  # root starts it as somebody else
        folder.chmod(folder.stat().st_mode | 0o5)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin:/usr/sbin:/sbin")
    monkeypatch.setenv("VERSION", "0.4.1")
    with pytest.raises(UserError, match="too old: bubblewrap"):
        async with open_sandbox(SandboxSettings()):
            pass
    monkeypatch.setenv("VERSION", "0.11.0")
    with pytest.raises(UserError, match="does not start") as caught:
        async with open_sandbox(SandboxSettings()):
            pass
    assert "user namespaces" in (caught.value.next or "")


async def test_a_jail_that_cannot_make_namespaces_serves_one_program_behind_the_same_walls() -> None:
    settings = SandboxSettings()
    python = await find_interpreter(settings)
    isolated = isolate_launch(
        python.readable, lambda visible_at: launch.bubblewrap("bwrap", python, visible_at=dict(visible_at))
    )
    walls = dataclasses.replace(isolated, nest=False)

    async def open_jail(limits: Limits) -> Jail:
        jail = await start_jail(walls, None)
        await jail.handshake((), {"PATH": "/usr/bin"})
        return jail

    pool = JailPool(open_jail, Limits(), size=1, sessions=1, recycle_after=0)
    try:
        for code in (
            "import os, time\nfor n in (2, 9, 15): os.kill(1, n)\ntime.sleep(0.1)",
            "open('/proc/1/mem')",
            "open('/x', 'w')",
        ):
            result = await pool.run_python(code)
            assert (result.ending, result.exit_code) == ("exited", int("open" in code)), result
        daemon = "import os\nif os.fork() == 0:\n    os.setsid(); os.execvp('sleep', ['sleep', '600'])\nprint('left')"
        assert (await pool.run_python(daemon)).stdout == "left\n"
        assert (await pool.run_python("while True: pass", limits=Limits(wall_s=0.3))).ending == "timeout"
        bomb = "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(60)"
        assert (await pool.run_python(bomb, limits=Limits(wall_s=5, processes=16))).ending == "killed"
        async with pool.python_session() as session:
            await session.execute("x = 2", Limits())
            assert (await session.execute("x", Limits())).result == "2"
    finally:
        await pool.close()


async def test_no_sandbox_must_be_spelled_out() -> None:
    with pytest.raises(UserError, match="as you") as caught:
        async with open_sandbox(SandboxSettings(driver="none")):
            pass
    assert "unsafe_no_sandbox: true" in (caught.value.next or "")


async def test_without_walls_there_are_still_limits() -> None:
    async with open_sandbox(UNSAFE) as sandbox:
        assert (await sandbox.run_python("print(open('main.py').read())")).stdout == "print(open('main.py').read())\n"
        assert (await sandbox.run_python("while True: pass", limits=Limits(wall_s=0.3))).ending == "timeout"
        assert (await sandbox.run_python("x = bytearray(1 << 30)", limits=Limits(memory_mb=256))).ending == "memory"
        escaped = (
            "import os\nif os.fork() == 0:\n    os.setsid()\n    os.execvp('sleep', ['sleep', '600'])\nprint('left')"
        )
        result = await sandbox.run_python(escaped)
        assert (result.stdout, result.ok) == ("left\n", True)
        assert result.seconds < 300, "what it left behind is not waited for"
        assert (await sandbox.call_function("def f(x): return x + 1", "f", [[1]])).results[0].value == 2
        async with sandbox.python_session() as session:
            assert (await session.execute("1 + 1", Limits())).result == "2"
