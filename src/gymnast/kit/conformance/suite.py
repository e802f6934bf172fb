"""The conformance suite: every check in order, each timed, each with its claim. Used by `gymnast check env`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gymnast.kit.conformance.data_checks import check_cases, check_determinism, check_rows
from gymnast.kit.conformance.findings import Finding, Result
from gymnast.kit.conformance.lag import worst_lag
from gymnast.kit.conformance.reply_checks import check_bodies, check_huge, check_outputs, check_tools, huge_requests
from gymnast.kit.conformance.session_checks import check_expiry, check_isolation
from gymnast.kit.conformance.subject import play

if TYPE_CHECKING:
    from gymnast.kit.conformance.subject import Subject
    from gymnast.types.json import JsonObject

_TRIES: Final = 6


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """How hard the suite looks."""

    concurrency: int = 256
    blocking_ms: float = 50.0
    """The event loop may be held up this long; where it is longer it is measured again before it is a finding."""


async def run_suite(subject: Subject, options: SuiteOptions, case_findings: Sequence[Finding] = ()) -> list[Result]:
    """Run all checks. `case_findings` are what reading the cases already found."""
    base = subject.base
    results = [await _timed("examples", "example rows fit", _of(lambda: check_rows(subject)))]
    if base is None:
        text = "there is neither a case of full reward nor an example row"
        nothing = Finding(text, subject.cases_at, "write data/verifier_cases.jsonl and data/example.jsonl")
        return [*results, Result("cases", "every case ends as it says", (*case_findings, nothing))]
    results += await _case_checks(subject, options, case_findings)
    results.append(await _expiry(subject))
    for name, claim, check in (
        ("bodies", "broken bodies are refused, odd rows crash nothing", check_bodies),
        ("outputs", "empty, broken and strange outputs are scored", check_outputs),
        ("huge", "1 MB of output is scored", check_huge),
        ("tools", "unknown tools and wrong arguments are answered", check_tools),
    ):
        results.append(await _timed(name, claim, partial(check, subject, base)))
    results.append(await _blocking(subject, base, options))
    return results


async def _case_checks(subject: Subject, options: SuiteOptions, found: Sequence[Finding]) -> list[Result]:
    cases = await _timed("cases", "every verifier case ends as it says", partial(check_cases, subject))
    cases = replace(cases, findings=(*found, *cases.findings), figures={"cases": len(subject.cases)})
    if not subject.cases:
        return [cases]
    same = await _timed("determinism", "the same request has the same reward", partial(check_determinism, subject))
    claim = f"{options.concurrency} rollouts at once do not see each other"
    apart = await _timed("isolation", claim, partial(check_isolation, subject, options.concurrency))
    per_second = round(options.concurrency / max(apart.seconds, 1e-6))
    return [cases, same, replace(apart, figures={"rollouts per second": per_second})]


async def _expiry(subject: Subject) -> Result:
    claim = "forgotten sessions expire, and then nothing is scored"
    if not subject.stateful:
        return Result("expiry", claim, skipped="the environment keeps no sessions")
    if subject.reopened is None:
        return Result("expiry", claim, skipped="sessions are the application's own")
    return await _timed("expiry", claim, partial(check_expiry, subject))


async def _blocking(subject: Subject, base: JsonObject, options: SuiteOptions) -> Result:
    """The longest hold-up of the event loop over all cases and all huge outputs, one at a time."""
    claim = f"the event loop is never held up beyond {options.blocking_ms:g} ms"
    started, worst, findings = time.perf_counter(), 0.0, list[Finding]()
    requests = [(f"case '{case.name}'", case.request) for case in subject.cases]
    requests += [(name, request) for name, request, _ in huge_requests(base)]
    for name, request in requests:
        held_s = await worst_lag(partial(play, subject, request), enough_s=options.blocking_ms / 1000, tries=_TRIES)
        worst = max(worst, held_s)
        if held_s * 1000 > options.blocking_ms:
            text = f"{name} holds up the event loop for {held_s * 1000:.0f} ms, every rollout in flight with it"
            step = "move the work into a process pool or the sandbox, or bound what the pattern reads"
            findings.append(Finding(text, subject.instance, step))
    seconds = time.perf_counter() - started
    return Result("blocking", claim, tuple(findings), {"worst": f"{worst * 1000:.1f} ms"}, seconds=seconds)


async def _timed(name: str, claim: str, check: Callable[[], Awaitable[list[Finding]]]) -> Result:
    started = time.perf_counter()
    findings = await check()
    return Result(name, claim, tuple(findings), seconds=time.perf_counter() - started)


def _of(check: Callable[[], list[Finding]]) -> Callable[[], Awaitable[list[Finding]]]:
    async def run(*_: Any) -> list[Finding]:
        return check()

    return run
