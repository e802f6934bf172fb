"""GLM-4.5: `<tool_call>name`, then keys and values in tags of their own.

Texts are written bare and everything else as JSON: what looks like JSON is read so, unless the tool declares a text.
"""

from __future__ import annotations

import json
from typing import Any, Final

from gymnast.tokens.families.family import Context, Parsed, Script, Tag, index_of, is_blank, written
from gymnast.tokens.families.hermes import CALL, CALL_END, as_json, parse_tagged_calls
from gymnast.tokens.families.thoughts import CLOSE, OPEN
from gymnast.tokens.rendering import SaidCall

KEY: Final = "<arg_key>"
KEY_END: Final = "</arg_key>"
VALUE: Final = "<arg_value>"
VALUE_END: Final = "</arg_value>"
TAGS: Final = (OPEN, CLOSE, CALL, CALL_END, KEY, KEY_END, VALUE, VALUE_END)


def parse_glm(script: Script, context: Context) -> Parsed:
    """Thought, words, calls."""
    return parse_tagged_calls(script, _call, context)


def value_of(text: str) -> Any:
    """A bare text, or what JSON that is no text says."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value


def _call(body: Script, context: Context) -> list[SaidCall] | str:
    start = index_of(body, KEY)
    name = written(body[:start]).strip()
    if not name or "\n" in name or "<" in name:
        return "a call without a name"
    arguments: dict[str, Any] = {}
    rest = [piece for piece in (body[start:] if start is not None else []) if not is_blank(piece)]
    while rest:
        pair, rest = _pair(rest)
        if pair is None:
            return f"the arguments of '{name}' are not pairs of key and value"
        key, value = pair
        arguments[key] = value if (name, key) in context.texts else value_of(value)
    return [SaidCall(name, as_json(arguments))]


def _pair(rest: Script) -> tuple[tuple[str, str] | None, Script]:
    """The key and the value at the beginning, and what follows them."""
    key_end, value_end = index_of(rest, KEY_END), index_of(rest, VALUE_END)
    if rest[0] != Tag(KEY) or key_end is None or value_end is None or rest[key_end + 1 : key_end + 2] != [Tag(VALUE)]:
        return None, []
    key, value = written(rest[1:key_end]).strip(), written(rest[key_end + 2 : value_end])
    return (key, value), rest[value_end + 1 :]
