"""Encodes spans as OTLP: an `ExportTraceServiceRequest` in binary Protocol Buffers, which every collector accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.tracking import protobuf as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gymnast.types.span import AttemptSpans, Attribute, Span, SpanEvent

_STATUS_ERROR: Final = 2
_SCHEMA: Final = "https://opentelemetry.io/schemas/1.37.0"


def encode_traces(attempts: Iterable[AttemptSpans], resource: Mapping[str, Attribute], version: str) -> bytes:
    """The body of a request to `/v1/traces`."""
    spans = [pb.message(2, _span(attempt.trace_id, span)) for attempt in attempts for span in attempt.spans]
    scope = pb.message(1, [pb.text(1, "gymnast"), pb.text(2, version)])
    scope_spans = pb.message(2, [scope, *spans, pb.text(3, _SCHEMA)])
    return pb.message(1, [pb.message(1, _attributes(1, resource)), scope_spans])


def _span(trace_id: str, span: Span) -> list[bytes]:
    parts = [pb.data(1, bytes.fromhex(trace_id)), pb.data(2, bytes.fromhex(span.span_id))]
    if span.parent_id:
        parts.append(pb.data(4, bytes.fromhex(span.parent_id)))
    parts += [pb.text(5, span.name), pb.integer(6, span.kind), pb.fixed64(7, span.start_ns), pb.fixed64(8, span.end_ns)]
    parts += _attributes(9, span.attributes)
    parts += [pb.message(11, _event(event)) for event in span.events]
    if span.error is not None:
        parts.append(pb.message(15, [pb.text(2, span.error), pb.integer(3, _STATUS_ERROR)]))
    return parts


def _event(event: SpanEvent) -> list[bytes]:
    return [pb.fixed64(1, event.at_ns), pb.text(2, event.name), *_attributes(3, event.attributes)]


def _attributes(field: int, attributes: Mapping[str, Attribute]) -> list[bytes]:
    return [pb.message(field, [pb.text(1, name), pb.message(2, [_value(value)])]) for name, value in attributes.items()]


def _value(value: Attribute) -> bytes:
    if isinstance(value, bool):
        return pb.integer(2, int(value))
    if isinstance(value, int):
        return pb.integer(3, value) if -(1 << 63) <= value < 1 << 63 else pb.text(1, str(value))
    if isinstance(value, float):
        return pb.double(4, value)
    if isinstance(value, list):
        return pb.message(5, [pb.message(1, [pb.text(1, item)]) for item in value])
    return pb.text(1, value)
