"""A conversation as entries that can be compared: a message, a tool output, or all items of one model turn.

Clients send back what a model said in another form than they got it: with other ids, JSON spelt differently, text as a
string or in parts, reasoning left out or put into the text. Entries that say the same have the same key. Pure.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.types.responses import is_model_turn, message_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gymnast.types.json import JsonObject

_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_THINK: Final = re.compile(r"<(think|thinking)>.*?</\1>", re.DOTALL)
_NOT_COMPARED: Final = frozenset({"id", "call_id", "status"})


@dataclass(slots=True)
class Entry:
    """One step of a conversation."""

    key: bytes
    """Equal for entries that say the same."""
    role: str
    items: list[JsonObject]

    @property
    def identity(self) -> bytes:
        """Equal for entries that also belong to the same tool calls."""
        ids = [item["call_id"] for item in self.items if item.get("call_id") is not None]
        return joined_digest(_digest(ids), self.key) if ids else self.key

    @property
    def text(self) -> str:
        """All text of its messages and tool outputs."""
        return "\n".join(_item_text(item) for item in self.items)

    @property
    def arguments(self) -> list[str]:
        """The texts that tools are called with in it."""
        given = [_parsed(item["arguments"]) for item in self.items if item.get("type") == "function_call"]
        return [text for value in given for text in _texts(value)]


def entries_of(items: Sequence[JsonObject], instructions: str | None = None) -> list[Entry]:
    """The entries of a prompt. Instructions are its first, like a system message."""
    system = [{"type": "message", "role": "system", "content": instructions}] if instructions else []
    found: list[Entry] = []
    run: list[JsonObject] = []
    for item in (*system, *items):
        if is_model_turn(item):
            run.append(item)
            continue
        if run:
            found.append(answer_of(run))
            run = []
        found.append(_given(item))
    return [*found, answer_of(run)] if run else found


def answer_of(items: Sequence[JsonObject]) -> Entry:
    """One model turn as an entry."""
    text = "".join(_item_text(item) for item in items if item.get("type", "message") == "message")
    text = (_THINK.sub("", text) if "<think" in text else text).strip()
    calls = [item for item in items if item.get("type") == "function_call"]
    others = [_bare(item) for item in items if not is_model_turn(item)]
    said = ["assistant", text, [[call.get("name"), _parsed(call.get("arguments"))] for call in calls], others]
    return _entry(said, "assistant", list(items))


def prefix_digests(entries: Iterable[Entry]) -> list[bytes]:
    """For each entry the digest of the conversation up to it."""
    digests: list[bytes] = []
    for entry in entries:
        digests.append(joined_digest(digests[-1] if digests else b"", entry.key))
    return digests


def joined_digest(before: bytes, key: bytes) -> bytes:
    """The digest of a conversation that goes on with an entry."""
    return hashlib.blake2b(before + key, digest_size=16).digest()


def _given(item: JsonObject) -> Entry:
    kind = item.get("type", "message")
    if kind == "message":
        role = "system" if item.get("role") in _SYSTEM_ROLES else str(item.get("role"))
        return _entry([role, _content(item.get("content"))], role, [item])
    if kind == "function_call_output":
        return _entry(["tool", _content(item.get("output"))], "tool", [item])
    return _entry([kind, _bare(item)], str(kind), [item])


def _entry(said: Any, role: str, items: list[JsonObject]) -> Entry:
    return Entry(_digest(said), role, items)


def _content(content: Any) -> Any:
    """Text as text, whether it came in parts or not; anything else as it is."""
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    return content


def _bare(item: JsonObject) -> JsonObject:
    return {name: value for name, value in item.items() if name not in _NOT_COMPARED}


def _item_text(item: JsonObject) -> str:
    if item.get("type") == "function_call_output":
        output = _content(item.get("output"))
        return output if isinstance(output, str) else ""
    if item.get("type", "message") != "message":
        return ""
    refusals = [part["refusal"] for part in _parts(item) if isinstance(part.get("refusal"), str)]
    return message_text(item) + "".join(refusals)


def _parts(item: JsonObject) -> list[JsonObject]:
    content = item.get("content")
    return content if isinstance(content, list) else []


def _parsed(arguments: Any) -> Any:
    try:
        return orjson.loads(arguments or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return arguments


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _digest(said: Any) -> bytes:
    try:
        data = orjson.dumps(said, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError):  # e.g. half a surrogate, or numbers beyond 64 bits
        data = repr(said).encode(errors="surrogatepass")
    return hashlib.blake2b(data, digest_size=16).digest()
