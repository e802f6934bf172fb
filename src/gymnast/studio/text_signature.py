"""Signatures of texts: which trigrams a record has, in 512 bytes, so that a search reads few records.

A signature has false positives and no false negatives: what it lets through is compared with the text itself. Only
trigrams at even positions are in it, which halves its cost; a word is looked for at both. Bytes are folded to five
bits, so that upper and lower case are equal without a conversion. docs/architecture.md says why this is not FTS5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

BITS: Final = 4096
SIZE_BYTES: Final = BITS // 8
_SPREAD: Final = np.uint16(40503)
"""An odd number, so that neighbouring trigrams set distant bits."""
_BATCH_BYTES: Final = 1 << 17
"""Texts hashed at once: their arrays stay in the processor's cache."""
_MIN_PART: Final = 4
"""Characters of a word that has a trigram at an even position wherever it stands."""
_BACKSLASH: Final = ord("\\")
_UNICODE: Final = ord("u")
Alternatives = tuple[tuple[int, ...], tuple[int, ...]]
"""The bits of a word that stands at an even position of a text, and of one at an odd position."""


def sign_texts(texts: Sequence[bytes]) -> tuple[Bytes, list[int]]:
    """The signatures of JSON texts, one row each, and which of them have escaped characters."""
    signatures = np.empty((len(texts), SIZE_BYTES), np.uint8)
    escaped: list[int] = []
    start = size = 0
    for number, text in enumerate(texts):
        size += len(text) + 2
        if size >= _BATCH_BYTES or number + 1 == len(texts):
            own = texts[start : number + 1]
            flags = np.zeros((len(own), BITS), np.uint8)
            escaped += [start + row for row in _set_flags(flags, own)]
            signatures[start : number + 1] = np.packbits(flags, axis=1)
            start, size = number + 1, 0
    return signatures, escaped


def _set_flags(flags: Bytes, texts: Sequence[bytes]) -> list[int]:
    """Set the flags of some texts, and return which of them have escaped characters."""
    joined = b"\0\0".join([*texts, b"\0\0"])
    hashes = _hash_trigrams(joined)
    start = 0
    for row, text in zip(flags, texts, strict=True):
        end = start + len(text)
        row[hashes[(start + 1) // 2 : max(0, end - 1) // 2]] = 1
        start = end + 2
    characters = np.frombuffer(joined, np.uint8)
    escapes = np.flatnonzero(characters[:-1] == _BACKSLASH)
    if not (characters[escapes + 1] == _UNICODE).any():
        return []
    return [number for number, text in enumerate(texts) if b"\\u" in text]


def _hash_trigrams(text: bytes) -> NDArray[np.intp]:
    """The bits of the trigrams at even positions."""
    pairs = np.frombuffer(text, "<u2", len(text) // 2)
    firsts = pairs & 31
    hashes = firsts[:-1] << 10
    hashes |= (pairs[:-1] >> 3) & 0b1111100000
    hashes |= firsts[1:]
    hashes *= _SPREAD
    hashes >>= 4
    return hashes.astype(np.intp)


def transpose(signatures: Bytes) -> bytes:
    """Signatures with the bytes of one position together, as they are stored: a search reads a few positions of all."""
    return np.ascontiguousarray(signatures.T).tobytes()


def query_bits(words: Sequence[str]) -> list[Alternatives]:
    """The bits that records with these words have. Words without four ASCII letters or digits in a row have none."""
    return [(_bits(part), _bits(part[1:])) for word in words for part in _ascii_parts(word)]


def _bits(part: bytes) -> tuple[int, ...]:
    """The bits of a text that starts at an even position."""
    whole = (len(part) - 1) // 2
    return tuple(sorted(set(_hash_trigrams(part + b"\0\0\0")[:whole].tolist())))


def _ascii_parts(word: str) -> list[bytes]:
    """The letters and digits of a word. Other characters may be escaped in a record's JSON."""
    kept = "".join(character if character.isascii() and character.isalnum() else " " for character in word)
    return [part.encode() for part in kept.split() if len(part) >= _MIN_PART]


def match_parts(column: Callable[[int], bytes], parts: Sequence[Alternatives], count: int) -> NDArray[np.bool_]:
    """Which of `count` records may have all parts. `column(bit)`: the bytes of the bit's position, of each record."""
    flags = {
        bit: (np.frombuffer(column(bit), np.uint8)[:count] & (0x80 >> (bit & 7))) != 0
        for bit in sorted({bit for part in parts for bits in part for bit in bits})
    }
    matches = np.ones(count, np.bool_)
    for part in parts:
        either = np.zeros(count, np.bool_)
        for bits in part:
            found = np.ones(count, np.bool_)
            for bit in bits:
                found &= flags[bit]
            either |= found
        matches &= either
    return matches
