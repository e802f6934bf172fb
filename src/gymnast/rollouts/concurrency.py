"""How many rollouts may be in flight: found by trying, not by guessing. Pure: it is told what happened and when.

Slow start while throughput follows, a step back when the endpoint rejects or when more in flight gives no more per
second, then small probes. A rejection is a 429, a 503 or a timeout; pressure is what an engine's own metrics say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

START: Final = 16
_BACK_OFF: Final = 0.8
_NEAR: Final = 0.95
"""Stay this far below a level that was rejected."""
_BETTER: Final = 1.08
"""Throughput that is worth another step."""
_PROBE_EVERY: Final = 15
_PROBE_STEP: Final = 1.06
_OVER: Final = 3
"""Windows without a rejection after which an outage is taken to be over."""
_PROBE_AGAIN: Final = 500
"""Rollouts before a level is tried again that was rejected when it was tried last."""
_WINDOW_S: Final = 0.25
_FEW: Final = 3
_FLOOD: Final = 0.1
"""Where some rejections are put up with: a share of them that is answered at once."""
_MOST_TOLERATED: Final = 0.1
_LEAST_TOLERATED: Final = 0.002
_FAR_BELOW: Final = 0.8
"""A change of level that shows in the throughput, if the level is what holds it back."""


class _Phase(Enum):
    SLOW_START = auto()
    STEADY = auto()
    PROBING = auto()


@dataclass(frozen=True, slots=True)
class Pressure:
    """What an engine says of itself: requests waiting and running, share of its KV cache in use."""

    waiting: float = 0.0
    running: float = 0.0
    kv_usage: float = 0.0

    @property
    def is_high(self) -> bool:
        return self.kv_usage > 0.9 or self.waiting > max(2.0, 0.1 * self.running)

    @property
    def is_too_high(self) -> bool:
        return self.kv_usage > 0.97 or self.waiting > max(8.0, 0.5 * self.running)


class ConcurrencyLimit:
    """The limit. With `fixed_start` the search begins at the cap (somebody asked for that many) instead of small."""

    def __init__(self, cap: int, *, fixed_start: bool = False) -> None:
        self.cap = max(1, cap)
        self._limit = float(self.cap if fixed_start else min(START, self.cap))
        self._phase = _Phase.STEADY if fixed_start else _Phase.SLOW_START
        self._rejected_at: float | None = None
        self._best_rate = 0.0
        self._before_probe = self._limit
        self._quiet_windows = 0
        self._pressure = Pressure()
        self._ignore_until = 0.0
        self._settling = False
        self._window_began = 0.0
        self._completions = 0
        self._busy = 0
        self._seconds = 0.0
        self._settled_rate = 0.0
        self._probe_step = _PROBE_STEP
        self._rejections = 0
        self._latency_s = 0.0
        self._tolerated = 0.0
        """Share of rejections that is put up with because stepping back did not end them."""
        self._known_good = 0.0
        """The highest level that was sustained."""
        self._is_stepping_back = False
        self._reference: tuple[float, float] | None = None
        """Level and throughput after the first step of the present series of step-backs."""
        self._series_rejected = self._series_completed = 0
        self._failed_probe: float | None = None
        """The level that was rejected when it was tried last."""
        self._since_step = 0
        """Rollouts since the last step back."""

    @property
    def current(self) -> int:
        return max(1, int(self._limit))

    def set_cap(self, cap: int) -> None:
        """Somebody chose another cap."""
        self.cap = max(1, cap)
        self._limit = float(self.cap)
        self._phase = _Phase.STEADY
        self._rejected_at = None

    def feel(self, pressure: Pressure) -> None:
        """What the engine's metrics say now."""
        self._pressure = pressure
        if pressure.is_too_high:
            self._limit = max(1.0, self._limit * 0.9)

    def finished(self, now: float, seconds: float, in_flight: int) -> None:
        """A rollout ended after `seconds`, `in_flight` others are running."""
        if self._completions == 0:
            self._window_began = now
        self._completions += 1
        self._series_completed += 1
        self._since_step += 1
        self._busy += in_flight + 1
        self._seconds += seconds
        if self._completions >= max(10, self.current) and now - self._window_began >= _WINDOW_S:
            self._judge(now)

    def rejected(self, now: float, latency_s: float = 0.0) -> None:
        """The endpoint turned a request away. What was sent before a step back does not count against the new limit."""
        self._series_rejected += 1
        if now < self._ignore_until:
            return
        self._rejections += 1
        self._latency_s = latency_s
        if not self._tolerated or self._rejections >= max(2 * _FEW, _FLOOD * max(self._completions, self.current)):
            self._answer_rejections(now)

    def _answer_rejections(self, now: float) -> None:
        """Step back; or, if that costs throughput and does not end the rejections, put up with as many as there are."""
        if self._is_in_vain():
            share = self._series_rejected / max(1, self._series_rejected + self._series_completed)
            self._tolerated = min(_MOST_TOLERATED, 2 * max(share, self._tolerated))
            self._rejected_at, self._best_rate, self._phase = None, 0.0, _Phase.SLOW_START
            self._start_window(now)
            return
        level = min(self._limit, self._in_flight_level())
        if not self._is_stepping_back:
            self._is_stepping_back, self._reference = True, None
            self._series_rejected, self._series_completed = 1, 0
        self._rejected_at = level if self._rejected_at is None else min(self._rejected_at, level)
        self._limit = max(1.0, level * _BACK_OFF)
        if self._phase is _Phase.PROBING:
            self._failed_probe = level
        elif self._phase is _Phase.SLOW_START:
            self._known_good = min(self._known_good, level)
        self._phase, self._probe_step = _Phase.STEADY, _PROBE_STEP
        self._quiet_windows = self._since_step = 0
        self._ignore_until = now + max(1.0, 2 * self._latency_s)
        self._start_window(now)

    def _is_in_vain(self) -> bool:
        """Whether the endpoint was never full.

        A flaky proxy or a provider's hiccups reject at any level; below capacity, fewer in flight are fewer per second.
        """
        if self._reference is None:
            return False
        level, rate = min(self._limit, self._in_flight_level()), self._settled_rate
        level_then, rate_then = self._reference
        if level > level_then * _FAR_BELOW or not rate or not rate_then:
            return False
        self._is_stepping_back, self._reference = False, None
        if self._series_rejected > _MOST_TOLERATED * self._series_completed:
            return False  # an outage is no noise
        return rate / rate_then < (1 + level / level_then) / 2

    def _in_flight_level(self) -> float:
        return self._busy / self._completions if self._completions >= 10 else self._limit

    def _start_window(self, now: float) -> None:
        self._window_began = now
        self._completions = 0
        self._busy = 0
        self._seconds = 0.0
        self._rejections = 0

    def _judge(self, now: float) -> None:
        if self._rejections == 0:
            self._forget_rejections()
        elif self._rejections >= _FEW and self._rejections > self._tolerated * (self._rejections + self._completions):
            self._answer_rejections(now)
            return
        rate = self._busy / max(self._seconds, 1e-9)  # in flight / latency: bursts do not fool it
        level, had_rejections = self._busy / self._completions, self._rejections > 0
        used = level / max(self.current, 1)
        self._start_window(now)
        if self._settling:  # these rollouts began under another limit; their latency says nothing about this one
            self._settling = False
            return
        self._settled_rate = rate
        if not had_rejections:
            self._known_good = max(self._known_good, level)
        if self._is_stepping_back and self._reference is None:
            self._reference = (level, rate)
        if used < 0.8 or self._pressure.is_high:
            return  # the limit is not what holds us back, or the engine asks for mercy
        if self._phase is _Phase.SLOW_START:
            self._slow_start(rate)
        elif self._phase is _Phase.PROBING:
            self._end_probe(rate)
        else:
            self._steady(rate)

    def _forget_rejections(self) -> None:
        """A window without any."""
        self._tolerated *= 0.98
        if self._tolerated < _LEAST_TOLERATED:
            self._tolerated = 0.0
        if self._quiet_windows > _PROBE_EVERY // 2:
            self._is_stepping_back, self._reference = False, None

    def _slow_start(self, rate: float) -> None:
        if rate >= self._best_rate * _BETTER:
            self._best_rate, self._before_probe = rate, self._limit
            self._grow_to(self._limit * 2)
            if self._limit >= self._roof():
                self._phase = _Phase.STEADY
        else:
            self._limit, self._phase = self._before_probe, _Phase.STEADY

    def _steady(self, rate: float) -> None:
        self._best_rate = 0.7 * self._best_rate + 0.3 * rate if self._best_rate else rate
        roof = self._roof()
        if self._limit < roof * 0.98 and self._rejected_at is not None:
            self._grow_to(self._limit + max(1.0, 0.3 * (roof - self._limit)))  # back up, slower the nearer it is
            return
        self._quiet_windows += 1
        if self._quiet_windows >= _OVER and self._limit < self._known_good / 2:  # an outage, and it is over
            self._rejected_at, self._best_rate, self._phase = None, 0.0, _Phase.SLOW_START
            return
        grown = max(self._limit + 1, self._limit * self._probe_step)
        is_known_bad = self._failed_probe is not None and grown >= 0.8 * self._failed_probe
        if self._quiet_windows < _PROBE_EVERY or (is_known_bad and self._since_step < _PROBE_AGAIN):
            return
        if self._limit < self.cap:
            self._quiet_windows = 0
            self._before_probe, self._phase = self._limit, _Phase.PROBING
            if self._rejected_at is not None:
                self._rejected_at = max(self._rejected_at, grown / _NEAR)  # perhaps there is more room by now
            self._grow_to(grown)

    def _end_probe(self, rate: float) -> None:
        grown = self._limit / max(self._before_probe, 1.0)
        self._phase = _Phase.STEADY
        if rate >= self._best_rate * (1 + (grown - 1) / 2):
            self._best_rate = rate
            self._quiet_windows = _PROBE_EVERY - 2  # it paid: look again soon, and further
            self._probe_step = min(2.0, 1 + 2 * (self._probe_step - 1))
            self._failed_probe = None
        else:
            self._limit, self._probe_step = self._before_probe, _PROBE_STEP

    def _roof(self) -> float:
        return self.cap if self._rejected_at is None else min(self.cap, max(1.0, self._rejected_at * _NEAR))

    def _grow_to(self, limit: float) -> None:
        self._settling = True
        self._limit = min(limit, self._roof())
