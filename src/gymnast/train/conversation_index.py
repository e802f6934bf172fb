"""Finds the conversation that a prompt continues, from its token ids alone. Pure.

Only tokens travel between model server and inference server. A prompt that starts with all tokens of an earlier call is
the next turn of that conversation and should go where its prefix is cached. A wrong match only costs that cache.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)


class ConversationIndex:
    """The most recent conversations, indexed by their tokens.

    All prefixes of a prompt are hashed in one pass; then the longest known prefix is searched from the end. A next turn
    finds its predecessor after a few lengths, regardless of the number of conversations.
    """

    def __init__(self, max_size: int = 65536) -> None:
        self._max_size = max_size
        self._names: OrderedDict[tuple[int, int], str] = OrderedDict()
        self._length_counts: Counter[int] = Counter()
        self._lengths: list[int] = []
        """Distinct lengths of the known conversations, sorted."""
        self._powers: Hashes = np.empty(0, dtype=np.uint64)

    def name_of(self, prompt: Sequence[int]) -> str | None:
        """The conversation that this prompt continues: the one with the longest common prefix."""
        hashes: list[int] = self._hashes(prompt).tolist()
        for index in range(bisect_right(self._lengths, len(hashes)) - 1, -1, -1):
            length = self._lengths[index]
            name = self._names.get((length, hashes[length - 1])) if length else None
            if name is not None:
                return name
        return None

    def remember(self, prompt: Sequence[int], sampled: Sequence[int], name: str) -> None:
        """Record a finished call of this conversation."""
        hashes = self._hashes([*prompt, *sampled])
        if not len(hashes):
            return
        key = (len(hashes), int(hashes[-1]))
        if key not in self._names:
            self._length_counts[key[0]] += 1
            if self._length_counts[key[0]] == 1:
                insort(self._lengths, key[0])
        self._names[key] = name
        self._names.move_to_end(key)
        if len(self._names) > self._max_size:
            (length, _), _ = self._names.popitem(last=False)
            self._length_counts[length] -= 1
            if not self._length_counts[length]:
                del self._length_counts[length]
                self._lengths.remove(length)

    def _hashes(self, ids: Sequence[int]) -> Hashes:
        """A polynomial hash of each prefix, modulo 2**64."""
        data = np.asarray(ids, dtype=np.uint64)
        if len(data) > len(self._powers):
            factors = np.full(2 * len(data), _FACTOR, dtype=np.uint64)
            self._powers = np.cumprod(factors, dtype=np.uint64)
        hashes: Hashes = np.cumsum((data + np.uint64(1)) * self._powers[: len(data)], dtype=np.uint64)
        return hashes
