"""Nemotron 3 (and the newer Qwen coders): `<function=name>` with `<parameter=key>` blocks between <tool_call> tags.

Texts are written bare, lists and objects as JSON, the rest as Python shows it; declared texts are never read as more.
"""

from __future__ import annotations

import re
from typing import Any, Final

from gymnast.tokens.families.family import Context, Parsed, Script, written
from gymnast.tokens.families.glm import value_of
from gymnast.tokens.families.hermes import as_json, parse_tagged_calls
from gymnast.tokens.rendering import SaidCall

_FUNCTION: Final = re.compile(r"\s*<function=(?P<name>[^>\s]+)>(?P<body>.*)</function>\s*", re.DOTALL)
_PARAMETER: Final = re.compile(r"\s*<parameter=(?P<key>[^>]+)>\n?(?P<value>.*?)\n?</parameter>\s*", re.DOTALL)
_SHOWN: Final = {"True": True, "False": False, "None": None}


def parse_xml_calls(script: Script, context: Context) -> Parsed:
    """Thought, words, calls."""
    return parse_tagged_calls(script, _call, context)


def _call(body: Script, context: Context) -> list[SaidCall] | str:
    function = _FUNCTION.fullmatch(written(body))
    if function is None:
        return "a call without a function"
    arguments: dict[str, Any] = {}
    inside, at = function["body"], 0
    while at < len(inside) and inside[at:].strip():
        parameter = _PARAMETER.match(inside, at)
        if parameter is None:
            return f"the arguments of '{function['name']}' are not parameters"
        key, value = parameter["key"], parameter["value"]
        if (function["name"], key) in context.texts:
            arguments[key] = value
        else:
            arguments[key] = _SHOWN[value] if value in _SHOWN else value_of(value)
        at = parameter.end()
    return [SaidCall(function["name"], as_json(arguments))]
