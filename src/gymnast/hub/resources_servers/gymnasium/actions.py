"""From what a model wrote to an action of a Gymnasium space: where the action stands, and what it means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from gymnast.kit.extract import last_boxed

_END: Final = 20_000
"""An action stands at the end of a turn; what was thought before need not be read."""
_TAGGED: Final = re.compile(r"<action>([^<]{0,2000})</action>", re.IGNORECASE)
_NAMED: Final = re.compile(r"action\s{0,5}:([^\n]{1,2000})", re.IGNORECASE)
_BLANKS: Final = "".join(filter(str.isspace, map(chr, range(0x3001))))
_AROUND: Final = _BLANKS + "*_`'\".!"


class NoAction(ValueError):  # noqa: N818 - an answer of the model, told back to it
    """The model's turn holds no action; the text says what would be one."""


def action_text(text: str) -> str | None:
    r"""What a turn says its action is: in `<action>`, after `Action:`, in `\boxed{}`, or else its last line."""
    text = text[-_END:]
    for found in (_TAGGED.findall(text), _NAMED.findall(text)):
        if found:
            return str(found[-1]).strip(_AROUND) or None
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed.strip(_AROUND) or None
    lines = [line.strip(_AROUND) for line in text.splitlines() if line.strip(_AROUND)]
    return lines[-1] if lines else None


def choice(said: str, names: Sequence[str], synonyms: Mapping[str, str], *, first: int = 0) -> int:
    """The number of the action that is meant, by its name or by the number itself."""
    word = said.casefold()
    word = synonyms.get(word, word)
    folded = [name.casefold() for name in names]
    if word in folded:
        return first + folded.index(word)
    if re.fullmatch(r"-?\d{1,6}", word) and first <= int(word) < first + len(names):
        return int(word)
    raise NoAction(f"There is no action '{said[:50]}'. {choices_text(names)}")


def choices_text(names: Sequence[str]) -> str:
    """How to say one of several actions."""
    return f"End with 'Action: ' and one of: {', '.join(names)}."


def json_value(said: str) -> Any:
    """Numbers and lists written as JSON."""
    try:
        return orjson.loads(said)
    except orjson.JSONDecodeError as error:
        raise NoAction("The action is not written as JSON. End with 'Action: ' and, for example, [0.5, -1].") from error
