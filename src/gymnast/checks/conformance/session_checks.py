"""Session checks: concurrent sessions are isolated, idle ones expire, and nothing is scored without a session."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.checks.conformance.data_checks import find_mismatch
from gymnast.checks.conformance.subject import play, post, row_of
from gymnast.errors import Problem
from gymnast.types.failure import FailureKind
from gymnast.wire.calls import Scope

if TYPE_CHECKING:
    from gymnast.checks.conformance.subject import Outcome, Subject
    from gymnast.types.json import JsonObject

_TTL_S: Final = 0.2


async def check_isolation(subject: Subject, concurrency: int) -> list[Problem]:
    """Concurrent rollouts have the same outcomes as sequential ones."""
    cases = [subject.cases[n % len(subject.cases)] for n in range(concurrency)]
    outcomes = await asyncio.gather(*(play(subject, case.request) for case in cases))
    wrong: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for case, outcome in zip(cases, outcomes, strict=True):
        problem = find_mismatch(case, outcome)
        if problem is not None:
            wrong[case.name] += 1
            examples[case.name] = problem
    step = "keep a rollout's state in its session, not on the environment, the class or a module"
    return [
        Problem(
            f"{count} of {sum(case.name == name for case in cases)} concurrent rollouts failed: {examples[name]}",
            f"{subject.cases_path} case '{name}'",
            step,
        )
        for name, count in wrong.items()
    ]


async def check_expiry(subject: Subject) -> list[Problem]:
    """An idle session expires, and later calls in it fail instead of getting a reward."""
    assert subject.reopen is not None
    base = subject.base
    assert base is not None
    problems: list[Problem] = []
    unopened = await post(subject, subject.score_path, base, Scope())
    if unopened.status < 400:
        problems.append(_lost_session_problem(subject, "a session that was never opened", unopened))
    async with subject.reopen(_TTL_S) as calls:
        late = await _score_after_expiry(replace(subject, calls=calls), base)
    if late.status < 400:
        problems.append(_lost_session_problem(subject, "an expired session", late))
    elif late.failure is None or late.failure.kind != FailureKind.SESSION_EXPIRED:
        text = f"a call in an expired session does not fail with session_expired: {late}"
        where = f"{subject.instance}{subject.score_path}"
        problems.append(Problem(text, where, "keep sessions in the kit's `self.sessions`"))
    return problems


async def _score_after_expiry(subject: Subject, base: JsonObject) -> Outcome:
    for patience in (3, 10):
        scope = Scope()
        opened = await post(subject, subject.open_path, row_of(base), scope)
        if opened.status != 200:
            return opened
        await asyncio.sleep(patience * _TTL_S)
        outcome = await post(subject, subject.score_path, base, scope)
        if outcome.status >= 400:
            break
    return outcome


def _lost_session_problem(subject: Subject, session: str, outcome: Outcome) -> Problem:
    text = f"POST {subject.score_path} in {session} returns {outcome}"
    return Problem(text, f"{subject.instance}{subject.score_path}", "reject it: the model's actions are lost")
