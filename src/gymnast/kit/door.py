"""What one rollout sees of the gateway: the policy in all dialects, the environment's tools, limits; and its trace.

Requests are answered by the configured model instance, under the rollout's id, whatever model name they carry. Limits
that are reached are told to the program in an error, and to the agent in `ended_by`: they are outcomes, not failures.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import CallError
from gymnast.kit.accounting import error_category
from gymnast.kit.door_rules import Limits, Places, model_entry, outbound, refusal, sampling_of, signed, unsigned
from gymnast.kit.door_tools import DoorTools
from gymnast.kit.mcp_tools import answer_mcp
from gymnast.kit.model import Model, ModelCall
from gymnast.kit.settings import Settings
from gymnast.types.failure import FailureDetail, Stage, bounded
from gymnast.types.trace import Trace, TracedCall
from gymnast.wire.classify import kind_of_reply, reply_failure
from gymnast.wire.dialects.chat_request import NotConvertible
from gymnast.wire.dialects.streamed_request import streamed_request
from gymnast.wire.message import Reply, Request, error_text
from gymnast.wire.server import HttpError, ReplyError, Surroundings
from gymnast.wire.validate import require_object, validate_params

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Scope

_DIALECTS: Final = {"/v1/responses": "responses", "/v1/chat/completions": "chat", "/v1/messages": "messages"}
_COUNT: Final = "/v1/messages/count_tokens"
_NO_REPLY_STATUS: Final = {"model_timeout": 504, "model_unreachable": 502}
_MOST_REFUSED: Final = 100
"""Refused requests that are listed."""


class Door(Model):
    """A model server for one rollout."""

    def __init__(
        self,
        name: str,
        surroundings: Surroundings,
        places: Places,
        limits: Limits,
        params: CreateParams,
        scope: Scope,
    ) -> None:
        super().__init__(name, Settings(), surroundings)
        self.trace = Trace()
        self.ended_by: str | None = None
        """The limit that was reached: `max_model_calls` or `max_output_tokens`."""
        self.last_failure: FailureDetail | None = None
        """Why the latest model call failed; None once one was answered."""
        self.refused: list[JsonObject] = []
        """Requests that never became a model call."""
        self._places, self._limits, self._scope = places, limits, scope
        self._given = sampling_of(params)
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._asked: set[int] = set()
        """The requests being handled that became model calls."""
        self._spent = 0
        """Model calls that were answered or are being answered."""
        self._is_open = True
        declared = [dict(tool) for tool in params.get("tools") or () if tool["type"] == "function"]
        self.tools = DoorTools(
            declared, places.environment, self.calls, scope, places.tool_timeout_s, self._cut_off_at_end
        )
        self.route("POST", _COUNT, self._count_tokens)
        self.route("GET", "/tools", self._list_tools)
        self.route("POST", "/mcp", self._mcp)
        for tool in declared:
            self.route("POST", f"/tools/{tool['name']}", partial(self._tool_request, tool["name"]))

    @property
    def model_name(self) -> str:
        return "policy"

    async def close(self) -> None:
        """Cut off what is in flight and refuse what may still come."""
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
            return Reply(200, model_entry(request.path.removeprefix("/v1/models/"), self.name))
        path = request.path
        reply = await super().handle(request)
        is_call = id(request) in self._asked
        self._asked.discard(id(request))
        if not reply.ok and path in _DIALECTS and not is_call and self._counts():
            self._note_refused(path, reply)
        if reply.status == 404 and path.startswith("/tools/"):
            return self.tools.unknown(path.removeprefix("/tools/"))
        return reply

    # --- the model ---------------------------------------------------------------------------------------------------

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        self._check_limits()
        asked = unsigned(self._with_history(dict(params)))
        dialect = _DIALECTS.get(call.request.path, call.request.path)
        traced = self.trace.begin(asked, dialect=dialect, model_call_id=secrets.token_hex(16), at=time.time())
        traced.ignored = call.ignored
        self._asked.add(id(call.request))
        self._spent += 1
        started = time.perf_counter()
        try:
            response: Response = await self._ask(outbound(asked, self._given, self._tokens_left()))
        except BaseException as error:
            self._spent -= 1
            self._note_failure(traced, error, started)
            raise
        latency_ms = (time.perf_counter() - started) * 1000
        self.trace.finish(traced, response, at=time.time(), latency_ms=latency_ms)
        self.last_failure = None
        return signed(response) if dialect == "messages" else response

    def note_ignored(self, call: ModelCall, names: Sequence[str]) -> None:
        """The trace names them; the log would say the same for every rollout."""
        call.ignored.extend(names)

    async def _responses(self, request: Request) -> Any:
        """As clients that stream do, others too say more than our create params: what is left out is named."""
        body = require_object(request.body)
        if body.get("stream"):
            return await super()._responses(request)
        try:
            asked = streamed_request(body, hosted_tools=self.takes_hosted_tools)
        except (KeyError, TypeError, AttributeError, NotConvertible) as error:
            raise HttpError(422, f"Responses: {error!r}") from error
        call = ModelCall(request)
        self.note_ignored(call, asked.ignored)
        return await self.respond(validate_params(asked.params), call)

    async def _ask(self, params: JsonObject) -> Any:
        places = self._places
        try:
            calling = self.calls.call(
                places.model,
                "/v1/responses",
                params,
                self._scope,
                stage=Stage.MODEL,
                timeout_s=places.model_timeout_s,
                validated=True,
            )
            reply = await self._cut_off_at_end(calling)
        except CallError as error:
            status = _NO_REPLY_STATUS.get(error.detail.kind, 502)
            raise ReplyError(Reply(status, {"detail": error.detail.message}, failure=error.detail)) from error
        if not reply.ok:
            kind = kind_of_reply(Stage.MODEL, reply.status)
            address = self.calls.address(places.model)
            failure = reply_failure(reply, kind, Stage.MODEL, places.model, "/v1/responses", address)
            kept = {name: value for name, value in reply.headers.items() if name == "retry-after"}
            raise ReplyError(Reply(reply.status, reply.body, headers=kept, failure=failure))
        if isinstance(reply.body, dict) and isinstance(reply.body.get("output"), list):
            return reply.body
        text = f"{places.model} answered /v1/responses with something that is no response object"
        failure = FailureDetail("model_bad_reply", Stage.MODEL, text, instance=places.model, body=bounded(reply.text()))
        raise ReplyError(Reply(502, {"detail": text}, failure=failure))

    def _with_history(self, asked: JsonObject) -> JsonObject:
        """Clients may name an earlier response instead of repeating the conversation up to it."""
        earlier = asked.pop("previous_response_id", None)
        if earlier is None:
            return asked
        before = self.trace.items_after(earlier)
        if before is None:
            raise HttpError(400, f"previous_response_id: this rollout has no response '{earlier}'")
        given = asked["input"]
        more = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else list(given)
        return {**asked, "input": before + more}

    def _check_limits(self) -> None:
        if not self._is_open:
            raise ReplyError(refusal(410, "rollout_ended", "this rollout has ended"))
        limit = self._limits.max_model_calls
        if limit is not None and self._spent >= limit:
            self.ended_by = "max_model_calls"
            raise ReplyError(refusal(403, self.ended_by, f"this rollout has used its {limit} model calls"))
        left = self._tokens_left()
        if left is not None and left <= 0:
            self.ended_by = "max_output_tokens"
            said = f"this rollout has used its {self._limits.max_output_tokens} output tokens"
            raise ReplyError(refusal(403, self.ended_by, said))

    def _tokens_left(self) -> int | None:
        limit, used = self._limits.max_output_tokens, self.trace.usage
        return limit if limit is None or used is None else limit - used["output_tokens"]

    def _note_failure(self, traced: TracedCall, error: BaseException, started: float) -> None:
        if traced.completed_at is not None:
            return  # the rollout ended first
        latency_ms = (time.perf_counter() - started) * 1000
        reply = error.reply if isinstance(error, ReplyError) else None
        status = reply.status if reply is not None else None
        said = bounded(error_text(reply) if reply is not None else repr(error), 500)
        known = CallError(reply.failure) if reply is not None and reply.failure is not None else error
        category = error_category(known, status) if self._is_open else "incomplete"
        self.trace.fail(traced, category, at=time.time(), latency_ms=latency_ms, status=status, error=said)
        if reply is not None and reply.failure is not None:
            self.last_failure = reply.failure

    def _counts(self) -> bool:
        """Whether a refusal says something about the request, and not about the rollout's end."""
        return self._is_open and self.ended_by is None

    def _note_refused(self, path: str, reply: Reply) -> None:
        said = bounded(error_text(reply), 500)
        if len(self.refused) < _MOST_REFUSED:
            self.refused.append({"dialect": _DIALECTS[path], "status_code": reply.status, "error": said})
        text = f"{self.name} refused a request to {path}: {said}"
        self.last_failure = FailureDetail("model_rejected", Stage.MODEL, text, instance=self.name, status=reply.status)

    async def _models(self, _: Request) -> JsonObject:
        entry = model_entry(self.model_name, self.name)
        return {"object": "list", "data": [entry], "has_more": False, "first_id": entry["id"], "last_id": entry["id"]}

    async def _count_tokens(self, request: Request) -> Reply:
        reply = await self._cut_off_at_end(
            self.calls.call(self._places.model, _COUNT, request.body, self._scope, stage=Stage.MODEL)
        )
        if reply.status in {404, 405}:
            return refusal(404, "not_supported", f"the model '{self._places.model}' does not count tokens")
        return Reply(reply.status, reply.body)

    async def _cut_off_at_end(self, calling: Awaitable[Reply]) -> Reply:
        """A call that ends with the rollout, whoever waits for it."""
        task = asyncio.ensure_future(calling)
        self._in_flight.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_open:
                raise
            raise ReplyError(refusal(410, "rollout_ended", "this rollout has ended")) from None
        finally:
            self._in_flight.discard(task)

    # --- the environment's tools -------------------------------------------------------------------------------------

    async def _tool_request(self, name: str, request: Request) -> Reply:
        return await self.tools.use(name, request.body if request.body is not None else {})

    async def _list_tools(self, _: Request) -> JsonObject:
        return {"tools": self.tools.declared}

    async def _mcp(self, request: Request) -> Reply:
        return await answer_mcp(request.body, self.tools.declared, self.tools.use, server_name=self.name)
