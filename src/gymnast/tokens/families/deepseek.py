"""DeepSeek V3: calls between control tokens, arguments as fenced JSON."""

from __future__ import annotations

import re
from typing import Final

from gymnast.tokens.families.family import ParseContext, ParseResult, Tag, TaggedText, find_tag, is_blank, to_text
from gymnast.tokens.families.hermes import join_content, make_call
from gymnast.tokens.families.thoughts import CLOSE, OPEN, UNCLOSED, split_thought
from gymnast.tokens.rendering import ParsedCall, ParsedTurn

CALLS: Final = "<｜tool▁calls▁begin｜>"
CALLS_END: Final = "<｜tool▁calls▁end｜>"
CALL: Final = "<｜tool▁call▁begin｜>"
CALL_END: Final = "<｜tool▁call▁end｜>"
SEPARATOR: Final = "<｜tool▁sep｜>"
TAGS: Final = (OPEN, CLOSE, CALLS, CALLS_END, CALL, CALL_END, SEPARATOR)

_BODY: Final = re.compile(r"\s*(?P<name>[^\s`]+)\s*```(?:json)?\s*(?P<arguments>.*?)\s*```\s*", re.DOTALL)


def parse_deepseek(pieces: TaggedText, context: ParseContext) -> ParseResult:
    """Parse thought, content and calls; if one call is malformed, all stay in the content."""
    thought = split_thought(pieces, in_thought=context.in_thought)
    unclosed = (UNCLOSED,) if thought.is_open else ()
    start = find_tag(thought.rest, CALLS)
    if start is None:
        return ParseResult(ParsedTurn(to_text(thought.rest), thought.reasoning, malformed=unclosed), thought.is_open)
    calls = _calls(thought.rest[start + 1 :])
    if isinstance(calls, str):
        return ParseResult(ParsedTurn(to_text(thought.rest), thought.reasoning, malformed=(*unclosed, calls)))
    content = join_content([to_text(thought.rest[:start])], around_calls=True)
    return ParseResult(ParsedTurn(content, thought.reasoning, tuple(calls), unclosed))


def _calls(pieces: TaggedText) -> list[ParsedCall] | str:
    calls: list[ParsedCall] = []
    index = 0
    while index < len(pieces) and pieces[index] != Tag(CALLS_END):
        end = find_tag(pieces, CALL_END, index)
        if pieces[index] == Tag(CALL) and end is not None:
            call = _call(pieces[index + 1 : end])
            if isinstance(call, str):
                return call
            calls.append(call)
            index = end + 1
        elif is_blank(pieces[index]):
            index += 1
        else:
            return "a call was never closed" if pieces[index] == Tag(CALL) else "text between calls"
    if index == len(pieces):
        return "the calls were never closed"
    return calls or "an empty list of calls"


def _call(pieces: TaggedText) -> ParsedCall | str:
    separator = find_tag(pieces, SEPARATOR)
    if separator is None:
        return "a call without a separator"
    body = _BODY.fullmatch(to_text(pieces[separator + 1 :]))
    if body is None:
        return "a call without a name and fenced arguments"
    return make_call(body["name"], body["arguments"])
