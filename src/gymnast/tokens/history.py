"""Which earlier call a conversation continues, told by digests of its messages. Knows nothing of tokens.

Messages are compared by what they say: ids of tool calls, the form of JSON arguments and absent keys do not matter. An
assistant turn that comes back without its reasoning is still the same turn: chat clients do not send reasoning back.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from gymnast.types.tokens import ForkReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.types.json import JsonObject

Key = bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation stands among the earlier ones."""

    parent: int | None
    """The call it continues or departs from."""
    known: int
    """How many of its messages that call covers, its own answer included. All are known when the reason is EXTENDS."""
    reason: ForkReason


class History:
    """The messages of every call so far, as digests of their prefixes."""

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
                call = self._answers.get(_next_key(b"", canonical(message)))
                if call is not None:
                    return call
        return None

    def add(self, call: int, keys: Sequence[Key], answer: JsonObject) -> None:
        """Remember a call: its messages' keys and what it answered."""
        before = keys[-1] if keys else b""
        for key in reversed(keys):
            if key in self._seen:
                break
            self._seen[key] = call
        for form in _forms(answer):
            self._after[_next_key(before, form)] = call
            self._answers[_next_key(b"", form)] = call
        self._lengths.append(len(keys) + 1)


def prefix_keys(messages: Sequence[JsonObject]) -> list[Key]:
    """A key for each prefix of the conversation."""
    keys: list[Key] = []
    key = b""
    for message in messages:
        key = _next_key(key, canonical(message))
        keys.append(key)
    return keys


def digest(value: Any) -> Key:
    """Of any JSON value, whatever the order of its keys."""
    return blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def canonical(message: JsonObject) -> tuple[Any, ...]:
    """What a message says."""
    calls = message.get("tool_calls")
    return (
        message.get("role"),
        message.get("content") or "",
        message.get("reasoning_content") or "",
        [_call(call) for call in calls] if calls else [],
    )


def _forms(answer: JsonObject) -> list[tuple[Any, ...]]:
    """An answer as it may come back: whole, and without its reasoning."""
    whole = canonical(answer)
    return [whole, (whole[0], whole[1], "", whole[3])] if whole[2] else [whole]


def _call(call: JsonObject) -> list[Any]:
    function = call["function"]
    arguments = function["arguments"]
    if isinstance(arguments, str):
        with suppress(orjson.JSONDecodeError):
            arguments = orjson.loads(arguments)
    return [function["name"], arguments]


def _next_key(key: Key, form: tuple[Any, ...]) -> Key:
    return blake2b(key + orjson.dumps(form, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
