"""The bits that the signatures of records with some words have, and which signatures have them.

A word is looked for in UTF-8, in upper and lower case. Characters that JSON escapes are left out: they divide a word
into parts that are looked for each.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.studio.text_signature import hash_trigram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

Alternatives = tuple[tuple[tuple[int, ...], ...], ...]
"""A part of a word at an even or at an odd position of a text: for each of its trigrams, the bits that it may have."""
_Option = frozenset[int]
"""What a byte may be after folding."""
_FOLD: Final = 0x1F
_ANYTHING: Final = frozenset(range(32))
_MIN_PART: Final = 4
"""Bytes of a part that has a trigram at an even position wherever it stands."""
_MIN_SHORT: Final = 2
"""Bytes of a part that has such a trigram together with one unknown byte next to it."""
_MAX_VARIANTS: Final = 32
_ESCAPED: Final = frozenset('"\\')


def query_bits(words: Sequence[str]) -> list[Alternatives]:
    """The bits that records with these words have. Empty if the words are too short to tell."""
    parts = [part for word in words for part in word_parts(word)]
    long = [part for part in parts if len(part) >= _MIN_PART]
    if long:
        return [(_trigrams(part), _trigrams(part[1:])) for part in long]
    # In JSON, a text has a quote on either side, so there is always a byte before and after.
    padded = [[_ANYTHING, *part, _ANYTHING] for part in parts if len(part) >= _MIN_SHORT]
    return [(_trigrams(part), _trigrams(part[1:])) for part in padded]


def word_parts(word: str, fold: int = _FOLD) -> list[list[_Option]]:
    """The bytes of a word, each with what it may be once folded, in pieces without escaped characters."""
    parts: list[list[_Option]] = [[]]
    for character in word:
        options = _options(character, fold)
        if options:
            parts[-1] += options
        else:
            parts.append([])
    return parts


def _options(character: str, fold: int) -> list[_Option]:
    """The bytes of a character in any case; empty if they cannot be told."""
    if character < " " or character in _ESCAPED:
        return []
    upper = character.upper()
    spellings = {character, upper, upper.lower(), character.title()}
    variants = {own for own in spellings if own.casefold() == character.casefold()}
    try:
        encoded = [own.encode() for own in variants]
    except UnicodeEncodeError:
        return []
    if len(set(map(len, encoded))) != 1:
        return []
    return [frozenset(byte & fold for byte in position) for position in zip(*encoded, strict=True)]


def _trigrams(part: Sequence[_Option]) -> tuple[tuple[int, ...], ...]:
    """The bits of the trigrams of a part that starts at an even position."""
    trigrams = [part[start : start + 3] for start in range(0, len(part) - 2, 2)]
    bits = {
        tuple(sorted({hash_trigram(*values) for values in product(*trigram)}))
        for trigram in trigrams
        if np.prod([len(option) for option in trigram]) <= _MAX_VARIANTS
    }
    return tuple(sorted(bits))


def match_parts(column: Callable[[int], bytes], parts: Sequence[Alternatives], count: int) -> Mask:
    """Which of `count` records may have all parts. `column(byte)`: this byte of the signature of each record."""
    columns: dict[int, NDArray[np.uint8]] = {}

    def has_any(bits: tuple[int, ...]) -> Mask:
        masks: dict[int, int] = {}
        for bit in bits:
            masks[bit >> 3] = masks.get(bit >> 3, 0) | 0x80 >> (bit & 7)
        matches = np.zeros(count, np.bool_)
        for byte, mask in masks.items():
            if byte not in columns:
                columns[byte] = np.frombuffer(column(byte), np.uint8)[:count]
            matches |= (columns[byte] & mask) != 0
        return matches

    matches = np.ones(count, np.bool_)
    for part in parts:
        either = np.zeros(count, np.bool_)
        for trigrams in part:
            whole = matches.copy()
            for bits in trigrams:
                whole &= has_any(bits)
            either |= whole
        matches = either
    return matches
