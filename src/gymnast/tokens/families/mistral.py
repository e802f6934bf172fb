"""Mistral Nemo: [TOOL_CALLS] and a JSON list of calls, each with an id of nine alphanumeric characters."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Final

from gymnast.tokens.families.family import ParseContext, ParseResult, TaggedText, find_tag, to_text
from gymnast.tokens.families.hermes import join_content, parse_calls
from gymnast.tokens.rendering import ParsedCall, ParsedTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.types.json import JsonObject

CALLS: Final = "[TOOL_CALLS]"
_ID: Final = re.compile(r"[A-Za-z0-9]{9}")


def parse_mistral(pieces: TaggedText, context: ParseContext) -> ParseResult:  # noqa: ARG001 - all parsers have one
    """Parse content and calls."""
    start = find_tag(pieces, CALLS)
    if start is None:
        return ParseResult(ParsedTurn(to_text(pieces)))
    calls = _calls(to_text(pieces[start + 1 :]))
    if isinstance(calls, str):
        return ParseResult(ParsedTurn(to_text(pieces), malformed=(calls,)))
    content = join_content([to_text(pieces[:start])], around_calls=True)
    return ParseResult(ParsedTurn(content, tool_calls=tuple(calls)))


def _calls(text: str) -> list[ParsedCall] | str:
    try:
        values = json.loads(text)
    except ValueError as error:
        return f"calls that are not JSON: {error}"
    if not isinstance(values, list) or not values:
        return "calls that are not a list"
    return parse_calls(values)


def shorten_call_ids(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Replace ids that the template would reject by nine characters derived from the id."""
    return [_shorten_ids(message) for message in messages]


def _shorten_ids(message: JsonObject) -> JsonObject:
    if message.get("tool_calls"):
        calls = [{**call, "id": short_id(str(call.get("id", "")))} for call in message["tool_calls"]]
        return {**message, "tool_calls": calls}
    if "tool_call_id" in message:
        return {**message, "tool_call_id": short_id(str(message["tool_call_id"]))}
    return message


def short_id(call_id: str) -> str:
    """An id of nine alphanumeric characters."""
    return call_id if _ID.fullmatch(call_id) else hashlib.sha256(call_id.encode()).hexdigest()[:9]
