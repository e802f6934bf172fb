"""Keys and values of sequences in blocks of one pool, so that attention can be computed for all of them together.

The used blocks are always contiguous at the front of the pool: when one is freed, the last one moves into its slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from .products import Floats

if TYPE_CHECKING:
    from .transformer import Shape

BLOCK: Final = 128
"""Positions per block."""
_FIRST_BLOCKS: Final = 8


class Pool:
    """Blocks of (layer, block, key-value head, position, width)."""

    def __init__(self, shape: Shape) -> None:
        self._size = (shape.layers, _FIRST_BLOCKS, shape.kv_heads, BLOCK, shape.head_width)
        self.keys: Floats = np.zeros(self._size, np.float32)
        self.values: Floats = np.zeros(self._size, np.float32)
        self.owners: list[tuple[Cache, int]] = []
        """The owner of each used block, and its index among the owner's blocks."""

    def take(self, cache: Cache) -> None:
        """Give a cache one more block."""
        if len(self.owners) == self.keys.shape[1]:
            self.keys, self.values = _double(self.keys), _double(self.values)
        cache.blocks.append(len(self.owners))
        self.owners.append((cache, len(cache.blocks) - 1))

    def free(self, block: int) -> None:
        last = len(self.owners) - 1
        owner, index = self.owners.pop()
        if block != last:
            self.keys[:, block], self.values[:, block] = self.keys[:, last], self.values[:, last]
            self.owners[block] = (owner, index)
            owner.blocks[index] = block


@dataclass(frozen=True, slots=True)
class SavedBlocks:
    """A copy of a sequence's keys and values outside of the pool."""

    keys: Floats
    values: Floats

    @property
    def size_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


class Cache:
    """The keys and values of one sequence."""

    __slots__ = ("blocks", "length", "pool")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.blocks: list[int] = []
        self.length = 0

    @classmethod
    def from_saved(cls, pool: Pool, saved: SavedBlocks, length: int) -> Cache:
        """A cache with the first `length` positions of saved blocks."""
        cache = cls(pool)
        cache.grow(length)
        count = len(cache.blocks)
        pool.keys[:, cache.blocks] = saved.keys[:, :count]
        pool.values[:, cache.blocks] = saved.values[:, :count]
        return cache

    def grow(self, count: int) -> None:
        """Make room for `count` more positions."""
        self.length += count
        while len(self.blocks) * BLOCK < self.length:
            self.pool.take(self)

    def save(self) -> SavedBlocks:
        """Copy the keys and values out of the pool."""
        return SavedBlocks(self.pool.keys[:, self.blocks], self.pool.values[:, self.blocks])

    def free(self) -> None:
        """Return all blocks to the pool."""
        while self.blocks:
            block = self.blocks[-1]
            self.pool.free(block)
            self.blocks.pop()
        self.length = 0


def _double(array: Floats) -> Floats:
    layers, have, *rest = array.shape
    doubled: Floats = np.zeros((layers, 2 * have, *rest), np.float32)
    doubled[:, :have] = array
    return doubled
