"""Checks of what an environment's folder holds: example rows and verifier cases, each with its expected outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from gymnast.kit.conformance.findings import Finding
from gymnast.kit.conformance.subject import Outcome, play
from gymnast.types.task import PARAMS, agent_name_of
from gymnast.wire.message import encode
from gymnast.wire.validate import InvalidBody, detail_of, validate_params

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.kit.conformance.cases import Case
    from gymnast.kit.conformance.subject import Subject
    from gymnast.types.json import JsonObject

_REPEATS = 10


async def check_rows(subject: Subject) -> list[Finding]:
    """Example rows fit the create params and the environment's task, and name agents that exist."""
    findings: list[Finding] = []
    seen: dict[bytes, int] = {}
    for number, row in enumerate(subject.rows, 1):
        where = f"{subject.rows_at} row {number}"
        findings += [Finding(what, where, next_) for what, next_ in _row_problems(subject, row)]
        first = seen.setdefault(orjson.dumps(row, option=orjson.OPT_SORT_KEYS), number)
        if first != number:
            findings.append(Finding(f"the row is the same as row {first}", where, "remove one of the two"))
    if not subject.rows:
        findings.append(Finding("there are no example rows", subject.rows_at, "write some: one JSON object a line"))
    return findings


def _row_problems(subject: Subject, row: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(row, dict) or PARAMS not in row:
        yield f"the row is no object with '{PARAMS}'", "add what the model is asked"
        return
    try:
        validate_params(row[PARAMS], loc=(PARAMS,))
    except InvalidBody as error:
        yield f"create params do not fit: {error}", f"correct '{PARAMS}'"
    if subject.task_type is not None:
        try:
            subject.task_type.model_validate(row)
        except ValidationError as error:
            problem = InvalidBody(detail_of(error, ()))
            yield f"the row does not fit {subject.task_type.__name__}: {problem}", "correct the row or the task class"
    agent = agent_name_of(row)
    if agent is not None and agent not in subject.agents:
        known = ", ".join(sorted(subject.agents)) or "none"
        yield f"the row names the agent '{agent}', which the config does not have", f"name one of: {known}"


async def check_cases(subject: Subject) -> list[Finding]:
    """Every verifier case ends as it says."""
    findings: list[Finding] = []
    for case in subject.cases:
        outcome = await play(subject, case.request)
        problem = unexpected(case, outcome)
        if problem is not None:
            findings.append(Finding(problem, f"{subject.cases_at} case '{case.name}'", _next_for(outcome)))
        findings += _reply_findings(subject, case, outcome)
    return findings


def unexpected(case: Case, outcome: Outcome) -> str | None:
    """How an outcome differs from what its case says, or None."""
    if case.expected_error is not None:
        good = outcome.status == case.expected_error and outcome.reward is None
        return None if good else f"expected the error {case.expected_error}, found {outcome}"
    assert case.expected_reward is not None
    if outcome.reward is not None and abs(outcome.reward - case.expected_reward) <= 1e-9:
        return None
    return f"expected reward {case.expected_reward:g}, found {outcome}"


def _next_for(outcome: Outcome) -> str:
    if outcome.is_judge_failure:
        return "configure a scripted judge for the check in data/check.yaml"
    return "run this case alone with `gymnast check env NAME --case CASE`; correct the verifier or the expectation"


def _reply_findings(subject: Subject, case: Case, outcome: Outcome) -> Iterator[Finding]:
    """A reply must be JSON, and that of /verify must echo what it scored."""
    where = f"{subject.cases_at} case '{case.name}'"
    try:
        encode(outcome.body)
    except TypeError as error:
        yield Finding(f"the reply is not JSON: {error}", where, "return JSON data or a pydantic model")
    if outcome.path == "/verify" and outcome.status == 200:
        missing = [key for key in (PARAMS, "response", "reward") if key not in outcome.body]
        if missing:
            yield Finding(f"the reply of /verify lacks {', '.join(missing)}", where, "echo the request's two objects")


async def check_determinism(subject: Subject) -> list[Finding]:
    """The same request has the same reward, alone and beside itself, and comes back unchanged."""
    findings: list[Finding] = []
    for case in subject.cases:
        times = _REPEATS if case.kind == "determinism" else 3
        before = orjson.dumps(case.request)
        outcomes = [await play(subject, case.request) for _ in range(times)]
        outcomes += await asyncio.gather(*(play(subject, case.request) for _ in range(times)))
        where = f"{subject.cases_at} case '{case.name}'"
        ends = sorted({_ending(outcome) for outcome in outcomes})
        if len(ends) > 1:
            text = f"{len(outcomes)} times the same request ended in different ways: {'; '.join(ends[:4])}"
            findings.append(Finding(text, where, "seed what is random from the row; keep no state between rollouts"))
        if orjson.dumps(case.request) != before:
            text = "scoring changed the request, which is shared with the record"
            findings.append(Finding(text, where, "copy what you change"))
    return findings


def _ending(outcome: Outcome) -> str:
    return f"reward {outcome.reward!r}" if outcome.reward is not None else f"status {outcome.status}"


def with_output(base: JsonObject, output: list[Any]) -> JsonObject:
    """The request with another output."""
    return {**base, "response": {**base["response"], "output": output}}
