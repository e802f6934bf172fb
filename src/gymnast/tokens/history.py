"""Finds the earlier call that a conversation continues, by hashes of its messages. Does not look at tokens.

Messages are compared by content: ids of tool calls, the formatting of JSON arguments and absent keys do not matter. An
assistant turn that comes back without its reasoning is the same turn, because chat clients do not send reasoning back.
Hashes are Python's built-in ones, 64 bits with a random seed: strings cache them, which makes long histories cheap.
They never leave the process.
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
CanonicalMessage = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class HistoryMatch:
    """How a conversation relates to the earlier calls."""

    parent: int | None
    """The call it continues or forks from."""
    known: int
    """How many of its messages the parent covers, including the parent's own turn."""
    reason: ForkReason


class History:
    """The messages of every call so far, as hashes of their prefixes."""

    def __init__(self) -> None:
        self._after: dict[Key, int] = {}
        """Prefixes that end with a call's own turn."""
        self._seen: dict[Key, int] = {}
        """All prefixes, with the first call that had them."""
        self._turns: dict[Key, int] = {}
        """The calls' own turns, without what precedes them."""
        self._lengths: list[int] = []

    def match(self, keys: Sequence[Key], messages: Sequence[JsonObject]) -> HistoryMatch:
        """Match a conversation against the earlier ones. `keys` are `prefix_keys(messages)`."""
        for count in range(len(keys), 0, -1):
            call = self._after.get(keys[count - 1])
            if call is not None:
                return HistoryMatch(call, count, ForkReason.EXTENDS)
        if not self._lengths:
            return HistoryMatch(None, 0, ForkReason.FIRST)
        shared = next((count for count in range(len(keys), 0, -1) if keys[count - 1] in self._seen), 0)
        if any(message.get("role") not in {"system", "developer"} for message in messages[:shared]):
            call = self._seen[keys[shared - 1]]
        else:
            quoted = self._find_quoted(messages)
            if quoted is None:
                return HistoryMatch(None, 0, ForkReason.FIRST)
            call = quoted
        if shared == len(messages):
            return HistoryMatch(call, shared, ForkReason.BRANCH)
        is_shorter = len(messages) < max(self._lengths[call:])
        return HistoryMatch(call, shared, ForkReason.HISTORY_SHORTENED if is_shorter else ForkReason.HISTORY_EDITED)

    def _find_quoted(self, messages: Sequence[JsonObject]) -> int | None:
        """The last call whose turn is among the messages, whatever the conversation starts with now."""
        for message in reversed(messages):
            if message.get("role") == "assistant":
                call = self._turns.get(hash(canonical(message)))
                if call is not None:
                    return call
        return None

    def add_joined(self, call: int, keys: Sequence[Key], last: JsonObject, message: JsonObject) -> None:
        """Add a call that directly follows an assistant message: servers get the two of them back as one."""
        prefix = keys[-2] if len(keys) > 1 else 0
        for variant in _variants(_join_turns(last, message)):
            self._after[hash((prefix, variant))] = call

    def add(self, call: int, keys: Sequence[Key], message: JsonObject) -> None:
        """Add a call: the keys of its messages, and its own turn."""
        prefix = keys[-1] if keys else 0
        for key in reversed(keys):
            if key in self._seen:
                break
            self._seen[key] = call
        for variant in _variants(message):
            self._after[hash((prefix, variant))] = call
            self._turns[hash(variant)] = call
        self._lengths.append(len(keys) + 1)


def prefix_keys(messages: Sequence[JsonObject]) -> list[Key]:
    keys: list[Key] = []
    key = 0
    for message in messages:
        key = hash((key, canonical(message)))
        keys.append(key)
    return keys


def context_key(value: Any) -> Key:
    """A key of any JSON value, independent of the order of its keys."""
    return hash(_dump_sorted(value))


def canonical(message: JsonObject) -> CanonicalMessage:
    """The content of a message, hashable."""
    calls = message.get("tool_calls")
    return (
        message.get("role"),
        message.get("content") or "",
        message.get("reasoning_content") or "",
        tuple([_call(call) for call in calls]) if calls else (),
    )


def _join_turns(first: JsonObject, second: JsonObject) -> JsonObject:
    thoughts = [text for turn in (first, second) if (text := turn.get("reasoning_content"))]
    return {
        "role": "assistant",
        "content": (first.get("content") or "") + (second.get("content") or ""),
        "reasoning_content": "\n".join(thoughts),
        "tool_calls": [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())],
    }


def _variants(message: JsonObject) -> list[CanonicalMessage]:
    """A turn as it may come back: complete, and without its reasoning."""
    whole = canonical(message)
    return [whole, (whole[0], whole[1], "", whole[3])] if whole[2] else [whole]


def _call(call: JsonObject) -> tuple[str, bytes]:
    function = call["function"]
    arguments = function["arguments"]
    return function["name"], _normalise(arguments) if isinstance(arguments, str) else _dump_sorted(arguments)


@lru_cache(maxsize=4096)  # every turn reads the whole history again
def _normalise(arguments: str) -> bytes:
    try:
        return _dump_sorted(orjson.loads(arguments))
    except orjson.JSONDecodeError:
        return arguments.encode("utf-8", "surrogatepass")


def _dump_sorted(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
