"""Parses a model's turn into an action of a Gymnasium space."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from gymnast.kit import last_boxed

_END: Final = 20_000
"""The action is at the end of a turn; earlier reasoning is not searched."""
_TAGGED: Final = re.compile(r"<action>([^<]{0,2000})</action>", re.IGNORECASE)
_NAMED: Final = re.compile(r"action\s{0,5}:([^\n]{1,2000})", re.IGNORECASE)
_BLANKS: Final = "".join(filter(str.isspace, map(chr, range(0x3001))))
_AROUND: Final = _BLANKS + "*_`'\".!"


class NoAction(ValueError):  # noqa: N818 - feedback for the model
    """The model's turn has no action; the text tells the model what would be one."""


def extract_action(text: str) -> str | None:
    r"""The action of a turn: in `<action>`, after `Action:`, in `\boxed{}`, or its last line."""
    text = text[-_END:]
    for matches in (_TAGGED.findall(text), _NAMED.findall(text)):
        if matches:
            return str(matches[-1]).strip(_AROUND) or None
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed.strip(_AROUND) or None
    lines = [line.strip(_AROUND) for line in text.splitlines() if line.strip(_AROUND)]
    return lines[-1] if lines else None


def choose(text: str, names: Sequence[str], synonyms: Mapping[str, str], *, first: int = 0) -> int:
    """The number of an action, given by its name or number."""
    word = text.casefold()
    word = synonyms.get(word, word)
    folded = [name.casefold() for name in names]
    if word in folded:
        return first + folded.index(word)
    if re.fullmatch(r"-?\d{1,6}", word) and first <= int(word) < first + len(names):
        return int(word)
    raise NoAction(f"There is no action '{text[:50]}'. {list_choices(names)}")


def list_choices(names: Sequence[str]) -> str:
    """The hint that lists the actions."""
    return f"End with 'Action: ' and one of: {', '.join(names)}."


def parse_json(text: str) -> Any:
    """Parse numbers and lists written as JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise NoAction("The action is not written as JSON. End with 'Action: ' and, for example, [0.5, -1].") from error
