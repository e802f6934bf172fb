"""Families without tool calls."""

from __future__ import annotations

from gymnast.tokens.families.family import ParseContext, ParseResult, TaggedText, to_text
from gymnast.tokens.families.thoughts import UNCLOSED, split_thought
from gymnast.tokens.rendering import ParsedTurn


def parse_plain(pieces: TaggedText, context: ParseContext) -> ParseResult:
    """Parse a thought, if the template supports thoughts, and content."""
    thought = split_thought(pieces, in_thought=context.in_thought)
    malformed = (UNCLOSED,) if thought.is_open else ()
    return ParseResult(ParsedTurn(to_text(thought.rest), thought.reasoning, malformed=malformed), thought.is_open)
