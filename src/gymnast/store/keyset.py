"""A compact set of rollout keys: one bit each, if tasks are numbered consecutively."""

from __future__ import annotations

from typing import Final

_BITS: Final = 6
_LAST: Final = (1 << _BITS) - 1
_ROLLOUT: Final = (1 << 32) - 1


class KeySet:
    """A set of packed keys. A set of Python integers would take 60 to 100 bytes per key."""

    __slots__ = ("_count", "_pages")

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self._count = 0

    def add(self, packed: int) -> None:
        # Tasks with the same rollout index are adjacent, so that pages fill up whatever the number of repeats.
        position = ((packed & _ROLLOUT) << 64) + (packed >> 32)
        page, bit = position >> _BITS, 1 << (position & _LAST)
        before = self._pages.get(page, 0)
        if not before & bit:
            self._pages[page] = before | bit
            self._count += 1

    def __contains__(self, packed: object) -> bool:
        if not isinstance(packed, int):
            return False
        position = ((packed & _ROLLOUT) << 64) + (packed >> 32)
        return bool(self._pages.get(position >> _BITS, 0) >> (position & _LAST) & 1)

    def __len__(self) -> int:
        return self._count
