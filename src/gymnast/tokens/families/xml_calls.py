"""Nemotron 3 (and newer Qwen coders): `<function=name>` with `<parameter=key>` blocks between <tool_call> tags.

Strings are written bare, lists and objects as JSON, the rest as Python literals; string parameters are never parsed.
"""

from __future__ import annotations

import re
from typing import Any, Final

from gymnast.tokens.families.family import ParseContext, ParseResult, TaggedText, to_text
from gymnast.tokens.families.glm import parse_value
from gymnast.tokens.families.hermes import dump_json, parse_tagged_calls
from gymnast.tokens.rendering import ParsedCall

_FUNCTION: Final = re.compile(r"\s*<function=(?P<name>[^>\s]+)>(?P<body>.*)</function>\s*", re.DOTALL)
_PARAMETER: Final = re.compile(r"\s*<parameter=(?P<key>[^>]+)>\n?(?P<value>.*?)\n?</parameter>\s*", re.DOTALL)
_PYTHON_LITERALS: Final = {"True": True, "False": False, "None": None}


def parse_xml_calls(pieces: TaggedText, context: ParseContext) -> ParseResult:
    """Parse thought, content and calls."""
    return parse_tagged_calls(pieces, _call, context)


def _call(body: TaggedText, context: ParseContext) -> list[ParsedCall] | str:
    function = _FUNCTION.fullmatch(to_text(body))
    if function is None:
        return "a call without a function"
    arguments: dict[str, Any] = {}
    text, position = function["body"], 0
    while position < len(text) and text[position:].strip():
        parameter = _PARAMETER.match(text, position)
        if parameter is None:
            return f"the arguments of '{function['name']}' are not parameters"
        key, value = parameter["key"], parameter["value"]
        if context.is_string(function["name"], key):
            arguments[key] = value
        else:
            arguments[key] = _PYTHON_LITERALS[value] if value in _PYTHON_LITERALS else parse_value(value)
        position = parameter.end()
    return [ParsedCall(function["name"], dump_json(arguments))]
