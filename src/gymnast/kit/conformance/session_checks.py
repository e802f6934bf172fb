"""Checks of sessions: many at once do not see each other, forgotten ones expire, none is scored without one."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.kit.conformance.data_checks import unexpected
from gymnast.kit.conformance.findings import Finding
from gymnast.kit.conformance.subject import play, post
from gymnast.wire.calls import Scope

if TYPE_CHECKING:
    from gymnast.kit.conformance.subject import Outcome, Subject

_TTL_S: Final = 0.2


async def check_isolation(subject: Subject, concurrency: int) -> list[Finding]:
    """Rollouts at the same time end as each would alone."""
    cases = [subject.cases[n % len(subject.cases)] for n in range(concurrency)]
    outcomes = await asyncio.gather(*(play(subject, case.request) for case in cases))
    wrong: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for case, outcome in zip(cases, outcomes, strict=True):
        problem = unexpected(case, outcome)
        if problem is not None:
            wrong[case.name] += 1
            examples[case.name] = problem
    step = "keep what belongs to a rollout in its session, not on the environment, the class or a module"
    return [
        Finding(
            f"{count} of {sum(case.name == name for case in cases)} rollouts among {concurrency}: {examples[name]}",
            f"{subject.cases_at} case '{name}'",
            step,
        )
        for name, count in wrong.items()
    ]


async def check_expiry(subject: Subject) -> list[Finding]:
    """A session that nobody used is closed, and what comes after is a failure, never a reward."""
    assert subject.reopened is not None
    base = subject.base
    assert base is not None
    begin, end = ("/reset", "/step") if subject.form == "step" else ("/seed_session", "/verify")
    findings: list[Finding] = []
    never = await post(subject, end, base, Scope())
    if never.status < 400:
        findings.append(_scored_without(subject, end, "a session that was never opened", never))
    async with subject.reopened(_TTL_S) as calls:
        shorter = replace(subject, calls=calls)
        late = await _after_expiry(shorter, begin, end, base)
    if late.status < 400:
        findings.append(_scored_without(subject, end, "a session that expired", late))
    elif late.failure is None or late.failure.kind != "session_expired":
        text = f"a call in an expired session is answered without saying so: {late}"
        findings.append(Finding(text, f"{subject.instance}{end}", "keep sessions in the kit's `self.sessions`"))
    return findings


async def _after_expiry(subject: Subject, begin: str, end: str, base: dict[str, object]) -> Outcome:
    row = {key: value for key, value in base.items() if key != "response"}
    for patience in (3, 10):
        scope = Scope()
        begun = await post(subject, begin, row, scope)
        if begun.status != 200:
            return begun
        await asyncio.sleep(patience * _TTL_S)
        outcome = await post(subject, end, base, scope)
        if outcome.status >= 400:
            break
    return outcome


def _scored_without(subject: Subject, path: str, session: str, outcome: Outcome) -> Finding:
    text = f"POST {path} in {session} is answered with {outcome}"
    return Finding(text, f"{subject.instance}{path}", "refuse it: nothing the model did can be seen any more")
