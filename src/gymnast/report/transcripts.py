"""Records as something to read: who said what, which tools were called with what, and what came back.

Anything a model or an environment may have written is taken as it comes, whatever its shape; nothing is interpreted.
Long texts are cut in their middle, and say so.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.types.task import AGENT_REF, PARAMS, ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.types.json import JsonObject

_TOKENS: Final = frozenset({"prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts"})
"""Training fields: numbers by the thousand that nobody reads."""
_NOT_FACTS: Final = frozenset({PARAMS, "response", AGENT_REF, TASK_INDEX, ROLLOUT_INDEX, "failure", "reward"})
_FACT_LIMIT: Final = 400
_LEAST_TEXT: Final = 500
_ARGUMENTS: Final = ("arguments", "input", "action", "code", "queries")
_OUTPUTS: Final = ("output", "outputs", "results", "result")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a record is kept."""

    text: int = 24_000
    """Characters of one text."""
    items: int = 400
    """Items of one trajectory."""
    whole: int = 400_000
    """Characters of one trajectory: where they are more, every text is cut shorter."""


def decoded(line: bytes) -> JsonObject | None:
    """A record, also where a text in it is half a surrogate; None if it is none."""
    for decode in (orjson.loads, json.loads):
        try:
            found = decode(line)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None


def prompt_items(record: JsonObject, limits: Limits) -> list[JsonObject]:
    """What the policy was given: instructions and input."""
    params = _object(record.get(PARAMS))
    items = []
    if params.get("instructions"):
        items.append({"kind": "message", "role": "instructions", **cut_text(as_text(params["instructions"]), limits)})
    given = params.get("input")
    listed = given if isinstance(given, list) else [{"role": "user", "content": given}] if given is not None else []
    return [*items, *conversation(listed, limits)]


def reply_items(record: JsonObject, limits: Limits) -> list[JsonObject]:
    """What happened then."""
    output = _object(record.get("response")).get("output")
    return conversation(output, limits) if isinstance(output, list) else []


def conversation(items: Sequence[Any], limits: Limits) -> list[JsonObject]:
    """Items in reading order, each tool call with what it returned."""
    found: list[JsonObject] = []
    calls: dict[str, JsonObject] = {}
    for item in items:
        one = _item(_object(item) or {"type": "text", "content": item}, limits)
        call_id = one.pop("call_id", None)
        if one["kind"] == "result" and call_id in calls:
            calls.pop(str(call_id))["result"] = {name: one[name] for name in ("text", "cut", "rest") if name in one}
            continue
        if one["kind"] == "call" and isinstance(call_id, str):
            calls[call_id] = one
        found.append(one)
    kept = _shortened(found, limits.items)
    total = sum(_length(one) + _length(one.get("result", {})) for one in kept)
    if total > limits.whole and limits.text > _LEAST_TEXT:
        shorter = max(_LEAST_TEXT, limits.text * limits.whole // (2 * total))
        return conversation(items, replace(limits, text=shorter))
    return kept


def _item(item: JsonObject, limits: Limits) -> JsonObject:
    kind, call_id = str(item.get("type", "message")), item.get("call_id")
    if kind == "message":
        role = str(item.get("role", "unknown"))
        return {"kind": "message", "role": role, **cut_text(content_text(item.get("content")), limits)}
    if kind == "reasoning":
        texts = [content_text(item.get(name)) for name in ("summary", "content")]
        hidden = ["(encrypted)"] if item.get("encrypted_content") and not any(texts) else []
        return {"kind": "reasoning", **cut_text("\n\n".join(text for text in [*texts, *hidden] if text), limits)}
    if kind.endswith("_output"):
        return {"kind": "result", "call_id": call_id, **cut_text(content_text(item.get("output")), limits)}
    if kind.endswith("_call"):
        return _call(item, kind, limits)
    return {"kind": "other", "name": kind, **cut_text(as_text(_readable(item)), limits)}


def _call(item: JsonObject, kind: str, limits: Limits) -> JsonObject:
    """A call of the environment's tools, or of a hosted one, which carries its own result."""
    given = next((item[name] for name in _ARGUMENTS if item.get(name) is not None), None)
    name = str(item.get("name") or kind.removesuffix("_call"))
    found: JsonObject = {"kind": "call", "name": name, "call_id": item.get("call_id")}
    found |= cut_text(as_text(given if given is not None else _readable(item)), limits)
    result = next((item[name] for name in _OUTPUTS if item.get(name) is not None), None)
    if result is not None:
        found["result"] = cut_text(content_text(result), limits)
    return found


def content_text(content: Any) -> str:
    """The text of a message's content; what is no text is named."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return as_text(content)
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return as_text(part)
    for name in ("text", "refusal"):
        if isinstance(part.get(name), str):
            return str(part[name])
    kind = str(part.get("type", "part"))
    if kind in {"input_image", "input_file", "input_video"}:
        size = sum(len(value) for value in part.values() if isinstance(value, str))
        return f"[{kind.removeprefix('input_')}, {size:,} characters, not shown]"
    return as_text(part)


def as_text(value: Any) -> str:
    """Any value as a text."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "[a value that is nested too deeply to be shown]"


def cut_text(text: str, limits: Limits) -> JsonObject:
    """A text, or its beginning, how many characters were cut, and its end."""
    if len(text) <= limits.text:
        return {"text": text}
    head = limits.text * 2 // 3
    tail = limits.text - head
    return {"text": text[:head], "cut": len(text) - limits.text, "rest": text[-tail:]}


def facts(record: JsonObject) -> JsonObject:
    """The environment's own fields, and usage: short ones as they are."""
    found = {name: _fact(value) for name, value in record.items() if name not in _NOT_FACTS}
    usage = _object(_object(record.get("response")).get("usage"))
    found |= {name: _fact(value) for name, value in usage.items() if isinstance(value, int | float)}
    return {name: value for name, value in found.items() if value is not None}


def _fact(value: Any) -> Any:
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = as_text(value)
    return text if len(text) <= _FACT_LIMIT else f"{text[:_FACT_LIMIT]}… ({len(text) - _FACT_LIMIT:,} more characters)"


def _shortened(items: list[JsonObject], limit: int) -> list[JsonObject]:
    if len(items) <= limit:
        return items
    half = limit // 2
    return [*items[:half], {"kind": "gap", "items": len(items) - 2 * half}, *items[-half:]]


def _length(item: JsonObject) -> int:
    return len(item.get("text", "")) + len(item.get("rest", ""))


def _readable(item: JsonObject) -> JsonObject:
    return {name: value for name, value in item.items() if name not in _TOKENS}


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
