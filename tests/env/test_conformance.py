"""The conformance suite: green on what ships, and every defect of a bad environment is found where it belongs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gymnast import check_environment
from gymnast.checks.conformance import EnvironmentResult, SuiteOptions, parse_cases
from gymnast.checks.conformance.loop_lag import LagProbe, worst_lag
from gymnast.checks.conformance.subject import turns_of
from gymnast.checks.conformance.suite import CHECKS, LAG_TRIES
from gymnast.config.roots import BUILTIN
from gymnast.errors import ConfigError, NotFoundError
from gymnast.runtime.venvs import unmet_requirements
from tests.helpers.commands import Outcome
from tests.helpers.environments import called, response, said
from tests.helpers.jsonl import write_jsonl

SHIPPED = sorted(
    f"{path.parents[1].name}/{path.stem}"
    for path in BUILTIN.glob("resources_servers/*/configs/*.yaml")
    if (path.parents[1] / "data" / "verifier_cases.jsonl").exists() and not unmet_requirements(path.parents[1])
)
"""Those with packages of their own (verifiers) have tests of their own."""


@pytest.mark.parametrize("name", SHIPPED)
async def test_shipped_environments_conform(name: str) -> None:
    report = await check_environment(name)
    assert report.ok, str(report)


GOOD = '''
import asyncio, random, time
from dataclasses import dataclass
from typing import Any
from gymnast.kit import Attempt, Environment, EnvironmentSettings, Task, ToolError, tool
from gymnast.kit.sessions import Sessions

class T(Task):
    word: str
    extra: Any = 0

@dataclass
class S:
    taken: list

class Take(Environment[T, S]):
    async def open(self, task):
        return S([])

    @tool
    async def take(self, session: S, word: str) -> str:
        """Take a word."""
        session.taken.append(word)
        return "taken"

    async def verify(self, attempt):
        return float(attempt.session.taken == [attempt.task.word])
'''
TAKE = {
    "type": "function",
    "name": "take",
    "description": "Take a word.",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
    "strict": True,
}
ROW: dict[str, Any] = {"responses_create_params": {"input": "Take it.", "tools": [TAKE]}, "word": "tree", "extra": 1}
RIGHT, WRONG = (response(called("take", {"word": word}), said("ok")) for word in ("tree", "bush"))
CASES: list[dict[str, Any]] = [
    {"name": "right", "kind": "full_reward", "request": {**ROW, "response": RIGHT}, "expected_reward": 1.0},
    {"name": "wrong", "kind": "zero_reward", "request": {**ROW, "response": WRONG}, "expected_reward": 0.0},
    {"name": "no word", "kind": "malformed", "request": {**ROW, "word": 1, "response": RIGHT}, "expected_error": 422},
    {"name": "again", "kind": "determinism", "request": {**ROW, "response": RIGHT}, "expected_reward": 1.0},
]


@pytest.fixture
def environment(tmp_path: Path) -> Callable[..., Path]:
    """Writes an environment's folder: the good one with something replaced."""

    def write(
        *replaced: tuple[str, str],
        rows: list[Any] | None = None,
        cases: list[Any] | None = None,
        setting: str = "domain: other",
    ) -> Path:
        code = GOOD
        for old, new in replaced:
            assert old in code
            code = code.replace(old, new)
        home = tmp_path / "resources_servers" / "take"
        for folder in ("configs", "data"):
            (home / folder).mkdir(parents=True)
        (home / "app.py").write_text(code)
        block = f"{{entrypoint: app.py, {setting}}}"
        (home / "configs" / "take.yaml").write_text(f"take:\n  resources_servers:\n    take: {block}\n")
        write_jsonl(home / "data" / "example.jsonl", [ROW] if rows is None else rows)
        write_jsonl(home / "data" / "verifier_cases.jsonl", CASES if cases is None else cases)
        return tmp_path

    return write


async def check(root: Path, *only: str) -> EnvironmentResult:
    options = SuiteOptions(concurrency=64, only=frozenset(only or CHECKS))
    return await check_environment("take", search_dirs=[root], options=options)


async def test_the_good_one_passes(environment: Callable[..., Path]) -> None:
    report = await check(environment())
    assert report.ok, str(report)
    assert "12 checks passed" in str(report)
    assert [found["check"] for found in report.as_json()["checks"] if found["ok"]][:2] == ["config", "data"]


VERIFY = "return float(attempt.session.taken == [attempt.task.word])"
FOR_EVER = "self.sessions = Sessions(1e9, self.close)"
DEFECTS: dict[str, tuple[str, list[tuple[str, str]], str]] = {
    "state on the environment": (
        "isolation",
        [("return S([])", "self.s = S([]); return self.s"), ("session.taken.app", "self.s.taken.app")],
        "of 16 concurrent rollouts failed: ",
    ),
    "chance": ("determinism", [(VERIFY, "return float(random.random() < 0.5)")], "different outcomes"),
    "an edited response": (
        "determinism",
        [(VERIFY, f"attempt.output.append(attempt.output[-1]); {VERIFY}")],
        "modified the request",
    ),
    "a crash without output": ("outputs", [(VERIFY, f"attempt.output[0]; {VERIFY}")], "an empty output"),
    "a reward for nothing": (
        "outputs",
        [(VERIFY, "return float(attempt.session.taken in ([], [attempt.task.word]))")],
        "earns the full reward",
    ),
    "a crash on much text": ("huge", [(VERIFY, f"assert len(attempt.text) < 500_000; {VERIFY}")], "1 MB"),
    "slow work on the loop": ("blocking", [(VERIFY, f"time.sleep(0.15); {VERIFY}")], "blocks the event loop"),
    "a slow pattern": (
        "blocking",
        [(VERIFY, f"sum(map(ord, attempt.text * 5)) if len(attempt.text) > 500_000 else 0; {VERIFY}")],
        "blocks the event loop",
    ),
    "a tool that crashes": ("tools", [('return "taken"', 'return "taken" if len(word) < 99 else 1 / 0')], "crash"),
    "a field that crashes": ("bodies", [(VERIFY, f"attempt.task.extra + 1; {VERIFY}")], "'extra' is a string"),
    "sessions for ever": (
        "expiry",
        [("    async def open", f"    async def start(self):\n        {FOR_EVER}\n\n    async def open")],
        "in an expired session returns reward",
    ),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
async def test_a_defect_is_found(defect: str, environment: Callable[..., Path]) -> None:
    check_name, replaced, said_of_it = DEFECTS[defect]
    report = await check(environment(*replaced), check_name)
    found = report.result(check_name).problems
    assert any(said_of_it in f"{problem.what} {problem.next}" for problem in found), str(report)
    assert all(problem.what and problem.where and problem.next for problem in report.problems)


@pytest.mark.parametrize(
    ("files", "check_name", "said_of_it"),
    [
        ({"rows": []}, "examples", "no example rows"),
        ({"rows": [ROW, ROW]}, "examples", "duplicate of row 1"),
        ({"rows": [{**ROW, "word": 7}]}, "examples", "does not match T: word"),
        ({"rows": [{"word": "x"}]}, "examples", "responses_create_params"),
        ({"rows": [{**ROW, "responses_create_params": {"inputs": "x"}}]}, "examples", "invalid create params"),
        ({"rows": [{**ROW, "agent_ref": {"name": "nobody"}}]}, "examples", "agent 'nobody' is not in the config"),
        ({"rows": [{**ROW, "responses_create_params": {"input": "", "tools": [{**TAKE, "name": "give"}]}}]},
         "tools", "the environment lacks: give"),
        ({"cases": []}, "data", "no verifier cases"),
        ({"cases": CASES[:3]}, "data", "no case of kind determinism"),
        ({"cases": [*CASES, CASES[0]]}, "data", "duplicate case 'right'"),
        ({"cases": [*CASES, {"name": "x", "kind": "full_reward", "request": {}}]}, "data", "give either"),
        ({"cases": [*CASES, {**CASES[1], "name": "x", "expected_reward": 0.5}]}, "cases", "expected reward 0.5"),
        ({"cases": [*CASES, {**CASES[0], "name": "x", "expected_reward": 0.0}]}, "data", "expects no more reward than"),
        ({"cases": [*CASES, {**CASES[2], "name": "x", "expected_error": 400}]}, "cases", "expected the error 400"),
        ({"setting": "domain: other, speed: 3"}, "config", "unknown setting 'speed' of take"),
    ],
)  # fmt: skip
async def test_what_the_folder_holds_is_checked(
    files: dict[str, Any], check_name: str, said_of_it: str, environment: Callable[..., Path]
) -> None:
    report = await check(environment(**files))
    found = report.result(check_name).problems
    assert any(said_of_it in problem.what for problem in found), str(report)


def test_a_line_that_is_not_json_is_a_problem() -> None:
    cases, problems = parse_cases([b"{", b""], "cases.jsonl")
    assert not cases
    assert "not a verifier case" in problems[0].what
    assert problems[0].where == "cases.jsonl line 1"


async def test_an_application_of_another_framework_is_checked(tmp_path: Path, environment: Callable[..., Path]) -> None:
    root = environment()
    (root / "resources_servers" / "take" / "app.py").write_text(FOREIGN)
    report = await check(root)
    assert report.result("cases").ok, str(report)
    assert report.result("isolation").ok
    assert report.result("expiry").skipped
    assert any("a response that is null" in problem.what for problem in report.result("bodies").problems)


FOREIGN = """
from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.middleware.sessions import SessionMiddleware
import uuid

app = FastAPI()
app.add_middleware(SessionMiddleware, secret_key="s", session_cookie="c")
STATE = {}

class Row(BaseModel):
    word: str

class Taken(BaseModel):
    word: str

class Verified(Row):
    responses_create_params: dict
    response: dict | None

@app.post("/seed_session")
async def seed(row: Row, request: Request):
    request.session["id"] = key = str(uuid.uuid4())
    STATE[key] = []
    return {}

@app.post("/take")
async def take(body: Taken, request: Request):
    STATE.setdefault(request.session.get("id"), []).append(body.word)
    return "taken"

@app.post("/verify")
async def verify(body: Verified, request: Request):
    right = STATE.pop(request.session.get("id"), None) == [body.word]
    return {**body.model_dump(), "reward": float(right)}
"""


def test_the_command_says_what_it_found(run: Callable[..., Outcome], environment: Callable[..., Path]) -> None:
    environment(("== [attempt.task.word]", "== ['other']"))
    result = run("gymnast", "check", "env", "take", "--concurrency", "8")
    assert result.code == 1
    assert "expected reward 1, got reward 0" in result.out
    assert "next:" in result.out
    as_data = run("gymnast", "check", "env", "take", "--concurrency", "8", "--json")
    assert as_data.code == 1
    assert not as_data.json()["ok"]
    one = run("gymnast", "check", "env", "take", "--case", "no word")
    assert one.code == 1
    assert json.loads(one.out)["detail"][0]["loc"] == ["body", "word"]


async def test_a_broken_configuration_is_an_error(environment: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="unknown domain 'moon'"):
        await check(environment(setting="domain: moon"))


async def test_an_unknown_environment_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(NotFoundError, match="mcqq") as raised:
        await check_environment("mcqq")
    assert "mcqa" in str(raised.value)


def test_turns_of_a_response() -> None:
    asked = {"type": "message", "role": "user", "content": "and?"}
    reasoning = {"type": "reasoning", "id": "r", "summary": []}
    output = [asked, reasoning, said("1"), called("x", {}), asked, said("2"), said("3"), reasoning, said("4")]
    turns = [[item.get("type") for item in turn["output"]] for turn in turns_of(response(*output))]
    assert turns == [["reasoning", "message", "function_call"], ["message"], ["message"], ["reasoning", "message"]]
    assert turns_of(response()) == [response()]
    assert turns_of("no response") == ["no response"]


async def lag_of(work: Callable[[], Awaitable[object]], tries: int = 1) -> float:
    """The smallest of several lags: a virtual machine may stand still for a moment, whatever the work does."""
    lags: list[float] = []
    for _ in range(tries):
        async with LagProbe() as probe:
            await work()
        lags.append(probe.worst_s)
    return min(lags)


def block_for(seconds: float) -> None:
    time.sleep(seconds)


async def test_the_probe_sees_a_hold_up_and_nothing_else() -> None:
    async def hold_up() -> None:
        await asyncio.sleep(0.01)
        block_for(0.08)
        await asyncio.sleep(0.01)

    assert await lag_of(partial(asyncio.sleep, 0.02), tries=6) < 0.07 < await lag_of(hold_up)


async def compute() -> None:
    for _ in range(40):
        sum(range(100_000))
        await asyncio.sleep(0.005)


async def start_processes() -> None:
    """The thread that starts a process is suspended until the child has been scheduled once."""
    for _ in range(10):
        process = await asyncio.create_subprocess_exec("sleep", "60")
        await asyncio.sleep(0.005)
        process.kill()
        await process.wait()


@pytest.mark.parametrize("work", [compute, start_processes])
async def test_a_busy_machine_is_not_blamed_on_the_work(work: Callable[[], Awaitable[None]]) -> None:
    spin = [sys.executable, "-c", "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"]
    others = [await asyncio.create_subprocess_exec(*spin) for _ in range(4 * len(os.sched_getaffinity(0)))]
    try:
        lag_s, is_too_long = await worst_lag(work, limit_s=0.05, tries=LAG_TRIES)
    finally:
        for process in others:
            process.kill()
            await process.wait()
    assert not is_too_long, lag_s


@pytest.mark.parametrize(("stalls", "is_reported"), [(3, False), (100, True)])
async def test_only_a_lag_that_comes_back_every_time_is_reported(stalls: int, *, is_reported: bool) -> None:
    stalled: list[None] = []

    async def work() -> None:
        await asyncio.sleep(0.01)
        if len(stalled) < stalls:
            stalled.append(None)
            block_for(0.12)  # more than twice the limit

    lag_s, is_too_long = await worst_lag(work, limit_s=0.05, tries=LAG_TRIES)
    assert is_too_long is is_reported
    assert (lag_s > 0.1) is is_reported
