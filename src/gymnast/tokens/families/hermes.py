"""Qwen 2.5 and 3, SmolLM2 and the embedded model: JSON calls between <tool_call> tags.

A call is `{"name": …, "arguments": {…}}`, or a list of such objects as SmolLM2 writes them. Anything else between the
tags, and a tag that is never closed, is malformed and stays in the words.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gymnast.tokens.families.family import Context, Parsed, Script, Tag, index_of, written
from gymnast.tokens.families.thoughts import CLOSE, OPEN, UNCLOSED, split_thought
from gymnast.tokens.rendering import Said, SaidCall

if TYPE_CHECKING:
    from collections.abc import Callable

CALL: Final = "<tool_call>"
CALL_END: Final = "</tool_call>"
TAGS: Final = (OPEN, CLOSE, CALL, CALL_END)


def parse_hermes(script: Script, context: Context) -> Parsed:
    """Thought, words, calls."""
    return parse_tagged_calls(script, _json_calls, context)


def parse_tagged_calls(
    script: Script, read_body: Callable[[Script, Context], list[SaidCall] | str], context: Context
) -> Parsed:
    """Thought, words, and calls whose bodies `read_body` understands; it says what is wrong with the others."""
    thought = split_thought(script, in_thought=context.in_thought)
    words: list[str] = []
    calls: list[SaidCall] = []
    malformed = [UNCLOSED] if thought.is_open else []
    rest, at = thought.rest, 0
    while at < len(rest):
        end = index_of(rest, CALL_END, at) if rest[at] == Tag(CALL) else None
        if rest[at] != Tag(CALL) or end is None:
            if rest[at] == Tag(CALL):
                malformed.append("a call was never closed")
            words.append(written(rest[at : at + 1]))
            at += 1
            continue
        read = read_body(rest[at + 1 : end], context)
        if isinstance(read, str):
            malformed.append(read)
            words.append(written(rest[at : end + 1]))
        else:
            calls += read
        at = end + 1
    said = Said(joined_words(words, around_calls=bool(calls)), thought.reasoning, tuple(calls), tuple(malformed))
    return Parsed(said, thought.is_open)


def joined_words(words: list[str], *, around_calls: bool) -> str:
    """Words around calls; the newlines that set calls apart are no words."""
    if not around_calls:
        return "".join(words)
    return "\n".join(kept for word in words if (kept := word.strip("\n")) and kept.strip())


def call_of(value: Any, arguments_key: str = "arguments") -> SaidCall | str:
    """A call from its JSON, or what is wrong with it."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return "a call without a name"
    arguments = value.get(arguments_key, {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return f"the arguments of '{value['name']}' are not JSON"
    if not isinstance(arguments, dict):
        return f"the arguments of '{value['name']}' are not an object"
    given_id = value.get("id")
    return SaidCall(value["name"], as_json(arguments), given_id if isinstance(given_id, str) else None)


def as_json(value: Any) -> str:
    """As templates write it."""
    return json.dumps(value, ensure_ascii=False)


def _json_calls(body: Script, context: Context) -> list[SaidCall] | str:  # noqa: ARG001 - JSON says all
    try:
        value = json.loads(written(body))
    except ValueError as error:
        return f"a call that is not JSON: {error}"
    calls = [call_of(entry) for entry in (value if isinstance(value, list) else [value])]
    wrong = next((call for call in calls if isinstance(call, str)), None)
    return wrong if wrong is not None else [call for call in calls if isinstance(call, SaidCall)]
