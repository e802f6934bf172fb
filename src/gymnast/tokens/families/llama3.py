"""Llama 3.x: the whole turn is one JSON call, `{"name": …, "parameters": {…}}`, after an optional <|python_tag|>.

Its templates write one call a turn, so a turn of several, or of words and a call, is words.
"""

from __future__ import annotations

import json
from typing import Final

from gymnast.tokens.families.family import Context, Parsed, Script, Tag, written
from gymnast.tokens.families.hermes import call_of
from gymnast.tokens.rendering import Said

PYTHON_TAG: Final = "<|python_tag|>"


def parse_llama3(script: Script, context: Context) -> Parsed:  # noqa: ARG001 - all parsers have one
    """A call or words."""
    tagged = bool(script) and script[0] == Tag(PYTHON_TAG)
    text = written(script[1:] if tagged else script)
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or "name" not in value or not {"parameters", "arguments"} & value.keys():
        return Parsed(Said(written(script), malformed=("a call that is not JSON",) if tagged else ()))
    call = call_of(value, "parameters" if "parameters" in value else "arguments")
    if isinstance(call, str):
        return Parsed(Said(written(script), malformed=(call,)))
    return Parsed(Said("", tool_calls=(call,)))
