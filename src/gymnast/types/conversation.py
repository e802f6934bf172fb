"""A conversation as comparable entries: a message, a tool output, or all items of one model turn.

Clients return a model's output in another form than they received it: with other ids, other JSON formatting, text as a
string or in parts, reasoning omitted or inlined. Entries with the same content have the same key. Pure.
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
    key: bytes
    """Equal for entries with the same content."""
    role: str
    items: list[JsonObject]

    @property
    def identity(self) -> bytes:
        """Equal for entries with the same content and the same tool call ids."""
        ids = [item["call_id"] for item in self.items if item.get("call_id") is not None]
        return extend_digest(_digest(ids), self.key) if ids else self.key

    @property
    def text(self) -> str:
        """All text of its messages and tool outputs."""
        return "\n".join(_item_text(item) for item in self.items)

    @property
    def arguments(self) -> list[str]:
        """The texts in the arguments of its tool calls."""
        values = [_parse(item["arguments"]) for item in self.items if item.get("type") == "function_call"]
        return [text for value in values for text in _texts(value)]


def make_entries(items: Sequence[JsonObject], instructions: str | None = None) -> list[Entry]:
    """The entries of a prompt. Instructions come first, like a system message."""
    system = [{"type": "message", "role": "system", "content": instructions}] if instructions else []
    entries: list[Entry] = []
    turn: list[JsonObject] = []
    for item in (*system, *items):
        if is_model_turn(item):
            turn.append(item)
            continue
        if turn:
            entries.append(model_turn(turn))
            turn = []
        entries.append(_input_entry(item))
    return [*entries, model_turn(turn)] if turn else entries


def model_turn(items: Sequence[JsonObject]) -> Entry:
    text = "".join(_item_text(item) for item in items if item.get("type", "message") == "message")
    text = (_THINK.sub("", text) if "<think" in text else text).strip()
    calls = [item for item in items if item.get("type") == "function_call"]
    others = [_bare(item) for item in items if not is_model_turn(item)]
    content = ["assistant", text, [[call.get("name"), _parse(call.get("arguments"))] for call in calls], others]
    return _entry(content, "assistant", list(items))


def prefix_digests(entries: Iterable[Entry]) -> list[bytes]:
    """For each entry the digest of the conversation up to it."""
    digests: list[bytes] = []
    for entry in entries:
        digests.append(extend_digest(digests[-1] if digests else b"", entry.key))
    return digests


def extend_digest(before: bytes, key: bytes) -> bytes:
    """The digest of a conversation extended by an entry."""
    return hashlib.blake2b(before + key, digest_size=16).digest()


def _input_entry(item: JsonObject) -> Entry:
    kind = item.get("type", "message")
    if kind == "message":
        role = "system" if item.get("role") in _SYSTEM_ROLES else str(item.get("role"))
        return _entry([role, _content(item.get("content"))], role, [item])
    if kind == "function_call_output":
        return _entry(["tool", _content(item.get("output"))], "tool", [item])
    return _entry([kind, _bare(item)], str(kind), [item])


def _entry(content: Any, role: str, items: list[JsonObject]) -> Entry:
    return Entry(_digest(content), role, items)


def _content(content: Any) -> Any:
    """Text as a string, whether in parts or not; anything else unchanged."""
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


def _parse(arguments: Any) -> Any:
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


def _digest(content: Any) -> bytes:
    try:
        data = orjson.dumps(content, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError):  # e.g. a lone surrogate, or integers beyond 64 bits
        data = repr(content).encode(errors="surrogatepass")
    return hashlib.blake2b(data, digest_size=16).digest()
