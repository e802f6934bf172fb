"""How fast a run settles rollouts now, and how long the rest will take. Pure; time is passed in.

The rate is that of the last seconds, not of the whole invocation. The remaining time comes from the durations of recent
attempts and the ages of those in flight: what is not started yet goes through as many slots as are in use now, and an
attempt that is older than most will take as long as attempts of its age took.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_WINDOW_S: Final = 30.0
_BUCKET_S: Final = 0.25
_MIN_SETTLED: Final = 8
"""If fewer were settled in the window, the rate is that of the last so many."""
_MIN_ATTEMPTS: Final = 512
_MAX_ATTEMPTS: Final = 8192
"""Recent attempts whose durations count: twice as many as are in flight, within these bounds."""
_MAX_SIMULATED: Final = 1000
"""Unstarted attempts that are simulated one by one; the others take their mean."""
_STEPS: Final = 64
_STRIDE: Final = 27
"""Visits all steps in a mixed order, the same each time."""


_EPSILON: Final = 1e-9


class Pace:
    """The recent attempts of an engine."""

    def __init__(self) -> None:
        self._attempts: deque[tuple[float, bool]] = deque(maxlen=_MAX_ATTEMPTS)
        """The seconds of each, and whether it settled its rollout."""
        self._ended = 0
        """All attempts that have ended."""
        self._buckets: deque[list[float]] = deque()
        """Start of an interval, and the number of rollouts that were settled in it."""
        self._last_settled: deque[float] = deque(maxlen=_MIN_SETTLED + 1)
        self.longest_scored_s = 0.0
        """The longest attempt that ended with a reward."""
        self._since = 0.0
        """When the first attempt started, or the concurrency was last changed by hand."""

    def record_attempt(self, now: float, seconds: float, *, settled: bool, scored: bool = False) -> None:
        """An attempt ended; it settled its rollout, or will be retried."""
        if scored:
            self.longest_scored_s = max(self.longest_scored_s, seconds)
        if not self._attempts:
            self._since = max(self._since, now - seconds)
        self._attempts.append((seconds, settled))
        self._ended += 1
        if settled:
            self._last_settled.append(now)
            if self._buckets and now - self._buckets[-1][0] < _BUCKET_S:
                self._buckets[-1][1] += 1
            else:
                self._buckets.append([now, 1])
                while self._buckets[0][0] < now - _WINDOW_S:
                    self._buckets.popleft()

    def since_settled_s(self, now: float) -> float | None:
        """Seconds since the last rollout was settled; None if none was."""
        return now - self._last_settled[-1] if self._last_settled else None

    def mark_change(self, now: float) -> None:
        """The concurrency was changed by hand: what was settled before says little about the rate from now on."""
        if self._attempts:
            self._since = now

    def per_second(self, now: float) -> float:
        """Rollouts settled per second, recently."""
        start = max(self._since, now - _WINDOW_S)
        count = sum(settled for at, settled in self._buckets if at >= start)
        if count < _MIN_SETTLED and len(self._last_settled) > _MIN_SETTLED:
            start, count = self._last_settled[0], _MIN_SETTLED
        elif count < _MIN_SETTLED:  # so few altogether
            start, count = min(self._since, *self._last_settled, now), len(self._last_settled)
        return count / max(now - start, 1e-9) if count else 0.0

    def remaining_s(self, ages: Sequence[float], unstarted: int, limit: int) -> float | None:
        """Estimated seconds until everything has ended; None if nothing is known yet.

        `ages`: how long the attempts in flight have run. `limit`: how many may be in flight.
        """
        if not self._attempts:
            return None
        recent = list(islice(reversed(self._attempts), max(_MIN_ATTEMPTS, 2 * len(ages))))
        is_all = len(recent) == self._ended
        durations = Durations([seconds for seconds, _ in recent], ages if is_all else ())
        settled = sum(is_settled for _, is_settled in recent)
        attempts = unstarted * len(recent) / (settled or 1)
        if attempts < 1:
            longest = len(ages) / (len(ages) + 1)  # the quantile at which the longest of them is expected
            return max((durations.estimate_remaining_s(age, longest) for age in ages), default=0.0)
        ends = sorted(durations.estimate_remaining_s(age, 0.5) for age in ages)
        slots = ends[max(0, len(ends) - limit) :] or [0.0]  # beyond the limit, the first to end are not replaced
        return _simulate(slots, attempts, durations)


class Durations:
    """The distribution of durations, from attempts that have ended and the ages of those that have not.

    Attempts in flight count as lasting longer than their age (the Kaplan-Meier estimate): early in a run only the short
    ones have ended. The ended ones must then be all that were started; of recent ones, the ages would count too much.
    """

    def __init__(self, ended: Sequence[float], ages: Sequence[float]) -> None:
        events = sorted([(seconds, 0) for seconds in ended] + [(age, 1) for age in ages])
        at_risk, survival = len(events), 1.0
        self._seconds: list[float] = []
        self._shares: list[float] = []
        """The share of attempts that do not exceed `_seconds`."""
        for seconds, is_in_flight in events:
            if not is_in_flight:
                survival *= (at_risk - 1) / at_risk
                self._seconds.append(seconds)
                self._shares.append(1.0 - survival)
            at_risk -= 1
        self._tail_s = self._mean_excess_s(ended, ages)
        """How much longer attempts take that are longer than any that has ended: they are assumed to end at a constant
        rate."""

    def _mean_excess_s(self, ended: Sequence[float], ages: Sequence[float]) -> float:
        """By how much attempts exceed the median, those in flight included."""
        median = self._seconds[(len(self._seconds) - 1) // 2]
        excess = math.fsum(max(0.0, seconds - median) for seconds in (*ended, *ages))
        return excess / sum(seconds >= median for seconds in ended)

    def at(self, share: float) -> float:
        """The duration that this share of attempts does not exceed."""
        index = bisect_left(self._shares, share - _EPSILON)
        if index < len(self._seconds):
            return self._seconds[index]
        longer = max(1.0 - self._shares[-1], _EPSILON)
        return self._seconds[-1] + self._tail_s * math.log(longer / max(1.0 - share, _EPSILON))

    def estimate_remaining_s(self, age: float, share: float) -> float:
        """What an attempt of this age still takes: a quantile of those that lasted longer.

        One that is older than all that have ended is expected to take at least a quarter of its age.
        """
        index = bisect_right(self._seconds, age)
        if index == len(self._seconds):
            return max(age / 4, self._tail_s * -math.log(1.0 - share))
        longer = 1.0 - (self._shares[index - 1] if index else 0.0)
        return max(0.0, self.at(1.0 - longer * (1.0 - share)) - age)


def _simulate(slots: list[float], attempts: float, durations: Durations) -> float:
    """When the last attempt ends if each slot takes the next one as soon as it is free."""
    quantiles = [durations.at((index + 0.5) / _STEPS) for index in range(_STEPS)]
    simulated = min(round(attempts), _MAX_SIMULATED)
    head_s = (attempts - simulated) * sum(quantiles) / _STEPS / len(slots) if attempts > simulated else 0.0
    heapq.heapify(slots)
    last = max(slots)
    for number in range(simulated):
        end = slots[0] + quantiles[number * _STRIDE % _STEPS]
        heapq.heapreplace(slots, end)
        last = max(last, end)
    return head_s + last
