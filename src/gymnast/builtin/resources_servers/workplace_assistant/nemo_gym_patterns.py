"""Regular expressions as NeMo Gym's searches take them: RE2's, with its words for a pattern that is wrong.

Columns that have held something other than texts are searched with Python's expressions there, and so are patterns that
RE2 does not have (look-around and references to groups).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

Search = Callable[[str], "re.Match[str] | None"]

_REPETITION: Final = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??")
_GROUP: Final = re.compile(r"\((?:\?(?:P?<\w+>|[imsU]*(?:-[imsU]+)?(?=[:)]):?))?")
_PYTHON_ONLY: Final = re.compile(r"\(\?<?[=!]|\\u[0-9a-fA-F]{4}|\\s|\\S")
_BACKREFERENCE: Final = re.compile(r"\(.*\\[1-9]")
_OPERATOR: Final = re.compile(r"\(\?[imsU-]*.?", re.DOTALL)
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]", re.DOTALL)
_ESCAPES: Final = frozenset("AbBCdDEQsSwWzZpPaftnrvx0")
_MAX_REPETITIONS: Final = 1000


def compile_pattern(pattern: Any, *, python: bool) -> Search:
    """A search that ignores case. Raises as the original's libraries do."""
    if not isinstance(pattern, str) or python or _PYTHON_ONLY.search(pattern) or _BACKREFERENCE.search(pattern):
        return re.compile(pattern, re.IGNORECASE).search
    problem = find_problem(pattern)
    if problem is not None:
        raise ValueError(f"Invalid regular expression: {problem}")
    return re.compile(_as_python(pattern), re.IGNORECASE).search


def find_problem(pattern: str) -> str | None:
    """What RE2 says of a pattern that it does not take."""
    position, depth, repeated, repeatable = 0, 0, "", False
    while position < len(pattern):
        match = _REPETITION.match(pattern, position)
        if match:
            problem = _repetition_problem(match[0], repeated, repeatable=repeatable)
            end, repeated = match.end(), repeated + match[0]
        else:
            problem, end = _read_part(pattern, position, depth)
            sign, repeated = pattern[position], ""
            depth += (sign == "(") - (sign == ")")
            repeatable = sign not in "(|"
        if problem is not None:
            return problem
        position = end
    return f"missing ): {pattern}" if depth else None


def _read_part(pattern: str, position: int, depth: int) -> tuple[str | None, int]:
    """The problem of what begins at a position, and where it ends."""
    sign = pattern[position]
    if sign == "(":
        group = _GROUP.match(pattern, position)
        if pattern.startswith("(?", position) and (group is None or len(group[0]) == 1):
            return _group_problem(pattern, position), position
        return None, position + len(group[0] if group else sign)
    if sign == "[":
        return _class_problem(pattern, position)
    if sign == "\\":
        return _escape_problem(pattern, position), position + 2
    return f"unexpected ): {pattern}" if sign == ")" and depth == 0 else None, position + 1


def _repetition_problem(operator: str, repeated: str, *, repeatable: bool) -> str | None:
    sign = operator if operator[0] == "{" else operator[0]
    if repeated:
        return f"bad repetition operator: {repeated}{operator}"
    if not repeatable:
        return f"no argument for repetition operator: {sign}"
    bounds = [int(number) for number in re.findall(r"\d+", operator)]
    if bounds and (max(bounds) > _MAX_REPETITIONS or bounds[0] > bounds[-1]):
        return f"invalid repetition size: {operator.removesuffix('?')}"
    return None


def _group_problem(pattern: str, position: int) -> str:
    if pattern.startswith(("(?P<", "(?<"), position):
        end = pattern.find(">", position)
        return f"invalid named capture group: {pattern[position:] if end < 0 else pattern[position : end + 1]}"
    if pattern[position:] == "(?":
        return f"missing ): {pattern}"
    match = _OPERATOR.match(pattern, position)
    return f"invalid perl operator: {match[0] if match else ''}"


def _class_problem(pattern: str, position: int) -> tuple[str | None, int]:
    """The problem of a character class, and where it ends; its first sign may be a bracket."""
    match = _CLASS.match(pattern, position)
    if match is None:
        return f"missing ]: {pattern[position:]}", position
    span = re.search(r"(.)-(.)", match[0][1:-1])
    if span and span[1] > span[2] and "\\" not in match[0]:
        return f"invalid character class range: {span[0]}", position
    return None, match.end()


def _escape_problem(pattern: str, position: int) -> str | None:
    if position + 1 == len(pattern):
        return "trailing \\"
    sign = pattern[position + 1]
    fits = sign in _ESCAPES or (sign < "\x80" and not sign.isalnum())
    return None if fits else f"invalid escape sequence: \\{sign}"


def _as_python(pattern: str) -> str:
    """The same pattern for Python: an open `{,2}` is text, `\\z` is the end, a group's name has a P.

    To Python, a dotless or a dotted i is an i in another case.
    """
    text = re.sub(r"\{(?=,\d*\})", r"\\{", pattern)
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\z", r"\1\\Z", text)
    text = re.sub(r"([\^$])[*+?]", r"(?:)", text)
    if "[" not in text:
        text = re.sub("[\u0130\u0131]", r"(?-i:\g<0>)", text)
    return re.sub(r"\(\?<(?=\w)", "(?P<", text)
