"""Tells a program's own words from the user data that it quotes: prompts, rows, answers of models.

Only a program's own words are evidence. A row with the text "Out of memory: Killed process" proves nothing about
memory, wherever it is quoted: in a record, in the body of a 422, in the log of a server that logs prompts.
"""

from __future__ import annotations

import re
from typing import Final

_MAX_CHARS: Final = 4000
_STRING: Final = (
    r"""(?:"(?:[^"\\]|\\.)*"|(?<!\w)'(?:[^'\\]|\\.|'(?=\w))*'|(?<=b)'(?:[^'\\]|\\.)*'|`(?:[^`'\\]|\\.)*[`'])"""
)
"""An apostrophe within a word is not a quotation mark; GNU programs quote `so'."""
_DATA_KEYS: Final = (
    r"prompts?|texts?|content|inputs?|input_value|messages|questions?|answers?|output|outputs|output_text|completions?"
    r"|arguments|instructions|response|responses|generated_text|extracted_answer|expected_answer|choices|delta|rows?"
    r"|body|query|said|reply|transcript|history|conversation|source|code"
)
_DATA: Final = re.compile(rf"""(?i)(["']?\b(?:{_DATA_KEYS})["']?\s*[:=]\s*)({_STRING}|(?=[\[{{]))""")
"""A field of user data, and its value: a string, or the start of a list or an object."""
_OWN: Final = re.compile(
    r"""(?i)(?:\b(?:msg|message|err|errors?|detail|reason|exception|desc|stderr|title|cause)["']?\s*[:=]\s*|"""
    r"""(?:err(?:no|code|or)?|code|rc|status)\W{0,3}-?\d+\W{0,3}|(?:error|exception)\(|^[\[\](){}\s]*|\] ?"""
    r"""|inner server: b?|\b(?:broken|caused|raised|failed|preceded) (?:by|with) )$"""
)
"""What precedes a quoted text that is the program's own message."""
_QUOTED: Final = re.compile(_STRING)
_ESCAPED_OBJECT: Final = re.compile(r"\{\\+\".*(?:\}|$)")
"""A JSON object within a quoted text: data that a program passed on."""
_MIN_WORDS: Final = 4
_BLANK: Final = "…"


def own_words(text: str) -> str:
    """`text` without quoted user data. A short quoted name stays, as does a program's own quoted message."""
    text = text[:_MAX_CHARS]
    if "{\\" in text:
        text = _ESCAPED_OBJECT.sub("{…}", text)
    if '"' not in text and "'" not in text and "`" not in text:
        return text
    return _QUOTED.sub(_blank_long, _drop_fields(text))


def _drop_fields(text: str) -> str:
    """Drop the values of fields that hold user data."""
    parts: list[str] = []
    at = 0
    while match := _DATA.search(text, at):
        parts.append(text[at : match.end(1)])
        at = match.end(2) if match[2] else _end_of_group(text, match.end(1))
        if match[2] and len(match[2].split()) < _MIN_WORDS:
            parts.append(match[2])
        else:
            parts.append(_BLANK)
    return "".join((*parts, text[at:]))


def _end_of_group(text: str, start: int) -> int:
    """The end of a bracketed value, or of the text if it is cut off."""
    depth, at = 0, start
    while at < len(text):
        if text[at] in "\"'":
            string = _QUOTED.match(text, at)
            at = string.end() if string is not None else at + 1
            continue
        depth += (text[at] in "[{(") - (text[at] in "]})")
        at += 1
        if depth <= 0:
            return at
    return len(text)


def _blank_long(match: re.Match[str]) -> str:
    if len(match[0].split()) < _MIN_WORDS or _OWN.search(match.string[max(0, match.start() - 40) : match.start()]):
        return match[0]
    return match[0][0] + _BLANK + match[0][0]
