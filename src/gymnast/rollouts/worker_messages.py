"""What the engine and its worker processes say to each other: length-prefixed MessagePack over a private socket."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Final

import msgspec

from gymnast.rollouts.attempt import Outcome
from gymnast.types.tokens import TokenForm

_LENGTH: Final = struct.Struct("!I")


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """To a worker: the instances to host and how."""

    instances: list[dict[str, Any]]
    log_dir: str
    cache_dir: str
    request_debug: bool
    strict_settings: bool
    captures: bool = False
    """List every model call in the records."""
    token_form: TokenForm = "ledger"
    config: dict[str, Any] = {}
    """The whole configuration, for guests."""


class Work(msgspec.Struct, frozen=True, tag="work"):
    """To a worker: make an attempt."""

    number: int
    line: bytes
    attempts: int
    timeout_s: float


class Abandon(msgspec.Struct, frozen=True, tag="abandon"):
    """To a worker: give an attempt up."""

    number: int


class End(msgspec.Struct, frozen=True, tag="end"):
    """To a worker: finish."""


class Up(msgspec.Struct, frozen=True, tag="up"):
    """From a worker: ready for work."""


class CannotStart(msgspec.Struct, frozen=True, tag="cannot_start"):
    """From a worker: its instances cannot be started."""

    what: str
    where: str | None = None
    next: str | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """From a worker: what became of an attempt."""

    number: int
    outcome: Outcome


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """From a worker, several times a second: where its attempts are, and what its endpoints said."""

    places: dict[int, tuple[str, str]]
    model_calls: int
    rejections: int
    rejection_latency_s: float
    lag_s: float
    standing: dict[int, tuple[str, list[str]]] = {}
    """Of attempts that have not moved for a while: the endpoint they wait for, and their stack."""


ToWorker = Begin | Work | Abandon | End
ToEngine = Up | CannotStart | Done | Beat

_encoder = msgspec.msgpack.Encoder()
to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
to_engine: Final = msgspec.msgpack.Decoder(ToEngine)


def frame(message: ToWorker | ToEngine) -> bytes:
    """A message with its length in front."""
    data = _encoder.encode(message)
    return _LENGTH.pack(len(data)) + data


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next message's bytes, or None at the end of the stream."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        return await reader.readexactly(_LENGTH.unpack(head)[0])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
