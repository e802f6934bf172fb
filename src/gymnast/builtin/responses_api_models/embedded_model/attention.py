"""Attention over blocks of keys and values: for many sequences that each add one token, or for one that adds many.

The result of a position is bit-identical either way, regardless of what is computed with it: products are cut into
uniform tiles (`products`), and blocks are added one by one, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np
from numpy.typing import NDArray

from .cache import BLOCK, Cache
from .products import Floats, RowProducts


class DecodingLayout:
    """The blocks of sequences that each add one token; the same for all layers of a step."""

    def __init__(self, products: RowProducts, caches: Sequence[Cache]) -> None:
        self._products = products
        self._used = len(caches[0].pool.owners)
        """Blocks of the pool, including those of sequences that do not decode now, whose results are ignored."""
        self._owner = np.zeros(self._used, np.intp)
        for row, cache in enumerate(caches):
            self._owner[cache.blocks] = row
        self._steps = [_nth_blocks(caches, nth) for nth in range(max(len(cache.blocks) for cache in caches))]
        """For each n: the rows that have an n-th block, and which block it is."""
        self._last = np.array([cache.blocks[-1] for cache in caches], np.intp)
        within = np.array([(cache.length - 1) % BLOCK for cache in caches], np.intp)
        self.index = (self._last, slice(None), within)
        """The index of the new keys and values in a layer."""
        future = np.arange(BLOCK) > within[:, None]
        self._future: Floats = np.where(future, np.float32(-np.inf), np.float32(0))[:, None, None]

    def attend(self, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Attend in one layer. `queries`: (sequence, key-value head, group, width)."""
        group = queries.shape[2]
        padded = self._products.pad(queries)
        scores = self._products.multiply(padded[self._owner], keys[: self._used].swapaxes(2, 3))
        scores[self._last] += self._future
        highest = scores.max(axis=-1)
        top = np.full((len(queries), *highest.shape[1:]), -np.inf, np.float32)
        for rows, blocks in self._steps:
            top[rows] = np.maximum(top[rows], highest[blocks])
        scores -= top[self._owner][..., None]
        with np.errstate(over="ignore", invalid="ignore"):  # in blocks of other sequences, which are ignored
            np.exp(scores, out=scores)
            seen = self._products.multiply(scores, values[: self._used])
            shares = scores.sum(axis=-1)
        weight, mixed = np.zeros_like(top), np.zeros_like(padded)
        for rows, blocks in self._steps:
            weight[rows] += shares[blocks]
            mixed[rows] += seen[blocks]
        mixed /= weight[..., None]
        return mixed[:, :, :group]


class PromptLayout:
    """The blocks of one sequence that adds several tokens; the same for all layers of a step."""

    def __init__(self, products: RowProducts, cache: Cache, count: int) -> None:
        self._products = products
        self.count = count
        self._blocks = np.array(cache.blocks, np.intp)
        self._positions = np.arange(cache.length - count, cache.length)
        self.index = (self._blocks[self._positions // BLOCK], slice(None), self._positions % BLOCK)
        """The index of the new keys and values in a layer."""
        self._future: Floats | None = None

    def attend(self, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Attend in one layer. `queries`: (position, key-value head, group, width)."""
        count, kv_heads, group, width = queries.shape
        whole = self._products.tile // gcd(self._products.tile, group)  # positions that fill whole tiles
        padded = -(-count // whole) * whole
        filled = np.zeros((padded, kv_heads, group, width), np.float32)
        filled[:count] = queries
        rows = filled.swapaxes(0, 1).reshape(kv_heads, padded * group, width)
        scores = self._products.multiply(rows, keys[self._blocks].swapaxes(2, 3))
        if self._future is None:
            self._future = self._after(padded, group)
        scores += self._future
        scores -= scores.max(axis=(0, 3))[None, :, :, None]
        np.exp(scores, out=scores)
        weight, mixed = np.zeros(scores.shape[1:3], np.float32), np.zeros_like(rows)
        for shares, seen in zip(
            scores.sum(axis=-1), self._products.multiply(scores, values[self._blocks]), strict=True
        ):
            weight += shares
            mixed += seen
        mixed /= weight[..., None]
        merged: Floats = mixed.reshape(kv_heads, padded, group, width).swapaxes(0, 1)
        return merged[:count]

    def _after(self, padded: int, group: int) -> Floats:
        """The causal mask, minus infinity for later positions: (block, 1, row, position)."""
        positions = np.arange(len(self._blocks) * BLOCK).reshape(-1, 1, 1, BLOCK)
        rows = np.repeat(self._positions[0] + np.arange(padded), group)[:, None]
        return np.where(positions > rows, np.float32(-np.inf), np.float32(0))


def _nth_blocks(caches: Sequence[Cache], nth: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows whose sequences have an n-th block, and the block of each."""
    rows = [row for row, cache in enumerate(caches) if len(cache.blocks) > nth]
    return np.array(rows, np.intp), np.array([caches[row].blocks[nth] for row in rows], np.intp)
