"""What functions without arguments mean (`get_global_config_dict()`, `get_server_url(name)`): the configuration of the
server whose code runs, else that of the process.

Code hosted in a cell sees the cell's configuration through a context variable, so several cells can live in a process.
The one object of the process is there because that is what the names promise: a configuration anybody can ask for.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import ClientSession
    from omegaconf import DictConfig

    from gymnast.wire.calls import Calls
    from gymnast.wire.trail import Trail


@dataclass(frozen=True, slots=True)
class Place:
    """Where hosted code runs: its cell's configuration and calls."""

    config: DictConfig
    calls: Calls
    loop: asyncio.AbstractEventLoop

    def calls_from_here(self) -> Calls | None:
        """The cell's calls, which belong to its loop; None in any other."""
        return self.calls if asyncio.get_running_loop() is self.loop else None


class Visit:
    """A request that hosted code answers: where, and on behalf of which attempt. Calls made meanwhile carry it on."""

    __slots__ = ("place", "rollout_id", "trail", "unjudged")

    def __init__(self, place: Place | None, rollout_id: str | None = None, trail: Trail | None = None) -> None:
        self.place = place
        self.rollout_id = rollout_id
        self.trail = trail
        self.unjudged: dict[str, Any] = {}
        """What the last /verify said in place of a verdict, if its judge failed."""


@dataclass(slots=True)
class Process:
    """What a process without a cell, and threads that have lost their context, fall back to."""

    config: DictConfig | None = None
    place: Place | None = None
    sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, ClientSession] = field(default_factory=WeakKeyDictionary)


PROCESS: Final = Process()
NOWHERE: Final = Visit(None)
VISIT: Final[ContextVar[Visit]] = ContextVar("nemo_gym_visit", default=NOWHERE)


def current_place() -> Place | None:
    """Where the running code is hosted, or None."""
    return VISIT.get().place or PROCESS.place


@contextlib.contextmanager
def at(place: Place) -> Iterator[None]:
    """Run hosted code in its place, for no attempt in particular."""
    token = VISIT.set(Visit(place))
    try:
        yield
    finally:
        VISIT.reset(token)


async def close_session() -> None:
    """Close the HTTP session of this loop, if one was opened."""
    session = PROCESS.sessions.pop(asyncio.get_running_loop(), None)
    if session is not None:
        await session.close()
