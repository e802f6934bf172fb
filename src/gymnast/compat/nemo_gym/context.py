"""The implicit context of functions such as `get_global_config_dict()` and `get_server_url(name)`.

It is that of the hosted server whose code runs, or that of the process. Hosted code sees its cell through a context
variable, so that a process can have several cells. The process-wide object exists because these functions promise a
global configuration.
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
    from gymnast.wire.progress import AttemptProgress


@dataclass(frozen=True, slots=True)
class CellContext:
    """The cell that hosts code: its configuration, calls and event loop."""

    config: DictConfig
    calls: Calls
    loop: asyncio.AbstractEventLoop

    def local_calls(self) -> Calls | None:
        """The cell's calls, which belong to its event loop; None in another loop."""
        return self.calls if asyncio.get_running_loop() is self.loop else None


class RequestContext:
    """A request that hosted code handles: its cell and attempt. Calls made while handling it inherit both."""

    __slots__ = ("cell", "judge_failure", "progress", "rollout_id")

    def __init__(
        self, cell: CellContext | None, rollout_id: str | None = None, progress: AttemptProgress | None = None
    ) -> None:
        self.cell = cell
        self.rollout_id = rollout_id
        self.progress = progress
        self.judge_failure: dict[str, Any] = {}
        """The fields of the last /verify reply that report a failed judge, if it did."""


@dataclass(slots=True)
class Process:
    """The fallback for processes without a cell and threads without the context."""

    config: DictConfig | None = None
    cell: CellContext | None = None
    sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, ClientSession] = field(default_factory=WeakKeyDictionary)


PROCESS: Final = Process()
NO_REQUEST: Final = RequestContext(None)
CURRENT_REQUEST: Final[ContextVar[RequestContext]] = ContextVar("nemo_gym_visit", default=NO_REQUEST)


def current_cell() -> CellContext | None:
    """The cell that hosts the running code, or None."""
    return CURRENT_REQUEST.get().cell or PROCESS.cell


@contextlib.contextmanager
def use_cell(cell: CellContext) -> Iterator[None]:
    """Run hosted code in its cell, outside of any attempt."""
    token = CURRENT_REQUEST.set(RequestContext(cell))
    try:
        yield
    finally:
        CURRENT_REQUEST.reset(token)


async def close_session() -> None:
    """Close the HTTP session of this event loop, if any."""
    session = PROCESS.sessions.pop(asyncio.get_running_loop(), None)
    if session is not None:
        await session.close()
