"""The lines of a caller's rows. Those of a group differ only in their identity: the rest is stored once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, overload

from gymnast.types.task import ROLLOUT_ID

_IDENTITY: Final = f',"{ROLLOUT_ID}":'.encode()
_Parts = tuple[bytes, bytes]


class RowLines(Sequence[bytes]):
    """Lines in order. Consecutive ones share what they have in common before the rollout's id."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._parts: list[_Parts] = []
        before = b""
        for line in lines:
            cut = max(line.rfind(_IDENTITY), 0)
            if line[:cut] != before:
                before = line[:cut]
            # An exact copy: the allocation of a line that orjson returns has up to 3 KB of unused space.
            self._parts.append((before, bytes(memoryview(line)[cut:])))

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [start + end for start, end in self._parts[index]]
        start, end = self._parts[index]
        return start + end
