"""Signatures of texts: which trigrams a record has, in 512 bytes, so that a search reads few records.

A signature has false positives and no false negatives for ASCII words: what it lets through is compared with the text
itself. Bytes are folded to five bits, which makes upper and lower case equal without a conversion. See
docs/architecture.md for why this is not FTS5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Hashes = NDArray[np.uint16]

BITS: Final = 4096
SIZE_BYTES: Final = BITS // 8
_SPREAD: Final = np.uint16(40503)
"""An odd number, so that neighbouring trigrams set distant bits."""
_BATCH_BYTES: Final = 1 << 15
"""Texts hashed at once: their arrays stay in the processor's cache."""
_MIN_TEXT: Final = 3


def sign_texts(texts: Sequence[bytes]) -> Bytes:
    """The signatures of texts, one row each."""
    flags = np.zeros((len(texts), BITS), np.uint8)
    start = size = 0
    for number, text in enumerate(texts):
        size += len(text) + 2
        if size >= _BATCH_BYTES or number + 1 == len(texts):
            _set_flags(flags[start : number + 1], texts[start : number + 1])
            start, size = number + 1, 0
    signatures: Bytes = np.packbits(flags, axis=1)
    return signatures


def _set_flags(flags: Bytes, texts: Sequence[bytes]) -> None:
    hashes = _hash_trigrams(b"\0\0".join(texts))
    start = 0
    for row, text in zip(flags, texts, strict=True):
        row[hashes[start : start + max(0, len(text) - 2)]] = 1
        start += len(text) + 2


def _hash_trigrams(text: bytes) -> NDArray[np.intp]:
    if len(text) < _MIN_TEXT:
        return np.empty(0, np.intp)
    folded = (np.frombuffer(text, np.uint8) & 31).astype(np.uint16)
    hashes = folded[:-2] << 10
    hashes |= folded[1:-1] << 5
    hashes |= folded[2:]
    hashes *= _SPREAD
    hashes >>= 4
    return hashes.astype(np.intp)


def transpose(signatures: Bytes) -> bytes:
    """Signatures with the bytes of one position together, as they are stored: a search reads a few positions of all."""
    return np.ascontiguousarray(signatures.T).tobytes()


def query_bits(words: Sequence[str]) -> list[int]:
    """The bits that every record with these words has. Words shorter than three ASCII characters have none."""
    bits: set[int] = set()
    for word in words:
        for part in _ascii_parts(word):
            bits.update(_hash_trigrams(part).tolist())
    return sorted(bits)


def _ascii_parts(word: str) -> list[bytes]:
    """The letters and digits of a word. Other characters may be escaped in a record's JSON."""
    kept = "".join(character if character.isascii() and character.isalnum() else " " for character in word)
    return [part.encode() for part in kept.split() if len(part) >= _MIN_TEXT]


def match_bits(columns: Sequence[bytes], bits: Sequence[int], count: int) -> NDArray[np.bool_]:
    """Which of `count` records have all bits. `columns[i]`: the bytes of the position of `bits[i]`, of each record."""
    matches = np.ones(count, np.bool_)
    for column, bit in zip(columns, bits, strict=True):
        matches &= (np.frombuffer(column, np.uint8)[:count] & (0x80 >> (bit & 7))) != 0
    return matches
