"""The base class of environments with tools and a verifier. Subclass it, declare a task, write `verify`.

class Counter(Environment[CounterTask, CounterState]):
    async def open(self, task): return CounterState(task.initial_count)

    @tool
    async def increment(self, session: CounterState, by: int) -> str: ...

    async def verify(self, attempt): return float(attempt.session.count == attempt.task.expected_count)
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal

from pydantic import ValidationError

from gymnast.errors import JudgeError
from gymnast.kit.attempt import Attempt, SessionT, TaskT, Verdict
from gymnast.kit.mcp_server import PATH as MCP_PATH
from gymnast.kit.mcp_server import McpServer, strip_mcp_prefixes
from gymnast.kit.task_server import EnvironmentSettings, TaskServer
from gymnast.kit.tools import TOOLS_PATH, Tool, ToolError, collect_tools, result_body
from gymnast.types.encoding import dump_model, is_finite_number, show
from gymnast.types.failure import BODY_LIMIT, FailureDetail, FailureKind, Stage, message_of
from gymnast.types.responses import with_defaults
from gymnast.types.task import FAILURE_CLASS, JUDGE_ERROR, PARAMS, correlation_id
from gymnast.wire.calls import Scope
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import HttpError
from gymnast.wire.validate import require_field, require_object, validate_params, validate_response

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.wire.server import ServerContext

ReverifyMode = Literal["stateless", "unsupported", "unknown"]


class Environment(TaskServer[TaskT, SessionT], Generic[TaskT, SessionT]):
    """A resources server: tools, a session per rollout, a verifier."""

    parallel_tools: ClassVar[bool] = False
    """Whether the calls of one turn may run concurrently. Otherwise a session's calls run one after another."""
    scores_without_session: ClassVar[bool] = False
    """Whether `verify` reads only the row and the response: its attempt has no session, even if tools have one."""

    def __init__(self, name: str, settings: EnvironmentSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self.stateful = type(self).open is not Environment.open
        self.tools = collect_tools(self)
        self.route("POST", "/seed_session", self._seed_session)
        self.route("POST", "/close_session", self._close_session)
        self.route("POST", "/verify", self._verify)
        self.route("GET", "/reverify_mode", self._reverify_mode)
        self.route("GET", TOOLS_PATH, self._list_tools)
        for tool in self.tools.values():
            self.route("POST", f"/{tool.name}", partial(self._call_tool, tool))
        self.mcp = (
            McpServer(name, self.cookie_name, self.tools, self.handle) if settings.expose_tools_over_mcp else None
        )
        if self.mcp is not None:
            for path in (MCP_PATH, f"{MCP_PATH}/"):
                self.route("POST", path, self.mcp.handle)

    async def open(self, task: TaskT) -> SessionT:
        """Open the session of a rollout. Environments without state do not override this."""
        raise NotImplementedError("this environment has no sessions")

    @abstractmethod
    async def verify(self, attempt: Attempt[TaskT, SessionT]) -> float | Verdict:
        """Score an attempt. An exception is a verifier failure, never a reward."""

    def repeat_fields(self, fields: JsonObject, task: TaskT) -> JsonObject:
        """Return those of a row's fields that its verdict repeats. By default none."""
        del fields, task
        return {}

    @property
    def reverify_mode(self) -> ReverifyMode:
        """Whether stored rollouts can be scored again: only if `verify` needs no session."""
        return "unsupported" if self.stateful and not self.scores_without_session else "stateless"

    async def _seed_session(self, request: Request) -> JsonObject:
        row = require_object(request.body)
        task = self.parse_task(row)
        reply: JsonObject = {}
        if self.stateful:
            await self.sessions.open(request.session_id, await self.open(task))
            reply["supports_explicit_close"] = True
        if self.tools and self.parallel_tools:
            reply["supports_parallel_tools"] = True
        if self.mcp is not None:
            reply["mcp"] = self.mcp.connection(request.session_id, row)
        return reply

    async def _close_session(self, request: Request) -> JsonObject:
        await self.sessions.close(request.session_id)
        return {}

    async def _call_tool(self, tool: Tool, request: Request) -> Any:
        arguments = tool.parse(request.body)
        try:
            if not tool.takes_session:
                return _as_reply(await tool.function(**arguments))
            with self.fail_without_session(request):
                async with self.sessions.use(request.session_id, exclusive=not self.parallel_tools) as session:
                    return _as_reply(await tool.function(session=session, **arguments))
        except ToolError as error:
            return Reply(400, {"error": message_of(error, BODY_LIMIT)})

    async def _verify(self, request: Request) -> JsonObject:
        row = require_object(request.body)
        params, response = require_field(row, PARAMS), require_field(row, "response")
        if not request.validated:
            validate_params(params, loc=("body", PARAMS))
            validate_response(response, loc=("body", "response"))
        task, scope = self.parse_task(row), Scope(request.rollout_id or correlation_id(row), request.progress)
        scored_response = strip_mcp_prefixes(response) if self.mcp is not None else response
        if not self.stateful or self.scores_without_session:
            verdict = await self._verify_attempt(row, Attempt(task, params, scored_response, None, scope))  # type: ignore[arg-type]
        else:
            with self.fail_without_session(request):
                async with self.sessions.use(request.session_id, exclusive=True) as session:
                    verdict = await self._verify_attempt(row, Attempt(task, params, scored_response, session, scope))
        if self.stateful:
            await self.sessions.close(request.session_id)
        return {PARAMS: with_defaults(params), "response": response, **verdict}

    async def _verify_attempt(self, row: JsonObject, attempt: Attempt[TaskT, SessionT]) -> JsonObject:
        """The verdict. If a judge failed there is none: the row is returned with the failure."""
        fields = {name: value for name, value in row.items() if name not in {PARAMS, "response"}}
        try:
            return {**self.repeat_fields(fields, attempt.task), **await self._score(attempt)}
        except JudgeError as error:
            text = f"{error.cause}: {message_of(error, 2000)}"
            return {**fields, "reward": 0.0, FAILURE_CLASS: FailureKind.JUDGE_FAILED.value, JUDGE_ERROR: text}

    async def _score(self, attempt: Attempt[TaskT, SessionT]) -> JsonObject:
        verdict = await self.verify(attempt)
        if not isinstance(verdict, Verdict):
            try:
                verdict = Verdict(reward=verdict)
            except ValidationError as error:
                raise self._bad_verdict(verdict) from error
        fields = dump_model(verdict)
        reward = fields.pop("reward")
        if not is_finite_number(reward):  # a subclass may have changed the field
            raise self._bad_verdict(reward)
        return {"reward": float(reward), **fields}

    def _bad_verdict(self, verdict: Any) -> HttpError:
        text = f"{self.name} scored an attempt with {show(verdict)}: expected a finite number"
        return HttpError(
            500,
            text,
            failure=FailureDetail(FailureKind.VERIFIER_BAD_REPLY, Stage.VERIFY, text, instance=self.name, status=500),
        )

    async def _list_tools(self, _: Request) -> JsonObject:
        return {"tools": [tool.declaration() for tool in self.tools.values()]}

    async def _reverify_mode(self, _: Request) -> ReverifyMode:
        return self.reverify_mode


def _as_reply(result: Any) -> Reply:
    return Reply(200, result_body(result))
