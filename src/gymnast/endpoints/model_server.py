"""The base class of model servers: accepts Responses, Chat Completions and Messages, all converted to create params.

Streams are made from whole responses: the backend is always called without streaming. Parameters that the backend does
not support are rejected, or named in the reply's `x-gymnast-ignored` header and in the log; never silently dropped.
"""

from __future__ import annotations

import json
import secrets
import time
from abc import abstractmethod
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import orjson

from gymnast.config.server_settings import Settings
from gymnast.endpoints.price_table import find_prices
from gymnast.endpoints.usage import Meter
from gymnast.errors import CallError
from gymnast.types.failure import FailureDetail, FailureKind, Stage, bounded
from gymnast.types.responses import make_response
from gymnast.wire.dialects.chat_replies import BadCompletion, make_chat_stream, response_to_completion
from gymnast.wire.dialects.chat_requests import NotConvertible, chat_to_params, unsupported_chat_keys
from gymnast.wire.dialects.messages_replies import make_error_body, make_message_stream, response_to_message
from gymnast.wire.dialects.messages_requests import messages_to_params
from gymnast.wire.dialects.responses_streams import make_failed_stream, make_response_stream
from gymnast.wire.dialects.streamed_requests import parse_streamed_request
from gymnast.wire.message import Reply, Request, error_text
from gymnast.wire.server import HttpError, Server, ServerContext
from gymnast.wire.validate import require_field, require_object, validate_params

if TYPE_CHECKING:
    from gymnast.config.instances import ServerKind
    from gymnast.endpoints.usage import Prices
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject
    from gymnast.types.usage import UsageCounter
    from gymnast.wire.progress import AttemptProgress

IGNORED_HEADER: Final = "x-gymnast-ignored"
"""Reply header with the request parameters that the backend does not support: a JSON list of names."""
_MAX_HEADER_NAMES: Final = 30
_MAX_OVERFLOW_CHARS: Final = 500
_MAX_OVERFLOWS_LOGGED: Final = 20


@dataclass(slots=True)
class ModelCall:
    """The context of one model call. The session id keeps a conversation at one replica."""

    request: Request
    ignored: list[str] = field(default_factory=list)
    """Request parameters that did not reach the model; filled by `Model.note_ignored`."""
    ttft_ms: float | None = None
    """Time to the first token, if it was measured."""
    is_free: bool = False
    """Answered without generating anything, e.g. because the prompt exceeds the context."""
    overflow: str | None = None
    """What the endpoint said when the prompt exceeded its context."""

    @property
    def session_id(self) -> str:
        return self.request.session_id

    @property
    def rollout_id(self) -> str | None:
        return self.request.rollout_id

    @property
    def progress(self) -> AttemptProgress | None:
        """Where the attempt records its progress."""
        return self.request.progress

    @property
    def usage_counter(self) -> UsageCounter | None:
        """The usage of the attempt that this call belongs to, or None where usage is not recorded."""
        progress = self.request.progress
        return None if progress is None else progress.ensure_usage_counter()


class Model(Server):
    """A model server. Subclasses answer create params; the other dialects and streams are derived from that."""

    kind: ClassVar[ServerKind] = "responses_api_models"
    failure_kind: ClassVar[FailureKind] = FailureKind.MODEL_ERROR
    failure_stage: ClassVar[Stage] = Stage.MODEL
    settings: Settings

    def __init__(self, name: str, settings: Settings, context: ServerContext) -> None:
        super().__init__(name, context)
        self.settings = settings
        self._overflows = 0
        self._meter = Meter(name, self._prices())
        self.route("POST", "/v1/responses", self._responses)
        self.route("POST", "/v1/chat/completions", self._chat_completions)
        self.route("POST", "/v1/messages", self._messages)
        self.route("GET", "/v1/models", self._models)

    def _prices(self) -> Prices | None:
        prices: Prices | str | None = getattr(self.settings, "prices", None)
        return find_prices(prices, self.model_name) if isinstance(prices, str) else prices

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The name of the model that answers."""

    @abstractmethod
    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        """Answer one model call."""

    @property
    def takes_hosted_tools(self) -> bool:
        """Whether the backend accepts tools other than functions, and their items."""
        return False

    async def complete(self, body: JsonObject, call: ModelCall) -> JsonObject:
        """Answer a chat completion."""
        with _reject_unconvertible("Chat Completions"):
            params, ignored = chat_to_params(body), unsupported_chat_keys(body)
        self.note_ignored(call, ignored)
        return response_to_completion(dict(await self.respond(validate_params(params), call)), new_id=new_id)

    def note_ignored(self, call: ModelCall, names: Sequence[str]) -> None:
        """Record parameters that do not reach the model: in the reply, and once each in the log."""
        if not names:
            return
        call.ignored.extend(names)
        for name in names:
            self.warn_once(f"{name!r} is not supported by the backend and is not sent")

    def note_overflow(self, call: ModelCall, detail: FailureDetail) -> None:
        """Record that a prompt does not fit into the context: an outcome of the policy, with what the endpoint said."""
        call.is_free = True
        call.overflow = bounded(detail.body or detail.message, _MAX_OVERFLOW_CHARS)
        if self._overflows < _MAX_OVERFLOWS_LOGGED:
            self._overflows += 1
            self.log.warning("a prompt does not fit into the context: %s", call.overflow)

    async def _responses(self, request: Request) -> Any:
        body = require_object(request.body)
        if body.get("stream"):
            return await self._streamed_responses(body, request)
        params: Any = body if request.validated else validate_params(body)
        call = ModelCall(request)
        response = await self._await_metered(self.respond(params, call), call, "responses")
        return _reply(response, call) if call.ignored else response

    async def _await_metered(self, pending: Awaitable[Any], call: ModelCall, dialect: str) -> Any:
        """Await a reply and record its usage."""
        started = time.perf_counter()
        try:
            reply = await pending
        except BaseException as error:  # cancelled calls count, too
            self._meter.record_failure(call, dialect, error, started)
            raise
        self._meter.record_reply(call, dialect, reply, started)
        return reply

    async def _streamed_responses(self, body: JsonObject, request: Request) -> Reply:
        with _reject_unconvertible("a streamed Responses request"):
            parsed = parse_streamed_request(body, hosted_tools=self.takes_hosted_tools)
        params, call = validate_params(parsed.params), ModelCall(request)
        self.note_ignored(call, parsed.ignored)
        try:
            response = await self._await_metered(self.respond(params, call), call, "responses")
        except Exception as error:  # noqa: BLE001 - the boundary: failures are reported inside the stream
            reply = self.error_reply(request, error)
            if reply.ok or reply.status == 422:
                return reply
            empty = make_response(
                params, [], response_id=new_id("resp_"), created_at=unix_time(), model=self.model_name, usage=None
            )
            return Reply(200, make_failed_stream(dict(empty), error_text(reply)), failure=reply.failure)
        return _reply(make_response_stream(dict(response), parsed.namespaces), call)

    async def _chat_completions(self, request: Request) -> Any:
        body = require_object(request.body)
        messages, stream, options = require_field(body, "messages"), body.get("stream"), body.get("stream_options")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise HttpError(422, "'messages' must be a list of objects")
        if not isinstance(stream, bool | None) or not isinstance(options, dict | None):
            raise HttpError(422, "'stream' must be a boolean, and 'stream_options' an object")
        call = ModelCall(request)
        if not stream:
            completion = await self._await_metered(self.complete(body, call), call, "chat")
            return _reply(completion, call) if call.ignored else completion
        unstreamed = {name: value for name, value in body.items() if name not in {"stream", "stream_options"}}
        completion = await self._await_metered(self.complete(unstreamed, call), call, "chat")
        try:
            chunks = make_chat_stream(completion, include_usage=bool((options or {}).get("include_usage")))
        except BadCompletion as error:
            text = f"{self.name}: {error}"
            raise CallError(
                FailureDetail(FailureKind.MODEL_BAD_REPLY, Stage.MODEL, text, instance=self.name)
            ) from error
        return _reply(chunks, call)

    async def _messages(self, request: Request) -> Reply:
        try:
            return await self._message(require_object(request.body), ModelCall(request))
        except Exception as error:  # noqa: BLE001 - the boundary: Anthropic's clients expect their own error format
            reply = self.error_reply(request, error)
            body = reply.body if reply.ok else make_error_body(reply.status, error_text(reply))
            return msgspec.structs.replace(reply, body=body)

    async def _message(self, body: JsonObject, call: ModelCall) -> Reply:
        require_field(body, "messages")
        with _reject_unconvertible("Messages"):
            parsed = messages_to_params(body)
        params = validate_params(parsed.params)
        self.note_ignored(call, parsed.ignored)
        response = await self._await_metered(self.respond(params, call), call, "messages")
        message = response_to_message(dict(response), message_id=new_id("msg_"))
        return _reply(make_message_stream(message) if body.get("stream") else message, call)

    async def _models(self, _: Request) -> JsonObject:
        entry = {"id": self.model_name, "object": "model", "created": 0, "owned_by": self.name}
        return {"object": "list", "data": [entry]}


_ids = count()
_process = secrets.token_hex(10)


def new_id(prefix: str) -> str:
    """A new id in the style of the APIs, e.g. resp_1f0c…: a random part for this process, and a counter."""
    return f"{prefix}{_process}{next(_ids):012x}"


def unix_time() -> float:
    """Seconds since the epoch, for `created_at`."""
    return float(int(time.time()))


@contextmanager
def _reject_unconvertible(dialect: str) -> Iterator[None]:
    """Answer a request that cannot be converted with 422 and the reason."""
    try:
        yield
    except KeyError as error:
        raise HttpError(422, f"{dialect}: {error} is missing") from error
    except (NotConvertible, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise HttpError(422, f"{dialect}: {error}") from error


def add_overflow(response: Response, call: ModelCall) -> Response:
    """Put what the endpoint said about its full context next to the reason why the response is incomplete."""
    if call.overflow is not None and response.get("incomplete_details"):
        response["incomplete_details"] = {**(response["incomplete_details"] or {}), "message": call.overflow}
    return response


def _reply(body: Any, call: ModelCall) -> Reply:
    return Reply(200, body, headers={IGNORED_HEADER: _header(call.ignored)} if call.ignored else {})


def _header(names: Sequence[str]) -> str:
    """A JSON list in ASCII: names come from clients and may contain anything."""
    unique = list(dict.fromkeys(name[:100] for name in names))
    return json.dumps(unique[:_MAX_HEADER_NAMES])
