"""Checks of an environment's data: example rows, and verifier cases with their expected outcomes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from gymnast.checks.conformance.subject import Outcome, play
from gymnast.errors import Problem
from gymnast.types.task import PARAMS, agent_name_of
from gymnast.wire.message import encode_body
from gymnast.wire.validate import InvalidBody, error_detail, validate_params

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.checks.conformance.cases import Case
    from gymnast.checks.conformance.subject import Subject
    from gymnast.types.json import JsonObject

_REPEATS = 10


async def check_rows(subject: Subject) -> list[Problem]:
    """Example rows match the create params and the environment's task, and name existing agents."""
    problems: list[Problem] = []
    seen: dict[bytes, int] = {}
    for number, row in enumerate(subject.rows, 1):
        where = f"{subject.rows_path} row {number}"
        problems += [Problem(what, where, next_) for what, next_ in _row_problems(subject, row)]
        first = seen.setdefault(orjson.dumps(row, option=orjson.OPT_SORT_KEYS), number)
        if first != number:
            problems.append(Problem(f"duplicate of row {first}", where, "remove one of them"))
    if not subject.rows:
        problems.append(Problem("there are no example rows", subject.rows_path, "add some, one JSON object per line"))
    return problems


def _row_problems(subject: Subject, row: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(row, dict) or PARAMS not in row:
        yield f"the row is not an object with '{PARAMS}'", "add the model's prompt"
        return
    try:
        validate_params(row[PARAMS], loc=(PARAMS,))
    except InvalidBody as error:
        yield f"invalid create params: {error}", f"correct '{PARAMS}'"
    if subject.task_type is not None:
        try:
            subject.task_type.model_validate(row)
        except ValidationError as error:
            problem = InvalidBody(error_detail(error, ()))
            yield f"the row does not match {subject.task_type.__name__}: {problem}", "correct the row or the task class"
    agent = agent_name_of(row)
    if agent is not None and agent not in subject.agents:
        known = ", ".join(sorted(subject.agents)) or "none"
        yield f"the row's agent '{agent}' is not in the config", f"use one of: {known}"


async def check_cases(subject: Subject) -> list[Problem]:
    """Every verifier case has its expected outcome."""
    problems: list[Problem] = []
    for case in subject.cases:
        outcome = await play(subject, case.request)
        problem = find_mismatch(case, outcome)
        if problem is not None:
            problems.append(Problem(problem, f"{subject.cases_path} case '{case.name}'", _next_step(outcome)))
        problems += _reply_problems(subject, case, outcome)
    return problems


def find_mismatch(case: Case, outcome: Outcome) -> str | None:
    """How an outcome differs from the case's expectation, or None."""
    if case.expected_error is not None:
        matches = outcome.status == case.expected_error and outcome.reward is None
        return None if matches else f"expected the error {case.expected_error}, got {outcome}"
    assert case.expected_reward is not None
    if outcome.reward is not None and abs(outcome.reward - case.expected_reward) <= 1e-9:
        return None
    return f"expected reward {case.expected_reward:g}, got {outcome}"


def _next_step(outcome: Outcome) -> str:
    if outcome.is_judge_failure:
        return "configure a scripted judge in data/check.yaml"
    return "run this case alone with `gymnast check env NAME --case CASE`; correct the verifier or the expectation"


def _reply_problems(subject: Subject, case: Case, outcome: Outcome) -> Iterator[Problem]:
    """A reply must be JSON, and a /verify reply must echo what it scored."""
    where = f"{subject.cases_path} case '{case.name}'"
    try:
        encode_body(outcome.body)
    except TypeError as error:
        yield Problem(f"the reply is not JSON: {error}", where, "return JSON data or a pydantic model")
    if outcome.path == "/verify" and outcome.status == 200:
        missing = [key for key in (PARAMS, "response", "reward") if key not in outcome.body]
        if missing:
            yield Problem(f"the /verify reply lacks {', '.join(missing)}", where, "echo the request's objects")


async def check_determinism(subject: Subject) -> list[Problem]:
    """The same request gets the same reward, sequentially and concurrently, and is not modified."""
    problems: list[Problem] = []
    for case in subject.cases:
        times = _REPEATS if case.kind == "determinism" else 3
        before = orjson.dumps(case.request)
        outcomes = [await play(subject, case.request) for _ in range(times)]
        outcomes += await asyncio.gather(*(play(subject, case.request) for _ in range(times)))
        where = f"{subject.cases_path} case '{case.name}'"
        endings = sorted({_describe_outcome(outcome) for outcome in outcomes})
        if len(endings) > 1:
            text = f"the same request, sent {len(outcomes)} times, had different outcomes: {'; '.join(endings[:4])}"
            problems.append(Problem(text, where, "seed randomness from the row; keep no state between rollouts"))
        if orjson.dumps(case.request) != before:
            text = "scoring modified the request, which is shared with the record"
            problems.append(Problem(text, where, "copy it before changing it"))
    return problems


def _describe_outcome(outcome: Outcome) -> str:
    return f"reward {outcome.reward!r}" if outcome.reward is not None else f"status {outcome.status}"


def with_output(base: JsonObject, output: list[Any]) -> JsonObject:
    """The request with another output."""
    return {**base, "response": {**base["response"], "output": output}}
