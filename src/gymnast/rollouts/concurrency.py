"""How many rollouts may be in flight, tuned from what happens. Pure: events and times are arguments.

Events are gathered in windows (at least 10 rollouts, as many as the limit, and 0.25 s) and evaluated at their end.

- slow start: the limit doubles while throughput grows, then goes back to the last level that paid off.
- steady: the limit recovers slowly towards a level that was rejected, and every 15 quiet windows starts a probe.
- probing: a slightly higher limit for one window, kept if throughput grew.

A rejection (429, 503, timeout) steps back to 80 % of what was in flight, except where that is useless: a flaky proxy
rejects at any level, so a share of rejections is then tolerated. High pressure (metrics of inference servers) stops
growth. Invariant: 1 <= current <= cap, and below any level that was rejected lately.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

INITIAL_LIMIT: Final = 16
_BACK_OFF: Final = 0.8
_REJECTED_MARGIN: Final = 0.95
"""Stay this far below a level that was rejected."""
_MIN_GAIN: Final = 1.08
"""Growth of throughput that is worth another step."""
_PROBE_EVERY_WINDOWS: Final = 15
_PROBE_STEP: Final = 1.06
_OUTAGE_OVER_WINDOWS: Final = 3
"""Windows without a rejection after which an outage counts as over."""
_REPROBE_AFTER_ROLLOUTS: Final = 500
"""Rollouts before a level is probed again after a rejected probe."""
_WINDOW_S: Final = 0.25
_MIN_REJECTIONS: Final = 3
_FLOOD_SHARE: Final = 0.1
"""Where some rejections are tolerated: the share that still makes the limit step back."""
_MAX_TOLERATED_SHARE: Final = 0.1
_MIN_TOLERATED_SHARE: Final = 0.002
_VISIBLE_STEP: Final = 0.8
"""A change of level that is large enough to show in the throughput."""


class _Phase(Enum):
    SLOW_START = auto()
    STEADY = auto()
    PROBING = auto()


@dataclass(frozen=True, slots=True)
class Pressure:
    """The load of inference servers: requests waiting and running, share of the KV cache in use."""

    waiting: float = 0.0
    running: float = 0.0
    kv_usage: float = 0.0

    @property
    def is_high(self) -> bool:
        return self.kv_usage > 0.9 or self.waiting > max(2.0, 0.1 * self.running)

    @property
    def is_too_high(self) -> bool:
        return self.kv_usage > 0.97 or self.waiting > max(8.0, 0.5 * self.running)


@dataclass(slots=True)
class _Window:
    """What happened since `began`."""

    began: float = 0.0
    completions: int = 0
    in_flight_sum: int = 0
    latency_sum_s: float = 0.0
    rejections: int = 0


@dataclass(slots=True)
class _StepsBack:
    """The current series of steps back, from its first rejection until half the windows to a probe were quiet."""

    is_active: bool = False
    reference: tuple[float, float] | None = None
    """Level and throughput after the first step."""
    rejected: int = 0
    completed: int = 0

    def end(self) -> None:
        """The counts go on until the next series starts."""
        self.is_active, self.reference = False, None


class ConcurrencyLimit:
    """The limit. With `fixed_start` it starts at the cap, which the user chose, instead of small.

    `_limit` is the current level, and `_rejected_at` bounds it. A step that did not pay goes back to `_before_probe`;
    close to `_failed_probe` no probe starts for a while; far below `_known_good`, once it is quiet, slow start begins
    again. Except for the user's cap and high pressure, only a rejection or the end of a window changes the level.
    """

    def __init__(self, cap: int, *, fixed_start: bool = False) -> None:
        self.cap = max(1, cap)
        self._limit = float(self.cap if fixed_start else min(INITIAL_LIMIT, self.cap))
        self._phase = _Phase.STEADY if fixed_start else _Phase.SLOW_START
        self._rejected_at: float | None = None
        self._best_rate = 0.0
        self._before_probe = self._limit
        self._quiet_windows = 0
        self._pressure = Pressure()
        self._ignore_until = 0.0
        self._settling = False
        self._window = _Window()
        self._settled_rate = 0.0
        self._probe_step = _PROBE_STEP
        self._latency_s = 0.0
        self._tolerated = 0.0
        """Share of rejections that is tolerated because stepping back did not end them."""
        self._known_good = 0.0
        """The highest level that was sustained."""
        self._steps_back = _StepsBack()
        self._failed_probe: float | None = None
        """The level of the last probe that was rejected."""
        self._since_step = 0
        """Rollouts since the last step back."""

    @property
    def current(self) -> int:
        return max(1, int(self._limit))

    def set_cap(self, cap: int) -> None:
        """The user chose another cap."""
        self.cap = max(1, cap)
        self._limit = float(self.cap)
        self._phase = _Phase.STEADY
        self._rejected_at = None

    def adjust_to_pressure(self, pressure: Pressure) -> None:
        """The inference servers' current load."""
        self._pressure = pressure
        if pressure.is_too_high:
            self._limit = max(1.0, self._limit * 0.9)

    def record_finished(self, now: float, seconds: float, in_flight: int) -> None:
        """A rollout ended after `seconds`; `in_flight` others are running."""
        window = self._window
        if window.completions == 0:
            window.began = now
        window.completions += 1
        window.in_flight_sum += in_flight + 1
        window.latency_sum_s += seconds
        self._steps_back.completed += 1
        self._since_step += 1
        if window.completions >= max(10, self.current) and now - window.began >= _WINDOW_S:
            self._evaluate_window(now)

    def record_rejection(self, now: float, latency_s: float = 0.0) -> None:
        """The endpoint rejected a request. Requests sent before a step back do not count against the new limit."""
        self._steps_back.rejected += 1
        if now < self._ignore_until:
            return
        window = self._window
        window.rejections += 1
        self._latency_s = latency_s
        if not self._tolerated or window.rejections >= max(
            2 * _MIN_REJECTIONS, _FLOOD_SHARE * max(window.completions, self.current)
        ):
            self._handle_rejections(now)

    def _handle_rejections(self, now: float) -> None:
        """Step back; if that costs throughput without ending the rejections, tolerate them instead."""
        if self._is_backing_off_useless():
            series = self._steps_back
            share = series.rejected / max(1, series.rejected + series.completed)
            self._tolerated = min(_MAX_TOLERATED_SHARE, 2 * max(share, self._tolerated))
            self._rejected_at, self._best_rate, self._phase = None, 0.0, _Phase.SLOW_START
            self._window = _Window(now)
            return
        level = min(self._limit, self._in_flight_level())
        if not self._steps_back.is_active:
            self._steps_back = _StepsBack(is_active=True, rejected=1)
        self._rejected_at = level if self._rejected_at is None else min(self._rejected_at, level)
        self._limit = max(1.0, level * _BACK_OFF)
        if self._phase is _Phase.PROBING:
            self._failed_probe = level
        elif self._phase is _Phase.SLOW_START:
            self._known_good = min(self._known_good, level)
        self._phase, self._probe_step = _Phase.STEADY, _PROBE_STEP
        self._quiet_windows = self._since_step = 0
        self._ignore_until = now + max(1.0, 2 * self._latency_s)
        self._window = _Window(now)

    def _is_backing_off_useless(self) -> bool:
        """Whether the endpoint was never full: below capacity, fewer in flight means fewer per second."""
        series = self._steps_back
        if series.reference is None:
            return False
        level, rate = min(self._limit, self._in_flight_level()), self._settled_rate
        level_then, rate_then = series.reference
        if level > level_then * _VISIBLE_STEP or not rate or not rate_then:
            return False
        series.end()
        if series.rejected > _MAX_TOLERATED_SHARE * series.completed:
            return False  # that many rejections are an outage, not noise
        return rate / rate_then < (1 + level / level_then) / 2

    def _in_flight_level(self) -> float:
        window = self._window
        return window.in_flight_sum / window.completions if window.completions >= 10 else self._limit

    def _evaluate_window(self, now: float) -> None:
        window = self._window
        if window.rejections == 0:
            self._note_quiet_window()
        elif window.rejections >= _MIN_REJECTIONS and window.rejections > self._tolerated * (
            window.rejections + window.completions
        ):
            self._handle_rejections(now)
            return
        rate = window.in_flight_sum / max(window.latency_sum_s, 1e-9)  # in flight / latency: not distorted by bursts
        level = window.in_flight_sum / window.completions
        used = level / max(self.current, 1)
        self._window = _Window(now)
        if self._settling:  # these rollouts started under another limit; their latency says nothing about this one
            self._settling = False
            return
        self._settled_rate = rate
        if not window.rejections:
            self._known_good = max(self._known_good, level)
        if self._steps_back.is_active and self._steps_back.reference is None:
            self._steps_back.reference = (level, rate)
        if used < 0.8 or self._pressure.is_high:
            return  # the limit is not the bottleneck, or the inference server is overloaded
        if self._phase is _Phase.SLOW_START:
            self._slow_start(rate)
        elif self._phase is _Phase.PROBING:
            self._end_probe(rate)
        else:
            self._steady(rate)

    def _note_quiet_window(self) -> None:
        """A window without rejections."""
        self._tolerated *= 0.98
        if self._tolerated < _MIN_TOLERATED_SHARE:
            self._tolerated = 0.0
        if self._quiet_windows > _PROBE_EVERY_WINDOWS // 2:
            self._steps_back.end()

    def _slow_start(self, rate: float) -> None:
        if rate >= self._best_rate * _MIN_GAIN:
            self._best_rate, self._before_probe = rate, self._limit
            self._grow_to(self._limit * 2)
            if self._limit >= self._ceiling():
                self._phase = _Phase.STEADY
        else:
            self._limit, self._phase = self._before_probe, _Phase.STEADY

    def _steady(self, rate: float) -> None:
        self._best_rate = 0.7 * self._best_rate + 0.3 * rate if self._best_rate else rate
        ceiling = self._ceiling()
        if self._limit < ceiling * 0.98 and self._rejected_at is not None:
            self._grow_to(self._limit + max(1.0, 0.3 * (ceiling - self._limit)))  # recover, slower the closer it gets
            return
        self._quiet_windows += 1
        if (
            self._quiet_windows >= _OUTAGE_OVER_WINDOWS and self._limit < self._known_good / 2
        ):  # there was an outage, and it is over
            self._rejected_at, self._best_rate, self._phase = None, 0.0, _Phase.SLOW_START
            return
        grown = max(self._limit + 1, self._limit * self._probe_step)
        is_known_bad = self._failed_probe is not None and grown >= 0.8 * self._failed_probe
        if self._quiet_windows < _PROBE_EVERY_WINDOWS or (is_known_bad and self._since_step < _REPROBE_AFTER_ROLLOUTS):
            return
        if self._limit < self.cap:
            self._quiet_windows = 0
            self._before_probe, self._phase = self._limit, _Phase.PROBING
            if self._rejected_at is not None:
                self._rejected_at = max(self._rejected_at, grown / _REJECTED_MARGIN)  # there may be more room by now
            self._grow_to(grown)

    def _end_probe(self, rate: float) -> None:
        grown = self._limit / max(self._before_probe, 1.0)
        self._phase = _Phase.STEADY
        if rate >= self._best_rate * (1 + (grown - 1) / 2):
            self._best_rate = rate
            self._quiet_windows = _PROBE_EVERY_WINDOWS - 2  # it paid off: probe again soon, with a larger step
            self._probe_step = min(2.0, 1 + 2 * (self._probe_step - 1))
            self._failed_probe = None
        else:
            self._limit, self._probe_step = self._before_probe, _PROBE_STEP

    def _ceiling(self) -> float:
        return self.cap if self._rejected_at is None else min(self.cap, max(1.0, self._rejected_at * _REJECTED_MARGIN))

    def _grow_to(self, limit: float) -> None:
        self._settling = True
        self._limit = min(limit, self._ceiling())
