"""The model URL of one rollout, for external agents: the policy in all dialects, the environment's tools, limits, a
trace.

The configured model instance answers every request under the rollout's id, whatever model name it carries. When a limit
is reached, the program gets an error and the agent finds it in `ended_by`: limits are outcomes, not failures.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gymnast.config.server_settings import Settings
from gymnast.endpoints.model_server import Model, ModelCall
from gymnast.endpoints.rollout_endpoint_rules import (
    EndpointTargets,
    RolloutLimits,
    add_signatures,
    build_policy_request,
    complete_usage,
    make_model_entry,
    refusal_reply,
    select_sampling,
    strip_signatures,
)
from gymnast.endpoints.rollout_endpoint_tools import RolloutEndpointTools
from gymnast.endpoints.usage import error_category
from gymnast.errors import CallError
from gymnast.types.failure import FailureDetail, FailureKind, Stage, bounded
from gymnast.types.trace import Trace, TracedCall
from gymnast.wire.classify import kind_of_reply, reply_failure
from gymnast.wire.dialects.chat_requests import NotConvertible
from gymnast.wire.dialects.streamed_requests import parse_streamed_request
from gymnast.wire.endpoint_errors import with_cause
from gymnast.wire.mcp import answer_mcp
from gymnast.wire.message import Reply, Request, error_text
from gymnast.wire.server import HttpError, ReplyError, ServerContext
from gymnast.wire.validate import require_object, validate_params

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Scope

_DIALECTS: Final = {"/v1/responses": "responses", "/v1/chat/completions": "chat", "/v1/messages": "messages"}
_COUNT_TOKENS_PATH: Final = "/v1/messages/count_tokens"
_NO_REPLY_STATUS: Final = {FailureKind.MODEL_TIMEOUT: 504, FailureKind.MODEL_UNREACHABLE: 502}
_MAX_REFUSED: Final = 100
"""Refused requests to list."""


class RolloutEndpoint(Model):
    """A model server for one rollout."""

    def __init__(
        self,
        name: str,
        context: ServerContext,
        targets: EndpointTargets,
        limits: RolloutLimits,
        params: CreateParams,
        scope: Scope,
    ) -> None:
        super().__init__(name, Settings(), context)
        self.trace = Trace()
        self.ended_by: str | None = None
        """The limit that was reached: `max_model_calls` or `max_output_tokens`."""
        self.last_failure: FailureDetail | None = None
        """Why the latest model call failed; None once one was answered."""
        self.refused: list[JsonObject] = []
        """Requests that were refused before they became model calls."""
        self.offered: set[str] = set()
        """The functions that model calls offered, those of the environment under their own names."""
        self._targets, self._limits, self._scope = targets, limits, scope
        self._sampling = select_sampling(params)
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._model_requests: set[int] = set()
        """Ids of requests in progress that became model calls."""
        self._calls_used = 0
        """Model calls answered or in progress."""
        self._is_open = True
        declared = [dict(tool) for tool in params.get("tools") or () if tool["type"] == "function"]
        self.tools = RolloutEndpointTools(
            declared, targets.environment, self.calls, scope, targets.tool_timeout_s, self._until_closed
        )
        self.route("POST", _COUNT_TOKENS_PATH, self._count_tokens)
        self.route("GET", "/tools", self._list_tools)
        self.route("POST", "/mcp", self._mcp)
        for tool in declared:
            self.route("POST", f"/tools/{tool['name']}", partial(self._tool_request, tool["name"]))

    @property
    def model_name(self) -> str:
        return "policy"

    async def close(self) -> None:
        """Cancel calls in flight and refuse later ones."""
        self._is_open = False
        pending = list(self._in_flight)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for call in self.trace.calls:
            if call.completed_at is None:
                latency_ms = (time.time() - call.started_at) * 1000
                self.trace.fail(
                    call, "incomplete", at=time.time(), latency_ms=latency_ms, status=None, error="the rollout ended"
                )

    async def handle(self, request: Request) -> Reply:
        if request.method == "GET" and request.path.startswith("/v1/models/"):
            return Reply(200, make_model_entry(request.path.removeprefix("/v1/models/"), self.name))
        path = request.path
        reply = await super().handle(request)
        is_model_call = id(request) in self._model_requests
        self._model_requests.discard(id(request))
        is_running = self._is_open and self.ended_by is None  # otherwise the end of the rollout is the reason
        if not reply.ok and path in _DIALECTS and not is_model_call and is_running:
            self._record_refusal(path, reply)
        if reply.status == 404 and path.startswith("/tools/"):
            return self.tools.unknown_tool(path.removeprefix("/tools/"))
        return reply

    # --- the model ---------------------------------------------------------------------------------------------------

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        self._check_limits()
        request = strip_signatures(self._with_history(dict(params)))
        dialect = _DIALECTS.get(call.request.path, call.request.path)
        traced = self.trace.begin(request, dialect=dialect, model_call_id=secrets.token_hex(16), at=time.time())
        traced.ignored = call.ignored
        self._note_offered(request)
        self._model_requests.add(id(call.request))
        self._calls_used += 1
        started = time.perf_counter()
        try:
            response: Response = await self._call_policy(
                build_policy_request(request, self._sampling, self._tokens_left())
            )
        except BaseException as error:
            self._calls_used -= 1
            self._record_failure(traced, error, started)
            raise
        latency_ms = (time.perf_counter() - started) * 1000
        self.trace.finish(traced, response, at=time.time(), latency_ms=latency_ms)
        self.last_failure = None
        return complete_usage(add_signatures(response) if dialect == "messages" else response)

    def _note_offered(self, request: JsonObject) -> None:
        names = {str(tool.get("name")) for tool in request.get("tools") or () if tool.get("type") == "function"}
        self.offered |= {self.tools.own_name(name) for name in names}

    def note_ignored(self, call: ModelCall, names: Sequence[str]) -> None:
        """Listed in the trace only: the log would repeat them for every rollout."""
        call.ignored.extend(names)

    async def _responses(self, request: Request) -> Any:
        """Accept parameters beyond our create params without streaming, too; those not supported are listed as
        ignored."""
        body = require_object(request.body)
        if body.get("stream"):
            return await super()._responses(request)
        try:
            parsed = parse_streamed_request(body, hosted_tools=self.takes_hosted_tools)
        except (KeyError, TypeError, AttributeError, NotConvertible) as error:
            raise HttpError(422, f"Responses: {error!r}") from error
        call = ModelCall(request)
        self.note_ignored(call, parsed.ignored)
        return await self.respond(validate_params(parsed.params), call)

    async def _call_policy(self, params: JsonObject) -> Any:
        targets = self._targets
        try:
            pending = self.calls.call(
                targets.model,
                "/v1/responses",
                params,
                self._scope,
                stage=Stage.MODEL,
                timeout_s=targets.model_timeout_s,
                validated=True,
            )
            reply = await self._until_closed(pending)
        except CallError as error:
            status = _NO_REPLY_STATUS.get(error.detail.kind, 502)
            raise ReplyError(Reply(status, {"detail": error.detail.message}, failure=error.detail)) from error
        if not reply.ok:
            kind = kind_of_reply(Stage.MODEL, reply.status)
            address = self.calls.address(targets.model)
            failure = reply_failure(reply, kind, Stage.MODEL, targets.model, "/v1/responses", address)
            if reply.failure is None:
                failure = with_cause(failure, params, path="/v1/responses")
            headers = {name: value for name, value in reply.headers.items() if name == "retry-after"}
            raise ReplyError(Reply(reply.status, reply.body, headers=headers, failure=failure))
        if isinstance(reply.body, dict) and isinstance(reply.body.get("output"), list):
            return reply.body
        text = f"{targets.model} answered /v1/responses without a response object"
        failure = FailureDetail(
            FailureKind.MODEL_BAD_REPLY, Stage.MODEL, text, instance=targets.model, body=bounded(reply.text())
        )
        raise ReplyError(Reply(502, {"detail": text}, failure=failure))

    def _with_history(self, request: JsonObject) -> JsonObject:
        """Expand `previous_response_id`, which stands for the conversation up to that response."""
        previous_id = request.pop("previous_response_id", None)
        if previous_id is None:
            return request
        history = self.trace.items_after(previous_id)
        if history is None:
            raise HttpError(400, f"previous_response_id: this rollout has no response '{previous_id}'")
        new = request["input"]
        items = [{"type": "message", "role": "user", "content": new}] if isinstance(new, str) else list(new)
        return {**request, "input": history + items}

    def _check_limits(self) -> None:
        if not self._is_open:
            raise ReplyError(refusal_reply(410, "rollout_ended", "this rollout has ended"))
        limit = self._limits.max_model_calls
        if limit is not None and self._calls_used >= limit:
            self.ended_by = "max_model_calls"
            raise ReplyError(refusal_reply(403, self.ended_by, f"this rollout has used its {limit} model calls"))
        left = self._tokens_left()
        if left is not None and left <= 0:
            self.ended_by = "max_output_tokens"
            text = f"this rollout has used its {self._limits.max_output_tokens} output tokens"
            raise ReplyError(refusal_reply(403, self.ended_by, text))

    def _tokens_left(self) -> int | None:
        limit, used = self._limits.max_output_tokens, self.trace.usage
        return limit if limit is None or used is None else limit - used["output_tokens"]

    def _record_failure(self, traced: TracedCall, error: BaseException, started: float) -> None:
        if traced.completed_at is not None:
            return  # the rollout has ended
        latency_ms = (time.perf_counter() - started) * 1000
        reply = error.reply if isinstance(error, ReplyError) else None
        status = reply.status if reply is not None else None
        text = bounded(error_text(reply) if reply is not None else repr(error), 500)
        cause = CallError(reply.failure) if reply is not None and reply.failure is not None else error
        category = error_category(cause, status) if self._is_open else "incomplete"
        self.trace.fail(traced, category, at=time.time(), latency_ms=latency_ms, status=status, error=text)
        if reply is not None and reply.failure is not None:
            self.last_failure = reply.failure

    def _record_refusal(self, path: str, reply: Reply) -> None:
        error = bounded(error_text(reply), 500)
        if len(self.refused) < _MAX_REFUSED:
            self.refused.append({"dialect": _DIALECTS[path], "status_code": reply.status, "error": error})
        text = f"{self.name} refused a request to {path}: {error}"
        self.last_failure = FailureDetail(
            FailureKind.MODEL_REJECTED, Stage.MODEL, text, instance=self.name, status=reply.status
        )

    async def _models(self, _: Request) -> JsonObject:
        entry = make_model_entry(self.model_name, self.name)
        return {"object": "list", "data": [entry], "has_more": False, "first_id": entry["id"], "last_id": entry["id"]}

    async def _count_tokens(self, request: Request) -> Reply:
        reply = await self._until_closed(
            self.calls.call(self._targets.model, _COUNT_TOKENS_PATH, request.body, self._scope, stage=Stage.MODEL)
        )
        if reply.status in {404, 405}:
            return refusal_reply(404, "not_supported", f"the model '{self._targets.model}' does not count tokens")
        return Reply(reply.status, reply.body)

    async def _until_closed(self, pending: Awaitable[Reply]) -> Reply:
        """Await a reply; cancel the call when the rollout ends."""
        task = asyncio.ensure_future(pending)
        self._in_flight.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_open:
                raise
            raise ReplyError(refusal_reply(410, "rollout_ended", "this rollout has ended")) from None
        finally:
            self._in_flight.discard(task)

    # --- the environment's tools -------------------------------------------------------------------------------------

    async def _tool_request(self, name: str, request: Request) -> Reply:
        return await self.tools.call(name, request.body if request.body is not None else {})

    async def _list_tools(self, _: Request) -> JsonObject:
        return {"tools": self.tools.declared}

    async def _mcp(self, request: Request) -> Reply:
        if isinstance(request.body, dict) and request.body.get("method") == "tools/list":
            self.tools.listed = True
        return await answer_mcp(request.body, self.tools.declared, self.tools.call, server_name=self.name)
