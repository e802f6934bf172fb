"""Records as readable transcripts: messages, reasoning, and tool calls with their results.

Accepts anything that a model or an environment may have written, whatever its form. Long texts are cut in the middle
and marked as cut.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.report.token_view import TRAINING_FIELDS
from gymnast.types.task import AGENT_REF, PARAMS, ROLLOUT_INDEX, TASK_INDEX
from gymnast.types.tokens import LEDGER
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.types.json import JsonObject

_NOT_FACTS: Final = frozenset(
    {PARAMS, "response", AGENT_REF, TASK_INDEX, ROLLOUT_INDEX, "failure", "reward", LEDGER, MODEL_USAGE, CALL_CAPTURE}
)
_IMAGE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_IMAGE_PARTS: Final = frozenset({"input_image", "image_url", "image", "computer_screenshot"})
_FILE_PARTS: Final = frozenset({"input_file", "input_video", "input_audio"})
_MIN_TEXT: Final = 500
_ARGUMENTS: Final = ("arguments", "input", "action", "code", "queries")
_CONTENT: Final = ("text", "cut", "rest", "images")
_OUTPUTS: Final = ("output", "outputs", "results", "result")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a record to include."""

    text: int = 24_000
    """Characters per text."""
    items: int = 400
    """Items per trajectory."""
    total: int = 400_000
    """Characters per trajectory; beyond it, every text is cut shorter."""
    fact: int = 4_000
    """Characters per field of the record."""
    image: int = 400_000
    """Characters per embedded image; larger ones are only named."""


def decode_record(line: bytes) -> JsonObject | None:
    """Decode a record, even with lone surrogates; None if it is not a JSON object."""
    for decode in (orjson.loads, json.loads):
        try:
            record = decode(line)
        except (ValueError, RecursionError):
            continue
        return record if isinstance(record, dict) else None
    return None


def prompt_items(record: JsonObject, limits: Limits) -> list[JsonObject]:
    """The policy's prompt: instructions and input."""
    params = _object(record.get(PARAMS))
    items = []
    if params.get("instructions"):
        items.append({"kind": "message", "role": "instructions", **truncate(as_text(params["instructions"]), limits)})
    prompt = params.get("input")
    if not isinstance(prompt, list):
        prompt = [{"role": "user", "content": prompt}] if prompt is not None else []
    return [*items, *conversation_items(prompt, limits)]


def reply_items(record: JsonObject, limits: Limits) -> list[JsonObject]:
    """The items after the prompt."""
    output = _object(record.get("response")).get("output")
    return conversation_items(output, limits) if isinstance(output, list) else []


def conversation_items(items: Sequence[Any], limits: Limits) -> list[JsonObject]:
    """Items in reading order, each tool call with its result."""
    entries: list[JsonObject] = []
    calls: dict[str, JsonObject] = {}
    for item in items:
        entry = _item(_object(item) or {"type": "text", "content": item}, limits)
        call_id = entry.pop("call_id", None)
        if entry["kind"] == "result" and call_id in calls:
            calls.pop(str(call_id))["result"] = {name: entry[name] for name in _CONTENT if name in entry}
            continue
        if entry["kind"] == "call" and isinstance(call_id, str):
            calls[call_id] = entry
        entries.append(entry)
    entries = _cut_middle(entries, limits.items)
    total = sum(_length(entry) + _length(entry.get("result", {})) for entry in entries)
    if total > limits.total and limits.text > _MIN_TEXT:
        shorter = max(_MIN_TEXT, limits.text * limits.total // (2 * total))
        return conversation_items(items, replace(limits, text=shorter))
    return entries


def _item(item: JsonObject, limits: Limits) -> JsonObject:
    kind, call_id = str(item.get("type", "message")), item.get("call_id")
    if kind == "message":
        role = str(item.get("role", "unknown"))
        return {"kind": "message", "role": role, **_content(item.get("content"), limits)}
    if kind == "reasoning":
        texts = [content_text(item.get(name)) for name in ("summary", "content")]
        hidden = ["(encrypted)"] if item.get("encrypted_content") and not any(texts) else []
        return {"kind": "reasoning", **truncate("\n\n".join(text for text in [*texts, *hidden] if text), limits)}
    if kind.endswith("_output"):
        return {"kind": "result", "call_id": call_id, **_content(item.get("output"), limits)}
    if kind.endswith("_call"):
        return _call(item, kind, limits)
    return {"kind": "other", "name": kind, **truncate(as_text(_readable(item)), limits)}


def _call(item: JsonObject, kind: str, limits: Limits) -> JsonObject:
    """A call of an environment's tool, or of a hosted tool, which includes its result."""
    arguments = next((item[name] for name in _ARGUMENTS if item.get(name) is not None), None)
    name = str(item.get("name") or kind.removesuffix("_call"))
    call: JsonObject = {"kind": "call", "name": name, "call_id": item.get("call_id")}
    call |= truncate(as_text(arguments if arguments is not None else _readable(item)), limits)
    result = next((item[name] for name in _OUTPUTS if item.get(name) is not None), None)
    if result is not None:
        call["result"] = _content(result, limits)
    return call


def tool_items(record: JsonObject, limits: Limits) -> list[JsonObject]:
    """The tools that the policy was offered: name, description, parameters."""
    tools = _object(record.get(PARAMS)).get("tools")
    items = []
    for tool in tools if isinstance(tools, list) else ():
        definition = _object(_object(tool).get("function")) or _object(tool)
        name = as_text(definition.get("name") or definition.get("type") or "tool")
        parts = [content_text(definition.get("description")), as_text(definition.get("parameters") or {})]
        items.append({"name": name, **truncate("\n".join(part for part in parts if part), limits)})
    return items


def _content(content: Any, limits: Limits) -> JsonObject:
    """A message's content: its text, and its images if they are small enough to include."""
    urls = [url for part in content if (url := image_url(part))] if isinstance(content, list) else []
    images = [url for url in urls if len(url) <= limits.image and _IMAGE.fullmatch(url)]
    text = truncate(content_text(content, frozenset(images)), limits)
    return {**text, "images": images} if images else text


def content_text(content: Any, shown: frozenset[str] = frozenset()) -> str:
    """The text of a message's content. Images and files are only named, except the images `shown` elsewhere."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return as_text(content)
    return "\n".join(_part_text(part) for part in content if not (shown and image_url(part) in shown))


def image_url(part: Any) -> str | None:
    """The URL of an image part, in the form of the Responses API or of Chat Completions."""
    if not isinstance(part, dict) or str(part.get("type")) not in _IMAGE_PARTS:
        return None
    url = part.get("image_url", part.get("url"))
    url = url.get("url") if isinstance(url, dict) else url
    return url if isinstance(url, str) else None


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return as_text(part)
    for name in ("text", "refusal"):
        if isinstance(part.get(name), str):
            return str(part[name])
    kind = str(part.get("type", "part"))
    if kind in _IMAGE_PARTS or kind in _FILE_PARTS:
        size = sum(len(value) for value in part.values() if isinstance(value, str))
        name = "image" if kind in _IMAGE_PARTS else kind.removeprefix("input_")
        return f"[{name}, {size:,} characters, not in this file]"
    return as_text(part)


def as_text(value: Any) -> str:
    """Any value as a text."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "[nested too deeply to show]"


def truncate(text: str, limits: Limits) -> JsonObject:
    """A text, or its start, the number of characters cut, and its end."""
    if len(text) <= limits.text:
        return {"text": text}
    head = limits.text * 2 // 3
    tail = limits.text - head
    return {"text": text[:head], "cut": len(text) - limits.text, "rest": text[-tail:]}


def extract_facts(record: JsonObject, limits: Limits | None = None) -> JsonObject:
    """The environment's fields and usage, long ones cut."""
    limits = limits or Limits()
    facts = {name: _fact(value, limits) for name, value in record.items() if name not in _NOT_FACTS}
    usage = _object(_object(record.get("response")).get("usage"))
    facts |= {name: _fact(value, limits) for name, value in usage.items() if isinstance(value, int | float)}
    model_calls = _object(record.get(MODEL_USAGE)) or _object(_object(record.get(CALL_CAPTURE)).get("metrics"))
    facts |= {f"model calls: {name}": _fact(value, limits) for name, value in model_calls.items() if name not in usage}
    return {name: value for name, value in facts.items() if value is not None}


def explain_incomplete(record: JsonObject) -> str | None:
    """Why the response did not complete, if it says so: for example that it reached max_output_tokens."""
    response = _object(record.get("response"))
    reason = _object(response.get("incomplete_details")).get("reason")
    error = _object(response.get("error")).get("message")
    status = response.get("status")
    if status in (None, "completed") and not reason and not error:
        return None
    return as_text(status or "incomplete") + "".join(f": {as_text(part)}" for part in (reason, error) if part)


def _fact(value: Any, limits: Limits) -> Any:
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = as_text(value)
    return text if len(text) <= limits.fact else f"{text[: limits.fact]}… ({len(text) - limits.fact:,} more characters)"


def _cut_middle(items: list[JsonObject], limit: int) -> list[JsonObject]:
    if len(items) <= limit:
        return items
    half = limit // 2
    return [*items[:half], {"kind": "gap", "items": len(items) - 2 * half}, *items[-half:]]


def _length(item: JsonObject) -> int:
    return len(item.get("text", "")) + len(item.get("rest", ""))


def _readable(item: JsonObject) -> JsonObject:
    return {name: value for name, value in item.items() if name not in TRAINING_FIELDS}


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
