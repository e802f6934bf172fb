"""Inputs as models and clients really send them: empty, broken, odd or huge outputs, malformed bodies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from gymnast.checks.conformance.subject import assistant_message, function_call
from gymnast.types.responses import message_text
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject

MEGABYTE: Final = 1 << 20
UNICODE: Final = (
    "日本語 العربية 🙂🏳️‍🌈 e\u0301 \u202eright to left\u202c \u200bzero\u200bwidth \u2028line\u2029paragraph "
    "\ufeff \x00 \x1b[31m \U0010fffd 𝟏𝟐𝟑 ①② ½ Αnswer: В \\boxed{Ａ}"
)
"""Scripts, emoji sequences, combining and direction marks, invisible and control characters, homoglyphs."""


def broken_outputs() -> Iterator[tuple[str, list[Any]]]:
    """Named outputs without a usable answer."""
    yield "an empty output", []
    yield "a message without text", [assistant_message("")]
    yield "a message of whitespace", [assistant_message(" \n\t ")]
    yield "a message without parts", [{**assistant_message(""), "content": []}]
    yield (
        "a refusal",
        [{**assistant_message(""), "content": [{"type": "refusal", "refusal": "I cannot help with that."}]}],
    )
    yield "reasoning only", [{"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}]
    yield "a call to an undeclared tool", [function_call("no_such_tool", '{"x": 1}')]
    yield (
        "a call named like a route",
        [function_call("verify", "{}"), function_call("../verify", "{}"), function_call("", "{}")],
    )
    yield "a call with broken JSON arguments", [function_call("no_such_tool", '{"x": ')]
    yield (
        "a call with arguments that are not an object",
        [function_call("no_such_tool", "[1, 2]"), function_call("no_such_tool", "null")],
    )
    yield (
        "a tool output without a call",
        [{"type": "function_call_output", "call_id": "lost", "output": "x"}, assistant_message("done")],
    )
    yield "unicode", [assistant_message(UNICODE)]


def broken_calls(tools: Any) -> Iterator[tuple[str, list[Any]]]:
    """Calls to the row's own tools with invalid arguments."""
    for tool in tools or ():
        if isinstance(tool, dict) and isinstance(tool.get("name"), str):
            name = tool["name"]
            yield f"a call to {name} without arguments", [function_call(name, "")]
            yield f"a call to {name} with broken JSON", [function_call(name, '{"a": ')]
            yield f"a call to {name} with a list as arguments", [function_call(name, "[]")]
            yield f"a call to {name} with undeclared arguments", [function_call(name, '{"\u00e9\U0001f642": null}')]


def huge_texts() -> Iterator[tuple[str, str]]:
    """A megabyte each of what slow regular expressions choke on."""
    for name, piece in {
        "words": "word ",
        "one letter": "a",
        "blanks": " ",
        "line ends": "\n",
        "open braces": "{",
        "open boxes": "\\boxed{",
        "fences": "```\n",
        "digits": "9",
        "unicode": UNICODE,
        "answers": "Answer: ",
    }.items():
        yield f"1 MB of {name}", (piece * (MEGABYTE // len(piece.encode()) + 1))[:MEGABYTE]


def huge_answers(output: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """A good output with a megabyte before, after and inside its last answer."""
    messages = [n for n, item in enumerate(output) if item.get("role") == "assistant" and message_text(item)]
    if not messages:
        return
    position = messages[-1]
    text, filler = message_text(output[position]), "word " * (MEGABYTE // 5)
    stretched = re.sub(r"(\w)(\W*)$", lambda match: match[1] * MEGABYTE + match[2], text)
    for name, longer in {
        "1 MB before the answer": f"{filler}\n\n{text}",
        "1 MB after the answer": f"{text}\n\n{filler}",
        "an answer stretched to 1 MB": stretched,
    }.items():
        yield name, [*output[:position], assistant_message(longer), *output[position + 1 :]]


def broken_verify_bodies(base: JsonObject) -> Iterator[tuple[str, Any]]:
    """Bodies of POST /verify and /step that must be rejected."""
    response = base["response"]
    yield "nothing", None
    yield "a list", []
    yield "a string", "verify me"
    yield "an empty object", {}
    yield "a body without a response", {key: value for key, value in base.items() if key != "response"}
    yield "a response that is null", {**base, "response": None}
    yield "a response that is a string", {**base, "response": "fine"}
    yield "a response without output", {**base, "response": {k: v for k, v in response.items() if k != "output"}}
    yield "an output that is a string", {**base, "response": {**response, "output": "fine"}}
    yield "an output of strings", {**base, "response": {**response, "output": ["fine"]}}
    yield "a message without content", {**base, "response": {**response, "output": [{"type": "message"}]}}


def broken_rows(base: JsonObject) -> Iterator[tuple[str, Any]]:
    """Rows with one field missing or of another type: may be rejected or accepted, must not crash."""
    other: dict[str, Any] = {"null": None, "a string": UNICODE, "a number": -1, "a list": [[]], "an object": {}}
    fields = [key for key in base if key not in {PARAMS, "response"} and not key.startswith("_ng_")]
    for key in fields:
        yield f"a row without '{key}'", {name: value for name, value in base.items() if name != key}
        for kind, value in other.items():
            if type(value) is not type(base[key]):
                yield f"a row whose '{key}' is {kind}", {**base, key: value}


def wrong_arguments(tool: JsonObject) -> Iterator[tuple[str, Any]]:
    """Arguments that violate a tool's schema, or barely satisfy it."""
    schema = tool.get("parameters")
    properties = (schema.get("properties") if isinstance(schema, dict) else None) or {}
    yield "no arguments", {}
    yield "a list", []
    values: list[Any] = [None, -1, 2**63 - 1, 1e308, "", UNICODE, "x" * MEGABYTE, [], {}]
    for value in values:
        shown = repr(value) if len(repr(value)) < 40 else f"a string of {len(repr(value))} characters"
        yield f"{shown} for every argument", dict.fromkeys(properties, value)
