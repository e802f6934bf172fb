"""Records the calls of a traced attempt as spans, with the names of OpenTelemetry's GenAI conventions.

Attempts that are not traced have no recorder, and cost nothing. Processes pass a trace on in the header
`x-gymnast-trace` and return their spans in `x-gymnast-spans`, so that only the run's process exports. Prompts, outputs
and arguments are never recorded.
"""

from __future__ import annotations

import base64
import re
import secrets
import sys
import time
import zlib
from contextvars import ContextVar
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import CallError
from gymnast.types.encoding import printable
from gymnast.types.failure import Stage, bounded
from gymnast.types.span import CLIENT, INTERNAL, Attribute, Span, SpanEvent
from gymnast.types.usage import parse_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gymnast.wire.message import Reply, Request

TRACE_HEADER: Final = "x-gymnast-trace"
SPANS_HEADER: Final = "x-gymnast-spans"
MAX_SPANS: Final = 1000
"""Spans recorded for one attempt; a loop of thousands of calls is cut off."""
_MAX_HEADER: Final = 3000
"""Characters of the reply header: proxies refuse replies whose headers exceed 4 kB."""
_MAX_INFLATED: Final = 1 << 20
_MAX_TEXT: Final = 300
_MAX_ITEMS: Final = 20
_MAX_TIME_NS: Final = (1 << 63) - 1
_SPAN_ID: Final = re.compile(r"[0-9a-f]{16}")
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01")
_decoder: Final = msgspec.json.Decoder(list[Span])

_current: ContextVar[tuple[SpanRecorder, str] | None] = ContextVar("gymnast_current_span", default=None)
"""The innermost open span of the running task: calls made inside a call are its children."""


class SpanRecorder:
    """The spans of one attempt, as far as this process makes its calls."""

    def __init__(self, trace_id: str, root_id: str) -> None:
        self.trace_id = trace_id
        self.root_id = root_id
        """The span that calls of the attempt belong to, unless they are made inside another call."""
        self.spans: list[Span] = []
        self.dropped = 0
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()

    @classmethod
    def from_header(cls, value: str) -> SpanRecorder | None:
        """The recorder for a request that belongs to a trace; None if the header is invalid."""
        match = _TRACEPARENT.fullmatch(value)
        return cls(match[1], match[2]) if match is not None else None

    def now_ns(self) -> int:
        """The time since the epoch, never going back within one recorder."""
        return self._epoch_ns + time.perf_counter_ns()

    def open(self, stage: Stage, instance: str, request: Request) -> OpenSpan | None:
        """Start the span of a call. None for the call that is the attempt itself, which has a span already."""
        current = _current.get()
        parent = current[1] if current is not None and current[0] is self else self.root_id
        if stage is Stage.AGENT and request.path == "/run" and parent == self.root_id:
            request.headers = {**request.headers, TRACE_HEADER: self.traceparent(parent)}
            return None
        if len(self.spans) >= MAX_SPANS:
            self.dropped += 1
            return None
        span = OpenSpan(self, secrets.token_hex(8), parent, stage, instance, request)
        request.headers = {**request.headers, TRACE_HEADER: self.traceparent(span.span_id)}
        return span

    def traceparent(self, span_id: str | None = None) -> str:
        """The value of W3C's `traceparent` for calls inside a span; by default the innermost open one."""
        if span_id is None:
            current = _current.get()
            span_id = current[1] if current is not None and current[0] is self else self.root_id
        return f"00-{self.trace_id}-{span_id}-01"

    def record_retry(self, kind: str, tries: int) -> None:
        """A model call failed and is repeated: an event of the span that is open."""
        current = _open.get()
        if current is not None:
            current.events.append(SpanEvent(self.now_ns(), "retry", {"error.type": kind, "gymnast.tries": tries}))

    def add(self, spans: Iterable[Span]) -> None:
        """Add spans that another process recorded."""
        for span in spans:
            if len(self.spans) < MAX_SPANS:
                self.spans.append(span)
            else:
                self.dropped += 1

    def merge_reply(self, headers: Mapping[str, str]) -> None:
        """Add the spans that a reply brings along."""
        value = headers.get(SPANS_HEADER)
        if value is not None:
            self.add(_decode_spans(value))

    def header(self) -> str:
        """The spans as a header value. The last ones are left out if they do not fit."""
        spans = self.spans
        while True:
            value = base64.b64encode(zlib.compress(msgspec.json.encode(spans))).decode()
            if len(value) <= _MAX_HEADER:
                return value
            spans = spans[: len(spans) * 3 // 4]


class OpenSpan:
    """A call that is being made."""

    __slots__ = ("_instance", "_parent", "_recorder", "_request", "_stage", "_start_ns", "_tokens", "events", "span_id")

    def __init__(
        self, recorder: SpanRecorder, span_id: str, parent: str, stage: Stage, instance: str, request: Request
    ) -> None:
        self.span_id = span_id
        self.events: list[SpanEvent] = []
        self._recorder = recorder
        self._parent = parent
        self._stage = stage
        self._instance = instance
        self._request = request
        self._start_ns = recorder.now_ns()
        self._tokens = _current.set((recorder, span_id)), _open.set(self)

    def close(self, reply: Reply | None, endpoint: str) -> None:
        """End the span with a reply, or with the exception that is being handled."""
        _current.reset(self._tokens[0])
        _open.reset(self._tokens[1])
        name, kind, attributes = _describe(self._stage, self._instance, self._request)
        error: str | None = None
        raised = sys.exc_info()[1] if reply is None else None
        end_ns = max(self._start_ns, self._recorder.now_ns())
        if raised is not None:
            attributes["error.type"], error = _describe_error(raised)
        elif reply is not None and not reply.ok:
            attributes["error.type"] = reply.failure.kind.value if reply.failure is not None else str(reply.status)
            error = bounded(reply.failure.message, _MAX_TEXT) if reply.failure is not None else f"status {reply.status}"
        elif reply is not None and isinstance(reply.body, dict):
            if self._stage is Stage.MODEL:
                attributes |= _describe_response(reply.body)
                model = attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model")
                name = f"chat {model}" if model else name
            elif self._stage is Stage.VERIFY:
                self.events += _evaluation(self._instance, reply.body, end_ns)
        if endpoint:
            attributes["server.address"] = endpoint
        attributes = {key: _limit_size(value) for key, value in attributes.items()}
        error = _text(error) if error is not None else None
        name = _text(name)
        span = Span(self.span_id, self._parent, name, self._start_ns, end_ns, kind, attributes, error, self.events)
        self._recorder.add([span])


_open: ContextVar[OpenSpan | None] = ContextVar("gymnast_open_span", default=None)


def _describe(stage: Stage, instance: str, request: Request) -> tuple[str, int, dict[str, Attribute]]:
    """Name, kind and attributes of a call, from its request."""
    attributes: dict[str, Attribute] = {"gymnast.stage": stage.value, "gymnast.instance": instance}
    if stage is Stage.MODEL:
        body: Any = request.body if isinstance(request.body, dict) else {}
        attributes |= {"gen_ai.operation.name": "chat", "gen_ai.provider.name": instance}
        if request.rollout_id:
            attributes["gen_ai.conversation.id"] = request.rollout_id
        for name, value in (
            ("model", body.get("model")),
            ("temperature", body.get("temperature")),
            ("top_p", body.get("top_p")),
            ("seed", body.get("seed")),
            ("max_tokens", body.get("max_output_tokens") or body.get("max_tokens")),
        ):
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                attributes[f"gen_ai.request.{name}"] = value
        return f"chat {instance}", CLIENT, attributes
    path = request.path.partition("?")[0].strip("/")
    if stage is Stage.TOOL:
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": path}
        attributes["gen_ai.tool.type"] = "function"
        return f"execute_tool {path}", INTERNAL, attributes
    if stage is Stage.AGENT:
        attributes |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": instance}
        return f"invoke_agent {instance}", CLIENT, attributes
    return f"{path} {instance}", INTERNAL, attributes


def _describe_response(body: Mapping[str, Any]) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {}
    for name in ("model", "id"):
        if isinstance(body.get(name), str):
            attributes[f"gen_ai.response.{name}"] = body[name]
    tokens = parse_tokens(body.get("usage"))
    if tokens is not None:
        attributes["gen_ai.usage.input_tokens"] = tokens.input
        attributes["gen_ai.usage.output_tokens"] = tokens.output
        if tokens.cached is not None:
            attributes["gen_ai.usage.cache_read.input_tokens"] = tokens.cached
        if tokens.reasoning is not None:
            attributes["gen_ai.usage.reasoning.output_tokens"] = tokens.reasoning
    reasons = _finish_reasons(body)
    if reasons:
        attributes["gen_ai.response.finish_reasons"] = reasons
    return attributes


def _finish_reasons(body: Mapping[str, Any]) -> list[str]:
    choices = body.get("choices")
    if isinstance(choices, list):
        reasons = [choice.get("finish_reason") for choice in choices if isinstance(choice, dict)]
        return [reason for reason in reasons if isinstance(reason, str)]
    if isinstance(body.get("stop_reason"), str):
        return [body["stop_reason"]]
    incomplete = body.get("incomplete_details")
    if isinstance(incomplete, dict) and isinstance(incomplete.get("reason"), str):
        return ["length" if incomplete["reason"] == "max_output_tokens" else incomplete["reason"]]
    output = body.get("output")
    if not isinstance(output, list):
        return []
    is_call = any(isinstance(item, dict) and item.get("type") == "function_call" for item in output)
    return ["tool_calls" if is_call else "stop"]


def _evaluation(instance: str, body: Mapping[str, Any], at_ns: int) -> list[SpanEvent]:
    """The reward of a verify call, as the event that the conventions have for scores."""
    reward = body.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        return []
    attributes: dict[str, Attribute] = {
        "gen_ai.evaluation.name": instance,
        "gen_ai.evaluation.score.value": float(reward),
    }
    return [SpanEvent(at_ns, "gen_ai.evaluation.result", attributes)]


def _describe_error(error: BaseException) -> tuple[str, str]:
    if isinstance(error, CallError):
        return error.detail.kind.value, bounded(error.detail.message, _MAX_TEXT)
    name = type(error).__name__
    return name, name


def _text(value: str) -> str:
    return printable(value[:_MAX_TEXT])


def _limit_size(value: Attribute) -> Attribute:
    """The value as every encoding can hold it: what comes from rows, models and servers may be of any size."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [_text(item) for item in value[:_MAX_ITEMS]]
    if isinstance(value, float) or -_MAX_TIME_NS <= value <= _MAX_TIME_NS:
        return value
    return str(value)[:_MAX_TEXT]


def _decode_spans(value: str) -> list[Span]:
    """The valid spans in a header."""
    try:
        inflater = zlib.decompressobj()
        spans = _decoder.decode(inflater.decompress(base64.b64decode(value), _MAX_INFLATED))
    except (ValueError, zlib.error, msgspec.MsgspecError):
        return []
    return [
        msgspec.structs.replace(
            span,
            name=_text(span.name),
            attributes={_text(key): _limit_size(each) for key, each in span.attributes.items()},
        )
        for span in spans
        if _is_valid(span)
    ]


def _is_valid(span: Span) -> bool:
    """Whether a span that another process sent can be exported."""
    times = (0, span.start_ns, span.end_ns, _MAX_TIME_NS)
    return (
        _SPAN_ID.fullmatch(span.span_id) is not None
        and _SPAN_ID.fullmatch(span.parent_id) is not None
        and all(earlier <= later for earlier, later in pairwise(times))
        and span.kind in {INTERNAL, CLIENT}
        and all(0 <= event.at_ns <= _MAX_TIME_NS for event in span.events)
    )
