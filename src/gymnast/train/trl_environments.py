"""Gymnast's environments for TRL's own tool loop: an environment factory and the reward function that goes with it.

    with TrlEnvironments(Collector(…), rows, environment="shop_lookup_resources_server") as environments:
        GRPOTrainer(
            model, environments.reward, args,
            train_dataset=environments.dataset(), environment_factory=environments.factory,
        )

TRL generates, parses tool calls and trains; sessions, tools and verification are Gymnast's. Use `TrlRollouts` instead
for agents of Gymnast, for exact tokens of an HTTP engine, and for reasoning that the chat template drops.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

import orjson

from gymnast.errors import CallError, UserError
from gymnast.kit.tools import list_tools
from gymnast.train.background_loop import BackgroundLoop
from gymnast.train.causes import fewer_rollouts
from gymnast.train.prompt_files import prompt_messages
from gymnast.train.samples import RolloutFailure
from gymnast.types.failure import FailureKind, Stage
from gymnast.types.responses import make_response, message_text
from gymnast.types.task import PARAMS, ROLLOUT_ID, TASK_INDEX, RolloutKey
from gymnast.wire.calls import Scope
from gymnast.wire.classify import kind_of_reply
from gymnast.wire.dialects.chat_replies import message_to_items

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from gymnast.types.items import CreateParams
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls

ROW_INDEX: Final = "gymnast_row_index"
_DOWN: Final = frozenset({502, 503, 504})
"""Replies that mean the environment is down; any other error reply is for the model to read."""
_RESERVED: Final = frozenset({"reset", "get_reward"})
_TYPES: Final[dict[str, type]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class HasCalls(Protocol):
    """Servers that can be called; `gymnast.Collector` implements it."""

    @property
    def calls(self) -> Calls: ...


@dataclass(slots=True)
class Session:
    """What one rollout of TRL has in the environment."""

    row: JsonObject
    scope: Scope
    failure: RolloutFailure | None = None
    """Why it has no reward, whatever the model answers."""


class TrlEnvironments:
    """One environment and its rows, for TRL. `rows`: a list, or `gymnast.train.offsets.JsonlRows`."""

    def __init__(
        self,
        collector: AbstractAsyncContextManager[HasCalls],
        rows: Sequence[JsonObject] | Any,
        *,
        environment: str,
        timeout_s: float = 600.0,
        max_failed: int = 0,
    ) -> None:
        """`environment`: the name of its instance. `max_failed`: rollouts of a batch that may have no reward."""
        self._collector = collector
        self._rows = rows
        self._environment = environment
        self._timeout_s = timeout_s
        self.max_failed = max_failed
        self.background = BackgroundLoop("gymnast-trl")
        self._tools: list[JsonObject] = []
        self._calls: Calls | None = None

    def __enter__(self) -> Self:
        try:
            self._calls = self.background.enter(self._collector).calls
            listed = self.background.run(list_tools(self._calls, self._environment, self._timeout_s))
        except BaseException:
            self.background.close()
            raise
        of_rows = [tool for index in range(len(self._rows)) for tool in self._rows[index][PARAMS].get("tools") or ()]
        by_name = {tool["name"]: tool for tool in [*of_rows, *listed] if tool.get("type") == "function"}
        self._tools = list(by_name.values())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.background.close()

    def dataset(self) -> Any:
        """The prompts as a dataset for the trainer."""
        from datasets import Dataset  # noqa: PLC0415 - heavy, comes with TRL

        return Dataset.from_list([
            {"prompt": prompt_messages(self._rows[index][PARAMS]["input"]), ROW_INDEX: index}
            for index in range(len(self._rows))
        ])  # fmt: skip

    @property
    def factory(self) -> Callable[[], Any]:
        """TRL's `environment_factory`: makes environments with a method for each tool."""
        if self._calls is None:
            raise UserError("the servers are not running", next="use it as `with TrlEnvironments(…) as environments`")
        methods = {tool["name"]: _tool_method(tool) for tool in self._tools}
        reserved = [name for name in methods if name in _RESERVED or name.startswith("_") or not name.isidentifier()]
        if reserved:
            raise UserError(f"TRL cannot offer the tool '{reserved[0]}': its name", next="use TrlRollouts")
        kind = type("GymnastEnvironment", (_Environment,), methods)
        return lambda: kind(self)

    def reward(
        self,
        completions: list[Any],
        environments: list[Any],
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """The reward function: verifies each completion in its session. None if it failed, within `max_failed`.

        Raises FewerRolloutsError if more have no reward: a server that is down never becomes a reward of 0.
        """
        sessions: list[Session] = [environment.gymnast_session for environment in environments]
        scored = self.background.run(_gather(map(self._verify, completions, sessions)))
        failed = [
            (RolloutKey(session.row[TASK_INDEX], number), failure)
            for number, (session, (_, failure)) in enumerate(zip(sessions, scored, strict=True))
            if failure is not None
        ]
        if len(failed) > self.max_failed:
            raise fewer_rollouts(failed, len(scored), None)
        if log_metric is not None:
            log_metric("gymnast/failed", float(len(failed)))
        return [reward for reward, _ in scored]

    async def _verify(self, completion: Any, session: Session) -> tuple[float | None, RolloutFailure | None]:
        failure = session.failure
        if failure is None:
            body = {**session.row, "response": response_of(completion, session.row[PARAMS])}
            try:
                verdict = await self._expect("/verify", body, session.scope, Stage.VERIFY)
                return float(verdict["reward"]), None
            except CallError as error:
                failure = RolloutFailure(error.detail.kind.value, error.detail.message)
            except (KeyError, TypeError, ValueError):
                problem = f"{self._environment} answered /verify without a reward"
                failure = RolloutFailure(FailureKind.VERIFIER_BAD_REPLY.value, problem)
        return None, failure

    async def _expect(self, path: str, body: Any, scope: Scope, stage: Stage) -> Any:
        assert self._calls is not None
        return await self._calls.expect(self._environment, path, body, scope, stage=stage, timeout_s=self._timeout_s)

    def start_session(self, index: int) -> Session:
        """A new session for a row; a failure is kept in it."""
        name = f"trl-{secrets.token_hex(8)}"
        session = Session({TASK_INDEX: index, **self._rows[index], ROLLOUT_ID: name}, Scope(rollout_id=name))
        try:
            self.background.run(self._expect("/seed_session", session.row, session.scope, Stage.SEED))
        except CallError as error:
            session.failure = RolloutFailure(error.detail.kind.value, error.detail.message)
        return session

    async def use_tool(self, name: str, arguments: JsonObject, session: Session) -> str:
        """A tool's output for the model. If the environment is down, the session keeps the failure."""
        assert self._calls is not None
        try:
            reply = await self._calls.call(
                self._environment, f"/{name}", arguments, session.scope, stage=Stage.TOOL, timeout_s=self._timeout_s
            )
        except CallError as error:
            session.failure = RolloutFailure(error.detail.kind.value, error.detail.message)
            raise
        if not reply.ok and (reply.failure is not None or reply.status in _DOWN):
            kind = kind_of_reply(Stage.TOOL, reply.status)
            session.failure = RolloutFailure(kind.value, f"{self._environment} answered {reply.status} to /{name}")
        return reply.text()


class _Environment:
    """One rollout at a time. TRL takes every public method but `reset` for a tool."""

    def __init__(self, owner: TrlEnvironments) -> None:
        self.gymnast_owner = owner
        self.gymnast_session: Session | None = None

    def reset(self, **columns: Any) -> None:
        """Start a session for the example. A failure is reported with the rewards."""
        index = columns.get(ROW_INDEX)
        if not isinstance(index, int):
            raise UserError(
                f"an example has no '{ROW_INDEX}'", where="TRL's dataset", next="train_dataset=environments.dataset()"
            )
        self.gymnast_session = self.gymnast_owner.start_session(index)


def _tool_method(tool: JsonObject) -> Callable[..., Awaitable[str]]:
    """A method with the tool's name, signature and description, from which TRL makes the schema for the prompt."""
    schema = tool.get("parameters") or {}
    properties, required = schema.get("properties") or {}, set(schema.get("required") or ())
    name = tool["name"]

    async def use(self: _Environment, **arguments: Any) -> str:
        assert self.gymnast_session is not None, "TRL resets environments before it uses them"
        owner = self.gymnast_owner
        return await asyncio.wrap_future(owner.background.start(owner.use_tool(name, arguments, self.gymnast_session)))

    kinds = {key: _TYPES.get(_type_of(value), str) for key, value in properties.items()}
    ordered = sorted(properties, key=lambda key: key not in required)
    parameters = [
        inspect.Parameter(
            key,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if key in required else properties[key].get("default"),
            annotation=kinds[key],
        )
        for key in ordered
    ]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    use.__name__ = use.__qualname__ = name
    use.__signature__ = inspect.Signature([own, *parameters], return_annotation=str)  # type: ignore[attr-defined] # inspect reads it
    use.__annotations__ = {**kinds, "return": str}
    lines = [f"    {key}: {_one_line(properties[key].get('description')) or key}" for key in ordered]
    arguments_text = "\n\nArgs:\n" + "\n".join(lines) if lines else ""
    use.__doc__ = f"{_one_line(tool.get('description')) or name}{arguments_text}\n\nReturns:\n    The tool's output."
    return use


def response_of(completion: Any, params: JsonObject) -> JsonObject:
    """A completion of TRL (text, or messages with tool calls and tool results) as a response."""
    messages: list[JsonObject] = (
        [{"role": "assistant", "content": completion}] if isinstance(completion, str) else completion
    )
    numbers = count()
    output: list[Any] = []
    waiting: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            call_id = waiting.pop(0) if waiting else f"call_{next(numbers)}"
            output.append({
                "type": "function_call_output",
                "call_id": call_id,
                "output": message_text(message),
            })  # fmt: skip
            continue
        calls = [_chat_call(call["function"], f"call_{next(numbers)}") for call in message.get("tool_calls") or ()]
        waiting += [call["id"] for call in calls]
        turn = {"content": message_text(message), "tool_calls": calls}
        output += message_to_items(turn, new_id=lambda prefix: f"{prefix}{next(numbers)}", parse_thinking=True)
    response: Any = make_response(
        cast("CreateParams", params),
        output,
        response_id=f"resp_{secrets.token_hex(8)}",
        created_at=0.0,
        model="trl",
        usage=None,
        incomplete=None,
    )
    return cast("JsonObject", response)


def _chat_call(function: JsonObject, call_id: str) -> JsonObject:
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    return {"id": call_id, "type": "function", "function": {"name": function["name"], "arguments": text}}


def _type_of(schema: JsonObject) -> str:
    kind = schema.get("type")
    names = kind if isinstance(kind, list) else [kind, *(part.get("type") for part in schema.get("anyOf") or ())]
    return next((str(name) for name in names if name and name != "null"), "string")


def _one_line(text: Any) -> str:
    return " ".join(str(text or "").split())


async def _gather(work: Any) -> list[Any]:
    return list(await asyncio.gather(*work))
