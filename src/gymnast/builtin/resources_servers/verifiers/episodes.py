"""Wraps the package `verifiers`: load an environment, run an episode at an endpoint, score a conversation.

The only module that uses the package, which it imports when an environment is loaded. Its types do not leave this
module: results are plain data.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gymnast.kit import KEY_HEADER, JsonObject, UserError, bounded, message_text, reasoning_texts


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The policy's endpoint for an episode."""

    base_url: str
    api_key: str
    model: str


@dataclass(frozen=True, slots=True)
class Outcome:
    reward: float
    rewards: dict[str, float]
    metrics: dict[str, float]
    stop_condition: str | None
    errors: tuple[str, ...] = ()
    """If not empty, the episode has no reward."""


class IndexedTasks:
    """The tasks of a taskset by index, generated on demand. Thread-safe."""

    def __init__(self, taskset: Iterable[Any]) -> None:
        self._taskset = taskset
        self._rest: Iterator[Any] | None = None
        self._seen: list[Any] = []
        self._lock = threading.Lock()

    def at(self, index: int) -> Any:
        """The task at an index. Raises ValueError if there is none."""
        with self._lock:
            if self._rest is None:
                self._rest = iter(self._taskset)
            self._seen += itertools.islice(self._rest, max(0, index + 1 - len(self._seen)))
        if index >= len(self._seen):
            raise ValueError(f"no task at index {index}: the taskset has {len(self._seen)} tasks")
        return self._seen[index]


class Episodes:
    """An environment of the package. `close` must follow `open`."""

    def __init__(self, config: JsonObject) -> None:
        try:
            self._library: Any = import_module("verifiers.v1")
            loaders: Any = import_module("verifiers.v1.utils.loaders")
        except ImportError as error:
            raise UserError(
                "this environment needs the package verifiers",
                next="use `runs_in: auto`, which installs it separately, or pip install 'gymnast[verifiers]'",
            ) from error
        try:
            self._env: Any = loaders.load_environment(loaders.resolve_env_config(config))
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise UserError(
                f"verifiers cannot load this environment: {error}",
                where="env.taskset.id",
                next="install its package, or add its folder to `python_path`",
            ) from error
        self._serving = AsyncExitStack()
        self._tasks = IndexedTasks(self._env.taskset)

    async def open(self) -> None:
        await self._serving.enter_async_context(self._env.serving())

    async def close(self) -> None:
        await self._serving.aclose()

    def task(self, data: JsonObject | None, index: int | None) -> Any:
        """A task from its data, or by its index in the taskset. Raises ValueError if there is none."""
        if data is not None:
            task_type = type(self._env.taskset).task_type()
            return task_type(task_type.data_type().model_validate(data), self._env.config.taskset.task)
        if index is None:
            raise ValueError("the row needs `task_idx` or `task`")
        return self._tasks.at(index)

    async def run(self, task: Any, endpoint: Endpoint, sampling: JsonObject) -> Outcome:
        """Let the environment's own agents run a task."""
        library = self._library
        client = library.EvalClientConfig(
            base_url=endpoint.base_url, api_key_var="NONE_IS_READ", headers={KEY_HEADER: endpoint.api_key}
        )
        context = library.ModelContext(client=client, model=endpoint.model, sampling=library.SamplingConfig(**sampling))
        (slot,) = self._env.slots(task)
        return _outcome(await self._env.run_slot(slot, context))

    async def score(self, task: Any, conversation: list[JsonObject]) -> Outcome:
        """Score an existing conversation with the rewards that need no runtime."""
        trace = self._trace(task, conversation)
        await task.score(trace)
        return Outcome(_finite(trace.reward), _values(trace.rewards), dict(trace.metrics), None)

    def _trace(self, task: Any, conversation: list[JsonObject]) -> Any:
        traces, graph, agent = (import_module(f"verifiers.v1.{name}") for name in ("trace", "graph", "configs.agent"))
        nodes = [
            graph.MessageNode(
                parent=index - 1 if index else None, message=message, sampled=message["role"] == "assistant"
            )
            for index, message in enumerate(to_messages(conversation))
        ]
        config = agent.AgentConfig(runtime={"type": "subprocess"})
        about = traces.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        return traces.Trace(task=about, agent=traces.AgentInfo(config=config), nodes=nodes)


def to_messages(items: list[JsonObject]) -> list[JsonObject]:
    """Convert items of the Responses API to chat messages; a turn of the model is one message."""
    messages: list[JsonObject] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": str(item["output"])})
        elif kind == "message" and item.get("role") != "assistant":
            role = "system" if item.get("role") in {"system", "developer"} else "user"
            messages.append({"role": role, "content": message_text(item)})
        else:
            _add_to_turn(messages, item, kind)
    return messages


def _add_to_turn(messages: list[JsonObject], item: JsonObject, kind: str) -> None:
    if not messages or messages[-1]["role"] != "assistant" or (kind == "message" and messages[-1]["content"]):
        messages.append({"role": "assistant", "content": None})
    turn = messages[-1]
    if kind == "message":
        turn["content"] = message_text(item)
    elif kind == "reasoning":
        turn["reasoning_content"] = "".join(reasoning_texts(item))
    elif kind == "function_call":
        call = {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
        turn["tool_calls"] = [*turn.get("tool_calls", ()), call]


def _outcome(episode: Any) -> Outcome:
    """The outcome of the policy's traces, without those of judges and other seats that are not trained."""
    traces = [trace for trace in episode.traces if trace.agent.trainable] or list(episode.traces)
    reward = math.fsum(_finite(trace.reward) for trace in traces) / len(traces) if traces else 0.0
    errors = [*episode.errors, *(error for trace in traces for error in trace.errors)] if not episode.ok else []
    messages = [f"{error.type}: {bounded(str(error.message), 500)}" for error in errors]
    return Outcome(
        reward,
        {name: value for trace in traces for name, value in _values(trace.rewards).items()},
        {name: value for trace in traces for name, value in trace.metrics.items() if value is not None},
        traces[-1].stop_condition if traces else None,
        tuple(messages) or (() if episode.ok else ("the episode failed without an error",)),
    )


def _values(rewards: Any) -> dict[str, float]:
    return {name: reward.value for name, reward in rewards.items() if reward is not None}


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"the reward must be finite, not {value}")
    return float(value)
