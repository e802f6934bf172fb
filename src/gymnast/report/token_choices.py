"""What a model could have said instead: the `logprobs` of output texts, as the Responses API records them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gymnast.types.encoding import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.types.json import JsonObject

Alternative = tuple[str, float | None]
_MAX_ALTERNATIVES: Final = 20
_MAX_TEXT: Final = 40
_DIGITS: Final = 4


class TokenChoice(NamedTuple):
    """A sampled token: its text, its logprob, and the likeliest tokens in its place, itself included."""

    text: str
    logprob: float | None
    alternatives: list[Alternative]


def read_choices(record: JsonObject) -> Iterator[list[TokenChoice]]:
    """The tokens of each output text that has logprobs, in order."""
    response = record.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    for item in output if isinstance(output, list) else ():
        content = item.get("content") if isinstance(item, dict) else None
        for part in content if isinstance(content, list) else ():
            entries = part.get("logprobs") if isinstance(part, dict) else None
            choices = (
                [_choice(entry) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
            )
            if choices:
                yield choices


class Alternatives:
    """Assigns the alternatives of output texts to tokens that were recorded apart from them.

    Nothing names the tokens of a text, which may be part of what was sampled: its logprobs do, in their order.
    """

    def __init__(self, record: JsonObject) -> None:
        self._texts = list(read_choices(record))

    def take(self, logprobs: Sequence[Any]) -> list[list[Alternative] | None]:
        """The alternatives of these sampled tokens, None for each that has none; empty if no text is among them."""
        sampled = [_round(value) for value in logprobs]
        alternatives: list[list[Alternative] | None] = [None] * len(sampled)
        start = 0
        while self._texts:
            choices = self._texts[0]
            position = _find(sampled, [choice.logprob for choice in choices], start)
            if position is None:
                break
            start = position + len(choices)
            alternatives[position:start] = [choice.alternatives or None for choice in choices]
            self._texts.pop(0)
        return alternatives if any(alternatives) else []


def _choice(entry: JsonObject) -> TokenChoice:
    listed = entry.get("top_logprobs")
    alternatives = [own for own in listed if isinstance(own, dict)] if isinstance(listed, list) else []
    pairs = [(_text(own), _round(own.get("logprob"))) for own in alternatives[:_MAX_ALTERNATIVES]]
    return TokenChoice(_text(entry), _round(entry.get("logprob")), pairs)


def _text(entry: JsonObject) -> str:
    token = entry.get("token")
    return printable(token[:_MAX_TEXT]) if isinstance(token, str) else ""


def _round(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return round(float(value), _DIGITS)


def _find(values: list[float | None], wanted: list[float | None], start: int) -> int | None:
    """Where a run of known values begins in others; None if it is not there."""
    if not wanted or None in wanted:
        return None
    for position in range(start, len(values) - len(wanted) + 1):
        if values[position] == wanted[0] and values[position : position + len(wanted)] == wanted:
            return position
    return None
