"""Rate and remaining time: of the last seconds and of what is in flight, not means over the whole invocation."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.rollouts.pace import Durations, Pace


def settle(pace: Pace, start: float, count: int, every_s: float, seconds: float = 1.0) -> float:
    """Settle rollouts at a steady rate; returns when the last one was."""
    for number in range(1, count + 1):
        pace.record_attempt(start + number * every_s, seconds, settled=True)
    return start + count * every_s


def test_nothing_is_known_before_an_attempt_has_ended() -> None:
    assert Pace().per_second(5.0) == 0.0
    assert Pace().remaining_s([1.0], 10, 4) is None


def test_the_rate_is_that_of_the_last_seconds_and_not_of_the_invocation() -> None:
    pace = Pace()
    now = settle(pace, 0.0, 100, 1.0)
    now = settle(pace, now, 400, 0.1)
    assert pace.per_second(now) == pytest.approx(10, rel=0.05)
    now = settle(pace, now, 35, 1.0)
    assert pace.per_second(now) == pytest.approx(1, rel=0.05)


def test_slow_rollouts_have_a_rate_although_the_window_is_shorter() -> None:
    pace = Pace()
    now = settle(pace, 0.0, 20, 60.0, 60.0)
    assert pace.per_second(now) == pytest.approx(1 / 60, rel=0.01)


def test_the_first_rollouts_have_a_rate() -> None:
    pace = Pace()
    pace.record_attempt(2.0, 2.0, settled=True)
    assert pace.per_second(2.0) == pytest.approx(0.5)
    assert pace.per_second(4.0) == pytest.approx(0.25)


def test_the_rate_of_a_run_that_stalls_falls() -> None:
    pace = Pace()
    now = settle(pace, 0.0, 100, 0.1)
    rates = [pace.per_second(now + waited) for waited in (0, 40, 400)]
    assert rates[0] == pytest.approx(10, rel=0.05)
    assert rates[0] > rates[1] > rates[2] > 0


def test_the_rate_follows_a_change_of_the_concurrency_at_once() -> None:
    """`gymnast ctl RUN set concurrency=2`: the mean over the window would show 64's rate for half a minute."""
    pace = Pace()
    now = settle(pace, 0.0, 1280, 1 / 64)
    pace.mark_change(now)
    now = settle(pace, now, 10, 0.5)
    assert pace.per_second(now) == pytest.approx(2, rel=0.05)


def test_the_remaining_time_follows_a_change_of_the_concurrency_at_once() -> None:
    pace = Pace()
    settle(pace, 0.0, 640, 1 / 64)
    assert pace.remaining_s([0.5] * 64, 936, 64) == pytest.approx(1000 / 64, abs=1.5)
    assert pace.remaining_s([0.5] * 64, 936, 2) == pytest.approx(936 / 2, rel=0.05)
    assert pace.remaining_s([0.5] * 2, 998, 2) == pytest.approx(1000 / 2, rel=0.05)


def test_a_slow_rollout_at_the_end_is_not_about_0_s_left() -> None:
    """50 rollouts took 0.2 s and 8 took 6 s; the last one in flight is 3 s old."""
    pace = Pace()
    now = settle(pace, 0.0, 50, 0.01, 0.2)
    settle(pace, now, 8, 0.01, 6.0)
    assert pace.remaining_s([3.0], 0, 16) == pytest.approx(3.0)
    older = pace.remaining_s([8.0], 0, 16)
    assert older is not None
    assert 2.0 <= older <= 8.0  # older than all that have ended


def test_early_in_a_run_the_ages_of_what_is_in_flight_count() -> None:
    """Only the 8 shortest of 64 have ended: their mean says 0.1 s, but the others have run for 10 s already."""
    pace = Pace()
    settle(pace, 0.0, 8, 0.01, 0.1)
    remaining = pace.remaining_s([10.0] * 56, 0, 64)
    assert remaining is not None
    assert 10.0 <= remaining <= 1000.0


def test_with_all_rollouts_started_at_once_the_last_ones_do_not_take_as_long_again() -> None:
    """48 rollouts of 1 to 30 s, all in flight from the start, as in `gymnast demo`."""
    durations = [1 + 29 * (number / 47) ** 2 for number in range(48)]
    for ended in range(12, 48):
        pace = Pace()
        for seconds in durations[:ended]:
            pace.record_attempt(seconds, seconds, settled=True)
        now = durations[ended - 1]
        remaining = pace.remaining_s([now] * (48 - ended), 0, 64)
        assert remaining is not None
        assert (30 - now) / 4 <= remaining <= 4 * (30 - now) + 8


@pytest.mark.parametrize("slots", [1, 64, 1000, 4096])
@pytest.mark.parametrize("generations", [0.2, 1, 3, 20])
def test_the_remaining_time_is_about_right_from_early_to_late_in_a_run(slots: int, generations: float) -> None:
    """Durations are exponential with a mean of 20 s; a simulated engine keeps all slots busy."""
    chance, pace = random.Random(slots), Pace()
    running = [(chance.expovariate(1 / 20), 0.0) for _ in range(slots)]
    heapq.heapify(running)
    for _ in range(max(20, int(slots * generations))):
        now, started = running[0]
        pace.record_attempt(now, now - started, settled=True)
        heapq.heapreplace(running, (now + chance.expovariate(1 / 20), now))
    remaining = pace.remaining_s([now - started for _, started in running], slots * 30, slots)
    assert remaining is not None
    assert 0.4 * 600 < remaining < 1.6 * 600


def test_attempts_that_are_retried_make_a_run_longer() -> None:
    steady, failing = Pace(), Pace()
    for number in range(100):
        steady.record_attempt(float(number), 1.0, settled=True)
        failing.record_attempt(float(number), 1.0, settled=number % 2 == 0)
    expected = steady.remaining_s([0.0], 50, 1)
    assert expected is not None
    assert failing.remaining_s([0.0], 50, 1) == pytest.approx(2 * expected, rel=0.05)


def test_many_unstarted_rollouts_are_not_simulated_one_by_one() -> None:
    pace = Pace()
    settle(pace, 0.0, 100, 0.1)
    assert pace.remaining_s([0.0] * 100, 10**9, 100) == pytest.approx(10**7, rel=0.01)


SECONDS = st.floats(0, 1e6)


@given(st.lists(SECONDS, min_size=1), st.lists(SECONDS), st.integers(0, 5000), st.integers(1, 5000))
def test_estimates_are_never_negative_nor_infinite(
    ended: list[float], ages: list[float], unstarted: int, limit: int
) -> None:
    pace = Pace()
    for number, seconds in enumerate(ended):
        pace.record_attempt(float(number), seconds, settled=number % 3 == 0)
    remaining = pace.remaining_s(ages, unstarted, limit)
    assert remaining is not None
    assert 0 <= remaining < math.inf
    assert 0 <= pace.per_second(len(ended) + 1.0) < math.inf


@given(st.lists(SECONDS, min_size=1))
def test_without_attempts_in_flight_durations_are_the_plain_quantiles(ended: list[float]) -> None:
    durations = Durations(ended, [])
    assert durations.at(1.0) == max(ended)
    assert durations.at(0.0) == min(ended)
    assert durations.at(0.5) == sorted(ended)[(len(ended) - 1) // 2]
