"""code_gen: the program in an answer, comparison outside the sandbox, and programs that would rather not be tested."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.resources_servers.code_gen.app import (
    CodeGen,
    CodeGenSettings,
    extract_program,
    leaked_reasoning_rate,
)
from gymnast.builtin.resources_servers.code_gen.comparison import same_output, same_value
from gymnast.builtin.resources_servers.code_gen.nemo_gym_arrays import Array
from gymnast.builtin.resources_servers.code_gen.nemo_gym_rules import compare_values
from gymnast.builtin.resources_servers.code_gen.testing import RunResult, read_result
from gymnast.sandbox import SandboxError
from tests.helpers.environments import Subject, check_cases, collect_examples, response, said, started, thought
from tests.helpers.jsonl import example_rows
from tests.helpers.parts import needs

sandboxed = needs("bubblewrap")
SUM = "a, b = map(int, input().split())\nprint(a + b)"


def fenced(program: str, language: str = "python") -> str:
    return f"Here it is:\n```{language}\n{program}\n```\nThat should do."


def row_of(*tests: tuple[Any, Any], function: str | None = None, **more: Any) -> dict[str, Any]:
    unit_tests = {"inputs": [given for given, _ in tests], "outputs": [expected for _, expected in tests]}
    if function is not None:
        unit_tests["fn_name"] = function  # type: ignore[assignment]
    params = {"input": [{"role": "user", "content": "Write a program."}]}
    return {"responses_create_params": params, "verifier_metadata": {"unit_tests": unit_tests}, **more}


ADDITION = row_of(("1 2\n", "3\n"), ("5 -5\n", "0\n"), ("10 20\n", "30"))


@asynccontextmanager
async def code_gen(**settings: Any) -> AsyncIterator[Subject]:
    """Under strict scoring unless the settings say otherwise; scoring_cases has what NeMo Gym's rules say."""
    async with started(
        CodeGen, CodeGenSettings(**{"unit_test_timeout_secs": 5, "scoring": "strict", **settings})
    ) as subject:
        yield subject


# --- finding the program ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nx = 1\n```", "x = 1"),
        ("```\nx = 1\ny = 2\n```", "x = 1\ny = 2"),
        ("```python\nfirst\n```\nbetter:\n```python\nsecond\n```", "second"),
        ("```python\nfirst\n```\nthen\n```python\ncut off", "then"),  # the rule is the last two lines with backticks
        ("    ```python\n    x = 1\n    ```", "    x = 1"),
        ("```python\n```", ""),
        ("```python print(1)```", None),
        ("x = 1", None),
        ("", None),
        ("ʼʼʼpython\nx = 1\nʼʼʼ", None),  # letters that look like backticks
    ],
)
def test_the_program_in_an_answer(text: str, program: str | None) -> None:
    assert extract_program(text) == program


def test_leaked_reasoning() -> None:
    assert leaked_reasoning_rate([]) == 0.0
    assert leaked_reasoning_rate(["fine", "<think>hm</think> fine"]) == 0.5
    assert leaked_reasoning_rate(["I think < therefore"]) == 0.0


# --- comparing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ("3\n", "3", True),
        ("  3  \n\n", "3\n", True),
        ("1 2 3\n4", "1 2 3 \n 4\n", True),
        ("1.0 2", "1 2.000", True),
        ("1e2", "100", True),
        ("0.1", "0.10000000000000000000000000001", False),
        ("1  2", "1 2", True),
        ("yes  no", "yes no", False),
        ("3\n\n4", "3\n4", False),
        ("3", "4", False),
        ("", "3", False),
        ("Yes", "YES", False),
        ("３", "3", False),  # a digit of another script
        ("1_000", "1000", False),
        ("NaN", "nan", False),
        ("sNaN 1", "snan 1", False),
    ],
)
def test_outputs_are_compared_line_by_line_and_numbers_as_numbers(actual: str, expected: str, same: Any) -> None:
    assert same_output(actual, expected) is same


@pytest.mark.parametrize(
    ("encoded", "expected", "same"),
    [
        ("[1, 2]", "[1,2]", True),
        ("[1, 2]", [1, 2], True),
        ('"ab"', '"ab"', True),
        ('"ab"', "ab", True),
        ("null", "null", True),
        ("2.0", "2", True),
        ("[2, 1]", "[1, 2]", False),
        ("1" * 5000, "1", False),  # more digits than Python reads
        ("[" * 100_000, "1", False),
        ("no json", "1", False),
    ],
)
def test_values_are_compared_as_values(encoded: str, expected: Any, same: Any) -> None:
    assert same_value(encoded, expected) is same


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_every_value_equals_itself(value: Any) -> None:
    assert same_value(json.dumps(value), json.dumps(value))


def test_a_report_is_the_first_line_or_nothing() -> None:
    good = '{"how":"exited","code":0}'
    assert read_result(f"{good}\n{good}\n") == RunResult("exited")
    assert read_result(good) == RunResult("exited")
    for text in (f"all tests passed\n{good}\n", '{"how":"perfectly"}\n', "\ud800\n", ""):
        assert read_result(text) is None, text


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"verifier_metadata": None},
        {"verifier_metadata": {}},
        {"verifier_metadata": {"unit_tests": {"inputs": [], "outputs": []}}},
        {"verifier_metadata": {"unit_tests": {"inputs": ["1"], "outputs": []}}},
    ],
)
@sandboxed
async def test_rows_without_tests_are_refused(change: dict[str, Any]) -> None:
    async with code_gen() as subject:
        assert "verifier_metadata" in await subject.refusal({**ADDITION, **change})


# --- running ----------------------------------------------------------------------------------------------------------


@sandboxed
async def test_verdicts_on_programs() -> None:
    async with code_gen(unit_test_timeout_secs=1) as subject:
        right = await subject.verify(ADDITION, fenced(SUM))
        assert (right["reward"], right["result"], right["metadata"]) == (1.0, [True, True, True], {})
        assert (right["extracted_model_code"], right["reasoning_format_violation_rate"]) == (SUM, 0.0)
        assert right["unit_tests_time_taken"] > 0
        thread = "threading.Thread(target=lambda: print(sum(map(int, input().split())))).start()"
        cases: dict[str, list[Any]] = {
            "print(3)": [True, -2],
            "print(3": [-1],
            "x = 1 / 0": [-4],
            "raise SystemExit(1)": [-4],
            "import time\ntime.sleep(60)": [-3],
            "while True: pass": [-3],
            "b = 'x' * 10**12": [-4],
            "while True: print('x' * 1000)": [-4],
            f"{SUM}\nexit()": [True, True, True],
            f"import threading\n{thread}": [True, True, True],
        }
        for program, result in cases.items():
            verdict = await subject.verify(ADDITION, fenced(program))
            assert verdict["result"] == result, program
            assert verdict["reward"] == float(len(result) == 3), program


@sandboxed
async def test_the_first_failing_test_is_kept_and_bounded() -> None:
    long = "7" * 5000
    row = row_of(("1\n", "1\n"), (long, long), ("2\n", "3\n"), difficulty="hard")
    async with code_gen() as subject:
        verdict = await subject.verify(row, fenced("import sys\nprint(input()[:1])\nprint('why', file=sys.stderr)"))
    kept = verdict["metadata"]
    assert (kept["index"], kept["error_code"], kept["output"], kept["stderr"]) == (1, -2, "7\n", "why\n")
    assert all(len(kept[name]) < 600 for name in ("inputs", "expected"))
    assert (verdict["result"], verdict["difficulty"]) == ([True, -2], "hard")


@sandboxed
async def test_all_tests_are_run_when_asked() -> None:
    row = row_of(("1 2", "0"), ("1 2", "3"), ("x", "3"), ("2 2", "4"))
    async with code_gen(run_all_tests=True, debug=True) as subject:
        verdict = await subject.verify(row, fenced(SUM))
        assert verdict["result"] == [-2, True, -4, True]
        assert verdict["metadata"]["index"] == 0
        assert "ValueError" in verdict["metadata"]["tests"][2]["stderr"]
        assert (await subject.verify(row, fenced("print(")))["result"] == [-1]


@sandboxed
async def test_functions() -> None:
    row = row_of(("[3, 1, 2]\n1", "[1, 2, 3, 1]"), ([[5], 0], [5, 0]), function="arrange")
    async with code_gen() as subject:
        for program, result in {
            "def arrange(a, b):\n    print('debug')\n    return sorted(a) + [b]": [True, True],
            "class Solution:\n    def arrange(self, a: List[int], b) -> List[int]:\n        return (*sorted(a), b)": [
                True,
                True,
            ],
            "def arrange(a, b):\n    heapq.heapify(a)\n    return [heappop(a) for _ in range(len(a))] + [b]": [
                True,
                True,
            ],
            "def arrange(a, b): return a": [-2],
            "def arrange(a): return a": [-4],
            "def arrange(a, b): return {1}": [-4],
            "def arrange(a, b): exit(0)": [-4],
            "def other(a, b): return a": [-4],
        }.items():
            assert (await subject.verify(row, fenced(program)))["result"] == result, program


@sandboxed
async def test_arguments_that_are_not_json_are_the_rows_fault() -> None:
    row = row_of(("[1, ", "1"), function="f")
    body = {**row, "response": response(said(fenced("def f(x): return x")))}
    async with code_gen() as subject:
        reply = await subject.calls.call("env", "/verify", body)
    assert reply.status == 422
    assert "unit_tests.inputs[0] must have one JSON value per line" in str(reply.body)


HACKS = {
    "prints what a grader might print": (
        "print('[true]')\nprint('All tests passed')\nprint('{\"how\": \"exited\", \"code\": 0}')"
    ),
    "patches what comparisons use": (
        "import builtins, json, decimal\n"
        "class Same(str):\n    __eq__ = lambda *_: True\n    __hash__ = str.__hash__\n"
        "builtins.all = lambda _: True\nbuiltins.str = Same\njson.loads = lambda *_: Same()\nprint(Same('x'))"
    ),
    "ends early": "import os\nos._exit(0)",
    "ends early and quietly": "import sys\nsys.exit(0)",
    "looks for answers in its arguments, environment and files": (
        "import glob, os, sys\n"
        "seen = [*sys.argv, *os.environ.values()]\n"
        "paths = glob.glob('/**/*.json*', recursive=True)[:200] + glob.glob('/tmp/**/*', recursive=True)\n"
        "for path in paths:\n"
        "    try:\n        seen.append(open(path).read(100000))\n"
        "    except (OSError, UnicodeDecodeError):\n        pass\n"
        "print(next((word for text in seen for word in text.split() if word.startswith('SECRET')), 'nothing'))"
    ),
    "looks for answers in memory": (
        "import gc, sys\n"
        "frame, seen = sys._getframe(), []\n"
        "while frame:\n    seen += [*frame.f_locals.values(), *frame.f_globals.values()]\n    frame = frame.f_back\n"
        "seen += [o for o in gc.get_objects() if isinstance(o, (dict, list, str))]\n"
        "found = [w for o in seen for w in repr(o)[:100000].split(\"'\") if w.startswith('SECRET') and w != 'SECRET']\n"
        "print(found[0] if found else 'nothing')"
    ),
    "asks the process that watches it": (
        "import os\n"
        "def read(path):\n"
        "    try:\n        return open(path, 'rb').read(10**6)\n"
        "    except OSError:\n        return b''\n"
        "up = os.getppid()\n"
        "data = b''.join(read(f'/proc/{p}/{f}') for p in (1, up) for f in ('cmdline', 'environ', 'fd/0', 'fd/1'))\n"
        "print(data[data.find(b'SECRET'):][:20])"
    ),
    "ends the process that watches it": "import os\nos.kill(os.getppid(), 9)",
    "stops the process that watches it": (
        "import os, signal, time\nos.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(60)"
    ),
    "writes a report of its own": (
        "import os\n"
        'line = b\'{"how": "exited", "code": 0, "stdout": "SECRET"}\\n\' * 9\n'
        "for target in (f'/proc/{os.getppid()}/fd/1', '/proc/1/fd/1'):\n"
        "    try:\n        os.write(os.open(target, os.O_WRONLY), line)\n    except OSError:\n        pass"
    ),
    "leaves processes behind that go on printing": (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        while True:\n            print('SECRE', flush=True)\n            time.sleep(0.05)\n    os._exit(0)"
    ),
}


@sandboxed
@pytest.mark.parametrize("scoring", ["nemo_gym", "strict"])
@pytest.mark.parametrize("hack", HACKS)
async def test_what_programs_try_instead_of_solving(hack: str, scoring: str) -> None:
    row = row_of(("one\n", "SECRET-1f\n"), ("two\n", "SECRET-2e\n"))
    async with code_gen(unit_test_timeout_secs=1, scoring=scoring) as subject:
        verdict = await subject.verify(row, fenced(HACKS[hack]))
        assert verdict["reward"] == 0.0
        assert True not in verdict["result"]
        assert (await subject.verify(ADDITION, fenced(SUM)))["reward"] == 1.0  # nothing is broken afterwards


@sandboxed
@pytest.mark.parametrize("scoring", ["nemo_gym", "strict"])
async def test_functions_that_try_instead_of_solving(scoring: str) -> None:
    row = row_of(("1", '"SECRET-1f"'), ("2", '"SECRET-2e"'), function="f")
    async with code_gen(unit_test_timeout_secs=1, scoring=scoring) as subject:
        for program in (
            "class Same(str):\n    __eq__ = lambda *_: True\ndef f(x): return Same()",
            "import json\njson.dumps = lambda *_, **__: 'true'\ndef f(x): return x",
            "import os\ndef f(x):\n    os.write(3, b'true')\n    os._exit(0)",
            "def f(x):\n    import sys\n    return sys._getframe(1).f_locals.get('expected')",
        ):
            assert (await subject.verify(row, fenced(program)))["reward"] == 0.0, program


STOP_AND_FORGE = """
import json, os, signal, struct, time
n, up = input(), os.getppid()
os.kill(up, signal.SIGSTOP)
time.sleep(LATE)
report = json.dumps({'how': 'exited', 'code': 0, 'stdout': n, 'is_clean': True}).encode() + b'\\n'
answer = b'{"code": 0, "shown": false}'
for fd in range(40):
    try:
        pipe = os.open(f'/proc/{up}/fd/{fd}', os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, report)
        os.write(pipe, struct.pack('!II', len(answer), 0) + answer)
    except OSError: pass
print(n, flush=True)
if WAKE: os.kill(up, signal.SIGCONT)
"""
LATE_CHILD = """
import os, signal, time
n, up = input(), os.getppid()
if os.fork() == 0:
    os.setsid()
    os.kill(up, signal.SIGSTOP)
    time.sleep(1.6)
    print(n, flush=True)
    os.kill(up, signal.SIGCONT)
"""
CATCHING = """
import time
n, end = input(), time.time() + 2.5
while time.time() < end:
    try: time.sleep(0.1)
    except Exception: pass
print(n)
"""
NO_ALARM = "import signal, time\nn = input()\nsignal.alarm(0)\ntime.sleep(2.5)\nprint(n)"
TOO_LATE = {
    "stops what watches it and reports for it": ("strict", f"LATE, WAKE = 1.6, False\n{STOP_AND_FORGE}"),
    "stops what watches it for a while": ("strict", f"LATE, WAKE = 1.6, True\n{STOP_AND_FORGE}"),
    "has a child answer late": ("strict", LATE_CHILD),
    "switches the alarm off": ("nemo_gym", NO_ALARM),
    "ignores the alarm": ("nemo_gym", NO_ALARM.replace("alarm(0)", "signal(signal.SIGALRM, signal.SIG_IGN)")),
    "catches the alarm": ("nemo_gym", CATCHING),
}
"""Programs whose output is right, but after more than a second."""


@sandboxed
@pytest.mark.parametrize("name", TOO_LATE)
async def test_a_test_that_takes_too_long_fails_whatever_the_program_does(name: str) -> None:
    scoring, program = TOO_LATE[name]
    row = row_of(*[(f"{n}\n", f"{n}\n") for n in range(4)])
    async with code_gen(unit_test_timeout_secs=1, scoring=scoring) as subject:
        verdict = await subject.verify(row, fenced(program))
        assert (verdict["reward"], True in verdict["result"]) == (0.0, False), verdict


FORGED_REPORTS = {
    "an end": b'{"how": "end", "seconds": 0}\n',
    "a pause": b'{"how": "paused"}\n',
    "that it was loaded": b'{"how": "loaded"}\n' * 9,
    "an answer": b'{"how": "value", "value": 1, "shown": "1", "lost": false}\n' * 9,
    "an unknown kind": b'{"how": ["a"], "value": {}}\n' * 9,
    "an endless number": b'{"how": "value", "seconds": 1e999, "value": {"int": "x"}}\n' * 9,
}


@sandboxed
@pytest.mark.parametrize("function", ["f", None])
async def test_forged_reports_are_worth_nothing(function: str | None) -> None:
    """A report of the end once counted as that of all tests."""
    row = row_of(("1", "11"), ("2", "22"), function=function)
    async with code_gen(unit_test_timeout_secs=1, scoring="nemo_gym") as subject:
        for report in FORGED_REPORTS.values():
            forge = f"for fd in range(5, 60):\n    try: os.write(fd, {report!r})\n    except OSError: pass"
            for end in ("os._exit(0)", "pass"):
                program = f"import os\ndef f(x): return x\n{forge}\n{end}"
                verdict = await subject.verify(row, fenced(program))
                assert verdict["reward"] == 0.0, (report, end, verdict)


@sandboxed
@pytest.mark.parametrize(
    "state",
    [
        "open('/tmp/state', 'a')",
        "open('/dev/shm/state', 'a')",
        "open('state', 'a')",
        "(os.mkdir('state'), os.chmod('state', 0))",
        "(os.fork() or (os.setsid(), [signal.pause() for _ in iter(int, 1)]))",
    ],
)
async def test_a_test_finds_nothing_of_an_earlier_one(state: str) -> None:
    program = f"""
import os, signal
seen = [os.listdir(folder) for folder in ('/tmp', '/dev/shm', '.')]
alone = sorted(p for p in os.listdir('/proc') if p.isdigit()) == sorted(['1', str(os.getppid()), str(os.getpid())])
{state}
print(sorted(sum(seen, [])) == ['.shm', 'work'] and alone)
"""
    async with code_gen() as subject:
        verdict = await subject.verify(row_of(*[("", "True")] * 4), fenced(program))
        assert verdict["result"] == [True] * 4, verdict


@sandboxed
async def test_a_program_that_breaks_its_session_gets_a_new_one_for_the_next_test() -> None:
    program = "import os\nn = input()\nif n == '1': os.kill(os.getppid(), 9)\nprint(n)"
    async with code_gen(run_all_tests=True) as subject:
        verdict = await subject.verify(row_of(*[(f"{n}\n", f"{n}\n") for n in range(3)]), fenced(program))
        assert verdict["result"] == [True, -4, True]


@sandboxed
async def test_a_program_does_not_find_the_answers_of_an_earlier_rollout_in_its_memory() -> None:
    """Warm jails fork: a rollout that was right would otherwise have told the next one what is."""
    row = row_of(("", "REMEMBERED-174\n"), ("", "REMEMBERED-174\n"))
    thief = """
import re
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:
    for line in maps:
        begin, end = (int(word, 16) for word in line.split()[0].split('-'))
        try:
            memory.seek(begin)
            found = re.findall(rb'REMEMBERED-[0-9]+', memory.read(end - begin))
        except (OSError, ValueError, OverflowError):
            continue
        if found:
            print(found[0].decode())
            break
"""
    async with code_gen(sandbox={"pool_size": 1}) as subject:
        for _ in range(3):
            assert (await subject.verify(row, fenced("print('REMEMBERED-' + str(87 * 2))")))["reward"] == 1.0
            verdict = await subject.verify(row, fenced(thief))
            assert verdict["reward"] == 0.0, verdict


@sandboxed
async def test_processes_left_behind_do_not_hold_up_a_right_program() -> None:
    lingering = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(3600)\n    os._exit(0)\n" + SUM
    row = row_of(*[(f"{n} 1\n", f"{n + 1}\n") for n in range(12)])
    async with code_gen() as subject:
        assert (await subject.verify(row, fenced(lingering)))["reward"] == 1.0


class BrokenSandbox:
    """A sandbox that fails."""

    def python_session(self) -> NoReturn:
        raise SandboxError("no jail could be opened")


@sandboxed
@pytest.mark.parametrize("scoring", ["nemo_gym", "strict"])
async def test_a_sandbox_that_fails_is_a_failure_and_no_reward(scoring: str) -> None:
    async with code_gen(scoring=scoring) as subject:
        subject.server._sandbox = BrokenSandbox()
        reply = await subject.calls.call("env", "/verify", {**ADDITION, "response": response(said(fenced(SUM)))})
    assert reply.status == 500
    assert reply.failure is not None
    assert (reply.failure.kind, reply.failure.stage) == ("sandbox_failed", "verify")


@sandboxed
async def test_leaked_reasoning_costs_what_the_settings_say() -> None:
    async with code_gen(reasoning_format_penalty=0.25) as subject:
        verdict = await subject.verify(ADDITION, "<think>hm</think>" + fenced(SUM))
        assert (verdict["reward"], verdict["reasoning_format_violation_rate"]) == (0.75, 1.0)
        assert (await subject.verify(ADDITION, thought("<think>"), fenced(SUM)))["reward"] == 1.0
    async with code_gen(reasoning_format_penalty=-1.0, scoring="nemo_gym") as subject:
        verdict = await subject.verify(ADDITION, "<think>hm</think>" + fenced(SUM))
        assert (verdict["reward"], verdict["reasoning_format_violation_rate"]) == (-1.0, 1.0)
    with pytest.raises(ValueError, match="must not be negative"):
        CodeGenSettings(scoring="strict", reasoning_format_penalty=-1.0)


@sandboxed
async def test_what_nemo_gym_says_of_a_failing_test() -> None:
    crash = {"error": "ZeroDivisionError('division by zero')", "error_code": -4, "error_message": "Runtime Error"}
    broken = {"error_code": -4, "error_message": "Error during testing: '(' was never closed (<string>, line 1)"}
    wrong = {"output": "4\n", "error_code": -2, "error_message": "Wrong answer at output_line_idx=0: 4 != 3"}
    more = {"output": "3\n3\n", "error_code": -2, "error_message": "Wrong answer: mismatched output length"}
    about = {"inputs": "1 2\n", "expected": "3\n"}
    async with code_gen(unit_test_timeout_secs=1, scoring="nemo_gym") as subject:
        for program, expected in {
            "1 / 0": crash | about,
            "print(3": broken,
            "print(4)": wrong | about,
            "print(3)\nprint(3)": more | about,
            "import time\ntime.sleep(9)": {"error": "TimeoutException()", "error_code": -3} | about,
        }.items():
            found = (await subject.verify(ADDITION, fenced(program)))["metadata"]
            assert {name: found[name] for name in expected} == expected, program
        assert (await subject.verify(ADDITION, fenced("import os\nos._exit(0)")))["metadata"] is None
        assert "execution time" in (await subject.verify(ADDITION, fenced(SUM)))["metadata"]
        value = await subject.verify(row_of(("1\n2", "4"), function="add"), fenced("def add(a, b): return a + b"))
        assert value["metadata"] == {
            "output": "3",
            "inputs": "[1, 2]",
            "expected": "4",
            "error_code": -2,
            "error_message": "Wrong Answer",
        }


@sandboxed
async def test_nemo_gym_scores_a_slow_program_as_one_process() -> None:
    """Each test is a step of the same session: the state of a program grows."""
    row = row_of(*[(str(n), str(n * (n + 1) // 2)) for n in range(6)], function="f")
    program = "import time\nseen = []\ndef f(x):\n    time.sleep(0.1)\n    seen.append(x)\n    return sum(seen)"
    async with code_gen(scoring="nemo_gym") as subject:
        verdict = await subject.verify(row, fenced(program))
    assert (verdict["reward"], verdict["result"]) == (1.0, [True] * 6)


@sandboxed
async def test_a_program_inside_reasoning_does_not_count() -> None:
    async with code_gen() as subject:
        verdict = await subject.verify(ADDITION, thought(fenced(SUM)), "I give up.")
        assert (verdict["reward"], verdict["extracted_model_code"], verdict["result"]) == (0.0, None, None)


@sandboxed
async def test_many_tests_and_large_ones() -> None:
    row = row_of(*[(f"{n}\n" * 20_000, f"{20_000 * n}\n" * 2) for n in range(30)])
    program = "import sys\ns = sum(map(int, sys.stdin))\nprint(s)\nprint(s)"
    async with code_gen(unit_test_timeout_secs=10) as subject:
        verdict = await subject.verify(row, fenced(program))
        assert verdict["result"] == [True] * 30
        echo = row_of(*[("x" * 3_000_000, "x" * 3_000_000)] * 2)
        assert (await subject.verify(echo, fenced("print(input())")))["reward"] == 1.0


@sandboxed
async def test_cases() -> None:
    async with code_gen(scoring="nemo_gym") as subject:
        await check_cases(subject, "code_gen")


@sandboxed
async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    replies = [
        fenced("n = int(input())\nprint(sum(x for x in map(int, input().split()) if x % 2 == 0))"),
        fenced("print('a')"),
        fenced("a, b = map(int, input().split())\nprint(f'{a / b:.3f}')"),
        fenced("def longest_run(v):\n    return max((len(list(g)) for _, g in itertools.groupby(v)), default=0)"),
        "I do not know.",
    ]
    records = await collect_examples(tmp_path, "code_gen", replies)
    assert [record["reward"] for record in records] == [1.0, 0.0, 1.0, 1.0, 0.0]
    assert [record["result"] for record in records][:2] == [[True] * 4, [True, -2]]  # an input per test
    assert len(example_rows("code_gen")) == 5


@pytest.mark.parametrize(
    ("items", "shape", "expected", "error"),
    [
        ([1, 2], [2], [1, 2, 3], "operands could not be broadcast together with shapes (2,) (3,) "),
        ([[1, 2]], [1, 2], [[1], [2, 3]], "after 1 dimensions. The detected shape was (2,) + inhomogeneous part."),
        ([1, 2], [2], [[[1], [2]], [[3], [4, 5]]], "after 2 dimensions. The detected shape was (2, 2) + inhomogeneous"),
    ],
)
def test_arrays_that_numpy_does_not_compare(items: Any, shape: list[int], expected: Any, error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        compare_values(Array(items, shape, "i", 8, is_scalar=False), expected)


@pytest.mark.parametrize(("items", "shape"), [([1, 2], [2]), ([], [0]), ([[1, 2]], [1, 2])])
def test_a_list_of_arrays_is_neither_equal_nor_different(items: Any, shape: list[int]) -> None:
    with pytest.raises(ValueError, match="is ambiguous"):
        compare_values([Array(items, shape, "i", 8, is_scalar=False)], [1])


@pytest.mark.parametrize(
    ("array", "expected", "result"),
    [
        (Array(1, [], "i", 8, is_scalar=True), 1, 1),
        (Array(1, [], "i", 8, is_scalar=True), "1", True),
        (Array(1, [], "i", 8, is_scalar=True), None, False),
        (Array(1, [], "i", 8, is_scalar=False), None, 0),
        (Array([[1]], [1, 1], "i", 8, is_scalar=False), 1, 1),
        (Array([1, 2], [2], "i", 8, is_scalar=False), [1, 2], True),
        (Array(0.10000000149011612, [], "f", 4, is_scalar=True), 0.1, 1),
        (Array(0.10000000149011612, [], "f", 4, is_scalar=True), [0.1], 0),
        (Array(float("inf"), [], "f", 4, is_scalar=True), 1e300, 1),
        (Array(1.5, [], "f", 8, is_scalar=True), [1], False),
        (Array(1 + 0j, [], "c", 16, is_scalar=True), 1, 1),
        (Array("2020-01-01", [], "M", 8, is_scalar=True), 1, False),
        ({Array(1, [], "i", 8, is_scalar=True): "a"}, {1: "a"}, True),
    ],
)
def test_numbers_and_arrays_of_numpy(array: Any, expected: Any, result: Any) -> None:
    found = compare_values(array, expected)
    assert (type(found), found) == (type(result), result)
