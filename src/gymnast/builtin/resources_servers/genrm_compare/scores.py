"""The judge's scores of two responses, read from its text. Pure."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NamedTuple

_MARKS: Final = re.compile(r'[{}"\\]')
_FENCE: Final = re.compile(r"```json", re.IGNORECASE)
_NOWHERE: Final = -1


class Scores(NamedTuple):
    """One comparison: 1 to 5 for each response, and 1 (the first is much better) to 6 (the second is)."""

    score_1: float
    score_2: float
    ranking: float


_KEYS: Final = Scores._fields


def read_scores(text: str, defaults: Scores) -> Scores | None:
    """As NeMo Gym: the first object in a JSON fence, else the last object, that has a score; others are the defaults.

    None without such an object, or if a number that counts is not finite. The ranking counts only in a tie.
    """
    try:
        scores = _first_in_fences(text, defaults) or _last(text, defaults)
    except (ValueError, OverflowError, RecursionError):
        return None
    if scores is None or not all(map(math.isfinite, scores[:2])):
        return None
    if math.isfinite(scores.ranking):
        return scores
    return scores._replace(ranking=defaults.ranking) if scores.score_1 != scores.score_2 else None


def read_exact_scores(text: str) -> Scores | None:
    """The last object with a score, if it has all three numbers, each within its range.

    Not the first: the judge may quote a response that contains one.
    """
    nothing = Scores(math.nan, math.nan, math.nan)
    try:
        scores = _last(text, nothing)
    except (ValueError, OverflowError, RecursionError):
        return None
    if scores is None or not (1 <= scores.score_1 <= 5 and 1 <= scores.score_2 <= 5 and 1 <= scores.ranking <= 6):
        return None
    return scores


def find_objects(text: str) -> list[str]:
    """The outermost `{…}` of a text. Braces in strings do not count; an unclosed one is skipped."""
    marks = [(match[0], match.start()) for match in _MARKS.finditer(text)]
    closing = _find_closing(marks)
    objects, at = [], 0
    while at < len(marks):
        end = closing[at + 1] if marks[at][0] == "{" else _NOWHERE
        if end == _NOWHERE:
            at += 1
            continue
        objects.append(text[marks[at][1] : marks[end][1] + 1])
        at = end + 1
    return objects


def _find_closing(marks: list[tuple[str, int]]) -> list[int]:
    """For each mark outside of strings: the mark that closes the object around it."""
    outside = [_NOWHERE] * (len(marks) + 2)
    inside = [_NOWHERE] * (len(marks) + 2)
    """The same for marks inside of strings."""
    for at in range(len(marks) - 1, -1, -1):
        mark, position = marks[at]
        match mark:
            case "{":
                end = outside[at + 1]
                outside[at], inside[at] = _NOWHERE if end == _NOWHERE else outside[end + 1], inside[at + 1]
            case "}":
                outside[at], inside[at] = at, inside[at + 1]
            case '"':
                outside[at], inside[at] = inside[at + 1], outside[at + 1]
            case _:
                skips = at + 1 < len(marks) and marks[at + 1][1] == position + 1
                outside[at], inside[at] = outside[at + 1], inside[at + 2 if skips else at + 1]
    return outside


def _first_in_fences(text: str, defaults: Scores) -> Scores | None:
    at = 0
    while (fence := _FENCE.search(text, at)) and (end := text.find("```", fence.end())) >= 0:
        for part in find_objects(text[fence.end() : end]):
            scores = _parse(part, defaults)
            if scores is not None:
                return scores
        at = end + 3
    return None


def _last(text: str, defaults: Scores) -> Scores | None:
    parsed = [_parse(part, defaults) for part in find_objects(text)]
    return next((scores for scores in reversed(parsed) if scores is not None), None)


def _parse(text: str, defaults: Scores) -> Scores | None:
    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError:
        return None
    if isinstance(value.get("overall"), dict):
        value = value["overall"]
    if not any(key in value for key in _KEYS):
        return None
    try:
        return Scores(*(float(value.get(key, default)) for key, default in zip(_KEYS, defaults, strict=True)))
    except (TypeError, ValueError):
        return None
