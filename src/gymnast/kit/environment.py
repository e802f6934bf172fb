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
from gymnast.kit.mcp_server import McpServer, plain_tool_names
from gymnast.kit.task_server import EnvironmentSettings, TaskServer
from gymnast.kit.tools import Tool, ToolError, result_body, tools_of
from gymnast.types.failure import FailureDetail, Stage, bounded
from gymnast.types.responses import with_defaults
from gymnast.types.task import FAILURE_CLASS, JUDGE_ERROR, PARAMS, correlation_id
from gymnast.wire.calls import Scope
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import HttpError
from gymnast.wire.validate import require_field, require_object, validate_params, validate_response

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.wire.server import Surroundings

ReverifyMode = Literal["stateless", "unsupported", "unknown"]


class Environment(TaskServer[TaskT, SessionT], Generic[TaskT, SessionT]):
    """A resources server: tools, a session for each rollout, a verifier."""

    parallel_tools: ClassVar[bool] = False
    """Whether calls of one turn may run at the same time. Otherwise a session's calls run one after the other."""
    scores_without_session: ClassVar[bool] = False
    """Whether `verify` reads the row and the response only: its attempt has no session, even where tools have one."""

    def __init__(self, name: str, settings: EnvironmentSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self.stateful = type(self).open is not Environment.open
        self.tools = tools_of(self)
        self.route("POST", "/seed_session", self._seed_session)
        self.route("POST", "/close_session", self._close_session)
        self.route("POST", "/verify", self._verify)
        self.route("GET", "/reverify_mode", self._reverify_mode)
        for found in self.tools.values():
            self.route("POST", f"/{found.name}", partial(self._call_tool, found))
        self.mcp = (
            McpServer(name, self.cookie_name, self.tools, self.handle) if settings.expose_tools_over_mcp else None
        )
        if self.mcp is not None:
            for path in (MCP_PATH, f"{MCP_PATH}/"):
                self.route("POST", path, self.mcp.answer)

    async def open(self, task: TaskT) -> SessionT:
        """Open the session of a rollout. Environments without state leave this alone."""
        raise NotImplementedError("an environment without sessions is never asked to open one")

    @abstractmethod
    async def verify(self, attempt: Attempt[TaskT, SessionT]) -> float | Verdict:
        """Score an attempt. An exception is a failure of the verifier, never a reward."""

    @property
    def reverify_mode(self) -> ReverifyMode:
        """Whether stored rollouts can be scored again: where verify needs no session."""
        return "unsupported" if self.stateful and not self.scores_without_session else "stateless"

    async def _seed_session(self, request: Request) -> JsonObject:
        row = require_object(request.body)
        task = self.task_of(row)
        offers: JsonObject = {}
        if self.stateful:
            await self.sessions.open(request.session_id, await self.open(task))
            offers["supports_explicit_close"] = True
        if self.tools and self.parallel_tools:
            offers["supports_parallel_tools"] = True
        if self.mcp is not None:
            offers["mcp"] = self.mcp.offer(request.session_id, row)
        return offers

    async def _close_session(self, request: Request) -> JsonObject:
        await self.sessions.close(request.session_id)
        return {}

    async def _call_tool(self, called: Tool, request: Request) -> Any:
        arguments = called.parse(request.body)
        try:
            if not called.takes_session:
                return _as_reply(await called.function(**arguments))
            with self.missing_session_is_a_failure(request):
                async with self.sessions.use(request.session_id, exclusive=not self.parallel_tools) as session:
                    return _as_reply(await called.function(session=session, **arguments))
        except ToolError as error:
            return Reply(400, {"error": str(error)})

    async def _verify(self, request: Request) -> JsonObject:
        row = require_object(request.body)
        params, response = require_field(row, PARAMS), require_field(row, "response")
        if not request.validated:
            validate_params(params, loc=("body", PARAMS))
            validate_response(response, loc=("body", "response"))
        task, scope = self.task_of(row), Scope(request.rollout_id or correlation_id(row), request.trail)
        scored = plain_tool_names(response) if self.mcp is not None else response
        if not self.stateful or self.scores_without_session:
            verdict = await self._judged(row, Attempt(task, params, scored, None, scope))  # type: ignore[arg-type]
        else:
            with self.missing_session_is_a_failure(request):
                async with self.sessions.use(request.session_id, exclusive=True) as session:
                    verdict = await self._judged(row, Attempt(task, params, scored, session, scope))
        if self.stateful:
            await self.sessions.close(request.session_id)
        return {PARAMS: with_defaults(params), "response": response, **verdict}

    async def _judged(self, row: JsonObject, attempt: Attempt[TaskT, SessionT]) -> JsonObject:
        """The verdict. Without a judge's there is none: the row goes back as it came, and says so."""
        try:
            return await self._scored(attempt)
        except JudgeError as error:
            asked = {name: value for name, value in row.items() if name not in {PARAMS, "response"}}
            said = f"{error.cause}: {bounded(str(error), 2000)}"
            return {**asked, "reward": 0.0, FAILURE_CLASS: "judge_failed", JUDGE_ERROR: said}

    async def _scored(self, attempt: Attempt[TaskT, SessionT]) -> JsonObject:
        verdict = await self.verify(attempt)
        if not isinstance(verdict, Verdict):
            try:
                verdict = Verdict(reward=verdict)
            except ValidationError as error:
                raise self._bad_verdict(verdict) from error
        fields = verdict.model_dump(mode="json")
        return {"reward": float(fields.pop("reward")), **fields}

    def _bad_verdict(self, verdict: Any) -> HttpError:
        text = f"{self.name} scored an attempt with {verdict!r}, which is no finite number"
        return HttpError(
            500, text, failure=FailureDetail("verifier_bad_reply", Stage.VERIFY, text, instance=self.name, status=500)
        )

    async def _reverify_mode(self, _: Request) -> ReverifyMode:
        return self.reverify_mode


def _as_reply(result: Any) -> Reply:
    return Reply(200, result_body(result))
