"""Attention over blocks of keys and values: of many sequences that each add one token, or of one that adds many.

Products have the same shape whatever else runs and however long the others are, and blocks are summed one after the
other: measured on OpenBLAS, a sequence's numbers are then the same to the bit alone and in company.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gymnast.hub.responses_api_models.embedded_model.cache import BLOCK, Cache, Floats

_ROWS: Final = 12
"""Rows of a prompt's product at least: OpenBLAS sums smaller ones in another order."""


class DecodingLayout:
    """Where the blocks of sequences lie that each add one token; the same for all layers of a step."""

    def __init__(self, caches: Sequence[Cache]) -> None:
        self._used = len(caches[0].pool.owners)
        """Blocks of the pool, those of sequences that do not decode now included: their results are not looked at."""
        counts = [len(cache.blocks) for cache in caches]
        self._order = np.array([block for cache in caches for block in cache.blocks], np.intp)
        """The blocks, sequence by sequence."""
        self._starts = np.cumsum([0, *counts[:-1]])
        self._owner = np.zeros(self._used, np.intp)
        self._owner[self._order] = np.repeat(np.arange(len(caches)), counts)
        self._last = np.array([cache.blocks[-1] for cache in caches], np.intp)
        within = np.array([(cache.length - 1) % BLOCK for cache in caches], np.intp)
        self.place = (self._last, slice(None), within)
        """Of the new keys and values in a layer."""
        future = np.arange(BLOCK) > within[:, None]
        self._future: Floats = np.where(future, np.float32(-np.inf), np.float32(0))[:, None, None]

    def attend(self, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """`queries`: (sequence, key-value head, group, width). Keys and values are those of a layer."""
        scores = queries[self._owner] @ keys[: self._used].swapaxes(2, 3)
        scores[self._last] += self._future
        top = np.maximum.reduceat(scores.max(axis=-1)[self._order], self._starts)
        scores -= top[self._owner][..., None]
        with np.errstate(over="ignore", invalid="ignore"):  # in blocks of others, which are not looked at
            np.exp(scores, out=scores)
            seen = scores @ values[: self._used]
        weight = np.add.reduceat(scores.sum(axis=-1)[self._order], self._starts)
        mixed = np.add.reduceat(seen[self._order], self._starts) / weight[..., None]
        return mixed.astype(np.float32, copy=False)


class PromptLayout:
    """Where the blocks of one sequence lie that adds several tokens; the same for all layers of a step."""

    def __init__(self, cache: Cache, count: int) -> None:
        self.count = count
        self._blocks = np.array(cache.blocks, np.intp)
        self._positions = np.arange(cache.length - count, cache.length)
        self.place = (self._blocks[self._positions // BLOCK], slice(None), self._positions % BLOCK)
        """Of the new keys and values in a layer."""
        self._future: Floats | None = None

    def attend(self, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """`queries`: (position, key-value head, group, width). Keys and values are those of a layer."""
        count, kv_heads, group, width = queries.shape
        padded = max(count, -(-_ROWS // group))
        asked = np.zeros((padded, kv_heads, group, width), np.float32)
        asked[:count] = queries
        rows = asked.swapaxes(0, 1).reshape(kv_heads, padded * group, width)
        scores = rows @ keys[self._blocks].swapaxes(2, 3)
        if self._future is None:
            self._future = self._after(padded, group)
        scores += self._future
        scores -= scores.max(axis=(0, 3))[None, :, :, None]
        np.exp(scores, out=scores)
        weight = scores.sum(axis=-1).sum(axis=0)
        mixed = (scores @ values[self._blocks]).sum(axis=0) / weight[..., None]
        merged: Floats = mixed.reshape(kv_heads, padded, group, width).swapaxes(0, 1)
        return merged[:count]

    def _after(self, padded: int, group: int) -> Floats:
        """Minus infinity where a row would see what comes after it: (block, 1, row, place)."""
        places = np.arange(len(self._blocks) * BLOCK).reshape(-1, 1, 1, BLOCK)
        rows = np.repeat(self._positions[0] + np.arange(padded), group)[:, None]
        return np.where(places > rows, np.float32(-np.inf), np.float32(0))
