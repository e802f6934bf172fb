"""Spans of a traced attempt, and the ids of traces. Pure: times and span ids are arguments.

The id of a trace is derived from its rollout: retries and resumed runs continue it, and every process agrees on which
rollouts are sampled.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from gymnast.types.task import RolloutKey

Attribute = str | bool | int | float | list[str]
_TRACE_ID_BYTES: Final = 16
_SAMPLED_BITS: Final = 56
"""The part of a trace id that decides whether it is sampled, as W3C's Trace Context has it."""
INTERNAL: Final = 1
CLIENT: Final = 3


class SpanEvent(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened within a span."""

    at_ns: int
    name: str
    attributes: dict[str, Attribute] = {}


class Span(msgspec.Struct, frozen=True, array_like=True):
    """One step of an attempt. Times are nanoseconds since the epoch."""

    span_id: str
    parent_id: str
    """Empty for the span of the attempt itself."""
    name: str
    start_ns: int
    end_ns: int
    kind: int = INTERNAL
    attributes: dict[str, Attribute] = {}
    error: str | None = None
    """Why it failed; None if it did not."""
    events: list[SpanEvent] = []


class AttemptSpans(msgspec.Struct, frozen=True):
    """All spans of one attempt, or of a part of it that another process made."""

    trace_id: str
    spans: list[Span]


def trace_id_of(run_id: str, key: RolloutKey) -> str:
    """The trace of a rollout. All its attempts belong to it."""
    return blake2b(f"{run_id}/{key}".encode(), digest_size=_TRACE_ID_BYTES).hexdigest()


def sample_threshold(share: float) -> int:
    """Traces whose random part is below this are sampled."""
    return round(share * (1 << _SAMPLED_BITS))


def is_sampled(trace_id: str, threshold: int) -> bool:
    return int(trace_id[-_SAMPLED_BITS // 4 :], 16) < threshold
