"""Attention over blocks of keys and values: of many sequences that each add one token, or of one that adds many.

A position's numbers are the same to the bit by either way, whatever else is computed with it: products are cut into
uniform tiles (`products`), and blocks are added one after the other, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np
from numpy.typing import NDArray

from gymnast.hub.responses_api_models.embedded_model.cache import BLOCK, Cache
from gymnast.hub.responses_api_models.embedded_model.products import Floats, RowProducts


class DecodingLayout:
    """Where the blocks of sequences lie that each add one token; the same for all layers of a step."""

    def __init__(self, products: RowProducts, caches: Sequence[Cache]) -> None:
        self._products = products
        self._used = len(caches[0].pool.owners)
        """Blocks of the pool, those of sequences that do not decode now included: their results are not looked at."""
        self._owner = np.zeros(self._used, np.intp)
        for row, cache in enumerate(caches):
            self._owner[cache.blocks] = row
        self._steps = [_nth_blocks(caches, nth) for nth in range(max(len(cache.blocks) for cache in caches))]
        """Of each place in a sequence: the rows that have a block there, and which block."""
        self._last = np.array([cache.blocks[-1] for cache in caches], np.intp)
        within = np.array([(cache.length - 1) % BLOCK for cache in caches], np.intp)
        self.place = (self._last, slice(None), within)
        """Of the new keys and values in a layer."""
        future = np.arange(BLOCK) > within[:, None]
        self._future: Floats = np.where(future, np.float32(-np.inf), np.float32(0))[:, None, None]

    def attend(self, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """`queries`: (sequence, key-value head, group, width). Keys and values are those of a layer."""
        group = queries.shape[2]
        padded = self._products.pad(queries)
        scores = self._products.multiply(padded[self._owner], keys[: self._used].swapaxes(2, 3))
        scores[self._last] += self._future
        highest = scores.max(axis=-1)
        top = np.full((len(queries), *highest.shape[1:]), -np.inf, np.float32)
        for rows, blocks in self._steps:
            top[rows] = np.maximum(top[rows], highest[blocks])
        scores -= top[self._owner][..., None]
        with np.errstate(over="ignore", invalid="ignore"):  # in blocks of others, which are not looked at
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
    """Where the blocks of one sequence lie that adds several tokens; the same for all layers of a step."""

    def __init__(self, products: RowProducts, cache: Cache, count: int) -> None:
        self._products = products
        self.count = count
        self._blocks = np.array(cache.blocks, np.intp)
        self._positions = np.arange(cache.length - count, cache.length)
        self.place = (self._blocks[self._positions // BLOCK], slice(None), self._positions % BLOCK)
        """Of the new keys and values in a layer."""
        self._future: Floats | None = None

    def attend(self, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """`queries`: (position, key-value head, group, width). Keys and values are those of a layer."""
        count, kv_heads, group, width = queries.shape
        whole = self._products.tile // gcd(self._products.tile, group)  # positions that fill whole tiles
        padded = -(-count // whole) * whole
        asked = np.zeros((padded, kv_heads, group, width), np.float32)
        asked[:count] = queries
        rows = asked.swapaxes(0, 1).reshape(kv_heads, padded * group, width)
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
        """Minus infinity where a row would see what comes after it: (block, 1, row, place)."""
        places = np.arange(len(self._blocks) * BLOCK).reshape(-1, 1, 1, BLOCK)
        rows = np.repeat(self._positions[0] + np.arange(padded), group)[:, None]
        return np.where(places > rows, np.float32(-np.inf), np.float32(0))


def _nth_blocks(caches: Sequence[Cache], nth: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows whose sequences have so many blocks, and the block of each."""
    rows = [row for row, cache in enumerate(caches) if len(cache.blocks) > nth]
    return np.array(rows, np.intp), np.array([caches[row].blocks[nth] for row in rows], np.intp)
