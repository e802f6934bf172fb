"""Signatures of texts: which trigrams a record has, in 512 bytes, so that a search reads few records.

A signature has false positives and no false negatives: what it lets through is compared with the text itself. Only
trigrams at even positions are in it, which halves its cost; a word is looked for at both. Bytes are folded to five
bits, so that upper and lower case are equal without a conversion. `query_bits.py` has the other side: the bits of the
words of a search. docs/architecture.md says why this is not FTS5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gymnast.studio.line_files import Batch

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
_MIN_PAIRS: Final = 2
_ESCAPE: Final = b"\\u"
_ESCAPE_PAIR: Final = np.uint16(int.from_bytes(_ESCAPE, "little"))


def hash_trigram(first: int, second: int, third: int) -> int:
    """The bit of a trigram of folded bytes."""
    return ((first | second << 8) * _SPREAD + third * _SPREAD_THIRD & 0xFFFF) >> 4


class Signer:
    """Makes signatures. Keeps its arrays: making new ones for every few texts took a tenth of the time."""

    def __init__(self) -> None:
        self._flags = np.empty((_MAX_ROWS, BITS), np.uint8)
        self._scratch = _Scratch(_BATCH_BYTES)

    def sign(self, batch: Batch) -> tuple[Bytes, list[int]]:
        """The signatures of JSON texts, one row each, and which of them may have escaped characters.

        The last three bytes of a text are not searched.
        """
        text, starts, ends = batch.data, batch.starts.tolist(), batch.ends.tolist()
        signatures = np.empty((len(starts), SIZE_BYTES), np.uint8)
        escaped: list[int] = []
        first = 0
        while first < len(starts):
            base, last = starts[first] & ~1, first + 1
            while last < len(starts) and last - first < _MAX_ROWS and ends[last] - base <= _BATCH_BYTES:
                last += 1
            flags = self._flags[: last - first]
            flags.fill(0)
            if self._set_flags(flags, text, starts[first:last], ends[first:last]):
                escaped += [number for number in range(first, last) if _ESCAPE in text[starts[number] : ends[number]]]
            signatures[first:last] = np.packbits(flags, axis=1)
            first = last
        return signatures, escaped

    def _set_flags(self, flags: Bytes, text: bytes, starts: list[int], ends: list[int]) -> bool:
        """Set the flags of some texts, and return whether they have escaped characters."""
        base = starts[0] & ~1
        count = min((ends[-1] - base + 1) // 2 + 1, (len(text) - base) // 2)
        if count < _MIN_PAIRS:
            return False
        scratch = self._scratch if count <= self._scratch.pairs else _Scratch(2 * count)
        hashes = scratch.hash(np.frombuffer(text, "<u2", count, base))
        for row, start, end in zip(flags, starts, ends, strict=True):
            row[hashes[(start - base + 1) // 2 : (end - base - 1) // 2]] = 1
        return scratch.has_escape(text, base, count)


class _Scratch:
    """Arrays for the hashes of a text of some size."""

    def __init__(self, size_bytes: int) -> None:
        self.pairs = size_bytes // 2
        self._folded = np.empty(self.pairs, np.uint16)
        self._hashes = np.empty(self.pairs, np.uint16)
        self._indexes = np.empty(self.pairs, np.intp)
        self._is_escape = np.empty(self.pairs, np.bool_)

    def has_escape(self, text: bytes, start: int, pairs: int) -> bool:
        """Whether a text has a character that is escaped as a number, in these pairs of bytes."""
        is_escape = self._is_escape[:pairs]
        for offset, count in ((start, pairs), (start + 1, pairs - 1)):
            np.equal(np.frombuffer(text, "<u2", count, offset), _ESCAPE_PAIR, out=is_escape[:count])
            if is_escape[:count].any():
                return True
        return False

    def hash(self, text: NDArray[np.uint16]) -> NDArray[np.intp]:
        """The bits of the trigrams at even positions of a text in pairs of bytes; valid until the next call."""
        count = len(text)
        folded, hashes, indexes = self._folded[:count], self._hashes[:count], self._indexes[: count - 1]
        np.bitwise_and(text, _FOLD, out=folded)
        np.multiply(folded, _SPREAD, out=hashes)
        np.multiply(folded, _SPREAD_THIRD, out=folded)
        hashes[:-1] += folded[1:]
        np.right_shift(hashes, 4, out=hashes)
        indexes[:] = hashes[:-1]
        return indexes


def transpose(signatures: Bytes) -> bytes:
    """Signatures with the bytes of one position together, as they are stored: a search reads a few positions of all."""
    return signatures.T.tobytes()
