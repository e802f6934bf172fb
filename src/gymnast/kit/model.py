"""The base class of model servers: Responses, Chat Completions and Messages in, one internal form behind all three.

Streams are written from whole replies: the backend is always asked without streaming. What a request says and the
backend does not do is refused, or named in the reply's `x-gymnast-ignored` header and in the log; never just lost.
"""

from __future__ import annotations

import json
import secrets
import time
from abc import abstractmethod
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from gymnast.errors import CallError
from gymnast.kit.accounting import Meter
from gymnast.kit.settings import Settings
from gymnast.types.failure import FailureDetail, Stage
from gymnast.types.responses import response_object
from gymnast.wire.dialects.chat_reply import BadCompletion, completion_of_response
from gymnast.wire.dialects.chat_request import NotConvertible, lost_from_chat, params_of_chat
from gymnast.wire.dialects.chat_stream import chat_stream
from gymnast.wire.dialects.messages_reply import error_body, message_of_response, message_stream
from gymnast.wire.dialects.messages_request import messages_request
from gymnast.wire.dialects.responses_stream import failed_stream, response_stream
from gymnast.wire.dialects.streamed_request import streamed_request
from gymnast.wire.message import Reply, Request, error_text
from gymnast.wire.server import HttpError, Server, Surroundings
from gymnast.wire.validate import require_field, require_object, validate_params

if TYPE_CHECKING:
    from gymnast.config.instances import ServerKind
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject
    from gymnast.types.usage import Account
    from gymnast.wire.trail import Trail

IGNORED_HEADER: Final = "x-gymnast-ignored"
"""On replies to requests that say what the backend does not do: a JSON list of names."""
_MOST_IN_HEADER: Final = 30
_MOST_WARNINGS: Final = 200  # names come from clients: the log is not theirs to fill


@dataclass(slots=True)
class ModelCall:
    """Who asks. The session keeps a conversation at one replica; where there is only one, nobody looks at it."""

    request: Request
    ignored: list[str] = field(default_factory=list)
    """What the request says that did not reach the model; filled by `Model.note_ignored`."""
    ttft_ms: float | None = None
    """Time to the first token, if whoever answers measured it."""
    is_free: bool = False
    """Answered without the model having generated anything, e.g. because the prompt did not fit."""

    @property
    def session_id(self) -> str:
        return self.request.session_id

    @property
    def rollout_id(self) -> str | None:
        return self.request.rollout_id

    @property
    def trail(self) -> Trail | None:
        """Where the attempt says how far it is."""
        return self.request.trail

    @property
    def account(self) -> Account | None:
        """Where the usage of this call goes, or None where nobody keeps account."""
        trail = self.request.trail
        return None if trail is None else trail.open_account()


class Model(Server):
    """A model server. Subclasses answer create params; the other dialects and streams come from that."""

    kind: ClassVar[ServerKind] = "responses_api_models"
    failure_kind: ClassVar[str] = "model_error"
    failure_stage: ClassVar[Stage] = Stage.MODEL
    settings: Settings

    def __init__(self, name: str, settings: Settings, surroundings: Surroundings) -> None:
        super().__init__(name, surroundings)
        self.settings = settings
        self._warned: set[str] = set()
        self._meter = Meter(name, getattr(settings, "prices", None))
        self.route("POST", "/v1/responses", self._responses)
        self.route("POST", "/v1/chat/completions", self._chat_completions)
        self.route("POST", "/v1/messages", self._messages)
        self.route("GET", "/v1/models", self._models)

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The name of the model that answers."""

    @abstractmethod
    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        """Answer one model call."""

    @property
    def takes_hosted_tools(self) -> bool:
        """Whether tools other than functions, and their items, can be sent to the backend."""
        return False

    async def complete(self, body: JsonObject, call: ModelCall) -> JsonObject:
        """Answer a chat completion."""
        with _refused_in("Chat Completions"):
            params, lost = params_of_chat(body), lost_from_chat(body)
        self.note_ignored(call, lost)
        return completion_of_response(dict(await self.respond(validate_params(params), call)), new_id=new_id)

    def note_ignored(self, call: ModelCall, names: Sequence[str]) -> None:
        """Record parameters that do not reach the model: on the reply, and once each in the log."""
        if not names:
            return
        call.ignored.extend(names)
        for name in names:
            if name not in self._warned and len(self._warned) < _MOST_WARNINGS:
                self._warned.add(name)
                self.log.warning("%r has no counterpart at the backend and is not sent", name)

    async def _responses(self, request: Request) -> Any:
        body = require_object(request.body)
        if body.get("stream"):
            return await self._streamed_responses(body, request)
        params: Any = body if request.validated else validate_params(body)
        call = ModelCall(request)
        response = await self._metered(self.respond(params, call), call, "responses")
        return _reply(response, call) if call.ignored else response

    async def _metered(self, answering: Awaitable[Any], call: ModelCall, dialect: str) -> Any:
        """The answer, with what it used accounted."""
        started = time.perf_counter()
        try:
            answer = await answering
        except BaseException as error:  # a call that is cut off was made, too
            self._meter.failed(call, dialect, error, started)
            raise
        self._meter.answered(call, dialect, answer, started)
        return answer

    async def _streamed_responses(self, body: JsonObject, request: Request) -> Reply:
        with _refused_in("a streamed Responses request"):
            asked = streamed_request(body, hosted_tools=self.takes_hosted_tools)
        params, call = validate_params(asked.params), ModelCall(request)
        self.note_ignored(call, asked.ignored)
        try:
            response = await self._metered(self.respond(params, call), call, "responses")
        except Exception as error:  # noqa: BLE001 - the boundary: a client of a stream is told of failures inside it
            reply = self.error_reply(request, error)
            if reply.ok or reply.status == 422:
                return reply
            begun = response_object(
                params, [], response_id=new_id("resp_"), created_at=now(), model=self.model_name, usage=None
            )
            return Reply(200, failed_stream(dict(begun), error_text(reply)), failure=reply.failure)
        return _reply(response_stream(dict(response), asked.namespaces), call)

    async def _chat_completions(self, request: Request) -> Any:
        body = require_object(request.body)
        messages, stream, options = require_field(body, "messages"), body.get("stream"), body.get("stream_options")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise HttpError(422, "'messages' is a list of objects")
        if not isinstance(stream, bool | None) or not isinstance(options, dict | None):
            raise HttpError(422, "'stream' is true or false, and 'stream_options' an object")
        call = ModelCall(request)
        if not stream:
            completion = await self._metered(self.complete(body, call), call, "chat")
            return _reply(completion, call) if call.ignored else completion
        asked = {name: value for name, value in body.items() if name not in {"stream", "stream_options"}}
        completion = await self._metered(self.complete(asked, call), call, "chat")
        try:
            chunks = chat_stream(completion, include_usage=bool((options or {}).get("include_usage")))
        except BadCompletion as error:
            text = f"{self.name}: {error}"
            raise CallError(FailureDetail("model_bad_reply", Stage.MODEL, text, instance=self.name)) from error
        return _reply(chunks, call)

    async def _messages(self, request: Request) -> Reply:
        try:
            return await self._message(require_object(request.body), ModelCall(request))
        except Exception as error:  # noqa: BLE001 - the boundary: Anthropic's clients read errors in their own shape
            reply = self.error_reply(request, error)
            return reply if reply.ok else replace(reply, body=error_body(reply.status, error_text(reply)))

    async def _message(self, body: JsonObject, call: ModelCall) -> Reply:
        require_field(body, "messages")
        with _refused_in("Messages"):
            asked = messages_request(body)
        params = validate_params(asked.params)
        self.note_ignored(call, asked.ignored)
        response = await self._metered(self.respond(params, call), call, "messages")
        message = message_of_response(dict(response), message_id=new_id("msg_"))
        return _reply(message_stream(message) if body.get("stream") else message, call)

    async def _models(self, _: Request) -> JsonObject:
        entry = {"id": self.model_name, "object": "model", "created": 0, "owned_by": self.name}
        return {"object": "list", "data": [entry]}


_ids = count()
_process = secrets.token_hex(10)


def new_id(prefix: str) -> str:
    """A fresh id in the style of the APIs, e.g. resp_1f0c…: unique by this process's random part and a count."""
    return f"{prefix}{_process}{next(_ids):012x}"


def now() -> float:
    """Seconds since the epoch, for `created_at`."""
    return float(int(time.time()))


@contextmanager
def _refused_in(dialect: str) -> Iterator[None]:
    """A request that cannot be converted is the client's mistake: 422 with the reason."""
    try:
        yield
    except KeyError as error:
        raise HttpError(422, f"{dialect}: {error} is missing") from error
    except (NotConvertible, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise HttpError(422, f"{dialect}: {error}") from error


def _reply(body: Any, call: ModelCall) -> Reply:
    return Reply(200, body, headers={IGNORED_HEADER: _header(call.ignored)} if call.ignored else {})


def _header(names: Sequence[str]) -> str:
    """A JSON list in ASCII: names come from clients and may hold anything."""
    unique = list(dict.fromkeys(name[:100] for name in names))
    return json.dumps(unique[:_MOST_IN_HEADER])
