"""NeMo Gym's grading rules of mcqa, to the letter. Pure functions from text and options to a letter, or None."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

Options = Sequence[tuple[str, str]]
"""Letters in upper case with their texts, in the order of the row; a letter may occur twice."""

_BOX: Final = "\\boxed{"
_WRAPPER: Final = "\\text{"
_LABEL: Final = re.compile(r"\s*([A-Z])\s*[:).\-]")
_ANSWER: Final = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)
_MARKDOWN_ANSWER: Final = re.compile(r"Answer[*_]{0,2}\s*:[*_\s]{0,2}(.+)", re.IGNORECASE)
_LONE_LETTER: Final = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_FIRST_LETTER: Final = re.compile(r"[a-zA-Z](?![a-zA-Z0-9])")
_CAPITAL_WORD: Final = re.compile(r"\b[A-Z]\b")
_LIST_SEPARATOR: Final = re.compile(r"\s*[/|&,;]\s*|\s+(?:or|and)\s+|\s+", re.IGNORECASE)
_OTHER_SCRIPTS: Final = str.maketrans(
    {
        letter: f" {latin}"
        for letters, latin in (("أঅＡ", "A"), ("بবＢ", "B"), ("جডＣ", "C"), ("دঢＤ", "D"))
        for letter in letters
    }
)


def strict_boxed(text: str, options: Options) -> str | None:
    r"""The last `\boxed{}` contains one letter, a capital, or starts with a capital and one of `: ) . -`."""
    content = _last_box(text)
    if content is None:
        return None
    content = _unwrap(content.strip())
    letters = [character for character in content if character.isascii() and character.isalpha()]
    if len(letters) == 1 and letters[0].isupper():
        return _match_option(letters[0], options)
    label = _LABEL.match(content)
    return _match_option(label[1], options) if label else None


def lenient_boxed(text: str, options: Options) -> str | None:
    r"""As `strict_boxed`; otherwise the text of one option only occurs in the last `\boxed{}`."""
    letter = strict_boxed(text, options)
    content = _last_box(text)
    if letter is not None or content is None:
        return letter
    content = content.strip()
    forms = (_plain(content), _plain(_unwrap(content)))
    letters = {
        letter for letter, option in options if (plain := _plain(option)) and any(plain in form for form in forms)
    }
    return letters.pop() if len(letters) == 1 else None


def answer_colon(text: str, options: Options) -> str | None:
    """The rest of the line after the first `Answer:` is a letter or the text of an option."""
    match = _ANSWER.search(text)
    if match is None:
        return None
    content = _unwrap(match[1]).strip()
    if len(content) == 1 and _match_option(content.upper(), options):
        return content.upper()
    return _by_text(content, options)


def answer_colon_markdown(text: str, options: Options) -> str | None:
    """The last `Answer:` with a letter after it, emphasised or not; lists of several letters are none."""
    for line in reversed(_MARKDOWN_ANSWER.findall(text)):
        letter = _letter_of_line(line, options)
        if letter is not None:
            return letter
    return None


def by_pattern(text: str, options: Options, pattern: str) -> str | None:
    """The last match of a row's pattern is a letter, whether an option or not, or the text of an option."""
    matches = re.findall(pattern, text, re.IGNORECASE)
    if not matches:
        return None
    last = matches[-1] if isinstance(matches[-1], str) else matches[-1][0]
    captured = _latin(last.strip()).upper()
    if len(captured) == 1 and captured.isalpha():
        return captured
    return _by_text(captured, options)


RULES: Final = {
    "strict_single_letter_boxed": strict_boxed,
    "lenient_boxed": lenient_boxed,
    "lenient_answer_colon": answer_colon,
    "lenient_answer_colon_md": answer_colon_markdown,
}


def _last_box(text: str) -> str | None:
    r"""The content of the last `\boxed{`, if it is closed."""
    start = text.rfind(_BOX)
    depth = 1
    for at in range(start + len(_BOX), len(text)) if start >= 0 else ():
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start + len(_BOX) : at]
    return None


def _unwrap(content: str) -> str:
    while content.startswith(_WRAPPER) and content.endswith("}"):
        content = content[len(_WRAPPER) : -1].strip()
    return content


def _letter_of_line(line: str, options: Options) -> str | None:
    content = _latin(line).strip("*_` \t\n\r.,;:")
    if _is_list(content, options):
        return None
    if len(content) == 1:
        return _match_option(content.upper(), options)
    first = _FIRST_LETTER.match(content)
    letters = [first[0]] if first else _CAPITAL_WORD.findall(content)
    return _match_option(letters[-1].upper(), options) if letters else None


def _is_list(content: str, options: Options) -> bool:
    """Whether two different options stand side by side, as in `A or B`."""
    letters = [match for match in _LONE_LETTER.finditer(content) if _match_option(match[0].upper(), options)]
    return any(
        left[0].upper() != right[0].upper() and _LIST_SEPARATOR.fullmatch(content[left.end() : right.start()])
        for left, right in pairwise(letters)
    )


def _by_text(content: str, options: Options) -> str | None:
    wanted = _plain(content)
    return next((letter for letter, option in options if _plain(option) == wanted), None)


def _match_option(letter: str, options: Options) -> str | None:
    return letter if any(letter == known for known, _ in options) else None


def _latin(text: str) -> str:
    return text.translate(_OTHER_SCRIPTS).strip()


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
