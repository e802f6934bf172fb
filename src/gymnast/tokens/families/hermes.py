"""Qwen 2.5 and 3, SmolLM2 and the embedded model: JSON calls between <tool_call> tags.

A call is `{"name": …, "arguments": {…}}`, or a list of such objects as SmolLM2 writes them. Anything else between the
tags, and an unclosed tag, is malformed and stays in the content.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gymnast.tokens.families.family import ParseContext, ParseResult, Tag, TaggedText, find_tag, to_text
from gymnast.tokens.families.thoughts import CLOSE, OPEN, UNCLOSED, split_thought
from gymnast.tokens.rendering import ParsedCall, ParsedTurn

if TYPE_CHECKING:
    from collections.abc import Callable

CALL: Final = "<tool_call>"
CALL_END: Final = "</tool_call>"
_CALL_TAG: Final = Tag(CALL)
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode
TAGS: Final = (OPEN, CLOSE, CALL, CALL_END)


def parse_hermes(pieces: TaggedText, context: ParseContext) -> ParseResult:
    """Parse thought, content and calls."""
    return parse_tagged_calls(pieces, _json_calls, context)


def parse_tagged_calls(
    pieces: TaggedText, parse_body: Callable[[TaggedText, ParseContext], list[ParsedCall] | str], context: ParseContext
) -> ParseResult:
    """Parse thought, content and calls. `parse_body` returns a call's content, or what is wrong with it."""
    thought = split_thought(pieces, in_thought=context.in_thought)
    texts: list[str] = []
    calls: list[ParsedCall] = []
    malformed = [UNCLOSED] if thought.is_open else []
    rest, index = thought.rest, 0
    while index < len(rest):
        is_call = rest[index] == _CALL_TAG
        end = find_tag(rest, CALL_END, index) if is_call else None
        if end is None:
            if is_call:
                malformed.append("a call was never closed")
            texts.append(to_text(rest[index : index + 1]))
            index += 1
            continue
        body = parse_body(rest[index + 1 : end], context)
        if isinstance(body, str):
            malformed.append(body)
            texts.append(to_text(rest[index : end + 1]))
        else:
            calls += body
        index = end + 1
    turn = ParsedTurn(join_content(texts, around_calls=bool(calls)), thought.reasoning, tuple(calls), tuple(malformed))
    return ParseResult(turn, thought.is_open)


def join_content(texts: list[str], *, around_calls: bool) -> str:
    """Join the texts of a turn; newlines around calls are not content."""
    if not around_calls:
        return "".join(texts)
    return "\n".join(content for text in texts if (content := text.strip("\n")) and content.strip())


def make_call(name: str, arguments: Any, call_id: str | None = None) -> ParsedCall | str:
    """A call, or what is wrong with it. Arguments in a text are parsed as JSON."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return f"the arguments of '{name}' are not JSON"
    if not isinstance(arguments, dict):
        return f"the arguments of '{name}' are not an object"
    return ParsedCall(name, dump_json(arguments), call_id)


def parse_call(value: Any, arguments_key: str = "arguments") -> ParsedCall | str:
    """Parse a call from JSON, or say what is wrong with it."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return "a call without a name"
    call_id = value.get("id")
    return make_call(value["name"], value.get(arguments_key, {}), call_id if isinstance(call_id, str) else None)


def parse_calls(values: list[Any]) -> list[ParsedCall] | str:
    """Parse a list of calls, or say what is wrong with the first malformed one."""
    calls = [parse_call(value) for value in values]
    problem = next((call for call in calls if isinstance(call, str)), None)
    return problem if problem is not None else [call for call in calls if isinstance(call, ParsedCall)]


def dump_json(value: Any) -> str:
    """Dump JSON as templates do."""
    return _ENCODE(value)


def _json_calls(body: TaggedText, context: ParseContext) -> list[ParsedCall] | str:  # noqa: ARG001 - not needed for JSON
    try:
        value = json.loads(to_text(body))
    except ValueError as error:
        return f"a call that is not JSON: {error}"
    return parse_calls(value if isinstance(value, list) else [value])
