"""Masks secrets in blocks of JSON rows: known ones, and what can be nothing else.

Those are keys of services, private keys, and passwords in URLs.

Texts of models are training data, so nothing is masked that may be ordinary text. Bytes that are rare in text lead to
the few places that need a closer look, which is twenty times as fast as a regular expression.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.config.secrets import MASK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.config.secrets import Scrubber

_STARTS: Final[tuple[tuple[bytes, int], ...]] = (
    *((b"sk-", 2), (b"nvapi-", 5), (b"glpat-", 5), (b"hf_", 2), (b"wandb_v1_", 5), (b"eyJ", 2), (b"AKIA", 1)),
    *((b"gh" + kind + b"_", 3) for kind in (b"p", b"o", b"u", b"s", b"r")),
    *((b"xox" + kind + b"-", 4) for kind in (b"a", b"b", b"p", b"r", b"s")),
    *((b"AIza", 1), (b"KEY-----", 3), (b"Bearer ", 0)),
)
"""How secrets start, and where in it a byte is that is rare in text."""
_CAPITALS: Final = (0xF4, 0x40)
"""Mask and value of `@ABC` and `HIJK`: two operations find all of them."""
_OTHERS: Final = b"-_"
_STAYS: Final = {b"KEY-----": 8, b"Bearer ": 7}
"""How much of the start is not secret."""
_MAX_USER: Final = 300
_SECRET: Final = re.compile(
    rb"(?:(?<![\w-])|(?<=\\[nrtbf]))"
    rb"(?:sk-(?=[\w-]*\d)[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|nvapi-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    rb"|glpat-[\w-]{12,}|xox[abprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}"
    rb"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|wandb_v1_\w{8,})"
    rb"|(?<=KEY-----)(?:[^\"\\-]|\\+[nrtbf/]|-(?!----END))+"
    rb"|(?<=://)[^/@\s\"'<>\\{}$*]+:[^/@\s\"'<>\\{}$*]+(?=@[\w\[])"
    rb"|(?<=Bearer )[A-Za-z0-9._~+/-]{20,}=*"
)
_MASK: Final = MASK.encode()


class RowScrubber:
    """Masks secrets and counts them."""

    def __init__(self, scrubber: Scrubber) -> None:
        self.masked = 0
        self._scrubber = scrubber
        # New memory for every block would cost more than the search.
        self._scratch = np.empty((2, 1 << 17), dtype=np.uint8)
        self._starts: dict[int, list[tuple[bytes, int]]] = {}
        # Which bytes may be one and two places before a rare byte.
        self._before = np.zeros((2, 256, 256), dtype=bool)
        for start, at in _STARTS:
            self._starts.setdefault(start[at], []).append((start, at))
            for distance, table in enumerate(self._before, 1):
                table[start[at - distance] if at >= distance else slice(None), start[at]] = True
        self._before[:, :, ord("@")] = True

    def scrub(self, block: bytes) -> bytes:
        """Rows without secrets. Rows stay rows of JSON: what is masked has no quotes in it."""
        before = block
        block = self._scrubber.scrub_line(block)
        if block is not before:
            self.masked += block.count(_MASK) - before.count(_MASK)
        return self._mask_tokens(block, places) if (places := self._places(block)) else block

    def _places(self, block: bytes) -> list[int]:
        """Where secrets of known forms may start, ascending."""
        data, size = np.frombuffer(block, dtype=np.uint8), len(block)
        if self._scratch.shape[1] < size:
            self._scratch = np.empty((2, size), dtype=np.uint8)
        own, is_rare = self._scratch[0, :size], self._scratch[1, :size].view(bool)
        np.equal(np.bitwise_and(data, _CAPITALS[0], out=own), _CAPITALS[1], out=is_rare)
        for byte in _OTHERS:
            is_rare |= np.equal(data, byte, out=own.view(bool))
        rare = np.flatnonzero(is_rare)
        for distance, table in enumerate(self._before, 1):
            rare = rare[table[data[rare - distance], data[rare]]]
        starts: set[int] = set()
        for at in rare.tolist():
            starts.update(self._starts_at(block, at))
        return sorted(starts)

    def _starts_at(self, block: bytes, at: int) -> Iterator[int]:
        if block[at] == ord("@"):
            url = block.rfind(b"://", max(0, at - _MAX_USER), at)
            if url >= 0:
                yield url + 3
            return
        for opening, offset in self._starts[block[at]]:
            if at >= offset and block.startswith(opening, at - offset):
                yield at - offset + _STAYS.get(opening, 0)

    def _mask_tokens(self, block: bytes, places: list[int]) -> bytes:
        parts: list[bytes] = []
        end = 0
        for place in places:
            match = _SECRET.match(block, place) if place >= end else None
            if match is None:
                continue
            parts += (block[end : match.start()], _MASK)
            end = match.end()
            self.masked += 1
        if not parts:
            return block
        parts.append(block[end:])
        return b"".join(parts)
