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
_WINDOW_S: Final = 0.25


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
        self._busy += in_flight + 1
        self._seconds += seconds
        if self._completions >= max(10, self.current) and now - self._window_began >= _WINDOW_S:
            self._judge(now)

    def rejected(self, now: float, latency_s: float = 0.0) -> None:
        """The endpoint turned a request away. What was sent before a step back does not count against the new limit."""
        if now < self._ignore_until:
            return
        level = min(self._limit, self._in_flight_level())
        self._rejected_at = level if self._rejected_at is None else min(self._rejected_at, level)
        self._limit = max(1.0, level * _BACK_OFF)
        self._phase = _Phase.STEADY
        self._quiet_windows = 0
        self._ignore_until = now + max(1.0, 2 * latency_s)
        self._start_window(now)

    def _in_flight_level(self) -> float:
        return self._busy / self._completions if self._completions >= 10 else self._limit

    def _start_window(self, now: float) -> None:
        self._window_began = now
        self._completions = 0
        self._busy = 0
        self._seconds = 0.0

    def _judge(self, now: float) -> None:
        rate = self._busy / max(self._seconds, 1e-9)  # in flight / latency: bursts do not fool it
        used = self._busy / self._completions / max(self.current, 1)
        self._start_window(now)
        if self._settling:  # these rollouts began under another limit; their latency says nothing about this one
            self._settling = False
            return
        if used < 0.8 or self._pressure.is_high:
            return  # the limit is not what holds us back, or the engine asks for mercy
        if self._phase is _Phase.SLOW_START:
            self._slow_start(rate)
        elif self._phase is _Phase.PROBING:
            self._end_probe(rate)
        else:
            self._steady(rate)

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
        if self._quiet_windows >= _PROBE_EVERY and self._limit < self.cap:
            self._quiet_windows = 0
            self._before_probe, self._phase = self._limit, _Phase.PROBING
            if self._rejected_at is not None:
                self._rejected_at *= _PROBE_STEP  # perhaps there is more room by now
            self._grow_to(max(self._limit + 1, self._limit * _PROBE_STEP))

    def _end_probe(self, rate: float) -> None:
        grown = self._limit / max(self._before_probe, 1.0)
        self._phase = _Phase.STEADY
        if rate >= self._best_rate * (1 + (grown - 1) / 2):
            self._best_rate = rate
            self._quiet_windows = _PROBE_EVERY - 2  # it paid: look again soon
        else:
            self._limit = self._before_probe

    def _roof(self) -> float:
        return self.cap if self._rejected_at is None else min(self.cap, max(1.0, self._rejected_at * _NEAR))

    def _grow_to(self, limit: float) -> None:
        self._settling = True
        self._limit = min(limit, self._roof())
