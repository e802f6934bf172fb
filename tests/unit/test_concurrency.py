"""The concurrency limit against simulated policies whose capacity it does not know. The clock is simulated too."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.rollouts.concurrency import INITIAL_LIMIT, ConcurrencyLimit, Pressure

TOO_HIGH = Pressure(waiting=0, running=60, kv_usage=0.99)
CALM = Pressure(waiting=0, running=10, kv_usage=0.3)


class Simulation:
    """Rollouts of one model call each, as many in flight as the limit allows, against a policy that serves `capacity`
    calls at a time and either turns the others away (429, tried again after a while) or lets them wait."""

    def __init__(
        self, limit: ConcurrencyLimit, capacity: int, *, rejects: bool, latency_s: float = 1.0, seed: int = 1
    ) -> None:
        self.limit = limit
        self.capacity = capacity
        self.rejects = rejects
        self.is_down = False
        self.latency_s = latency_s
        self.now = 0.0
        self.finished: list[float] = []
        self.calls: list[float] = []
        self.rejected: list[float] = []
        self.most_in_flight = 0
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = count()
        self._in_flight = self._serving = 0
        self._waiting: deque[float] = deque()

    def run(self, until_s: float) -> None:
        self._fill()
        while self._events[0][0] <= until_s:
            self.now, _, what, values = heapq.heappop(self._events)
            what(*values)
            self._fill()
        self.now = until_s

    def feel_every(self, seconds: float) -> None:
        """Tell the limit now and then what the policy's metrics say."""
        self.limit.adjust_to_pressure(Pressure(len(self._waiting), self._serving, 0.5))
        self._later(seconds, self.feel_every, seconds)

    def per_second(self, since_s: float) -> float:
        return sum(at >= since_s for at in self.finished) / (self.now - since_s)

    def rejected_share(self, since_s: float) -> float:
        return sum(at >= since_s for at in self.rejected) / sum(at >= since_s for at in self.calls)

    def _later(self, delay_s: float, what: Callable[..., None], *values: Any) -> None:
        heapq.heappush(self._events, (self.now + delay_s, next(self._sequence), what, values))

    def _fill(self) -> None:
        while self._in_flight < self.limit.current:
            self._in_flight += 1
            self._call(self.now, 0)
        self.most_in_flight = max(self.most_in_flight, self._in_flight)

    def _call(self, began: float, tries: int) -> None:
        self.calls.append(self.now)
        is_full = self._serving >= self.capacity
        if self.is_down or (is_full and self.rejects):
            self.rejected.append(self.now)
            self.limit.record_rejection(self.now, 0.001)
            wait_s = min(0.5 * 2**tries, 8.0) * (0.5 + self._random.random())
            self._later(wait_s, self._call, began, tries + 1)
        elif is_full:
            self._waiting.append(began)
        else:
            self._serve(began)

    def _serve(self, began: float) -> None:
        self._serving += 1
        self._later(self.latency_s * self._random.uniform(0.7, 1.3), self._end, began)

    def _end(self, began: float) -> None:
        self._serving -= 1
        if self._waiting:
            self._serve(self._waiting.popleft())
        self._in_flight -= 1
        self.finished.append(self.now)
        self.limit.record_finished(self.now, self.now - began, self._in_flight)


def rejecting(capacity: int, **options: Any) -> Simulation:
    return Simulation(ConcurrencyLimit(4096), capacity, rejects=True, **options)


def queueing(capacity: int, **options: Any) -> Simulation:
    return Simulation(ConcurrencyLimit(4096), capacity, rejects=False, **options)


def windows(limit: ConcurrencyLimit, number: int, *, seconds: float, now: float, in_flight: int | None = None) -> float:
    """As many finished rollouts as the limit needs to judge `number` times; the time afterwards."""
    for _ in range(number):
        for _ in range(max(10, limit.current)):
            level = limit.current if in_flight is None else in_flight
            now += seconds / level
            limit.record_finished(now, seconds, level - 1)
    return now


def turn_away(limit: ConcurrencyLimit, now: float, latency_s: float = 0.0) -> None:
    """More rejections than happen by accident."""
    for _ in range(200):
        limit.record_rejection(now, latency_s)


# --- finding the level -----------------------------------------------------------------------------------------------


def settled(capacity: int, latency_s: float, seed: int) -> tuple[float, float]:
    """After a warm-up against a policy that rejects: throughput as a share of the best fixed limit's, which is the
    capacity, and the share of calls that are rejected."""
    simulated = rejecting(capacity, latency_s=latency_s, seed=seed)
    warm_s = 60 + 60 * latency_s
    simulated.run(warm_s + latency_s * max(100, 1000 / capacity))
    return simulated.per_second(warm_s) * latency_s / capacity, simulated.rejected_share(warm_s)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("capacity", "latency_s"), [(40, 0.2), (64, 1.0), (150, 1.0), (300, 5.0)])
def test_a_policy_that_rejects_is_used_to_nine_tenths_with_few_rejections(
    capacity: int, latency_s: float, seed: int
) -> None:
    used, rejected = settled(capacity, latency_s, seed)
    assert used >= 0.9
    assert rejected <= 0.02


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("capacity", [1, 3, 8, 16])
def test_a_small_policy_that_rejects_is_used_to_nine_tenths(capacity: int, seed: int) -> None:
    used, _ = settled(capacity, 1.0, seed)
    assert used >= 0.9


def test_a_large_and_quick_policy_rejects_rarely() -> None:
    _, rejected = settled(300, 0.2, 4)
    assert rejected <= 0.02


@pytest.mark.parametrize("capacity", [1, 3, 8])
def test_a_small_policy_that_rejects_does_so_rarely(capacity: int) -> None:
    _, rejected = settled(capacity, 1.0, 1)
    assert rejected <= 0.02


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("capacity", "latency_s"), [(3, 0.2), (8, 1.0), (24, 5.0), (64, 0.2), (300, 1.0)])
def test_a_policy_that_queues_is_used_whole_and_its_queue_stays_short(
    capacity: int, latency_s: float, seed: int
) -> None:
    simulated = queueing(capacity, latency_s=latency_s, seed=seed)
    warm_s = 60 * latency_s
    simulated.run(160 * latency_s)
    assert simulated.per_second(warm_s) >= 0.9 * capacity / latency_s
    assert simulated.limit.current <= max(1.25 * INITIAL_LIMIT, 3 * capacity)
    assert simulated.most_in_flight <= max(2 * INITIAL_LIMIT, 6 * capacity)  # the steps that slow start took back


def test_the_level_is_found_within_seconds_of_slow_start() -> None:
    simulated = rejecting(300)
    simulated.run(30)
    assert simulated.limit.current > 150


def test_a_policy_that_grows_is_followed() -> None:
    simulated = rejecting(50)
    simulated.run(150)
    simulated.capacity = 100
    simulated.run(450)
    assert simulated.per_second(400) >= 0.8 * 100


def test_a_policy_that_shrinks_is_followed_at_once() -> None:
    simulated = rejecting(200)
    simulated.run(100)
    simulated.capacity = 50
    simulated.run(200)
    assert simulated.per_second(150) >= 0.85 * 50
    assert simulated.rejected_share(150) <= 0.02


def test_a_short_outage_is_forgotten_soon() -> None:
    simulated = rejecting(64)
    simulated.run(100)
    simulated.is_down = True
    simulated.run(102)
    simulated.is_down = False
    simulated.run(200)
    assert simulated.per_second(180) >= 0.8 * 64


def test_an_outage_of_half_a_minute_is_forgotten_within_minutes() -> None:
    simulated = rejecting(64)
    simulated.run(100)
    simulated.is_down = True
    simulated.run(130)
    simulated.is_down = False
    simulated.run(430)
    assert simulated.per_second(410) >= 0.8 * 64


# --- slow start ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "first"), [(4096, INITIAL_LIMIT), (INITIAL_LIMIT, INITIAL_LIMIT), (5, 5), (1, 1), (0, 1), (-3, 1)]
)
def test_the_search_begins_small(cap: int, first: int) -> None:
    assert ConcurrencyLimit(cap).current == first


def test_the_limit_doubles_while_throughput_follows() -> None:
    limit = ConcurrencyLimit(100)
    levels = [limit.current]
    now = 0.0
    for _ in range(4):
        now = windows(limit, 1, seconds=10, now=now)
        levels.append(limit.current)
        now = windows(limit, 1, seconds=10, now=now)  # of rollouts that began under the old limit: not judged
    assert levels == [16, 32, 64, 100, 100]


def test_growth_stops_and_the_last_step_is_taken_back_when_only_latency_grows() -> None:
    limit = ConcurrencyLimit(4096)
    now = windows(limit, 2, seconds=10, now=0.0)
    assert limit.current == 32
    now = windows(limit, 1, seconds=20, now=now)
    assert limit.current == 16
    windows(limit, 10, seconds=10, now=now)
    assert limit.current == 16


def test_a_limit_that_nobody_uses_does_not_grow() -> None:
    limit = ConcurrencyLimit(4096)
    windows(limit, 50, seconds=10, now=0.0, in_flight=6)
    assert limit.current == INITIAL_LIMIT


def test_a_probe_that_pays_is_kept_and_one_that_does_not_is_taken_back() -> None:
    limit = ConcurrencyLimit(4096)
    now = windows(limit, 2, seconds=10, now=0.0)
    now = windows(limit, 1, seconds=20, now=now)
    levels = []
    for _ in range(40):
        now = windows(limit, 1, seconds=10 * limit.current / 16, now=now)
        levels.append(limit.current)
    assert set(levels) == {16, 17}
    assert levels[-1] == 16
    for _ in range(40):
        now = windows(limit, 1, seconds=10, now=now)
    assert limit.current >= 19


# --- rejections ------------------------------------------------------------------------------------------------------


def test_rejections_are_a_step_back() -> None:
    limit = ConcurrencyLimit(100, fixed_start=True)
    turn_away(limit, 10.0)
    assert limit.current == 80


def test_a_rejection_now_and_then_says_nothing_about_the_level() -> None:
    limit = ConcurrencyLimit(100, fixed_start=True)
    now = 0.0
    for _ in range(50):
        now = windows(limit, 1, seconds=10, now=now)
        limit.record_rejection(now)
    assert limit.current == 100


def test_rejections_of_what_was_sent_before_a_step_back_do_not_count() -> None:
    limit = ConcurrencyLimit(100, fixed_start=True)
    for moment in range(50):
        turn_away(limit, 10.0 + moment / 100, 0.2)
    assert limit.current == 80
    turn_away(limit, 11.0, 0.2)
    assert limit.current == 64


def test_a_policy_that_is_slow_to_reject_gets_longer_to_feel_the_step_back() -> None:
    limit = ConcurrencyLimit(100, fixed_start=True)
    turn_away(limit, 10.0, 30.0)
    turn_away(limit, 69.0, 30.0)
    assert limit.current == 80
    turn_away(limit, 70.0, 30.0)
    assert limit.current == 64


def test_the_step_back_starts_from_what_was_in_flight_not_from_a_limit_that_was_not_used() -> None:
    limit = ConcurrencyLimit(1000, fixed_start=True)
    for number in range(500):
        limit.record_finished(number / 20, 1.0, 19)
    turn_away(limit, 26.0)
    assert limit.current == 16


def test_there_is_always_room_for_one() -> None:
    limit = ConcurrencyLimit(4096)
    for moment in range(100):
        turn_away(limit, moment * 10.0)
        limit.adjust_to_pressure(TOO_HIGH)
    assert limit.current == 1


def test_after_a_rejection_the_limit_comes_back_near_but_not_over_the_level_that_was_rejected() -> None:
    limit = ConcurrencyLimit(4096, fixed_start=True)
    limit.set_cap(100)
    turn_away(limit, 0.0)
    now = 1.0
    levels = []
    for _ in range(20):
        now = windows(limit, 1, seconds=10, now=now)
        levels.append(limit.current)
    assert levels == sorted(levels)
    assert 90 <= levels[-1] <= 95


# --- pressure --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pressure", "high", "too_high"),
    [
        (Pressure(), False, False),
        (Pressure(0, 100, 0.9), False, False),
        (Pressure(0, 100, 0.91), True, False),
        (Pressure(0, 100, 0.98), True, True),
        (Pressure(2, 1, 0), False, False),
        (Pressure(3, 1, 0), True, False),
        (Pressure(10, 100, 0), False, False),
        (Pressure(11, 100, 0), True, False),
        (Pressure(9, 4, 0), True, True),
        (Pressure(50, 100, 0), True, False),
        (Pressure(51, 100, 0), True, True),
    ],
)
def test_what_counts_as_pressure(pressure: Pressure, high: bool, too_high: bool) -> None:  # noqa: FBT001 - a table
    assert (pressure.is_high, pressure.is_too_high) == (high, too_high)


def test_no_growth_under_pressure_and_growth_when_it_is_gone() -> None:
    limit = ConcurrencyLimit(4096)
    limit.adjust_to_pressure(Pressure(waiting=5, running=16, kv_usage=0.5))
    now = windows(limit, 10, seconds=10, now=0.0)
    assert limit.current == INITIAL_LIMIT
    limit.adjust_to_pressure(CALM)
    windows(limit, 1, seconds=10, now=now)
    assert limit.current == 2 * INITIAL_LIMIT


def test_too_much_pressure_is_a_step_back_each_time_it_is_felt() -> None:
    limit = ConcurrencyLimit(100, fixed_start=True)
    limit.adjust_to_pressure(TOO_HIGH)
    assert limit.current == 90
    limit.adjust_to_pressure(TOO_HIGH)
    assert limit.current == 81
    limit.adjust_to_pressure(CALM)
    assert limit.current == 81


def test_metrics_keep_the_queue_of_a_policy_shorter_than_latency_alone_does() -> None:
    simulated = queueing(64)
    simulated.feel_every(2.0)
    simulated.run(160)
    assert simulated.per_second(60) >= 0.9 * 64
    assert simulated.limit.current <= 1.5 * 64


def test_a_spell_of_pressure_is_recovered_from() -> None:
    simulated = rejecting(64)
    simulated.run(100)
    for _ in range(15):
        simulated.limit.adjust_to_pressure(TOO_HIGH)
        simulated.run(simulated.now + 2)
    assert simulated.limit.current < 20
    simulated.limit.adjust_to_pressure(CALM)
    simulated.run(simulated.now + 100)
    assert simulated.per_second(simulated.now - 20) >= 0.8 * 64


# --- a chosen limit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rejects", [True, False])
@pytest.mark.parametrize("fixed", [7, 40])
def test_a_chosen_limit_is_used_at_once_and_never_exceeded(fixed: int, rejects: bool) -> None:  # noqa: FBT001 - a table
    limit = ConcurrencyLimit(fixed, fixed_start=True)
    assert limit.current == fixed
    simulated = Simulation(limit, 1000, rejects=rejects)
    simulated.run(60)
    assert simulated.most_in_flight == limit.current == fixed


def test_a_chosen_limit_that_is_too_much_gives_way_to_rejections() -> None:
    limit = ConcurrencyLimit(200, fixed_start=True)
    simulated = Simulation(limit, 50, rejects=True)
    simulated.run(200)
    assert simulated.per_second(100) >= 0.9 * 50
    assert simulated.rejected_share(100) <= 0.02


def test_another_cap_takes_effect_at_once_in_both_directions() -> None:
    simulated = rejecting(1000)
    simulated.run(20)
    simulated.limit.set_cap(10)
    assert simulated.limit.current == 10
    simulated.run(60)
    assert simulated.limit.current == 10
    simulated.limit.set_cap(500)
    assert simulated.limit.current == 500
    simulated.limit.set_cap(0)
    assert simulated.limit.current == 1


happenings = st.lists(
    st.one_of(
        st.tuples(st.just("finished"), st.floats(0, 20), st.integers(0, 300)),
        st.tuples(st.just("window"), st.floats(0.001, 100), st.integers(1, 300)),
        st.tuples(st.just("rejected"), st.floats(0, 100), st.just(0)),
        st.tuples(st.just("feel"), st.floats(0, 1), st.integers(0, 100)),
        st.tuples(st.just("cap"), st.just(0.0), st.integers(-5, 300)),
    ),
    max_size=60,
)


@given(st.integers(1, 200), st.booleans(), happenings)
def test_the_limit_stays_between_one_and_the_cap_whatever_happens(
    cap: int,
    fixed: bool,  # noqa: FBT001 - drawn
    happened: list[tuple[str, float, int]],
) -> None:
    limit = ConcurrencyLimit(cap, fixed_start=fixed)
    now = 0.0
    for what, number, whole in happened:
        now += 0.1
        if what == "finished":
            limit.record_finished(now, number, whole)
        elif what == "window":
            now = windows(limit, 1, seconds=number, now=now, in_flight=whole)
        elif what == "rejected":
            limit.record_rejection(now, number)
        elif what == "feel":
            limit.adjust_to_pressure(Pressure(whole, 50, number))
        else:
            limit.set_cap(whole)
            cap = max(1, whole)
        assert 1 <= limit.current <= cap == limit.cap
