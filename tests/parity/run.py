"""Compares the environments in turns until the time is over, and keeps the results as it goes."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.parity.compare import Comparison, Kind, compare, find_differences
from tests.parity.generate import Request, make_request
from tests.parity.minimise import minimise
from tests.parity.original_process import PROGRAM, OriginalError, OriginalProcess
from tests.parity.ours import Ours
from tests.parity.results import Difference, Results, Tally
from tests.parity.seeds import load_seeds

_STRICT_EVERY: Final = 10
_MAX_MINIMISED: Final = 3
_OURS_S: Final = 600
_REPEATS: Final = 40
RANDOM: Final = "the original draws random numbers"


@dataclass(frozen=True)
class Plan:
    """What is compared, with what, for how long."""

    checkout: Path
    python: str
    environments: Sequence[str]
    minutes: float
    seed: int
    slice_s: float = 60.0
    max_requests: int | None = None
    """In each environment; for tests."""
    program: Path = PROGRAM
    rows: Path | None = None
    """A folder with more rows to start from."""


class Pair:
    """Both sides of an environment."""

    def __init__(self, original: OriginalProcess, ours: Ours) -> None:
        self.original, self.ours = original, ours

    async def check(self, request: Request) -> Comparison:
        """Score a request on both sides."""
        theirs, mine = await asyncio.gather(self.original.score(request), self._score_ours(request))
        comparison = compare(request, theirs, mine)
        if comparison.kind is Kind.DIFFERENT and await self._is_random(request, theirs):
            return Comparison(Kind.BY_DESIGN, comparison.fields, RANDOM)
        return comparison

    async def _is_random(self, request: Request, replies: list[dict[str, Any]]) -> bool:
        """Whether the original contradicts itself."""
        for _ in range(_REPEATS):
            if find_differences(replies, await self.original.score(request)):
                return True
        return False

    async def _score_ours(self, request: Request) -> list[dict[str, Any]]:
        try:
            return await asyncio.wait_for(self.ours.score(request), _OURS_S)
        except Exception as error:
            return [{"status": type(error).__name__, "body": str(error)}]

    async def has_other_reward(self, request: Request) -> bool | None:
        """Whether `strict` gives another reward or refuses; None if the default refuses too."""
        default = await self._score_ours(request)
        strict = await self._score_ours({**request, "settings": {**request["settings"], "scoring": "strict"}})
        if default[-1]["status"] != 200:
            return None
        return [_reward(reply) for reply in default] != [_reward(reply) for reply in strict]


def _reward(reply: dict[str, Any]) -> Any:
    return reply["body"].get("reward") if reply["status"] == 200 and isinstance(reply["body"], dict) else None


async def run(plan: Plan, results: Results, save: Callable[[], None], say: Callable[[str], None]) -> None:
    """Compare until the time is over."""
    results.seed, results.commit = plan.seed, _find_commit(plan.checkout)
    watch = _Watch(results)
    deadline = time.monotonic() + plan.minutes * 60
    async with OriginalProcess(plan.python, plan.checkout, plan.program) as originals:
        while time.monotonic() < deadline:
            before = sum(tally.next for tally in results.environments.values())
            for name in plan.environments:
                if time.monotonic() >= deadline:
                    break
                try:
                    await _run_slice(plan, name, results, deadline, originals)
                except OriginalError as error:
                    say(f"{name}: {error}")
                    continue
                watch.update()
                save()
                tally = results.tally(name)
                say(f"{name}: {tally.compared:,} compared, {tally.refused:,} refused, {tally.different:,} differing")
                for message, count in originals.errors.most_common(3):
                    say(f"  {count} times: {message}")
            if sum(tally.next for tally in results.environments.values()) == before:
                break  # every environment has its share
    watch.update()
    save()


async def _run_slice(plan: Plan, name: str, results: Results, deadline: float, originals: OriginalProcess) -> None:
    tally, seeds = results.tally(name), load_seeds(name, plan.checkout, plan.rows)
    async with originals.opened(name) as original, Ours(name, plan.checkout) as ours:
        pair = Pair(original, ours)
        until = deadline
        while time.monotonic() < until and (plan.max_requests is None or tally.next < plan.max_requests):
            number = tally.next
            request = make_request(name, seeds, plan.seed, number)
            comparison = await pair.check(request)
            tally.count(comparison)
            if comparison.kind is Kind.DIFFERENT and results.wants(name, comparison.signature):
                await _keep(pair, results, request, comparison, number)
            if comparison.kind is Kind.EQUAL and number % _STRICT_EVERY == 0:
                await _count_strict(pair, tally, request)
            if until == deadline:  # what starts with the first request does not count
                until = min(deadline, time.monotonic() + plan.slice_s)


async def _keep(pair: Pair, results: Results, request: Request, comparison: Comparison, number: int) -> None:
    name, signature = request["environment"], comparison.signature
    alike = sum((one.environment, one.signature) == (name, signature) for one in results.differences)
    if alike < _MAX_MINIMISED:
        request = await minimise(request, signature, pair.check)
        smaller = await pair.check(request)
        comparison = smaller if smaller.kind is Kind.DIFFERENT else comparison
    kept = Difference(environment=name, number=number, signature=signature, request=request, fields=comparison.fields)
    results.differences.append(kept)


async def _count_strict(pair: Pair, tally: Tally, request: Request) -> None:
    other = await pair.has_other_reward(request)
    if other is not None:
        tally.strict_compared += 1
        tally.strict_other_reward += other


async def replay(plan: Plan, results: Results, say: Callable[[str], None]) -> list[Difference]:
    """Score the kept differences again; returns those that still differ."""
    left: list[Difference] = []
    async with OriginalProcess(plan.python, plan.checkout, plan.program) as originals:
        for name in sorted({one.environment for one in results.differences}):
            async with originals.opened(name) as original, Ours(name, plan.checkout) as ours:
                pair = Pair(original, ours)
                for one in [one for one in results.differences if one.environment == name]:
                    comparison = await pair.check(one.request)
                    say(f"{name} {one.number}: {comparison.rule or comparison.kind}")
                    if comparison.kind is Kind.DIFFERENT:
                        left.append(one.model_copy(update={"fields": comparison.fields}))
    return left


class _Watch:
    """Adds the time since the last look to the results."""

    def __init__(self, results: Results) -> None:
        self._results, self._last = results, (time.monotonic(), _cpu_s())

    def update(self) -> None:
        now = (time.monotonic(), _cpu_s())
        self._results.wall_s += now[0] - self._last[0]
        self._results.cpu_s += now[1] - self._last[1]
        self._last = now


def _cpu_s() -> float:
    """CPU time of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _find_commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short=9", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip()
