"""Mistral Nemo: [TOOL_CALLS] and a JSON list of calls, each with an id of nine letters and digits."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Final

from gymnast.tokens.families.family import Context, Parsed, Script, index_of, written
from gymnast.tokens.families.hermes import call_of, joined_words
from gymnast.tokens.rendering import Said, SaidCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.types.json import JsonObject

CALLS: Final = "[TOOL_CALLS]"
_ID: Final = re.compile(r"[A-Za-z0-9]{9}")


def parse_mistral(script: Script, context: Context) -> Parsed:  # noqa: ARG001 - all parsers have one
    """Words or calls."""
    start = index_of(script, CALLS)
    if start is None:
        return Parsed(Said(written(script)))
    calls = _calls(written(script[start + 1 :]))
    if isinstance(calls, str):
        return Parsed(Said(written(script), malformed=(calls,)))
    words = joined_words([written(script[:start])], around_calls=True)
    return Parsed(Said(words, tool_calls=tuple(calls)))


def _calls(text: str) -> list[SaidCall] | str:
    try:
        listed = json.loads(text)
    except ValueError as error:
        return f"calls that are not JSON: {error}"
    if not isinstance(listed, list) or not listed:
        return "calls that are not a list"
    calls = [call_of(entry) for entry in listed]
    wrong = next((call for call in calls if isinstance(call, str)), None)
    return wrong if wrong is not None else [call for call in calls if isinstance(call, SaidCall)]


def with_short_ids(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Ids as the template demands them: others are replaced by nine characters that are always the same for one id."""
    return [_with_short_ids(message) for message in messages]


def _with_short_ids(message: JsonObject) -> JsonObject:
    if message.get("tool_calls"):
        calls = [{**call, "id": short_id(str(call.get("id", "")))} for call in message["tool_calls"]]
        return {**message, "tool_calls": calls}
    if "tool_call_id" in message:
        return {**message, "tool_call_id": short_id(str(message["tool_call_id"]))}
    return message


def short_id(given: str) -> str:
    """Nine letters and digits."""
    return given if _ID.fullmatch(given) else hashlib.sha256(given.encode()).hexdigest()[:9]
