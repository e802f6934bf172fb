"""What models and clients really send: outputs that are empty, broken, strange or huge, bodies that are no bodies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from gymnast.kit.conformance.subject import called, said
from gymnast.types.responses import message_text
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

MEGABYTE: Final = 1 << 20
UNICODE: Final = (
    "日本語 العربية 🙂🏳️‍🌈 e\u0301 \u202eright to left\u202c \u200bzero\u200bwidth \u2028line\u2029paragraph "
    "\ufeff \x00 \x1b[31m \U0010fffd 𝟏𝟐𝟑 ①② ½ Αnswer: В \\boxed{Ａ}"
)
"""Scripts, emoji sequences, combining marks, direction marks, invisible characters, control characters, look-alikes."""


def broken_outputs() -> Iterator[tuple[str, list[Any]]]:
    """Outputs without a usable answer, by name."""
    yield "an empty output", []
    yield "a message without text", [said("")]
    yield "a message of blanks", [said(" \n\t ")]
    yield "a message without parts", [{**said(""), "content": []}]
    yield "a refusal", [{**said(""), "content": [{"type": "refusal", "refusal": "I cannot help with that."}]}]
    yield "reasoning alone", [{"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}]
    yield "a call of a tool that is not declared", [called("no_such_tool", '{"x": 1}')]
    yield "a call named like a route", [called("verify", "{}"), called("../verify", "{}"), called("", "{}")]
    yield "a call whose arguments are broken JSON", [called("no_such_tool", '{"x": ')]
    yield "a call whose arguments are no object", [called("no_such_tool", "[1, 2]"), called("no_such_tool", "null")]
    yield (
        "a tool output without a call",
        [{"type": "function_call_output", "call_id": "lost", "output": "x"}, said("done")],
    )
    yield "unicode", [said(UNICODE)]


def broken_calls(tools: Any) -> Iterator[tuple[str, list[Any]]]:
    """Calls of the row's own tools with arguments that do not fit."""
    for tool in tools or ():
        if isinstance(tool, dict) and isinstance(tool.get("name"), str):
            name = tool["name"]
            yield f"a call of {name} without arguments", [called(name, "")]
            yield f"a call of {name} with broken JSON", [called(name, '{"a": ')]
            yield f"a call of {name} with a list as arguments", [called(name, "[]")]
            yield f"a call of {name} with arguments nobody declared", [called(name, '{"\u00e9\U0001f642": null}')]


def huge_texts() -> Iterator[tuple[str, str]]:
    """A megabyte of what slow patterns are slow on."""
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
    """A good output with a megabyte before, after, and inside its last answer."""
    spoken = [n for n, item in enumerate(output) if item.get("role") == "assistant" and message_text(item)]
    if not spoken:
        return
    position = spoken[-1]
    text, filler = message_text(output[position]), "word " * (MEGABYTE // 5)
    stretched = re.sub(r"(\w)(\W*)$", lambda found: found[1] * MEGABYTE + found[2], text)
    for name, longer in {
        "1 MB before the answer": f"{filler}\n\n{text}",
        "1 MB after the answer": f"{text}\n\n{filler}",
        "an answer stretched to 1 MB": stretched,
    }.items():
        yield name, [*output[:position], said(longer), *output[position + 1 :]]


def broken_verify_bodies(base: JsonObject) -> Iterator[tuple[str, Any]]:
    """Bodies of POST /verify and /step that must be refused."""
    response = base["response"]
    yield "nothing", None
    yield "a list", []
    yield "a text", "verify me"
    yield "an empty object", {}
    yield "a body without a response", {key: value for key, value in base.items() if key != "response"}
    yield "a response that is null", {**base, "response": None}
    yield "a response that is a text", {**base, "response": "fine"}
    yield "a response without output", {**base, "response": {k: v for k, v in response.items() if k != "output"}}
    yield "an output that is a text", {**base, "response": {**response, "output": "fine"}}
    yield "an output of texts", {**base, "response": {**response, "output": ["fine"]}}
    yield "a message without content", {**base, "response": {**response, "output": [{"type": "message"}]}}


def broken_rows(base: JsonObject) -> Iterator[tuple[str, Any]]:
    """Rows with one field of another type, or without it: refused or accepted, but never a crash."""
    other: dict[str, Any] = {"null": None, "a text": UNICODE, "a number": -1, "a list": [[]], "an object": {}}
    own = [key for key in base if key not in {PARAMS, "response"} and not key.startswith("_ng_")]
    for key in own:
        yield f"a row without '{key}'", {name: value for name, value in base.items() if name != key}
        for kind, value in other.items():
            if type(value) is not type(base[key]):
                yield f"a row whose '{key}' is {kind}", {**base, key: value}


def wrong_arguments(tool: JsonObject) -> Iterator[tuple[str, Any]]:
    """Arguments for a tool that do not fit its schema, or only just."""
    schema = tool.get("parameters")
    properties = (schema.get("properties") if isinstance(schema, dict) else None) or {}
    yield "no arguments", {}
    yield "no object", []
    values: list[Any] = [None, -1, 2**63 - 1, 1e308, "", UNICODE, "x" * MEGABYTE, [], {}]
    for value in values:
        shown = repr(value) if len(repr(value)) < 40 else f"a text of {len(repr(value))} characters"
        yield f"{shown} everywhere", dict.fromkeys(properties, value)
