"""What a reply of an endpoint proves: pure functions from replies to observations.

A probe passes only if its reply shows what the check claims: a call that arrives as a call, text where text was asked
for, log probabilities that are numbers.
"""

from __future__ import annotations

import json
import math
import re
import struct
import zlib
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

from gymnast.types.failure import bounded
from gymnast.types.responses import message_text

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

_CALL_IN_TEXT: Final = re.compile(
    r"(?i)<\|?tool_?calls?|<function[=_ ]|\[TOOL_CALLS\]|<\|python_tag\|>|functools\[|<｜tool|tool▁call|<\|channel\|>"
    r"|<\|tool|\"name\"\s*:\s*\"look_up_city\"|look_up_city\s*\(|<invoke|```(?:tool_code|json)\s*\{[^`]*look_up_city"
)
_CONTROL_TOKEN: Final = re.compile(r"<\|[a-z_]{2,30}\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>|<｜[^｜]{2,30}｜>")
_THINK: Final = re.compile(r"</?think(?:ing)?>|<\|channel\|>analysis")
_SMALLEST_LOGPROB: Final = -9000.0


def text_of(response: JsonObject) -> str:
    items = [item for item in response.get("output") or () if item.get("type", "message") == "message"]
    return " ".join("".join(message_text(item) for item in items).split())


def calls_of(response: JsonObject) -> list[JsonObject]:
    return [item for item in response.get("output") or () if item.get("type") == "function_call"]


def is_cut(response: JsonObject) -> bool:
    """Whether the output limit ended the response."""
    return (response.get("incomplete_details") or {}).get("reason") == "max_output_tokens"


def has_output_tokens(response: JsonObject) -> bool:
    """Whether anything was generated; False if the endpoint says that nothing was."""
    usage = response.get("usage") or {}
    return usage.get("output_tokens", 1) != 0 and "message" not in (response.get("incomplete_details") or {})


def has_reasoning(response: JsonObject) -> bool:
    """Whether reasoning arrived as such."""
    return any(item.get("type") == "reasoning" for item in response.get("output") or ())


def gist(response: JsonObject) -> str:
    """What a response says, shortly."""
    text = text_of(response)
    return f"answered {bounded(text, 60)!r}" if text else f"answered nothing ({response.get('status')})"


def find_control_token(response: JsonObject) -> str | None:
    """A control token of the chat template that leaked into the text, or None."""
    control = _CONTROL_TOKEN.search(text_of(response))
    return None if control is None else control[0]


def find_call_problem(response: JsonObject, tool: JsonObject) -> str | None:
    """Why a response is not a call of the tool with valid arguments, or None if it is one."""
    calls = calls_of(response)
    if not calls:
        return None if not has_call_in_text(response) else "the call arrives as text"
    name, arguments = calls[0].get("name"), calls[0].get("arguments")
    if name != tool["name"]:
        return f"it calls '{name}', which was not offered"
    try:
        parsed = json.loads(arguments or "")
    except ValueError:
        return f"the arguments are not JSON: {bounded(str(arguments), 80)}"
    missing = [key for key in tool["parameters"]["required"] if not isinstance(parsed, dict) or key not in parsed]
    return f"the arguments lack '{missing[0]}': {bounded(str(arguments), 80)}" if missing else None


def has_call_in_text(response: JsonObject) -> bool:
    """Whether the text contains a call that was not parsed."""
    return _CALL_IN_TEXT.search(text_of(response)) is not None


def has_reasoning_in_text(response: JsonObject) -> bool:
    """Whether reasoning is mixed into the answer."""
    return _THINK.search(text_of(response)) is not None


def find_schema_problem(response: JsonObject, schema: JsonObject) -> str | None:
    """Why the text is not an object of the schema, or None. Only for flat schemas with required properties."""
    text = text_of(response)
    try:
        value: Any = json.loads(text)
    except ValueError:
        return f"the answer is not JSON: {bounded(text, 80)!r}"
    types: dict[str, type] = {"string": str, "integer": int}
    for name, part in schema["properties"].items():
        if not isinstance(value, dict) or not isinstance(value.get(name), types[part["type"]]):
            return f"'{name}' is missing or has another type: {bounded(text, 80)}"
    extra = sorted(set(value) - set(schema["properties"]))
    return f"'{extra[0]}' is not in the schema" if extra else None


def find_logprob_problem(completion: JsonObject) -> tuple[int, str | None]:
    """How many tokens of a chat completion have log probabilities, and what is wrong with them."""
    choices = completion.get("choices") or [{}]
    choice = choices[0] if isinstance(choices[0], dict) else {}
    entries = (choice.get("logprobs") or {}).get("content") or []
    values: list[Any] = [entry.get("logprob") if isinstance(entry, dict) else None for entry in entries]
    if not entries:
        return 0, "the reply has none"
    if not all(isinstance(value, int | float) and math.isfinite(value) and value <= 1e-6 for value in values):
        return len(entries), "they are not log probabilities: " + bounded(str(values), 80)
    if all(value <= _SMALLEST_LOGPROB for value in values):
        return len(entries), f"they are placeholders: {values[0]}"
    return len(entries), None


def make_image_url() -> str:
    """A red square, as a data URL."""
    size = 32
    rows = b"".join(b"\0" + b"\xff\0\0" * size for _ in range(size))
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def names_differ(requested: str, answered: str) -> bool:
    """Whether a reply names another model than the request; prefixes, versions and folders do not count."""
    first, second = (
        re.sub(r"[^a-z0-9]", "", name.lower().rstrip("/").rsplit("/", 1)[-1]) for name in (requested, answered)
    )
    return bool(first and second) and first not in second and second not in first
