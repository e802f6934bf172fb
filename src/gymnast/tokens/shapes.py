"""Short stand-ins for long histories: the same shapes of messages, with placeholders for their texts.

How a template continues a conversation depends on the shapes of its turns, not on their texts. Repeated shapes are
included at most twice, so a stand-in is short however long the history is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from typing import TypeVar

    from gymnast.types.json import JsonObject

    Part = TypeVar("Part")

_MAX_ROUNDS: Final = 4
_MAX_STEPS: Final = 8
_MAX_REPEATS: Final = 2
_NO_TEXT_KEY: Final = (0, "", "")
SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_TOOL_ROLES: Final = frozenset({"tool", "ipython"})
PLACEHOLDER: Final = re.compile(r"gymnast(?:user|word|thought|value|name|probe)\w+")
"""Matches placeholders."""


class Shape(NamedTuple):
    """Everything about a message that a template's structure can depend on."""

    role: str
    has_content: bool
    has_thought: bool
    calls: int
    text_key: tuple[int, str, str]
    """Distinguishes users' texts, which some templates compare. Length and both ends, so that long texts are cheap."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A short history and the placeholders of its last turn."""

    messages: tuple[JsonObject, ...]
    thought: str | None
    placeholders: tuple[str, ...]
    """All other placeholders of the last turn, in order."""
    names: tuple[str, ...]
    """The placeholders for names of called tools."""

    @property
    def system(self) -> str | None:
        """The placeholder for the system prompt."""
        first = self.messages[0]
        return first["content"] if first["role"] in SYSTEM_ROLES else None

    def with_ids(self, last: JsonObject) -> list[JsonObject]:
        """The messages with the real call ids of the last turn, which tool results refer to."""
        *before, turn = self.messages
        if not turn.get("tool_calls"):
            return [*before, turn]
        calls = zip(turn["tool_calls"], last["tool_calls"], strict=True)
        return [*before, {**turn, "tool_calls": [{**call, "id": real.get("id", "")} for call, real in calls]}]


def shape_of(message: JsonObject) -> Shape:
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    role = str(message.get("role"))
    text_key = (len(text), text[:32], text[-32:]) if role == "user" else _NO_TEXT_KEY
    calls = message.get("tool_calls")
    number = min(len(calls), _MAX_REPEATS) if calls else 0
    return Shape(role, bool(text[:4096].strip()), bool(message.get("reasoning_content")), number, text_key)


def earlier_shapes(history: Sequence[JsonObject]) -> tuple[Shape, ...]:
    """The shapes of the messages before the last one, without repetitions."""
    return _without_repetitions(tuple([shape_of(message) for message in history[:-1]]))


@lru_cache(maxsize=1024)  # the same for the rollouts of a group
def _without_repetitions(all_shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    shapes = list(all_shapes)
    system = shapes[:1] if shapes and shapes[0].role in SYSTEM_ROLES else []
    rounds = [
        _drop_repeated_steps(turns) for turns in _split_before(shapes[len(system) :], lambda role: role == "user")
    ]
    earlier = _thin_out(rounds[:-1], _MAX_ROUNDS, key=_without_text_keys)
    return tuple(_number_text_keys([*system, *(shape for turns in (*earlier, *rounds[-1:]) for shape in turns)]))


def last_shape(message: JsonObject, *, has_thought: bool, has_content: bool) -> Shape:
    """The shape of the last turn, with all its calls."""
    calls = len(message.get("tool_calls") or ())
    return Shape(str(message.get("role")), has_content, has_thought, calls, _NO_TEXT_KEY)


def _without_text_keys(turns: list[Shape]) -> Hashable:
    return tuple(shape[:-1] for shape in turns)


def _split_before(shapes: Sequence[Shape], is_start: Callable[[str], bool]) -> list[list[Shape]]:
    """Split before each message whose role starts a new part."""
    parts: list[list[Shape]] = [[]]
    for shape in shapes:
        if is_start(shape.role):
            parts.append([])
        parts[-1].append(shape)
    return [part for part in parts if part]


def _drop_repeated_steps(turns: list[Shape]) -> list[Shape]:
    steps = [_drop_repeated_results(step) for step in _split_before(turns, lambda role: role not in _TOOL_ROLES)]
    return [shape for step in _thin_out(steps, _MAX_STEPS, key=tuple) for shape in step]


def _drop_repeated_results(step: list[Shape]) -> list[Shape]:
    return [shape for _, run in groupby(step) for shape in list(run)[:_MAX_REPEATS]]


def _thin_out(parts: list[Part], limit: int, *, key: Callable[[Part], Hashable]) -> list[Part]:
    """The first and last part of each kind, in order; beyond the limit, only the first and the last ones of these."""
    by_kind: dict[Hashable, list[int]] = {}
    for index, part in enumerate(parts):
        by_kind.setdefault(key(part), []).append(index)
    chosen = sorted({index for indices in by_kind.values() for index in (indices[0], indices[-1])})
    return [parts[index] for index in (chosen if len(chosen) <= limit else [chosen[0], *chosen[1 - limit :]])]


def _number_text_keys(shapes: list[Shape]) -> list[Shape]:
    """Replace text keys by numbers, so that different conversations share stand-ins."""
    numbers: dict[tuple[int, str, str], int] = {}
    return [shape._replace(text_key=(numbers.setdefault(shape.text_key, len(numbers)), "", "")) for shape in shapes]


def make_stand_in(shapes: Sequence[Shape]) -> StandIn:
    """Messages of these shapes. No placeholder is part of another."""
    messages = [_message(shape, index) for index, shape in enumerate(shapes)]
    _link_results(messages)
    last = messages[-1]
    functions = [call["function"] for call in last.get("tool_calls", ())]
    names = tuple(function["name"] for function in functions)
    values = [json.loads(function["arguments"])["gymnastkey"] for function in functions]
    placeholders = [word for pair in zip(names, values, strict=True) for word in pair]
    content = [last["content"]] if last["content"] else []
    return StandIn(tuple(messages), last.get("reasoning_content"), (*content, *placeholders), names)


def _message(shape: Shape, index: int) -> JsonObject:
    content = f"gymnastuser{shape.text_key[0]:03d}x" if shape.role == "user" else f"gymnastword{index:03d}x"
    message: JsonObject = {"role": shape.role, "content": content if shape.has_content else ""}
    if shape.has_thought:
        message["reasoning_content"] = f"gymnastthought{index:03d}x"
    if shape.calls:
        message["tool_calls"] = [_call(index, number) for number in range(shape.calls)]
    return message


def _call(index: int, number: int) -> JsonObject:
    arguments = json.dumps({"gymnastkey": f"gymnastvalue{number}{index:03d}x"})
    function = {"name": f"gymnastname{number}{index:03d}x", "arguments": arguments}
    return {"id": f"gymna{number}{index:03d}", "type": "function", "function": function}


def _link_results(messages: list[JsonObject]) -> None:
    """Let tool results refer to calls."""
    ids: list[str] = []
    for message in messages:
        if message.get("tool_calls"):
            ids = [call["id"] for call in message["tool_calls"]]
        elif message["role"] in _TOOL_ROLES:
            message["tool_call_id"] = ids.pop(0) if ids else "gymnast00"
