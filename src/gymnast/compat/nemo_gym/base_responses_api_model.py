"""`nemo_gym.base_responses_api_model`: the base classes of model servers.

Streams and the Messages dialect are derived from complete replies, as in `gymnast.kit.Model`.
"""

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from fastapi import Body as Body
from fastapi import FastAPI, HTTPException, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError

from gymnast.compat.nemo_gym.capture import CaptureStore as CaptureStore
from gymnast.compat.nemo_gym.capture import ModelCallRecord as ModelCallRecord
from gymnast.compat.nemo_gym.capture import _CaptureMiddleware, capture_dir
from gymnast.compat.nemo_gym.capture import aggregate_model_call_metrics as aggregate_model_call_metrics
from gymnast.compat.nemo_gym.capture import read_model_call_records as read_model_call_records
from gymnast.compat.nemo_gym.capture_merge import (
    merge_model_call_capture_into_record as merge_model_call_capture_into_record,
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
from gymnast.endpoints.model_server import new_id, unix_time
from gymnast.types.responses import make_response
from gymnast.wire.dialects.chat_replies import make_chat_stream
from gymnast.wire.dialects.chat_requests import NotConvertible
from gymnast.wire.dialects.messages_replies import make_error_body, make_message_stream, response_to_message
from gymnast.wire.dialects.messages_requests import messages_to_params
from gymnast.wire.dialects.responses_streams import make_failed_stream, make_response_stream
from gymnast.wire.dialects.streamed_requests import parse_streamed_request
from gymnast.wire.message import EventStream


class BaseResponsesAPIModelConfig(BaseRunServerInstanceConfig):
    """Settings of every model server."""


class BaseResponsesAPIModel(BaseServer):
    """A server of the kind `responses_api_models`."""

    GYMNAST_KIND: ClassVar[ServerKind] = "responses_api_models"
    config: BaseResponsesAPIModelConfig


class SimpleResponsesAPIModel(BaseResponsesAPIModel, SimpleServer, ABC):
    """A model server: subclasses implement `responses` and `chat_completions`; other dialects are derived."""

    config: BaseResponsesAPIModelConfig

    def setup_webserver(self) -> FastAPI:
        """The application, with routes for three dialects."""
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
        """`/v1/responses`, streamed on request."""
        if not body.get("stream"):
            params = _validate(NeMoGymResponseCreateParamsNonStreaming, body)
            return JSONResponse(_dump(await self._invoke_responses(request, params)))
        streamed = parse_streamed_request(body, hosted_tools=True)
        params = _validate(NeMoGymResponseCreateParamsNonStreaming, streamed.params)
        try:
            response = _dump(await self._invoke_responses(request, params))
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: a stream reports failures inside itself
            partial = make_response(
                streamed.params,  # type: ignore[arg-type] # validated above
                [],
                response_id=new_id("resp_"),
                created_at=unix_time(),
                model=params.model or self.config.name,
                usage=None,
            )
            return _events(make_failed_stream(dict(partial), repr(error)))
        return _events(make_response_stream(response, streamed.namespaces))

    async def chat_completions_dispatch(self, request: Request, body: dict[str, Any] = Body()) -> Any:  # noqa: B008 - FastAPI's way
        """`/v1/chat/completions`, streamed on request."""
        stream = body.get("stream") is True
        request_body = {
            name: value for name, value in body.items() if not (stream and name in {"stream", "stream_options"})
        }
        params = _validate(NeMoGymChatCompletionCreateParamsNonStreaming, request_body, include_url=False)
        completion = _dump(await self._invoke_chat_completions(request, params))
        if not stream:
            return JSONResponse(completion)
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        return _events(make_chat_stream(completion, include_usage=with_usage))

    async def messages(self, request: Request, body: dict[str, Any] = Body()) -> Any:  # noqa: B008 - FastAPI's way
        """`/v1/messages`: Anthropic's dialect over `responses`."""
        try:
            converted = messages_to_params(body)
        except (NotConvertible, KeyError, TypeError, AttributeError) as error:
            return JSONResponse(make_error_body(400, f"Messages: {error}"), status_code=400)
        params = _validate(NeMoGymResponseCreateParamsNonStreaming, converted.params)
        response = _dump(await self._invoke_responses(request, params))
        message = response_to_message(response, message_id=new_id("msg_"))
        return _events(make_message_stream(message)) if body.get("stream") else JSONResponse(message)

    async def _invoke_chat_completions(
        self, request: Request, params: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> NeMoGymChatCompletion:
        completion: NeMoGymChatCompletion = await self.chat_completions(
            **_arguments(self.chat_completions, request, params)
        )
        return completion

    async def _invoke_responses(
        self, request: Request, params: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        response: NeMoGymResponse = await self.responses(**_arguments(self.responses, request, params))
        return response


def _arguments(handler: Any, request: Request, params: BaseModel) -> dict[str, Any]:
    """The arguments of a handler, which may take the request as well as the body, under any name."""
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(handler).parameters.items():
        is_request = name == "request" or parameter.annotation in (Request, "Request")
        arguments[name] = request if is_request else params
    return arguments


def _validate(model: Any, body: dict[str, Any], *, include_url: bool = True) -> Any:
    """Validate a body. NeMo Gym's errors link to pydantic's pages for Responses requests, and not for chats."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        entries = error.errors(include_url=include_url)
        raise RequestValidationError([{**entry, "loc": ("body", *entry["loc"])} for entry in entries]) from error


def _dump(reply: Any) -> dict[str, Any]:
    body: dict[str, Any] = (
        jsonable_encoder(reply) if not isinstance(reply, BaseModel) else reply.model_dump(mode="json")
    )
    return body


def _events(stream: EventStream) -> Response:
    return Response(str(stream), media_type="text/event-stream")


__getattr__ = missing_from("nemo_gym.base_responses_api_model")
