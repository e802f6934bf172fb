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
_RANDOM_BYTES: Final = 7
"""The last part of a trace id decides whether it is sampled, as in W3C's Trace Context."""
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


class TraceIds:
    """The traces of a run's rollouts, and which of them are sampled: the same in every process and after a resume."""

    def __init__(self, run_id: str, share: float) -> None:
        self._hash = blake2b(run_id.encode("utf-8", errors="replace"), digest_size=_TRACE_ID_BYTES)
        threshold = round(share * (1 << 8 * _RANDOM_BYTES))
        self._below = threshold.to_bytes(_RANDOM_BYTES + 1)
        """Traces whose random part is below this are sampled."""

    def sampled_id(self, key: RolloutKey) -> str | None:
        """The trace of a rollout, to which all its attempts belong, if it is sampled."""
        rollout = self._hash.copy()
        rollout.update(b"/%d:%d" % key)
        digest = rollout.digest()
        return digest.hex() if b"\0" + digest[-_RANDOM_BYTES:] < self._below else None
