"""Short stand-ins for long histories: the same kinds of turns with made-up words.

How a template continues a conversation depends on which turns there were, not on what they say. Turns of one kind that
come again and again are written twice at most, so a stand-in is short however long the history is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from typing import TypeVar

    from gymnast.types.json import JsonObject

    Part = TypeVar("Part")

_MOST_ROUNDS: Final = 4
_MOST_STEPS: Final = 8
_SEVERAL: Final = 2
_ALIKE: Final = (0, "", "")
LEADING: Final = frozenset({"system", "developer"})
MADE_UP: Final = re.compile(r"gymnast(?:user|word|thought|value|name|probe)\w+")
"""Finds made-up words where they should not be."""


class Shape(NamedTuple):
    """All that a template's structure can depend on in one message."""

    role: str
    has_words: bool
    has_thought: bool
    calls: int
    like: tuple[int, str, str]
    """Tells users' texts apart: some templates compare them. Length and both ends, so that long texts cost nothing."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A short history and the made-up words of its last turn."""

    messages: tuple[JsonObject, ...]
    thought: str | None
    words: tuple[str, ...]
    """Everything else that the last turn says, in order."""
    names: tuple[str, ...]
    """Those of the words that name called tools."""

    @property
    def lead(self) -> str | None:
        """The made-up system prompt."""
        first = self.messages[0]
        return first["content"] if first["role"] in LEADING else None

    def with_ids(self, last: JsonObject) -> list[JsonObject]:
        """The messages, with the ids of the real last turn: results name them, and templates may look them up."""
        *before, made_up = self.messages
        if not made_up.get("tool_calls"):
            return [*before, made_up]
        calls = zip(made_up["tool_calls"], last["tool_calls"], strict=True)
        return [*before, {**made_up, "tool_calls": [{**call, "id": real.get("id", "")} for call, real in calls]}]


def shape_of(message: JsonObject) -> Shape:
    """The shape of one message."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    role = str(message.get("role"))
    like = (len(text), text[:32], text[-32:]) if role == "user" else _ALIKE
    calls = message.get("tool_calls")
    number = min(len(calls), _SEVERAL) if calls else 0
    return Shape(role, bool(text[:4096].strip()), bool(message.get("reasoning_content")), number, like)


def shapes_before(history: Sequence[JsonObject]) -> tuple[Shape, ...]:
    """The kinds of turns before the last one, without repetitions."""
    shapes = [shape_of(message) for message in history[:-1]]
    lead = shapes[:1] if shapes and shapes[0].role in LEADING else []
    rounds = _rounds(shapes[len(lead) :])
    earlier = _thinned(rounds[:-1], _MOST_ROUNDS, key=_unlikened)
    return tuple(_with_small_likes([*lead, *(shape for turns in (*earlier, *rounds[-1:]) for shape in turns)]))


def last_shape(message: JsonObject, *, thinks: bool, speaks: bool) -> Shape:
    """The last turn; its thought and words are as told, and all its calls count."""
    return shape_of(message)._replace(
        has_thought=thinks, has_words=speaks, calls=len(message.get("tool_calls") or ()), like=_ALIKE
    )


def _unlikened(turns: list[Shape]) -> Hashable:
    return tuple(shape[:-1] for shape in turns)


def _rounds(shapes: Sequence[Shape]) -> list[list[Shape]]:
    """Cut before each user's message; within a round, repeated steps are left out."""
    rounds: list[list[Shape]] = [[]]
    for shape in shapes:
        if shape.role == "user":
            rounds.append([])
        rounds[-1].append(shape)
    return [_without_repeated_steps(turns) for turns in rounds if turns]


def _without_repeated_steps(turns: list[Shape]) -> list[Shape]:
    steps: list[list[Shape]] = [[]]
    for shape in turns:
        if shape.role not in {"tool", "ipython"}:
            steps.append([])
        steps[-1].append(shape)
    few = [_few_results(step) for step in steps if step]
    return [shape for step in _thinned(few, _MOST_STEPS, key=tuple) for shape in step]


def _few_results(step: list[Shape]) -> list[Shape]:
    if len(step) <= _SEVERAL:
        return step
    return [shape for _, alike in groupby(step) for shape in list(alike)[:_SEVERAL]]


def _thinned(parts: list[Part], most: int, *, key: Callable[[Part], Hashable]) -> list[Part]:
    """The first and the last of each kind, in order; of all these the first and the last ones."""
    places: dict[Hashable, list[int]] = {}
    for at, part in enumerate(parts):
        places.setdefault(key(part), []).append(at)
    kept = sorted({at for found in places.values() for at in (found[0], found[-1])})
    return [parts[at] for at in (kept if len(kept) <= most else [kept[0], *kept[1 - most :]])]


def _with_small_likes(shapes: list[Shape]) -> list[Shape]:
    """Likeness by number, so that stand-ins of different conversations are the same."""
    numbers: dict[tuple[int, str, str], int] = {}
    return [shape._replace(like=(numbers.setdefault(shape.like, len(numbers)), "", "")) for shape in shapes]


def stand_in(shapes: Sequence[Shape]) -> StandIn:
    """Messages of these shapes. No made-up word occurs in another."""
    built = [_message(shape, at) for at, shape in enumerate(shapes)]
    _name_results(built)
    last = built[-1]
    functions = [call["function"] for call in last.get("tool_calls", ())]
    said = [word for one in functions for word in (one["name"], json.loads(one["arguments"])["gymnastkey"])]
    words = ([last["content"]] if last["content"] else []) + said
    names = tuple(one["name"] for one in functions)
    return StandIn(tuple(built), last.get("reasoning_content"), tuple(words), names)


def _message(shape: Shape, at: int) -> JsonObject:
    content = f"gymnastuser{shape.like[0]:03d}x" if shape.role == "user" else f"gymnastword{at:03d}x"
    message: JsonObject = {"role": shape.role, "content": content if shape.has_words else ""}
    if shape.has_thought:
        message["reasoning_content"] = f"gymnastthought{at:03d}x"
    if shape.calls:
        message["tool_calls"] = [_call(at, number) for number in range(shape.calls)]
    return message


def _call(at: int, number: int) -> JsonObject:
    arguments = json.dumps({"gymnastkey": f"gymnastvalue{number}{at:03d}x"})
    function = {"name": f"gymnastname{number}{at:03d}x", "arguments": arguments}
    return {"id": f"gymna{number}{at:03d}", "type": "function", "function": function}


def _name_results(messages: list[JsonObject]) -> None:
    """Tool results refer to calls."""
    ids: list[str] = []
    for message in messages:
        if message.get("tool_calls"):
            ids = [call["id"] for call in message["tool_calls"]]
        elif message["role"] in {"tool", "ipython"}:
            message["tool_call_id"] = ids.pop(0) if ids else "gymnast00"
