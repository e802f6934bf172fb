"""Counts words, sentences, paragraphs, bullets, placeholders. Pure functions, linear in the length of the text."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import groupby
from typing import Final

_WORD: Final = re.compile(r"\w+")
# A run of marks counts once. The lookbehind and the possessive quantifiers keep long runs linear.
_SENTENCE_END: Final = re.compile(
    r"(?<![.!?…])([.!?…]++)[\"'”’)\]»*_`]*+(?=\s|$)|(?<![。！？।॥])[。！？।॥]++[\"'”’)\]»」』]*+"
)
_LIST_NUMBER: Final = re.compile(r"(?:^|\n)[ \t]*\d+$")
_LAST_WORD: Final = re.compile(r"[^\s(\[\"'“‘]+$")
_NEVER_LAST: Final = frozenset({"mr", "mrs", "ms", "dr", "prof", "st", "vs", "e.g", "i.e", "fig", "gen", "sen", "rev"})
_SELDOM_LAST: Final = frozenset({"jr", "sr", "inc", "ltd", "co", "corp", "etc", "no", "al", "approx", "a.m", "p.m"})
_DOTTED: Final = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]|[A-Z]")
_JOINS: Final = re.compile(r"[;@#$%&*?!\"()\[\]{}<>“”‘’„«»]|[:,](?!\d)|--|\.{2,}")
_CONTRACTED: Final = re.compile(r"(?<=[^'\s])('[sSmMdD]|'ll|'LL|'re|'RE|'ve|'VE|n't|N'T)(?=\.*(?:\s|$))")
_TWO_WORDS: Final = re.compile(
    r"(?i)\b(can(?=not\b)|gim(?=me\b)|gon(?=na\b)|got(?=ta\b)|lem(?=me\b)|wan(?=na\s)|d(?='ye\b)|more(?='n\b))"
)
_IN_WORDS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"})
_CIRCLED: Final = ((0x200C, 0x200D), (0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
"""Joiners and letters in circles and squares, which belong to words as well."""
_EDGES: Final = ".,;:!?\"'()[]{}<>“”‘’…"


def words(text: str) -> int:
    """Count words, of which vowel signs and other marks are a part, as Unicode defines it.

    So does nltk since 3.10, which NeMo Gym counts with. Python's `re` knows letters, digits and underscores only.
    """
    if text.isascii():
        return sum(1 for _ in _WORD.finditer(text))
    return sum(is_word for is_word, _ in groupby(text, _is_in_word))


@lru_cache(maxsize=4096)
def _is_in_word(char: str) -> bool:
    return unicodedata.category(char) in _IN_WORDS or any(low <= ord(char) <= high for low, high in _CIRCLED)


def sentences(text: str) -> int:
    """Count sentences by their final marks, and a last one without a mark. Skips abbreviations and list numbers."""
    count = end = 0
    for match in _SENTENCE_END.finditer(text):
        if match[1] == "." and _is_abbreviation(text, match):
            continue
        if _WORD.search(text, end, match.start()) is not None:  # marks alone are not a sentence
            count += 1
        end = match.end()
    return count + (_WORD.search(text, end) is not None)


def _is_abbreviation(text: str, match: re.Match[str]) -> bool:
    before = text[max(0, match.start() - 24) : match.start()]
    if _LIST_NUMBER.search(before):
        return True
    last = _LAST_WORD.search(before)
    word = last[0] if last else ""
    if word.lower() in _NEVER_LAST:
        return True
    if word.lower() in _SELDOM_LAST or (word != "I" and _DOTTED.fullmatch(word)):
        following = text[match.end() : match.end() + 24].lstrip()
        is_initial = len(word) == 1
        return bool(following) and (is_initial or not following[0].isupper())
    return False


def capital_words(text: str) -> int:
    """Count words in capitals, of one letter or more, ignoring punctuation around them.

    As in the Penn Treebank, "I'm" is two words, and so is what a comma or another sign joins.
    """
    words = _TWO_WORDS.sub(r"\1 ", _CONTRACTED.sub(r" \1", _JOINS.sub(" ", text)))
    return sum(1 for word in words.split() if word.strip(_EDGES).isupper())


def starred_paragraphs(text: str) -> int | None:
    """Count paragraphs divided by `***`; None if one between two dividers is empty."""
    paragraphs = [part.strip() for part in text.split("***")]
    if not all(paragraphs[1:-1]):
        return None
    return sum(1 for part in paragraphs if part)


def bullets(text: str) -> int:
    """Count lines that start with `*` or `-`."""
    return sum(1 for line in text.split("\n") if _is_bullet(line.lstrip()))


def _is_bullet(line: str) -> bool:
    return line.startswith("-") or (line.startswith("*") and len(line) > 1 and line[1] != "*")


def placeholders(text: str) -> int:
    """Count placeholders in square brackets, such as `[address]`, each on one line."""
    count = 0
    for line in text.split("\n"):
        end = -1
        while (start := line.find("[", end + 1)) >= 0 and (end := line.find("]", start)) >= 0:
            count += 1
    return count


def highlights(text: str) -> int:
    """Count non-empty highlights in `*stars*` or `**two stars**`, each on one line."""
    single = sum(1 for match in re.finditer(r"\*([^\n*]*)\*", text) if match[1].strip())
    double = sum(1 for match in re.finditer(r"\*\*([^\n*]*)\*\*", text) if match[1].strip())
    return single + double


def has_title(text: str) -> bool:
    """Whether a line has a title in `<<double angular brackets>>`."""
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end and line[start:end].strip("<> \t"):
            return True
    return False
