"""The conformance suite: every check in order, each timed, each with its claim. Used by `gymnast check env`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
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

Check = Callable[[], Awaitable[Any]]
_TRIES: Final = 6
_ENOUGH: Final = 5
"""Findings of one kind after which a slow check stops looking."""


CHECKS: Final = (
    *("examples", "cases", "determinism", "isolation", "expiry"),
    *("bodies", "outputs", "huge", "tools", "blocking"),
)


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """How hard the suite looks."""

    concurrency: int = 256
    blocking_ms: float = 50.0
    """The event loop may be held up this long; where it is longer it is measured again before it is a finding."""
    only: frozenset[str] = frozenset(CHECKS)
    """The checks to run."""


async def run_suite(subject: Subject, options: SuiteOptions, data_findings: Sequence[Finding] = ()) -> list[Result]:
    """Run the checks. `data_findings` are what reading the folder's data already found."""
    base = subject.base
    results = [Result("data", "example rows and verifier cases can be read", tuple(data_findings))]
    if base is None:
        text = "there is neither a case of full reward nor an example row"
        nothing = Finding(text, subject.cases_at, "write data/verifier_cases.jsonl and data/example.jsonl")
        return [*results, Result("cases", "every verifier case ends as it says", (nothing,))]
    for name, claim, check in _checks(subject, base, options):
        if name in options.only:
            results.append(await check() if name in _OWN_RESULT else await _timed(name, claim, check))
    return results


_OWN_RESULT: Final = frozenset({"isolation", "expiry", "blocking"})


def _checks(subject: Subject, base: JsonObject, options: SuiteOptions) -> Iterator[tuple[str, str, Check]]:
    yield "examples", "example rows fit", partial(check_rows, subject)
    if subject.cases:
        yield "cases", "every verifier case ends as it says", partial(check_cases, subject)
        yield "determinism", "the same request has the same reward", partial(check_determinism, subject)
        yield "isolation", "", partial(_isolation, subject, options)
    yield "expiry", "", partial(_expiry, subject)
    yield "bodies", "broken bodies are refused, odd rows crash nothing", partial(check_bodies, subject, base)
    yield "outputs", "empty, broken and strange outputs are scored", partial(check_outputs, subject, base)
    yield "huge", "1 MB of output is scored", partial(check_huge, subject, base)
    yield "tools", "unknown tools and wrong arguments are answered", partial(check_tools, subject, base)
    yield "blocking", "", partial(_blocking, subject, base, options)


async def _isolation(subject: Subject, options: SuiteOptions) -> Result:
    claim = f"{options.concurrency} rollouts at once do not see each other"
    apart = await _timed("isolation", claim, partial(check_isolation, subject, options.concurrency))
    return replace(apart, figures={"rollouts per second": round(options.concurrency / max(apart.seconds, 1e-6))})


async def _expiry(subject: Subject) -> Result:
    claim = "forgotten sessions expire, and then nothing is scored"
    if not subject.stateful:
        return Result("expiry", claim, skipped="the environment keeps no sessions")
    if subject.reopened is None:
        return Result("expiry", claim, skipped="scoring needs no session, or sessions are the application's own")
    return await _timed("expiry", claim, partial(check_expiry, subject))


async def _blocking(subject: Subject, base: JsonObject, options: SuiteOptions) -> Result:
    """The longest hold-up of the event loop over all cases and all huge outputs, one at a time."""
    claim = f"the event loop is held up for {options.blocking_ms:g} ms at most, on an ordinary core"
    if not subject.calls.address(subject.instance).startswith("in-process"):
        return Result("blocking", claim, skipped="it runs in a process of its own, where it holds up only itself")
    started, worst, findings = time.perf_counter(), 0.0, list[Finding]()
    requests = [(f"case '{case.name}'", case.request) for case in subject.cases]
    requests += [(name, request) for name, request, _ in huge_requests(base)]
    for name, request in requests:
        limit_s = options.blocking_ms / 1000
        held_s, is_beyond = await worst_lag(partial(play, subject, request), limit_s=limit_s, tries=_TRIES)
        worst = max(worst, held_s)
        if len(findings) == _ENOUGH:
            break
        if is_beyond:
            text = f"{name} holds up the event loop for {held_s * 1000:.0f} ms, every rollout in flight with it"
            step = "move the work into a process pool or the sandbox, or bound what the pattern reads"
            findings.append(Finding(text, subject.instance, step))
    seconds = time.perf_counter() - started
    return Result("blocking", claim, tuple(findings), {"worst": f"{worst * 1000:.1f} ms"}, seconds=seconds)


async def _timed(name: str, claim: str, check: Check) -> Result:
    started = time.perf_counter()
    findings = await check()
    return Result(name, claim, tuple(findings), seconds=time.perf_counter() - started)
