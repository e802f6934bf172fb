"""Signatures of texts: which trigrams a record has, in 512 bytes, so that a search reads few records.

A signature has false positives and no false negatives: what it lets through is compared with the text itself. Only
trigrams at even positions are in it, which halves its cost; a word is looked for at both. Bytes are folded to five
bits, so that upper and lower case are equal without a conversion. `query_bits.py` has the other side: the bits of the
words of a search. docs/architecture.md says why this is not FTS5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

BITS: Final = 4096
SIZE_BYTES: Final = BITS // 8
_FOLD: Final = 0x1F1F
"""Of two bytes."""
_SPREAD: Final = 40503
_SPREAD_THIRD: Final = 109 << 8
"""Odd numbers, so that neighbouring trigrams set distant bits. The shift removes the fourth byte."""
_BATCH_BYTES: Final = 1 << 17
"""Texts hashed at once: their arrays stay in the processor's cache."""
_MAX_ROWS: Final = 64
_BACKSLASH: Final = ord("\\")
_UNICODE: Final = ord("u")
_ESCAPE: Final = b"\\u"


def hash_trigram(first: int, second: int, third: int) -> int:
    """The bit of a trigram of folded bytes."""
    return ((first | second << 8) * _SPREAD + third * _SPREAD_THIRD & 0xFFFF) >> 4


class Signer:
    """Makes signatures. Keeps its arrays: making them anew for every few texts took a tenth of the time."""

    def __init__(self) -> None:
        self._flags = np.empty((_MAX_ROWS, BITS), np.uint8)
        self._scratch = _Scratch(_BATCH_BYTES)

    def sign(self, texts: Sequence[Sequence[Any]]) -> tuple[Bytes, list[int]]:
        """The signatures of JSON texts in parts, one row each, and which of them have escaped characters."""
        signatures = np.empty((len(texts), SIZE_BYTES), np.uint8)
        escaped: list[int] = []
        sizes = [sum(map(len, parts)) + len(parts) - 1 for parts in texts]
        start = size = 0
        for number, own_size in enumerate(sizes, 1):
            size += own_size + 2
            if size >= _BATCH_BYTES or number - start == _MAX_ROWS or number == len(texts):
                flags = self._flags[: number - start]
                flags.fill(0)
                escaped += [start + row for row in self._set_flags(flags, texts[start:number], sizes[start:number])]
                signatures[start:number] = np.packbits(flags, axis=1)
                start, size = number, 0
        return signatures, escaped

    def _set_flags(self, flags: Bytes, texts: Sequence[Sequence[Any]], sizes: Sequence[int]) -> list[int]:
        """Set the flags of some texts, and return which of them have escaped characters."""
        # A zero between the parts of a text, two between texts: neither belongs to a word.
        joined = b"\0".join([part for parts in texts for part in (*parts, b"")] + [b"\0"])
        scratch = self._scratch if len(joined) <= self._scratch.size_bytes else _Scratch(len(joined))
        hashes = scratch.hash(joined)
        start = 0
        for row, size in zip(flags, sizes, strict=True):
            end = start + size
            row[hashes[(start + 1) // 2 : max(0, end - 1) // 2]] = 1
            start = end + 2
        if b"\\" not in joined:
            return []
        characters = np.frombuffer(joined, np.uint8)
        escapes = np.flatnonzero(characters[:-1] == _BACKSLASH)
        if not (characters[escapes + 1] == _UNICODE).any():
            return []
        return [number for number, parts in enumerate(texts) if any(_ESCAPE in bytes(part) for part in parts)]


class _Scratch:
    """Arrays for the hashes of a text of some size."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        pairs = size_bytes // 2
        self._folded = np.empty(pairs, np.uint16)
        self._hashes = np.empty(pairs, np.uint16)
        self._indexes = np.empty(pairs, np.intp)

    def hash(self, text: bytes) -> NDArray[np.intp]:
        """The bits of the trigrams at even positions; valid until the next call."""
        count = len(text) // 2
        folded, hashes, indexes = self._folded[:count], self._hashes[:count], self._indexes[: max(0, count - 1)]
        np.bitwise_and(np.frombuffer(text, "<u2", count), _FOLD, out=folded)
        np.multiply(folded, _SPREAD, out=hashes)
        np.multiply(folded, _SPREAD_THIRD, out=folded)
        hashes[:-1] += folded[1:]
        np.right_shift(hashes, 4, out=hashes)
        indexes[:] = hashes[:-1]
        return indexes


def transpose(signatures: Bytes) -> bytes:
    """Signatures with the bytes of one position together, as they are stored: a search reads a few positions of all."""
    return signatures.T.tobytes()
