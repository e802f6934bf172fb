"""GLM-4.5: `<tool_call>name`, then tagged keys and values.

Strings are written bare and everything else as JSON: a valid JSON value is parsed, unless the parameter is a string.
"""

from __future__ import annotations

import json
from typing import Any, Final

from gymnast.tokens.families.family import ParseContext, ParseResult, Tag, TaggedText, find_tag, is_blank, to_text
from gymnast.tokens.families.hermes import CALL, CALL_END, dump_json, parse_tagged_calls
from gymnast.tokens.families.thoughts import CLOSE, OPEN
from gymnast.tokens.rendering import ParsedCall

KEY: Final = "<arg_key>"
KEY_END: Final = "</arg_key>"
VALUE: Final = "<arg_value>"
VALUE_END: Final = "</arg_value>"
TAGS: Final = (OPEN, CLOSE, CALL, CALL_END, KEY, KEY_END, VALUE, VALUE_END)


def parse_glm(pieces: TaggedText, context: ParseContext) -> ParseResult:
    """Parse thought, content and calls."""
    return parse_tagged_calls(pieces, _call, context)


def parse_value(text: str) -> Any:
    """Parse a JSON value; anything else, and a JSON string, is the bare text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value


def _call(body: TaggedText, context: ParseContext) -> list[ParsedCall] | str:
    start = find_tag(body, KEY)
    name = to_text(body[:start]).strip()
    if not name or "\n" in name or "<" in name:
        return "a call without a name"
    arguments: dict[str, Any] = {}
    rest = [piece for piece in (body[start:] if start is not None else []) if not is_blank(piece)]
    while rest:
        pair, rest = _pair(rest)
        if pair is None:
            return f"the arguments of '{name}' are not key-value pairs"
        key, value = pair
        arguments[key] = value if context.is_string(name, key) else parse_value(value)
    return [ParsedCall(name, dump_json(arguments))]


def _pair(rest: TaggedText) -> tuple[tuple[str, str] | None, TaggedText]:
    """The first key and value, and the rest."""
    key_end, value_end = find_tag(rest, KEY_END), find_tag(rest, VALUE_END)
    if rest[0] != Tag(KEY) or key_end is None or value_end is None or rest[key_end + 1 : key_end + 2] != [Tag(VALUE)]:
        return None, []
    key, value = to_text(rest[1:key_end]).strip(), to_text(rest[key_end + 2 : value_end])
    return (key, value), rest[value_end + 1 :]
