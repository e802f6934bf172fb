"""Llama 3.x: the whole turn is one JSON call, `{"name": …, "parameters": {…}}`, after an optional <|python_tag|>.

Its templates support one call per turn, so several calls, or a call and text, are content.
"""

from __future__ import annotations

import json
from typing import Final

from gymnast.tokens.families.family import ParseContext, ParseResult, Tag, TaggedText, to_text
from gymnast.tokens.families.hermes import parse_call
from gymnast.tokens.rendering import ParsedTurn

PYTHON_TAG: Final = "<|python_tag|>"


def parse_llama3(pieces: TaggedText, context: ParseContext) -> ParseResult:  # noqa: ARG001 - all parsers have one
    """Parse a call or content."""
    tagged = bool(pieces) and pieces[0] == Tag(PYTHON_TAG)
    text = to_text(pieces[1:] if tagged else pieces)
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or "name" not in value or not {"parameters", "arguments"} & value.keys():
        return ParseResult(ParsedTurn(to_text(pieces), malformed=("a call that is not JSON",) if tagged else ()))
    call = parse_call(value, "parameters" if "parameters" in value else "arguments")
    if isinstance(call, str):
        return ParseResult(ParsedTurn(to_text(pieces), malformed=(call,)))
    return ParseResult(ParsedTurn("", tool_calls=(call,)))
