"""Attention over blocks of keys and values: of many sequences that each add one token, or of one that adds many.

Products have the same shape whatever else runs and however long the others are, and blocks are summed one after the
other: measured on OpenBLAS, a sequence's numbers are then the same to the bit alone and in company.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gymnast.hub.responses_api_models.embedded_model.cache import BLOCK, Cache, Floats

_ROWS: Final = 12
"""Rows of a prompt's product at least: OpenBLAS sums smaller ones in another order."""


class DecodingLayout:
    """Where the blocks of sequences lie that each add one token; the same for all layers of a step."""

    def __init__(self, caches: Sequence[Cache]) -> None:
        self.used = len(caches[0].pool.owners)
        """Blocks of the pool, those of sequences that do not decode now included: their results are not looked at."""
        counts = [len(cache.blocks) for cache in caches]
        self.order = np.array([block for cache in caches for block in cache.blocks], np.intp)
        """The blocks, sequence by sequence."""
        self.starts = np.cumsum([0, *counts[:-1]])
        self.owner = np.zeros(self.used, np.intp)
        self.owner[self.order] = np.repeat(np.arange(len(caches)), counts)
        self.last = np.array([cache.blocks[-1] for cache in caches], np.intp)
        self.place = np.array([(cache.length - 1) % BLOCK for cache in caches], np.intp)
        future = np.arange(BLOCK) > self.place[:, None]
        self.future: Floats = np.where(future, np.float32(-np.inf), np.float32(0))[:, None, None]

    def attend(self, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """`queries`: (sequence, key-value head, group, width). Keys and values are those of a layer."""
        scores = queries[self.owner] @ keys[: self.used].swapaxes(2, 3)
        scores[self.last] += self.future
        top = np.maximum.reduceat(scores.max(axis=-1)[self.order], self.starts)
        scores -= top[self.owner][..., None]
        with np.errstate(over="ignore", invalid="ignore"):  # in blocks of others, which are not looked at
            np.exp(scores, out=scores)
            seen = scores @ values[: self.used]
        weight = np.add.reduceat(scores.sum(axis=-1)[self.order], self.starts)
        mixed = np.add.reduceat(seen[self.order], self.starts) / weight[..., None]
        return mixed.astype(np.float32, copy=False)


def attend_prompt(queries: Floats, keys: Floats, values: Floats, length: int) -> Floats:
    """What the last positions of a sequence of `length` see.

    `queries`: (position, key-value head, group, width). Keys and values: (block, key-value head, place, width).
    """
    count, kv_heads, group, width = queries.shape
    padded = max(count, -(-_ROWS // group))
    asked = np.zeros((padded, kv_heads, group, width), np.float32)
    asked[:count] = queries
    rows = asked.swapaxes(0, 1).reshape(kv_heads, padded * group, width)
    scores = rows @ keys.swapaxes(2, 3)
    scores += _future(length - count, padded, group, len(keys))
    scores -= scores.max(axis=(0, 3))[None, :, :, None]
    np.exp(scores, out=scores)
    weight = scores.sum(axis=-1).sum(axis=0)
    mixed = (scores @ values).sum(axis=0) / weight[..., None]
    merged: Floats = mixed.reshape(kv_heads, padded, group, width).swapaxes(0, 1)
    return merged[:count]


def _future(start: int, count: int, group: int, blocks: int) -> NDArray[np.float32]:
    """Minus infinity where a row would see what comes after it: (block, 1, row, place)."""
    places = np.arange(blocks * BLOCK).reshape(blocks, 1, 1, BLOCK)
    rows = np.repeat(np.arange(start, start + count), group)[:, None]
    return np.where(places > rows, np.float32(-np.inf), np.float32(0))
