"""`nemo_gym.base_responses_api_model`: what model servers are built on. Streams and the Messages dialect come by
themselves, from whole replies, as those of `gymnast.kit.Model`."""

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from fastapi import Body, FastAPI, HTTPException, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError

from gymnast.compat.nemo_gym.capture import (
    CaptureStore,
    ModelCallRecord,
    _CaptureMiddleware,
    aggregate_model_call_metrics,
    capture_dir,
    merge_model_call_capture_into_record,
    read_model_call_records,
)
from gymnast.compat.nemo_gym.config_types import BaseRunServerInstanceConfig, ModelServerRef
from gymnast.compat.nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from gymnast.compat.nemo_gym.rollout_correlation import RolloutContextMiddleware
from gymnast.compat.nemo_gym.server_utils import BaseServer, SimpleServer
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config.instances import ServerKind
from gymnast.kit.model import new_id, now
from gymnast.types.responses import response_object
from gymnast.wire.dialects.chat_request import NotConvertible
from gymnast.wire.dialects.chat_stream import chat_stream
from gymnast.wire.dialects.messages_reply import error_body, message_of_response, message_stream
from gymnast.wire.dialects.messages_request import messages_request
from gymnast.wire.dialects.responses_stream import failed_stream, response_stream
from gymnast.wire.dialects.streamed_request import streamed_request
from gymnast.wire.message import EventStream

__all__ = [
    "BaseResponsesAPIModel",
    "BaseResponsesAPIModelConfig",
    "Body",
    "CaptureStore",
    "ModelCallRecord",
    "SimpleResponsesAPIModel",
    "_CaptureMiddleware",
    "aggregate_model_call_metrics",
    "merge_model_call_capture_into_record",
    "read_model_call_records",
]


class BaseResponsesAPIModelConfig(BaseRunServerInstanceConfig):
    """Settings of every model server."""


class BaseResponsesAPIModel(BaseServer):
    """A server of the kind `responses_api_models`."""

    GYMNAST_KIND: ClassVar[ServerKind] = "responses_api_models"
    config: BaseResponsesAPIModelConfig


class SimpleResponsesAPIModel(BaseResponsesAPIModel, SimpleServer, ABC):
    """A model server: `responses` and `chat_completions` answer, the rest is dialects."""

    config: BaseResponsesAPIModelConfig

    def setup_webserver(self) -> FastAPI:
        """The application, with three dialects."""
        app = FastAPI()
        self.setup_session_middleware(app)
        folder = capture_dir(self.server_client)
        if folder is None:
            app.add_middleware(RolloutContextMiddleware)
        else:
            ref = ModelServerRef(type="responses_api_models", name=self.config.name)
            app.add_middleware(_CaptureMiddleware, store=CaptureStore(folder), model_ref=ref)
        self.setup_liveness(app)
        app.post("/v1/responses")(self.responses_dispatch)
        app.post("/v1/chat/completions")(self.chat_completions_dispatch)
        app.post("/v1/messages")(self.messages)
        return app

    @abstractmethod
    async def chat_completions(
        self,
        body: NeMoGymChatCompletionCreateParamsNonStreaming = Body(),  # noqa: B008 - FastAPI's way
    ) -> NeMoGymChatCompletion:
        """Answer a chat."""

    @abstractmethod
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:  # noqa: B008 - FastAPI's way
        """Answer a request."""

    async def responses_dispatch(self, request: Request, body: dict[str, Any] = Body()) -> Any:  # noqa: B008 - FastAPI's way
        """`/v1/responses`, streamed where the client asks for that."""
        if not body.get("stream"):
            params = _validated(NeMoGymResponseCreateParamsNonStreaming, body)
            return JSONResponse(_dumped(await self._invoke_responses(request, params)))
        asked = streamed_request(body, hosted_tools=True)
        params = _validated(NeMoGymResponseCreateParamsNonStreaming, asked.params)
        try:
            response = _dumped(await self._invoke_responses(request, params))
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: a client of a stream is told of failures inside it
            begun = response_object(
                asked.params,  # type: ignore[arg-type] # validated above
                [],
                response_id=new_id("resp_"),
                created_at=now(),
                model=params.model or self.config.name,
                usage=None,
            )
            return _events(failed_stream(dict(begun), repr(error)))
        return _events(response_stream(response, asked.namespaces))

    async def chat_completions_dispatch(self, request: Request, body: dict[str, Any] = Body()) -> Any:  # noqa: B008 - FastAPI's way
        """`/v1/chat/completions`, streamed where the client asks for that."""
        stream = body.get("stream") is True
        asked = {name: value for name, value in body.items() if not (stream and name in {"stream", "stream_options"})}
        params = _validated(NeMoGymChatCompletionCreateParamsNonStreaming, asked)
        completion = _dumped(await self._invoke_chat_completions(request, params))
        if not stream:
            return JSONResponse(completion)
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        return _events(chat_stream(completion, include_usage=with_usage))

    async def messages(self, request: Request, body: dict[str, Any] = Body()) -> Any:  # noqa: B008 - FastAPI's way
        """`/v1/messages`: Anthropic's dialect over `responses`."""
        try:
            asked = messages_request(body)
        except (NotConvertible, KeyError, TypeError, AttributeError) as error:
            return JSONResponse(error_body(400, f"Messages: {error}"), status_code=400)
        params = _validated(NeMoGymResponseCreateParamsNonStreaming, asked.params)
        response = _dumped(await self._invoke_responses(request, params))
        message = message_of_response(response, message_id=new_id("msg_"))
        return _events(message_stream(message)) if body.get("stream") else JSONResponse(message)

    async def _invoke_chat_completions(
        self, request: Request, params: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> NeMoGymChatCompletion:
        answer: NeMoGymChatCompletion = await self.chat_completions(
            **_arguments(self.chat_completions, request, params)
        )
        return answer

    async def _invoke_responses(
        self, request: Request, params: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        answer: NeMoGymResponse = await self.responses(**_arguments(self.responses, request, params))
        return answer


def _arguments(handler: Any, request: Request, params: BaseModel) -> dict[str, Any]:
    """Handlers may take the request beside the body, under any name."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(handler).parameters.items():
        is_request = name == "request" or parameter.annotation in (Request, "Request")
        found[name] = request if is_request else params
    return found


def _validated(model: Any, body: dict[str, Any]) -> Any:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        entries = error.errors()
        raise RequestValidationError([{**entry, "loc": ("body", *entry["loc"])} for entry in entries]) from error


def _dumped(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = (
        jsonable_encoder(answer) if not isinstance(answer, BaseModel) else answer.model_dump(mode="json")
    )
    return found


def _events(stream: EventStream) -> Response:
    return Response(str(stream), media_type="text/event-stream")


__getattr__ = missing_from("nemo_gym.base_responses_api_model")
