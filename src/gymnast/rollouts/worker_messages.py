"""The messages between the engine and its worker processes: length-prefixed MessagePack over a private socket."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Final

import msgspec

from gymnast.rollouts.attempt import Outcome
from gymnast.types.span import Span
from gymnast.types.tokens import TokenForm

_LENGTH: Final = struct.Struct("!I")


class StartWorker(msgspec.Struct, frozen=True, tag="begin"):
    """To a worker: the instances to run, and how."""

    instances: list[dict[str, Any]]
    log_dir: str
    cache_dir: str
    request_debug: bool
    strict_settings: bool
    captures: bool = False
    """List every model call in the records."""
    token_form: TokenForm = "ledger"
    config: dict[str, Any] = {}
    """The whole configuration, for hosted servers."""


class MakeAttempt(msgspec.Struct, frozen=True, tag="work"):
    """To a worker: make an attempt."""

    number: int
    line: bytes
    attempts: int
    timeout_s: float
    trace: str | None = None
    """The trace and span that it belongs to, if it is traced."""


class CancelAttempt(msgspec.Struct, frozen=True, tag="abandon"):
    """To a worker: cancel an attempt."""

    number: int


class StopWorker(msgspec.Struct, frozen=True, tag="end"):
    """To a worker: exit."""


class WorkerReady(msgspec.Struct, frozen=True, tag="up"):
    """From a worker: ready for work."""


class StartFailed(msgspec.Struct, frozen=True, tag="cannot_start"):
    """From a worker: its instances cannot be started."""

    what: str
    where: str | None = None
    next: str | None = None


class AttemptDone(msgspec.Struct, frozen=True, tag="done"):
    """From a worker: the outcome of an attempt."""

    number: int
    outcome: Outcome
    spans: list[Span] = []
    """Its calls, if it is traced."""


class Heartbeat(msgspec.Struct, frozen=True, tag="beat"):
    """From a worker, several times a second: the stages of its attempts, and counts of its model calls."""

    stages: dict[int, tuple[str, str, float]]
    """The stage, the instance that is called, and how many seconds ago the stage began."""
    model_calls: int
    rejections: int
    rejection_latency_s: float
    lag_s: float
    stuck: dict[int, tuple[str, list[str]]] = {}
    """Attempts that have not moved for a while: the endpoint they wait for, and their stack."""
    retried_calls: dict[str, int] = {}
    """Failed model calls that were repeated, by kind."""


ToWorker = StartWorker | MakeAttempt | CancelAttempt | StopWorker
ToEngine = WorkerReady | StartFailed | AttemptDone | Heartbeat

_encoder = msgspec.msgpack.Encoder()
worker_decoder: Final = msgspec.msgpack.Decoder(ToWorker)
engine_decoder: Final = msgspec.msgpack.Decoder(ToEngine)


def encode_frame(message: ToWorker | ToEngine) -> bytes:
    """A message, prefixed with its length."""
    data = _encoder.encode(message)
    return _LENGTH.pack(len(data)) + data


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next message's bytes, or None at the end of the stream."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        return await reader.readexactly(_LENGTH.unpack(head)[0])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
