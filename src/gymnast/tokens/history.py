"""Which earlier call a conversation continues, told by hashes of its messages. Knows nothing of tokens.

Messages are compared by what they say: ids of tool calls, the form of JSON arguments and absent keys do not matter. An
assistant turn that comes back without its reasoning is still the same turn: chat clients do not send reasoning back.
Hashes are Python's own, 64 bits with a random seed: a text that was hashed before costs nothing, which makes long
histories cheap. They never leave the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from gymnast.types.tokens import ForkReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.types.json import JsonObject

Key = int
Form = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation stands among the earlier ones."""

    parent: int | None
    """The call it continues or departs from."""
    known: int
    """How many of its messages that call covers, its own answer included. All are known when the reason is EXTENDS."""
    reason: ForkReason


class History:
    """The messages of every call so far, as hashes of their prefixes."""

    def __init__(self) -> None:
        self._after: dict[Key, int] = {}
        """Prefixes that end with what a call answered."""
        self._seen: dict[Key, int] = {}
        """All prefixes, by the first call that had them."""
        self._answers: dict[Key, int] = {}
        """Single answers."""
        self._lengths: list[int] = []

    def place(self, keys: Sequence[Key], messages: Sequence[JsonObject]) -> Place:
        """`keys` are `prefix_keys(messages)`."""
        for count in range(len(keys), 0, -1):
            call = self._after.get(keys[count - 1])
            if call is not None:
                return Place(call, count, ForkReason.EXTENDS)
        if not self._lengths:
            return Place(None, 0, ForkReason.FIRST)
        shared = next((count for count in range(len(keys), 0, -1) if keys[count - 1] in self._seen), 0)
        if any(message.get("role") not in {"system", "developer"} for message in messages[:shared]):
            call = self._seen[keys[shared - 1]]
        else:
            found = self._quoted(messages)
            if found is None:
                return Place(None, 0, ForkReason.FIRST)
            call = found
        if shared == len(messages):
            return Place(call, shared, ForkReason.BRANCH)
        shorter = len(messages) < max(self._lengths[call:])
        return Place(call, shared, ForkReason.HISTORY_SHORTENED if shorter else ForkReason.HISTORY_EDITED)

    def _quoted(self, messages: Sequence[JsonObject]) -> int | None:
        """The last call whose answer is among the messages: the conversation is that one's, however it begins now."""
        for message in reversed(messages):
            if message.get("role") == "assistant":
                call = self._answers.get(hash(canonical(message)))
                if call is not None:
                    return call
        return None

    def add(self, call: int, keys: Sequence[Key], answer: JsonObject) -> None:
        """Remember a call: its messages' keys and what it answered."""
        before = keys[-1] if keys else 0
        for key in reversed(keys):
            if key in self._seen:
                break
            self._seen[key] = call
        for form in _forms(answer):
            self._after[hash((before, form))] = call
            self._answers[hash(form)] = call
        self._lengths.append(len(keys) + 1)


def prefix_keys(messages: Sequence[JsonObject]) -> list[Key]:
    """A key for each prefix of the conversation."""
    keys: list[Key] = []
    key = 0
    for message in messages:
        key = hash((key, canonical(message)))
        keys.append(key)
    return keys


def context_key(value: Any) -> Key:
    """Of any JSON value, whatever the order of its keys."""
    return hash(_sorted(value))


def canonical(message: JsonObject) -> Form:
    """What a message says, hashable."""
    calls = message.get("tool_calls")
    return (
        message.get("role"),
        message.get("content") or "",
        message.get("reasoning_content") or "",
        tuple([_call(call) for call in calls]) if calls else (),
    )


def _forms(answer: JsonObject) -> list[Form]:
    """An answer as it may come back: whole, and without its reasoning."""
    whole = canonical(answer)
    return [whole, (whole[0], whole[1], "", whole[3])] if whole[2] else [whole]


def _call(call: JsonObject) -> tuple[str, bytes]:
    function = call["function"]
    arguments = function["arguments"]
    return function["name"], _parsed(arguments) if isinstance(arguments, str) else _sorted(arguments)


@lru_cache(maxsize=4096)  # a long history is read again at every turn
def _parsed(arguments: str) -> bytes:
    try:
        return _sorted(orjson.loads(arguments))
    except orjson.JSONDecodeError:
        return arguments.encode("utf-8", "surrogatepass")


def _sorted(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
