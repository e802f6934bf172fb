"""A set of rollout keys that hardly grows: a bit for each, where tasks are numbered one after the other."""

from __future__ import annotations

from typing import Final

_BITS: Final = 6
_LAST: Final = (1 << _BITS) - 1
_ROLLOUT: Final = (1 << 32) - 1


class KeySet:
    """Packed keys. A set of Python numbers takes 60 to 100 bytes a key, which is memory that grows with the run."""

    __slots__ = ("_count", "_pages")

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self._count = 0

    def add(self, packed: int) -> None:
        # Tasks of one rollout index lie side by side, so that a page fills up whatever the number of repeats.
        place = ((packed & _ROLLOUT) << 64) + (packed >> 32)
        page, bit = place >> _BITS, 1 << (place & _LAST)
        before = self._pages.get(page, 0)
        if not before & bit:
            self._pages[page] = before | bit
            self._count += 1

    def __contains__(self, packed: object) -> bool:
        if not isinstance(packed, int):
            return False
        place = ((packed & _ROLLOUT) << 64) + (packed >> 32)
        return bool(self._pages.get(place >> _BITS, 0) >> (place & _LAST) & 1)

    def __len__(self) -> int:
        return self._count
