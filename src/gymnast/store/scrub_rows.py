"""Masks secrets in blocks of JSON rows: known ones, and what can be nothing else.

Those are keys of services, private keys, and passwords in URLs.

Texts of models are training data, so nothing is masked that may be ordinary text. One lookup per pair of bytes finds
the few places that need a closer look, which is ten times as fast as a regular expression.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gymnast.config.secrets import MASK

if TYPE_CHECKING:
    from gymnast.config.secrets import Scrubber

_PLACES: Final[tuple[tuple[bytes, int, int], ...]] = (
    *((b"sk-", 1, 0), (b"hf_", 1, 0), (b"nvapi-", 4, 0), (b"glpat-", 4, 0), (b"AKIA", 1, 0), (b"AIza", 1, 0)),
    *((b"eyJ", 1, 0), (b"wandb_v1_", 4, 0), (b"PRIVATE KEY-----", 3, 16), (b"://", 0, 3), (b"Bearer ", 0, 7)),
    *((b"gh" + kind + b"_", 2, 0) for kind in (b"p", b"o", b"u", b"s", b"r")),
    *((b"xox" + kind + b"-", 0, 0) for kind in (b"a", b"b", b"p", b"r", b"s")),
)
"""How a secret starts, which pair of its bytes is rare in text, and how many bytes stay."""
_SECRET: Final = re.compile(
    rb"(?:(?<![\w-])|(?<=\\[nrtbf]))"
    rb"(?:sk-(?=[\w-]*\d)[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|nvapi-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    rb"|glpat-[\w-]{12,}|xox[abprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}"
    rb"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|wandb_v1_\w{8,})"
    rb"|(?<=PRIVATE KEY-----)(?:[^\"-]|-(?!----END))+"
    rb"|(?<=://)[^/@\s\"'<>\\{}$*]+:[^/@\s\"'<>\\{}$*]+(?=@[\w\[])"
    rb"|(?<=Bearer )[A-Za-z0-9._~+/-]{20,}=*"
)
_MASK: Final = MASK.encode()


class RowScrubber:
    """Masks secrets and counts them."""

    def __init__(self, scrubber: Scrubber) -> None:
        self.masked = 0
        self._scrubber = scrubber
        self._starts: dict[int, list[tuple[bytes, int, int]]] = {}
        self._is_rare = np.zeros(1 << 16, dtype=bool)
        for start, at, stays in _PLACES:
            pair = int.from_bytes(start[at : at + 2], "little")
            self._is_rare[pair] = True
            self._starts.setdefault(pair, []).append((start, at, stays))

    def scrub(self, block: bytes) -> bytes:
        """Rows without secrets. Rows stay rows of JSON: what is masked has no quotes in it."""
        before = block
        block = self._scrubber.scrub_line(block)
        if block is not before:
            self.masked += block.count(_MASK) - before.count(_MASK)
        return self._mask_tokens(block, places) if (places := self._places(block)) else block

    def _places(self, block: bytes) -> list[int]:
        """Where secrets of known forms may start, ascending."""
        found: set[int] = set()
        for shift in (0, 1):
            count = (len(block) - shift) // 2
            if count <= 0:
                continue
            pairs: Any = np.frombuffer(block, dtype="<u2", count=count, offset=shift)
            for position in np.flatnonzero(self._is_rare[pairs]).tolist():
                at = position * 2 + shift
                for start, offset, stays in self._starts[int(pairs[position])]:
                    if at >= offset and block.startswith(start, at - offset):
                        found.add(at - offset + stays)
        return sorted(found)

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
