"""Where an attempt is right now: the stage, the instance it waits for, since when. Calls write it, status reads it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gymnast.types.failure import Stage

if TYPE_CHECKING:
    from collections.abc import Callable


class Trail:
    """The current place of one attempt."""

    __slots__ = ("instance", "since", "stage")

    def __init__(self) -> None:
        self.stage = Stage.PLAN
        self.instance = ""
        self.since = time.monotonic()

    def enter(self, stage: Stage, instance: str) -> tuple[Stage, str]:
        """Go there; what is returned leads back."""
        before = (self.stage, self.instance)
        self.stage, self.instance, self.since = stage, instance, time.monotonic()
        return before

    def leave(self, before: tuple[Stage, str]) -> None:
        """Go back."""
        self.stage, self.instance = before
        self.since = time.monotonic()


class Signals:
    """What endpoints tell beside their answers: that they turned a request away."""

    __slots__ = ("listeners", "model_calls", "rejections")

    def __init__(self) -> None:
        self.model_calls = 0
        self.rejections = 0
        self.listeners: list[Callable[[float], None]] = []
        """Told of each rejection how long it took."""

    def called(self) -> None:
        self.model_calls += 1

    def rejected(self, latency_s: float) -> None:
        self.rejections += 1
        for listener in self.listeners:
            listener(latency_s)
