"""The engine: starts attempts while there is room, records every outcome, retries, and ends.

The engine owns the sequence; pure parts decide how many attempts run (`concurrency`), whether one is retried (`retry`)
and whether an agent's rollouts start at all (`circuit_breaker`). Invariants:

- With `preflight`, the first rollouts of each agent run one at a time (`preflight`).
- A rollout that is owed is in the backlog (`backlog`) or in flight. `in_flight` and `_tasks` have the same keys.
- `_fill` is the only place that starts attempts, and runs after everything that may make room: an outcome, a change of
  the limit, a pause that ends, a tick. So nothing waits without something that ends the wait.
- Rollouts that wait for others (`AttemptProgress.end_wait`) take no room; if no other can start, their waits are ended.
- An outcome is recorded before anything else reacts to it. An attempt that is abandoned stays owed.
- A rollout moves from the store to the backlog to flight; from there it is settled, or in the backlog for a retry.
- The engine runs, is paused or held (and runs again), drains (`drain_reason`; never back), and has ended.
- The run ends once nothing is in flight and nothing may be started; an unexpected error (`_fatal`) ends it immediately.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gymnast.config.secrets import Scrubber
from gymnast.errors import UserError
from gymnast.rollouts.attempt import (
    Failed,
    Outcome,
    Scored,
    fail_unexpected,
    failed_attempt,
    make_failure_line,
    treat_truncated,
)
from gymnast.rollouts.backlog import Backlog
from gymnast.rollouts.budget import Budget
from gymnast.rollouts.circuit_breaker import CircuitBreaker
from gymnast.rollouts.concurrency import ConcurrencyLimit
from gymnast.rollouts.pace import Pace
from gymnast.rollouts.preflight import Preflight, Suspicion
from gymnast.rollouts.reproducible import make_reproducible
from gymnast.rollouts.retry import DEFAULT_GIVE_UP_AFTER_S, DEFAULT_ROLLOUT_TIMEOUT_S, RetryPolicy
from gymnast.rollouts.runner import AttemptRunner, WorkItem
from gymnast.rollouts.tally import Tally
from gymnast.store.manifest import RunState
from gymnast.types.events import Event, RolloutFailed, RolloutScored
from gymnast.types.failure import FailureDetail, FailureKind, Stage, kind_named
from gymnast.types.totals import RolloutFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.rollouts.run_store import RunStore
    from gymnast.types.json import JsonObject
    from gymnast.types.task import RolloutKey
    from gymnast.types.truncation import TruncatedPolicy

DEFAULT_CAP: Final = 4096
_TICK_S: Final = 0.25
_TIMER_SLACK_S: Final = 0.002
"""uvloop's timers count milliseconds and may fire early: a retry not yet due by then would wait for the next tick."""
_SAVE_EVERY_S: Final = 5.0
_MAX_PARKED: Final = 4096
_MAX_STACKS: Final = 5

Listen = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a plan is run."""

    concurrency: int | None = None
    """Maximum number of rollouts in flight; None tunes it automatically."""
    rollout_timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    give_up_after_s: float = DEFAULT_GIVE_UP_AFTER_S
    """How long something may be unreachable before its agents are given up."""
    agent_limits: Mapping[str, int] = field(default_factory=dict)
    cap: int = DEFAULT_CAP
    """The most the host allows."""
    budget: Budget = field(default_factory=Budget)
    read_ahead: int = _MAX_PARKED
    """Maximum number of rows read ahead while their agents are at their limits."""
    truncated: TruncatedPolicy = "score"
    """What happens to truncated rollouts."""
    scrubber: Scrubber = field(default_factory=Scrubber)
    """Masks the secrets of the configuration in records and events: endpoints may repeat what they are sent."""
    reproducible: bool = False
    """Store records without times and generated ids (`rollouts.reproducible`)."""
    preflight: bool = False
    """Run the first rollouts of each agent one at a time, until one shows that others can succeed."""
    suspicions: tuple[Suspicion, ...] = ()
    """What the probes before the run found; the first rollouts confirm or refute it."""


class Engine:
    """Runs the owed rollouts of a store.

    Its attributes are the parts that decide, the rollouts by state (`_backlog`, `in_flight`), and the reasons to start
    nothing (`is_paused`, `is_held`, `drain_reason`) or to end (`_ended`, `_fatal`). They are in one class because
    `_fill` weighs all of them whenever one changes.
    """

    def __init__(
        self, store: RunStore, runner: AttemptRunner, options: EngineOptions, listen: Listen, agents: list[str]
    ) -> None:
        self.store = store
        self.options = options
        self.limit = ConcurrencyLimit(
            min(options.concurrency or options.cap, options.cap), fixed_start=options.concurrency is not None
        )
        self.circuit_breaker = CircuitBreaker(give_up_after_s=options.give_up_after_s)
        self.preflight = Preflight(options.suspicions) if options.preflight else None
        self.tally = Tally()
        """The totals of this invocation."""
        self.pace = Pace()
        self.in_flight: dict[RolloutKey, WorkItem] = {}
        self._waiting: set[RolloutKey] = set()
        """Those in flight that waited for other rollouts at the last tick."""
        self.is_paused = False
        self.is_held = False
        """Like paused, until the consumer of the records has caught up."""
        self.drain_reason: str | None = None
        """Why no more attempts are started, or None."""
        self.is_out_of_budget = False
        self.loop_lag_s = 0.0
        self.longest_lag_s = 0.0
        self._runner = runner
        self._listen = listen
        self._only_agent = agents[0] if len(agents) == 1 else None
        self._backlog = Backlog(
            store,
            self.circuit_breaker,
            self._may_start,
            only_agent=self._only_agent,
            read_ahead=options.read_ahead,
        )
        self._retry_budget = options.retry.budget(store.requested) - store.retries_made
        self._running: Counter[str] = Counter()
        self._tasks: dict[RolloutKey, asyncio.Task[None]] = {}
        self._cancelled: set[RolloutKey] = set()
        self._ended = asyncio.Event()
        self._fatal: BaseException | None = None

    # --- the run -----------------------------------------------------------------------------------------------------

    async def run(self) -> RunState:
        """Run until nothing is left to do or the engine is stopped."""
        rejections = self._runner.signals.listeners
        rejections.append(self._record_rejection)
        self._check_budget()
        self._fill()
        ticker = asyncio.create_task(self._tick_forever())
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            self.stop_now("cancelled")
            raise
        finally:
            rejections.remove(self._record_rejection)
            ticker.cancel()
            await asyncio.gather(ticker, *self._tasks.values(), return_exceptions=True)
        if self._fatal is not None:
            raise self._fatal
        return self._state()

    def drain(self, why: str) -> None:
        """Start nothing more; the run ends when nothing is in flight."""
        self.drain_reason = self.drain_reason or why
        self._fill()

    def stop_now(self, why: str) -> None:
        """End immediately. What is in flight is abandoned and stays owed."""
        self.drain_reason = self.drain_reason or why
        for task in self._tasks.values():
            task.cancel()
        self._ended.set()

    def cancel(self, key: RolloutKey) -> bool:
        """Cancel one rollout permanently. False if it is not in flight."""
        task = self._tasks.get(key)
        if task is None:
            return False
        self._cancelled.add(key)
        task.cancel()
        return True

    def abandon(self, is_abandoned: Callable[[RolloutKey], bool]) -> None:
        """Forget rollouts that another worker runs now. Their attempts in flight end without an outcome."""
        self._backlog.abandon(is_abandoned)
        for key, task in self._tasks.items():
            if is_abandoned(key):
                task.cancel()

    def refill(self) -> None:
        """The store may have more rows."""
        self._fill()

    def pause(self, *, paused: bool) -> None:
        """Pause starting attempts, or continue."""
        self.is_paused = paused
        self._fill()

    def hold(self, *, held: bool) -> None:
        """A pause for a slow consumer of records, separate from `pause` so that neither ends the other."""
        if held != self.is_held:
            self.is_held = held
            self._fill()

    def set_concurrency(self, number: int) -> None:
        """Change the concurrency limit."""
        self.limit.set_cap(min(number, self.options.cap))
        self.pace.mark_change(time.monotonic())
        self._fill()

    def stacks(self) -> list[JsonObject]:
        """Stacks of the oldest attempts, to see what is stuck."""
        now = time.monotonic()
        oldest = sorted(self.in_flight.values(), key=lambda item: item.started)[:_MAX_STACKS]
        return [item.describe(self._tasks.get(item.key), now) for item in oldest]

    def waiting_retries(self) -> int:
        return self._backlog.waiting_retries

    @property
    def is_idle(self) -> bool:
        """Nothing is in flight, parked or waiting for a retry."""
        return not self.in_flight and self._backlog.is_empty

    @property
    def is_out_of_retries(self) -> bool:
        return self._retry_budget <= 0

    # --- starting ----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Start as many attempts as there is room for. Called whenever something may have changed."""
        try:
            now = time.monotonic()
            while not (self.drain_reason or self.is_paused or self.is_held or self._ended.is_set()):
                if self._is_at_limit():
                    break
                item = self._next(now)
                if item is None:
                    break
                self._start(item, now)
            if not self.in_flight and (self.drain_reason or self._has_no_work()):
                self._ended.set()
        except BaseException as error:  # noqa: BLE001 - runs in callbacks: the error must reach run()
            self._fail(error)

    def _is_at_limit(self) -> bool:
        """Rollouts that only wait for others do not count, or those others might never start."""
        running = len(self.in_flight) - len(self._waiting)
        return running >= self.limit.current or len(self.in_flight) >= self.options.cap

    def _look_at_waits(self) -> None:
        """Count the rollouts that wait for others, start those, and end waits that cannot succeed."""
        self._waiting = {key for key, item in self.in_flight.items() if item.progress.end_wait is not None}
        self._fill()
        if not self._waiting or len(self._waiting) < len(self.in_flight):
            return
        if self.drain_reason:
            self.stop_now(self.drain_reason)
        elif not self._may_start_others():
            for key in self._waiting:
                end_wait = self.in_flight[key].progress.end_wait
                if end_wait is not None:  # ending one wait may have ended others
                    end_wait()

    def _may_start_others(self) -> bool:
        """Whether a rollout may still start while all in flight wait for others."""
        backlog = self._backlog
        if self.is_paused or self.is_held or backlog.waiting_retries or backlog.has_parked(self._is_full):
            return True
        return backlog.has_unread and not self._is_at_limit()

    def _next(self, now: float) -> WorkItem | None:
        """An item that may start now: a retry that is due, a parked one, or the next row of the store."""
        if (item := self._backlog.next_waiting(now)) is not None:
            return item
        if self._only_agent is not None and (self._all_given_up() or self._is_blocked(self._only_agent)):
            return None
        return self._backlog.next_unread(now)

    def _may_start(self, agent: str, now: float) -> bool:
        return not self._is_blocked(agent) and self.circuit_breaker.may_start(agent, now)

    def _is_blocked(self, agent: str) -> bool:
        """Whether the agent is at its limit, or its other rollouts wait for the outcome of one."""
        return self._is_full(agent) or (self.preflight is not None and not self.preflight.may_start(agent))

    def _is_full(self, agent: str) -> bool:
        allowed = self.options.agent_limits.get(agent)
        return allowed is not None and self._running[agent] >= allowed

    def _start(self, item: WorkItem, now: float) -> None:
        item.started = now
        self.in_flight[item.key] = item
        self._running[item.agent] += 1
        if self.preflight is not None:
            self.preflight.record_start(item.agent)
        self._tasks[item.key] = asyncio.get_running_loop().create_task(self._run_attempt(item))

    def _has_no_work(self) -> bool:
        may_read = self._backlog.has_unread and not self._all_given_up()
        return not may_read and not self._backlog.may_continue

    def _all_given_up(self) -> bool:
        return self._only_agent is not None and self.circuit_breaker.give_up_reason(self._only_agent) is not None

    # --- ending ------------------------------------------------------------------------------------------------------

    async def _run_attempt(self, item: WorkItem) -> None:
        try:
            self._settle(item, await self._attempt(item))
        except asyncio.CancelledError:
            if item.key in self._cancelled:
                self._settle(item, _cancelled_outcome(item))
            elif item.progress.usage_counter is not None:
                self.store.add_usage(item.progress.usage_counter.usage())  # abandoned, but paid for
        except BaseException as error:  # noqa: BLE001 - a bug or a full disk: the run cannot continue
            self._fail(error)
        finally:
            del self.in_flight[item.key]
            self._waiting.discard(item.key)
            self._running[item.agent] -= 1
            self._tasks.pop(item.key, None)
            self._fill()

    async def _attempt(self, item: WorkItem) -> Outcome:
        try:
            return await self._runner.attempt(item, self.options.rollout_timeout_s)
        except UserError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one rollout must not end the others
            return fail_unexpected(error, item.started, item.progress)

    def _settle(self, item: WorkItem, outcome: Outcome) -> None:
        now = time.monotonic()
        self.store.add_usage(outcome.usage)
        self._check_budget()
        reason = self.preflight.record_outcome(item.agent, outcome) if self.preflight is not None else None
        if reason is not None:
            self.circuit_breaker.give_up(item.agent, reason)
        if isinstance(outcome, Scored):
            self.circuit_breaker.record_scored(item.agent)
            self.limit.record_finished(now, outcome.seconds, len(self.in_flight) - 1)
            outcome = treat_truncated(outcome, self.options.truncated, item.agent)
        if isinstance(outcome, Scored):
            self._settle_scored(item, outcome, now)
        else:
            self._settle_failure(item, outcome, now)

    def _settle_scored(self, item: WorkItem, outcome: Scored, now: float) -> None:
        line = make_reproducible(outcome.line) if self.options.reproducible else outcome.line
        line = self.options.scrubber.scrub_line(line)
        facts = RolloutFacts(
            item.agent, outcome.reward, outcome.output_tokens, outcome.truncated, outcome.masked, outcome.seconds
        )
        self.store.record_scored(item.key, line, facts, persisted=outcome.persisted)
        self.tally.add_scored(facts)
        self.pace.record_attempt(now, outcome.seconds, settled=True, scored=True)
        self._listen(
            RolloutScored(
                item.key.task,
                item.key.rollout,
                item.agent,
                outcome.reward,
                outcome.seconds,
                outcome.input_tokens,
                outcome.output_tokens,
                outcome.truncated,
                outcome.masked,
            )
        )

    def _settle_failure(self, item: WorkItem, outcome: Failed, now: float) -> None:
        detail, retry = outcome.detail, self.options.retry
        final = retry.is_final(detail, item.attempts + 1)
        line = make_failure_line(item.line, outcome, index=item.index, final=final, run_id=self.store.run_id)
        line = self.options.scrubber.scrub_line(line)
        self.store.record_failed(item.key, line, detail.kind.value, item.agent, final=final)
        self._tally_failure(item.agent, detail.kind.value, final=final)
        self.pace.record_attempt(now, outcome.seconds, settled=final)
        if detail.kind is not FailureKind.TRUNCATED:  # its servers work
            self.circuit_breaker.record_failure(item.agent, detail, now)
        if not final and self._retry_budget > 0:
            self._retry_later(item, detail, now)
        kind = kind_named(detail.kind)
        message = self.options.scrubber.scrub(detail.message)
        what = (detail.kind.value, kind.layer.value, detail.stage.value, message)
        self._listen(RolloutFailed(item.key.task, item.key.rollout, item.agent, *what, outcome.seconds, final))

    def _check_budget(self) -> None:
        """Start nothing more once the budget is used up; what is in flight may finish."""
        if not self.is_out_of_budget and (why := self.options.budget.exhausted_reason(self.store.spent)) is not None:
            self.is_out_of_budget = True
            self.drain_reason = self.drain_reason or why

    def _retry_later(self, item: WorkItem, detail: FailureDetail, now: float) -> None:
        self._retry_budget -= 1
        self.store.retries_made += 1
        again = WorkItem(item.key, item.line, item.agent, item.attempts + 1, item.earlier)
        delay = self.options.retry.delay_s(detail, again.attempts, random.random())  # noqa: S311 - jitter
        self._backlog.add_retry(again, now + delay)
        if delay < _TICK_S:
            asyncio.get_running_loop().call_later(delay + _TIMER_SLACK_S, self._fill)

    def _state(self) -> RunState:
        if self.store.counts().owed == 0:
            return RunState.COMPLETE
        return RunState.INTERRUPTED if self.drain_reason else RunState.INCOMPLETE

    def _fail(self, error: BaseException) -> None:
        self._fatal = self._fatal or error
        self._ended.set()
        for task in self._tasks.values():
            task.cancel()

    def _record_rejection(self, latency_s: float) -> None:
        self.limit.record_rejection(time.monotonic(), latency_s)

    def _tally_failure(self, agent: str, kind: str, *, final: bool) -> None:
        self.tally.add_failure(agent, kind)
        if final:
            self.tally.fail(agent, kind)

    # --- time --------------------------------------------------------------------------------------------------------

    async def _tick_forever(self) -> None:
        """What happens by time alone: retries come due, pauses end, the manifest is saved, lag is measured."""
        saved = time.monotonic()
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            self.loop_lag_s = max(0.0, now - before - _TICK_S)
            self.longest_lag_s = max(self.longest_lag_s, self.loop_lag_s)
            if self.preflight is not None:
                self.preflight.review(self.in_flight.values(), now)
            self._look_at_waits()
            if now - saved >= _SAVE_EVERY_S:
                saved = now
                try:
                    await self.store.save(RunState.RUNNING)
                except Exception as error:  # noqa: BLE001 - must not end silently inside a task
                    self._fail(error)


def _cancelled_outcome(item: WorkItem) -> Failed:
    seconds = time.monotonic() - item.started
    detail = FailureDetail(FailureKind.CANCELLED, Stage.AGENT, f"rollout {item.key} was cancelled by hand")
    return failed_attempt(detail, seconds, time.time() - seconds, item.progress)
