"""math_with_code: answers in texts, and an interpreter for each rollout that keeps its variables and its limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.resources_servers.math_with_code.app import MathWithCode, MathWithCodeSettings, truncate_middle
from gymnast.builtin.resources_servers.math_with_code.strict_rules import extract_answer, parse_number, same_answer
from gymnast.builtin.responses_api_models.scripted_model.script import ScriptedCall
from gymnast.sandbox import SandboxError
from gymnast.wire.calls import Scope
from tests.helpers.environments import Subject, called, check_cases, collect_examples, response, said, started, thought
from tests.helpers.jsonl import example_rows
from tests.helpers.parts import needs
from tests.helpers.waiting import eventually

sandboxed = needs("bubblewrap")
ROW: dict[str, Any] = {
    "responses_create_params": {"input": [{"role": "user", "content": "What is 6 times 7?"}]},
    "id": 1,
    "expected_result": "42",
    "expected_code_contains": "6 * 7",
}


@asynccontextmanager
async def math_with_code(**settings: Any) -> AsyncIterator[Subject]:
    async with started(MathWithCode, MathWithCodeSettings(**settings)) as subject:
        yield subject


class Rollout:
    """A rollout's calls of the tool."""

    def __init__(self, subject: Subject) -> None:
        self.calls, self.scope = subject.calls, Scope()

    async def open(self) -> Rollout:
        assert (await self.calls.call("env", "/seed_session", ROW, self.scope)).status == 200
        return self

    async def execute(self, code: str) -> Any:
        reply = await self.calls.call("env", "/execute_python", {"code": code}, self.scope)
        assert reply.status == 200, reply.body
        return reply.body

    async def verify(self, *output: Any) -> Any:
        reply = await self.calls.call("env", "/verify", {**ROW, "response": response(*output)}, self.scope)
        assert reply.status == 200, reply.body
        return reply.body


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{42}", "42"),
        (r"first \boxed{41}, then \boxed{42}", "42"),
        (r"\boxed{\text{42}}", "42"),
        (r"\boxed{\frac{1}{2}} and 7 more words", r"\frac{1}{2}"),
        (r"\boxed{}", None),
        ("The answer is 42. I needed 3 steps.", "42"),
        ("The answer is: $42$", "42"),
        ("Answer: -1,234.5", "-1,234.5"),
        ("**Answer:** 7/3", "7/3"),
        ("the answer is 41\nno, the answer is 42", "42"),
        ("The answer is yes.", "yes"),
        ("It makes 6 + 36 = 42.", "42"),
        ("about 3.14159", "3.14159"),
        ("1e-3", "1e-3"),
        ("x1 and a2b", None),
        ("no idea", None),
        ("", None),
        ("answer is" + " " * 100_000, None),
        ("1" * 100_000 + "x", None),
        ("٤٢", None),  # digits of another script
    ],
)
def test_the_answer_in_a_text(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("42", "42"),
        ("42.0", "42"),
        ("1,234", "1234"),
        ("−5", "-5"),  # a typographic minus
        ("1/2", "0.5"),
        (r"\frac{1}{2}", "1/2"),
        (r"\dfrac{77}{60}", "77/60"),
        ("$42$", "42"),
        ("x = 42", "42"),
        ("4.2e1", "42"),
        ("14.6969385", "14.696938"),
        (r"\left( 1, 2 \right)", "(1,2)"),
        ("Yes", "yes"),
        ("3.", "3"),
    ],
)
def test_the_same_answer(answer: str, expected: str) -> None:
    assert same_answer(answer, expected)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("41", "42"),
        ("14.69", "14.696938"),
        ("1/0", "1"),
        ("12345678901234567890", "12345678901234567891"),
        ("４２", "42"),  # digits of another script
        ("", "42"),
        ("4 2", "24"),
        ("1e999999999", "1"),
        ("9" * 100_000, "9"),
    ],
)
def test_another_answer(answer: str, expected: str) -> None:
    assert not same_answer(answer, expected)


@given(st.integers() | st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_numbers_as_they_are_written_are_read_back(value: Any) -> None:
    text = str(value)
    assert parse_number(text) is None if "E" in text else parse_number(text) == value
    assert same_answer(text, text)


def test_long_output_keeps_both_ends() -> None:
    text = truncate_middle("a" * 1000 + "b" * 1000, 100)
    assert text.startswith("a" * 50)
    assert text.endswith("b" * 50)
    assert "1900 characters left out" in text
    assert truncate_middle("abc", 3) == "abc"


@sandboxed
async def test_variables_stay_with_their_rollout() -> None:
    async with math_with_code() as subject:
        one, two = await Rollout(subject).open(), await Rollout(subject).open()
        assert await one.execute("x = 6\nprint('set')") == {
            "success": True,
            "stdout": "set\n",
            "stderr": "",
            "error_message": None,
            "result": None,
        }
        assert (await one.execute("x * 7"))["result"] == "42"
        other = await two.execute("x * 7")
        assert (other["success"], other["error_message"]) == (False, "NameError: name 'x' is not defined")
        assert "NameError" in other["stderr"]
        assert (await two.execute("1 +"))["error_message"].startswith("SyntaxError")


@sandboxed
async def test_an_interpreter_that_is_killed_is_replaced_and_the_model_is_told() -> None:
    async with math_with_code(max_execution_time=1) as subject:
        rollout = await Rollout(subject).open()
        await rollout.execute("x = 1")
        late = await rollout.execute("print('begun', flush=True)\nwhile True: pass")
        assert (late["success"], late["stdout"]) == (False, "begun\n")
        assert late["error_message"].startswith("The code ran for more than 1 s and was stopped. A new interpreter")
        assert (await rollout.execute("x"))["error_message"] == "NameError: name 'x' is not defined"
        gone = await rollout.execute("import os\nos._exit(7)")
        assert (gone["success"], gone["result"]) == (False, None)
        assert "variables are lost" in gone["error_message"]
        assert (await rollout.execute("1 + 1"))["result"] == "2"
        large = await rollout.execute("while True: print('x' * 10000)")
        assert "more output than allowed" in large["error_message"]
        assert len(large["stdout"]) < 21_000


@sandboxed
async def test_interpreters_end_with_their_rollouts() -> None:
    async with math_with_code(session_ttl_s=0.2) as subject:
        sessions = subject.server.sessions
        forgotten, verified = await Rollout(subject).open(), await Rollout(subject).open()
        await forgotten.execute("x = 1")
        await verified.execute("x = 1")
        held = [entry.state for entry in sessions._entries.values()]
        assert (await verified.verify(said(r"\boxed{42}")))["reward"] == 1.0
        await eventually(lambda: len(sessions) == 0)
        assert all(workspace._python is None for workspace in held)
        reply = await forgotten.calls.call("env", "/execute_python", {"code": "x"}, forgotten.scope)
        assert reply.failure is not None
        assert reply.failure.kind == "session_expired"


@sandboxed
async def test_many_rollouts_compute_at_once() -> None:
    async with math_with_code() as subject:
        rollouts = [await Rollout(subject).open() for _ in range(12)]
        await asyncio.gather(*(rollout.execute(f"x = {n}") for n, rollout in enumerate(rollouts)))
        results = await asyncio.gather(*(rollout.execute("x") for rollout in rollouts))
        assert [reply["result"] for reply in results] == [str(n) for n in range(12)]


class BrokenSandbox:
    """A sandbox that fails."""

    def python_session(self) -> Any:
        raise SandboxError("no jail could be opened")


@sandboxed
async def test_a_sandbox_that_fails_is_a_failure_and_nothing_for_the_model_to_read() -> None:
    async with math_with_code() as subject:
        subject.server._sandbox = BrokenSandbox()
        rollout = await Rollout(subject).open()
        reply = await rollout.calls.call("env", "/execute_python", {"code": "1"}, rollout.scope)
    assert (reply.status, reply.failure and reply.failure.kind) == (500, "sandbox_failed")


@sandboxed
async def test_rewards() -> None:
    async with math_with_code() as subject:
        right = await subject.verify(ROW, called("execute_python", {"code": "6 * 7"}), r"\boxed{42}")
        assert (right["reward"], right["accuracy"], right["extracted_answer"]) == (1.0, True, "42")
        assert right["code_contains_expected"]
        guessed = await subject.verify(ROW, r"\boxed{42}")
        assert (guessed["reward"], guessed["code_contains_expected"]) == (1.0, False)
        for output in [(thought(r"\boxed{42}"), "hm"), (r"\boxed{42}", "so \\boxed{41}"), ("",), ()]:
            assert (await subject.verify(ROW, *output))["reward"] == 0.0
    async with math_with_code(require_expected_code=True, scoring="strict") as subject:
        assert (await subject.verify(ROW, r"\boxed{42}"))["reward"] == 0.0
        assert (await subject.verify(ROW, called("execute_python", "{broken"), r"\boxed{42}"))["reward"] == 0.0
        assert (await subject.verify(ROW, called("execute_python", {"code": "6 * 7"}), "42"))["reward"] == 1.0


@sandboxed
async def test_the_tool_in_example_rows_is_the_servers_own() -> None:
    async with math_with_code() as subject:
        declared = [found.declaration() for found in subject.server.tools.values()]
        assert subject.server.reverify_mode == "stateless"
    for row in example_rows("math_with_code"):
        assert row["responses_create_params"]["tools"] == declared


@sandboxed
async def test_cases() -> None:
    async with math_with_code() as subject:
        await check_cases(subject, "math_with_code")


PROGRAMS = [
    ["primes = [p for p in range(2, 100) if all(p % d for d in range(2, p))]", "sum(primes)"],
    ["n = 2**100", "print(sum(map(int, str(n))))"],
    ["sum((n % 3 == 0) != (n % 7 == 0) for n in range(1, 1001))"],
    ["from fractions import Fraction", "sum(Fraction(1, n) for n in range(2, 6))"],
    ["s = 9", "import math\nmath.sqrt(s * (s - 5) * (s - 6) * (s - 8))"],  # a slip: 8 is no side
]


def policy(call: ScriptedCall) -> Any:
    """Runs a program piece by piece, then says what the last piece gave."""
    pieces = PROGRAMS[int(call.params["metadata"]["row"])]
    if call.turn < len(pieces):
        return {"tool_calls": [{"name": "execute_python", "arguments": {"code": pieces[call.turn]}}]}
    seen = json.loads(call.tool_outputs[-1])
    found = (seen["result"] or seen["stdout"]).strip()
    return rf"\boxed{{{found.removeprefix('Fraction').strip('()').replace(', ', '/')}}}"


@sandboxed
async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    scripted = "++policy_model.responses_api_models.scripted_model.script=tests.env.test_math_with_code:policy"
    records = await collect_examples(tmp_path, "math_with_code", ["-"] * 5, scripted)
    assert [record["reward"] for record in records] == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert [record["extracted_answer"] for record in records][:4] == ["1060", "115", "381", "77/60"]
    assert [record["code_contains_expected"] for record in records] == [True] * 5
