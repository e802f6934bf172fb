"""Families without tool calls: everything is words."""

from __future__ import annotations

from gymnast.tokens.families.family import Context, Parsed, Script, written
from gymnast.tokens.families.thoughts import UNCLOSED, split_thought
from gymnast.tokens.rendering import Said


def parse_plain(script: Script, context: Context) -> Parsed:
    """A thought, if the template knows them, and words."""
    thought = split_thought(script, in_thought=context.in_thought)
    malformed = (UNCLOSED,) if thought.is_open else ()
    return Parsed(Said(written(thought.rest), thought.reasoning, malformed=malformed), thought.is_open)
