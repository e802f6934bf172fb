"""The conformance suite: runs and times every check in order. Used by `gymnast check env`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gymnast.checks.conformance.cases import CASE_SHAPE
from gymnast.checks.conformance.data_checks import check_cases, check_determinism, check_rows
from gymnast.checks.conformance.loop_lag import worst_lag
from gymnast.checks.conformance.reply_checks import check_bodies, check_huge, check_outputs, check_tools, huge_requests
from gymnast.checks.conformance.results import CheckResult
from gymnast.checks.conformance.session_checks import check_expiry, check_isolation
from gymnast.checks.conformance.subject import play
from gymnast.errors import Problem

if TYPE_CHECKING:
    from gymnast.checks.conformance.subject import Subject
    from gymnast.types.json import JsonObject

Check = Callable[[], Awaitable[Any]]
LAG_TRIES: Final = 10
_MAX_PROBLEMS: Final = 5
"""Problems after which a slow check stops."""


CHECKS: Final = (
    *("examples", "cases", "determinism", "isolation", "expiry"),
    *("bodies", "outputs", "huge", "tools", "blocking"),
)


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    concurrency: int = 256
    blocking_ms: float = 50.0
    """The longest allowed block of the event loop; a longer one is measured again before it is reported."""
    only: frozenset[str] = frozenset(CHECKS)
    """The checks to run."""


async def run_suite(
    subject: Subject, options: SuiteOptions, data_problems: Sequence[Problem] = ()
) -> list[CheckResult]:
    """Run the checks. `data_problems`: problems found when reading the rows and cases."""
    base = subject.base
    results = [CheckResult("data", "example rows and verifier cases can be read", tuple(data_problems))]
    if base is None:
        text = "there is neither a full_reward case nor an example row"
        problem = Problem(text, subject.cases_path, "write data/verifier_cases.jsonl and data/example.jsonl")
        return [*results, CheckResult("cases", _CASES_CLAIM, (problem,))]
    if not subject.cases and "cases" in options.only:
        results.append(CheckResult("cases", _CASES_CLAIM, skipped=_no_cases(subject)))
    for name, claim, check in _checks(subject, base, options):
        if name in options.only:
            results.append(await check() if name in _OWN_RESULT else await _run_timed(name, claim, check))
    return results


def _no_cases(subject: Subject) -> str:
    return f"there are no verifier cases, so no reward was checked; write some into {subject.cases_path}: {CASE_SHAPE}"


_CASES_CLAIM: Final = "every verifier case has its expected outcome"
_OWN_RESULT: Final = frozenset({"isolation", "expiry", "blocking"})


def _checks(subject: Subject, base: JsonObject, options: SuiteOptions) -> Iterator[tuple[str, str, Check]]:
    yield "examples", "example rows match the task", partial(check_rows, subject)
    if subject.cases:
        yield "cases", _CASES_CLAIM, partial(check_cases, subject)
        yield "determinism", "the same request gets the same reward", partial(check_determinism, subject)
        yield "isolation", "", partial(_check_isolation, subject, options)
    yield "expiry", "", partial(_check_expiry, subject)
    yield "bodies", "broken bodies are rejected, odd rows do not crash", partial(check_bodies, subject, base)
    yield "outputs", "empty, broken and odd outputs are scored", partial(check_outputs, subject, base)
    yield "huge", "1 MB of output is scored", partial(check_huge, subject, base)
    yield "tools", "unknown tools and wrong arguments are answered", partial(check_tools, subject, base)
    yield "blocking", "", partial(_check_blocking, subject, base, options)


async def _check_isolation(subject: Subject, options: SuiteOptions) -> CheckResult:
    claim = f"{options.concurrency} concurrent rollouts are isolated from each other"
    result = await _run_timed("isolation", claim, partial(check_isolation, subject, options.concurrency))
    return replace(result, figures={"rollouts per second": round(options.concurrency / max(result.seconds, 1e-6))})


async def _check_expiry(subject: Subject) -> CheckResult:
    claim = "idle sessions expire, and nothing is scored in them"
    if not subject.stateful:
        return CheckResult("expiry", claim, skipped="the environment has no sessions")
    if subject.reopen is None:
        return CheckResult("expiry", claim, skipped="scoring needs no session, or sessions are not the kit's")
    return await _run_timed("expiry", claim, partial(check_expiry, subject))


async def _check_blocking(subject: Subject, base: JsonObject, options: SuiteOptions) -> CheckResult:
    """The longest block of the event loop over all cases and huge outputs, played one at a time."""
    claim = f"the event loop is blocked for at most {options.blocking_ms:g} ms, on an ordinary core"
    if not subject.calls.address(subject.instance).startswith("in-process"):
        return CheckResult("blocking", claim, skipped="it runs in its own process, where it blocks only itself")
    started, worst, problems = time.perf_counter(), 0.0, list[Problem]()
    requests = [(f"case '{case.name}'", case.request) for case in subject.cases]
    requests += [(name, request) for name, request, _ in huge_requests(base)]
    for name, request in requests:
        limit_s = options.blocking_ms / 1000
        lag_s, is_too_long = await worst_lag(partial(play, subject, request), limit_s=limit_s, tries=LAG_TRIES)
        worst = max(worst, lag_s)
        if len(problems) == _MAX_PROBLEMS:
            break
        if is_too_long:
            text = f"{name} blocks the event loop, and every rollout in flight, for {lag_s * 1000:.0f} ms"
            step = "move the work into a process pool or the sandbox, or limit the text the pattern scans"
            problems.append(Problem(text, subject.instance, step))
    seconds = time.perf_counter() - started
    return CheckResult("blocking", claim, tuple(problems), {"worst": f"{worst * 1000:.1f} ms"}, seconds=seconds)


async def _run_timed(name: str, claim: str, check: Check) -> CheckResult:
    started = time.perf_counter()
    problems = await check()
    return CheckResult(name, claim, tuple(problems), seconds=time.perf_counter() - started)
