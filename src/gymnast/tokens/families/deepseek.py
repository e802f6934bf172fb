"""DeepSeek V3: calls between control tokens of their own, arguments as fenced JSON."""

from __future__ import annotations

import json
import re
from typing import Final

from gymnast.tokens.families.family import Context, Parsed, Script, Tag, index_of, written
from gymnast.tokens.families.hermes import as_json, joined_words
from gymnast.tokens.families.thoughts import CLOSE, OPEN, UNCLOSED, split_thought
from gymnast.tokens.rendering import Said, SaidCall

CALLS: Final = "<｜tool▁calls▁begin｜>"
CALLS_END: Final = "<｜tool▁calls▁end｜>"
CALL: Final = "<｜tool▁call▁begin｜>"
CALL_END: Final = "<｜tool▁call▁end｜>"
SEPARATOR: Final = "<｜tool▁sep｜>"
TAGS: Final = (OPEN, CLOSE, CALLS, CALLS_END, CALL, CALL_END, SEPARATOR)

_BODY: Final = re.compile(r"\s*(?P<name>[^\s`]+)\s*```(?:json)?\s*(?P<arguments>.*?)\s*```\s*", re.DOTALL)


def parse_deepseek(script: Script, context: Context) -> Parsed:
    """Thought, words, and calls; one malformed call makes words of all."""
    thought = split_thought(script, in_thought=context.in_thought)
    unclosed = (UNCLOSED,) if thought.is_open else ()
    start = index_of(thought.rest, CALLS)
    if start is None:
        return Parsed(Said(written(thought.rest), thought.reasoning, malformed=unclosed), thought.is_open)
    calls = _calls(thought.rest[start + 1 :])
    if isinstance(calls, str):
        return Parsed(Said(written(thought.rest), thought.reasoning, malformed=(*unclosed, calls)))
    words = joined_words([written(thought.rest[:start])], around_calls=True)
    return Parsed(Said(words, thought.reasoning, tuple(calls), unclosed))


def _calls(script: Script) -> list[SaidCall] | str:
    calls: list[SaidCall] = []
    at = 0
    while at < len(script) and script[at] != Tag(CALLS_END):
        end = index_of(script, CALL_END, at)
        if script[at] == Tag(CALL) and end is not None:
            call = _call(script[at + 1 : end])
            if isinstance(call, str):
                return call
            calls.append(call)
            at = end + 1
        elif isinstance(piece := script[at], str) and not piece.strip():
            at += 1
        else:
            return "a call was never closed" if script[at] == Tag(CALL) else "words between calls"
    if at == len(script):
        return "the calls were never closed"
    return calls or "calls without a call"


def _call(script: Script) -> SaidCall | str:
    separator = index_of(script, SEPARATOR)
    if separator is None:
        return "a call without a separator"
    body = _BODY.fullmatch(written(script[separator + 1 :]))
    if body is None:
        return "a call without a name and fenced arguments"
    try:
        arguments = json.loads(body["arguments"])
    except ValueError:
        return f"the arguments of '{body['name']}' are not JSON"
    if not isinstance(arguments, dict):
        return f"the arguments of '{body['name']}' are not an object"
    return SaidCall(body["name"], as_json(arguments))
