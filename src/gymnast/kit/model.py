"""The base class of model servers: Responses and Chat Completions in, one internal form behind both."""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from gymnast.kit.settings import Settings
from gymnast.types.failure import Stage
from gymnast.wire.dialects.chat_reply import completion_of_response
from gymnast.wire.dialects.chat_request import NotConvertible, params_of_chat
from gymnast.wire.message import Request
from gymnast.wire.server import HttpError, Server, Surroundings
from gymnast.wire.validate import require_field, require_object, validate_params

if TYPE_CHECKING:
    from gymnast.config.instances import ServerKind
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Who asks. The session keeps a conversation at one replica; where there is only one, nobody looks at it."""

    request: Request

    @property
    def session_id(self) -> str:
        return self.request.session_id

    @property
    def rollout_id(self) -> str | None:
        return self.request.rollout_id


class Model(Server):
    """A model server. Subclasses answer create params; chat is converted unless they speak it themselves."""

    kind: ClassVar[ServerKind] = "responses_api_models"
    failure_kind: ClassVar[str] = "model_error"
    failure_stage: ClassVar[Stage] = Stage.MODEL
    settings: Settings

    def __init__(self, name: str, settings: Settings, surroundings: Surroundings) -> None:
        super().__init__(name, surroundings)
        self.settings = settings
        self.route("POST", "/v1/responses", self._responses)
        self.route("POST", "/v1/chat/completions", self._chat_completions)
        self.route("GET", "/v1/models", self._models)

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The name of the model that answers."""

    @abstractmethod
    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        """Answer one model call."""

    async def complete(self, body: JsonObject, call: ModelCall) -> JsonObject:
        """Answer a chat completion."""
        try:
            params = params_of_chat(body)
        except (NotConvertible, KeyError, TypeError) as error:
            raise HttpError(422, f"cannot be converted to a Responses request: {error}") from error
        return completion_of_response(dict(await self.respond(validate_params(params), call)), new_id=new_id)

    async def _responses(self, request: Request) -> Any:
        body = require_object(request.body)
        _refuse_streaming(body)
        params: Any = body if request.validated else validate_params(body)
        return await self.respond(params, ModelCall(request))

    async def _chat_completions(self, request: Request) -> JsonObject:
        body = require_object(request.body)
        _refuse_streaming(body)
        require_field(body, "messages")
        return await self.complete(body, ModelCall(request))

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


def _refuse_streaming(body: JsonObject) -> None:
    if body.get("stream"):
        raise HttpError(400, "this model server does not stream: send the request without 'stream'")
