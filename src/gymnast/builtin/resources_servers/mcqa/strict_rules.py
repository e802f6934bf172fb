"""Our own, stricter grading rules of mcqa. Pure functions from text and options to a letter, or None."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gymnast.kit import last_boxed, unwrap_text

Options = Mapping[str, str]

_STRICT: Final = re.compile(r"[\s(\[{*$]*([A-Z])(?:[\s)\]}*$]*|\s*[:).\-].*)", re.DOTALL)
_LENIENT: Final = re.compile(r"[\s(\[*]*([A-Za-z])(?:([\s)\]:.,*\-]+)(.*))?", re.DOTALL)
_ANOTHER: Final = re.compile(r"(?:(?:or|and|/|&|\+)\s*)?[(\[*]*([A-Za-z])\b", re.IGNORECASE)
_COLON: Final = re.compile(r"answer\s*(?:is\s*)?[:：]\s*([^\n]+)", re.IGNORECASE)


def grade_by_mode(text: str, options: Options, mode: str) -> str | None:
    """Find the letter by one of the named rules."""
    return _RULES[mode](text, options)


def grade_by_pattern(text: str, options: Options, pattern: str) -> str | None:
    """Find the letter or the full text of an option in the last match, in its first group if it has any."""
    last = None
    for last in re.finditer(pattern, text, re.IGNORECASE):  # noqa: B007 - we want the last match
        pass
    if last is None:
        return None
    return _letter_or_text(unwrap_text((last[1] if last.re.groups else last[0]) or ""), options)


def strict_boxed(text: str, options: Options) -> str | None:
    r"""The last `\boxed{}` contains one capital letter, alone, in brackets, or followed by `: ) . -`."""
    content = last_boxed(text)
    match = _STRICT.fullmatch(unwrap_text(content)) if content is not None else None
    return _match_option(match[1], options) if match else None


def lenient_boxed(text: str, options: Options) -> str | None:
    r"""The last `\boxed{}` contains a letter in either case, decorated or not, or the full text of an option."""
    content = last_boxed(text)
    return _letter_or_text(unwrap_text(content), options) if content is not None else None


def answer_colon(text: str, options: Options) -> str | None:
    """The text after the last `Answer:`, a letter or the full text of an option."""
    matches = _COLON.findall(text)
    return _letter_or_text(unwrap_text(matches[-1]), options) if matches else None


def answer_colon_markdown(text: str, options: Options) -> str | None:
    """`answer_colon` for text with markdown emphasis around the word or the letter."""
    return answer_colon(re.sub(r"[*_`]+", "", text), options)


_RULES: Final = {
    "strict_single_letter_boxed": strict_boxed,
    "lenient_boxed": lenient_boxed,
    "lenient_answer_colon": answer_colon,
    "lenient_answer_colon_md": answer_colon_markdown,
}


def _letter_or_text(content: str, options: Options) -> str | None:
    content = content.strip()
    same = [letter for letter, option in options.items() if option and _plain(option) == _plain(content)]
    if len(same) == 1:
        return same[0]
    match = _LENIENT.fullmatch(content)
    if match is None:
        return None
    return _match_option(match[1].upper(), options) if _is_choice(match, options) else None


def _is_choice(match: re.Match[str], options: Options) -> bool:
    """Whether the letter is the choice: no second letter follows, and it does not start a sentence with `a`."""
    letter, between, rest = match[1], match[2] or "", match[3] or ""
    other = _ANOTHER.match(rest)
    if other is not None and other[1].upper() != letter.upper() and other[1].upper() in options:
        return False
    is_word = letter.islower() and between.isspace()
    return not rest or not is_word or _plain(rest) == _plain(options.get(letter.upper(), ""))


def _match_option(letter: str, options: Options) -> str | None:
    return letter if letter in options else None


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(" .").casefold()
