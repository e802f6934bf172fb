"""Where an attempt is right now, and what its model calls used so far. Calls write it, status and records read it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from gymnast.types.failure import Stage
from gymnast.types.usage import Account

if TYPE_CHECKING:
    from collections.abc import Callable


TRAIL_KEY: Final = "gymnast.trail"
"""Where an ASGI scope carries the trail of its request."""


class Trail:
    """The current place of one attempt."""

    __slots__ = ("account", "captures", "endpoint", "instance", "since", "stage")

    def __init__(self, *, captures: bool = False) -> None:
        """With `captures`, each model call is listed, not only summed up."""
        self.stage = Stage.PLAN
        self.instance = ""
        self.endpoint = ""
        """The URL that a model server asks at this moment."""
        self.since = time.monotonic()
        self.account: Account | None = None
        """What model calls used; None until there is one."""
        self.captures = captures

    def enter(self, stage: Stage, instance: str) -> tuple[Stage, str]:
        """Go there; what is returned leads back."""
        before = (self.stage, self.instance)
        self.stage, self.instance, self.endpoint, self.since = stage, instance, "", time.monotonic()
        return before

    def open_account(self) -> Account:
        """The account, which begins with the first model call."""
        if self.account is None:
            self.account = Account(captures=self.captures)
        return self.account

    def leave(self, before: tuple[Stage, str]) -> None:
        """Go back."""
        self.stage, self.instance = before
        self.endpoint = ""
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
