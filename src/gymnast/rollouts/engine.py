"""The engine: starts attempts while there is room, keeps each outcome, tries again what may succeed, and ends.

It owns the order of things; every decision is made by a pure part: how many (`concurrency`), again or not (`retry`), at
all or not (`prospects`). It never waits without something that ends the wait.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.rollouts.attempt import Failed, Outcome, Scored, failure_line
from gymnast.rollouts.book import LATER
from gymnast.rollouts.budget import Budget
from gymnast.rollouts.concurrency import ConcurrencyLimit
from gymnast.rollouts.executor import Executor, Job
from gymnast.rollouts.prospects import Prospects
from gymnast.rollouts.reproducible import reproducible
from gymnast.rollouts.retry import DEFAULT_ROLLOUT_TIMEOUT_S, RetryPolicy
from gymnast.rollouts.stacks import stack_of
from gymnast.rollouts.tally import Tally
from gymnast.store.manifest import RunState
from gymnast.types.events import Event, RolloutFailed, RolloutScored
from gymnast.types.failure import FailureDetail, Stage, kind_named
from gymnast.types.task import RolloutKey, agent_name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gymnast.rollouts.book import Book, Owed
    from gymnast.types.json import JsonObject

DEFAULT_CAP: Final = 4096
_TICK_S: Final = 0.25
_TIMER_SLACK_S: Final = 0.002
"""uvloop's timers count milliseconds and may fire early: a retry not yet due by then would wait for the next tick."""
_SAVE_EVERY_S: Final = 5.0
_MOST_PARKED: Final = 4096

_MOST_STACKS: Final = 5

Listen = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a plan is run."""

    concurrency: int | None = None
    """Rollouts in flight at most; None lets the engine find its level."""
    rollout_timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    give_up_after_s: float = 600.0
    """How long something may be out of reach before its rollouts are given up."""
    agent_limits: Mapping[str, int] = field(default_factory=dict)
    cap: int = DEFAULT_CAP
    """What the host allows."""
    budget: Budget = field(default_factory=Budget)
    """What may be spent."""
    read_ahead: int = _MOST_PARKED
    """Rows read ahead while their agents are at their limits."""
    reproducible: bool = False
    """Keep records without times and made-up ids (`rollouts.reproducible`)."""


class Engine:
    """Runs the owed rollouts of a book."""

    def __init__(
        self, book: Book, executor: Executor, options: EngineOptions, listen: Listen, agents: list[str]
    ) -> None:
        self.book = book
        self.options = options
        self.limit = ConcurrencyLimit(
            min(options.concurrency or options.cap, options.cap), fixed_start=options.concurrency is not None
        )
        self.prospects = Prospects(give_up_after_s=options.give_up_after_s)
        self.tally = Tally()
        self.in_flight: dict[RolloutKey, Job] = {}
        self.paused = False
        self.held = False
        """Nothing is started because whoever takes the results has not caught up."""
        self.draining: str | None = None
        """Why no more attempts are started, or None."""
        self.is_out_of_budget = False
        self.loop_lag_s = 0.0
        self.longest_lag_s = 0.0
        self._executor = executor
        self._listen = listen
        self._only_agent = agents[0] if len(agents) == 1 else None
        self._fresh: Iterator[Owed] | None = book.owed()
        self._parked: dict[str, deque[Job]] = defaultdict(deque)
        self._retries: list[tuple[float, int, Job]] = []
        self._retry_budget = options.retry.budget(book.requested) - book.retries_made
        self._sequence = count()
        self._running: Counter[str] = Counter()
        self._tasks: dict[RolloutKey, asyncio.Task[None]] = {}
        self._cancelled: set[RolloutKey] = set()
        self._ended = asyncio.Event()
        self._fatal: BaseException | None = None

    # --- the run -----------------------------------------------------------------------------------------------------

    async def run(self) -> RunState:
        """Run until nothing is left to do, or until told to stop."""
        rejections = self._executor.signals.listeners
        rejections.append(self._rejected)
        self._mind_budget()
        self._fill()
        ticker = asyncio.create_task(self._tick_for_ever())
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            self.stop_now("cancelled")
            raise
        finally:
            rejections.remove(self._rejected)
            ticker.cancel()
            await asyncio.gather(ticker, *self._tasks.values(), return_exceptions=True)
        if self._fatal is not None:
            raise self._fatal
        return self._state()

    def drain(self, why: str) -> None:
        """Start nothing more; the run ends when what is in flight has ended."""
        self.draining = self.draining or why
        self._fill()

    def stop_now(self, why: str) -> None:
        """End at once. What is in flight is abandoned and stays owed."""
        self.draining = self.draining or why
        for task in self._tasks.values():
            task.cancel()
        self._ended.set()

    def cancel(self, key: RolloutKey) -> bool:
        """Cancel one rollout for good. False if it is not in flight."""
        task = self._tasks.get(key)
        if task is None:
            return False
        self._cancelled.add(key)
        task.cancel()
        return True

    def abandon(self, unwanted: Callable[[RolloutKey], bool]) -> None:
        """Forget rollouts that are somebody else's now: what is in flight of them ends without an outcome."""
        self._retries = [entry for entry in self._retries if not unwanted(entry[2].key)]
        heapq.heapify(self._retries)
        for agent, jobs in self._parked.items():
            self._parked[agent] = deque(job for job in jobs if not unwanted(job.key))
        for key, task in self._tasks.items():
            if unwanted(key):
                task.cancel()

    def nudge(self) -> None:
        """The book may have more to give."""
        self._fill()

    def pause(self, *, paused: bool) -> None:
        """Start nothing for the time being, or go on."""
        self.paused = paused
        self._fill()

    def hold(self, *, held: bool) -> None:
        """Like a pause, for a slow taker of results: theirs alone, so that neither ends the other's."""
        if held != self.held:
            self.held = held
            self._fill()

    def set_concurrency(self, number: int) -> None:
        """Another limit from now on."""
        self.limit.set_cap(min(number, self.options.cap))
        self._fill()

    def stacks(self) -> list[JsonObject]:
        """Where the oldest attempts stand in the code, for whoever asks what is stuck."""
        now = time.monotonic()
        oldest = sorted(self.in_flight.values(), key=lambda job: job.started)[:_MOST_STACKS]
        return [stack_of(job, self._tasks.get(job.key), now) for job in oldest]

    def waiting_retries(self) -> int:
        return len(self._retries)

    @property
    def is_at_rest(self) -> bool:
        """Nothing is in flight, and nothing that was begun waits to be tried again."""
        return not (self.in_flight or self._retries or any(self._parked.values()))

    @property
    def retry_budget_is_used_up(self) -> bool:
        return self._retry_budget <= 0

    # --- starting ----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Start as many attempts as there is room for. Called whenever something may have changed."""
        try:
            now = time.monotonic()
            while not (self.draining or self.paused or self.held or self._ended.is_set()):
                if len(self.in_flight) >= self.limit.current:
                    break
                job = self._next(now)
                if job is None:
                    break
                self._start(job, now)
            if not self.in_flight and (self.draining or self._nothing_left()):
                self._ended.set()
        except BaseException as error:  # noqa: BLE001 - runs in callbacks: the error must reach run()
            self._fail(error)

    def _next(self, now: float) -> Job | None:
        """A job that may start now: a retry that is due, a parked one, or the next of the plan."""
        while self._retries and self._retries[0][0] <= now:
            job = heapq.heappop(self._retries)[2]
            if self._may_start(job.agent, now):
                return job
            self._park(job)
        for jobs in self._parked.values():
            if jobs and self._may_start(jobs[0].agent, now):
                return jobs.popleft()
        for agent in self.prospects.reasons():
            self._parked.pop(agent, None)  # they stay owed, and make room for others
        # What nobody takes out of the book yet can still be given to other workers.
        return None if self._all_given_up() or self._is_full(self._only_agent or "") else self._next_of_plan(now)

    def _next_of_plan(self, now: float) -> Job | None:
        while self._fresh is not None and sum(map(len, self._parked.values())) < self.options.read_ahead:
            item = next(self._fresh, None)
            if item is None:
                self._fresh = None
                return None
            if item is LATER:  # asked again whenever something may have changed, and at every tick
                return None
            job = self._job(*item)
            if self._may_start(job.agent, now):
                return job
            self._park(job)
        return None

    def _job(self, key: RolloutKey, line: bytes) -> Job:
        agent = self._only_agent or agent_name_of(orjson.loads(line)) or ""
        return Job(key, line, agent, self.book.attempts_of(key))

    def _may_start(self, agent: str, now: float) -> bool:
        return not self._is_full(agent) and self.prospects.may_start(agent, now)

    def _is_full(self, agent: str) -> bool:
        allowed = self.options.agent_limits.get(agent)
        return allowed is not None and self._running[agent] >= allowed

    def _park(self, job: Job) -> None:
        """Keep a job for later, unless its agent was given up: then it stays owed."""
        if self.prospects.given_up(job.agent) is None:
            self._parked[job.agent].append(job)

    def _start(self, job: Job, now: float) -> None:
        job.started = now
        self.in_flight[job.key] = job
        self._running[job.agent] += 1
        self._tasks[job.key] = asyncio.create_task(self._one(job))

    def _nothing_left(self) -> bool:
        if self._fresh is not None and not self._all_given_up():
            return False
        return not self._retries and not any(
            jobs and self.prospects.given_up(agent) is None for agent, jobs in self._parked.items()
        )

    def _all_given_up(self) -> bool:
        reasons = self.prospects.reasons()
        return bool(reasons) and self._only_agent in reasons

    # --- ending ------------------------------------------------------------------------------------------------------

    async def _one(self, job: Job) -> None:
        try:
            outcome = await self._executor.attempt(job, self.options.rollout_timeout_s)
            self._settle(job, outcome)
        except asyncio.CancelledError:
            if job.key in self._cancelled:
                self._settle(job, _cancelled(job))
            elif job.trail.account is not None:
                self.book.spend(job.trail.account.usage())  # abandoned, and paid for
        except BaseException as error:  # noqa: BLE001 - a bug or a full disk: the run cannot go on
            self._fail(error)
        finally:
            del self.in_flight[job.key]
            self._running[job.agent] -= 1
            self._tasks.pop(job.key, None)
            self._fill()

    def _settle(self, job: Job, outcome: Outcome) -> None:
        now = time.monotonic()
        self.book.spend(outcome.usage)
        self._mind_budget()
        if isinstance(outcome, Scored):
            line = reproducible(outcome.line) if self.options.reproducible else outcome.line
            self.book.keep_scored(job.key, line, persisted=outcome.persisted)
            self.prospects.scored(job.agent)
            self.limit.finished(now, outcome.seconds, len(self.in_flight) - 1)
            self._tell(
                RolloutScored(
                    job.key.task,
                    job.key.rollout,
                    job.agent,
                    outcome.reward,
                    outcome.seconds,
                    outcome.input_tokens,
                    outcome.output_tokens,
                )
            )
        else:
            self._settle_failure(job, outcome, now)

    def _settle_failure(self, job: Job, outcome: Failed, now: float) -> None:
        detail, retry = outcome.detail, self.options.retry
        final = retry.is_final(detail, job.attempts + 1)
        line = failure_line(job.line, outcome, index=job.attempts, final=final, run_id=self.book.run_id)
        self.book.keep_failed(job.key, line, detail.kind, final=final)
        self.prospects.failed(job.agent, detail, now)
        if not final and self._retry_budget > 0:
            self._retry_later(job, detail, now)
        kind = kind_named(detail.kind)
        what = (detail.kind, kind.layer.value, detail.stage.value, detail.message)
        self._tell(RolloutFailed(job.key.task, job.key.rollout, job.agent, *what, outcome.seconds, final))

    def _mind_budget(self) -> None:
        """Admit nothing more once the budget is used up; what is in flight may finish."""
        if not self.is_out_of_budget and (why := self.options.budget.used_up(self.book.spent)) is not None:
            self.is_out_of_budget = True
            self.draining = self.draining or why

    def _retry_later(self, job: Job, detail: FailureDetail, now: float) -> None:
        self._retry_budget -= 1
        self.book.retries_made += 1
        again = Job(job.key, job.line, job.agent, job.attempts + 1)
        delay = self.options.retry.delay_s(detail, again.attempts, random.random())  # noqa: S311 - jitter
        heapq.heappush(self._retries, (now + delay, next(self._sequence), again))
        if delay < _TICK_S:
            asyncio.get_running_loop().call_later(delay + _TIMER_SLACK_S, self._fill)

    def _state(self) -> RunState:
        if self.book.counts().owed == 0:
            return RunState.COMPLETE
        return RunState.INTERRUPTED if self.draining else RunState.INCOMPLETE

    def _fail(self, error: BaseException) -> None:
        self._fatal = self._fatal or error
        self._ended.set()
        for task in self._tasks.values():
            task.cancel()

    def _rejected(self, latency_s: float) -> None:
        self.limit.rejected(time.monotonic(), latency_s)

    def _tell(self, event: Event) -> None:
        self.tally.take(event)
        self._listen(event)

    # --- time --------------------------------------------------------------------------------------------------------

    async def _tick_for_ever(self) -> None:
        """What happens by time alone: retries come due, pauses end, the manifest is kept fresh, lag is measured."""
        saved = time.monotonic()
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            self.loop_lag_s = max(0.0, now - before - _TICK_S)
            self.longest_lag_s = max(self.longest_lag_s, self.loop_lag_s)
            self._fill()
            if now - saved >= _SAVE_EVERY_S:
                saved = now
                try:
                    await self.book.save(RunState.RUNNING)
                except Exception as error:  # noqa: BLE001 - must not end silently inside a task
                    self._fail(error)


def _cancelled(job: Job) -> Failed:
    seconds = time.monotonic() - job.started
    detail = FailureDetail("cancelled", Stage.AGENT, f"rollout {job.key} was cancelled by hand")
    account = job.trail.account
    return Failed(detail, seconds, time.time() - seconds, None, account.usage() if account is not None else None)
