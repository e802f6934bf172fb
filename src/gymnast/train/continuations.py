"""Which conversation a prompt of ids continues, told from the ids alone. Pure.

Between model server and engine only tokens travel. A prompt that begins with everything that another call sent and got
is the next turn of that conversation, and belongs where its prefix is cached. A wrong guess costs that cache, no more.
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


class Continuations:
    """The newest conversations by their tokens.

    Hashes of all beginnings of a prompt are made in one go. Then the longest beginning that is known is looked for from
    the end: a next turn finds its last one after a few lengths, however many conversations there are.
    """

    def __init__(self, most: int = 65536) -> None:
        self._most = most
        self._names: OrderedDict[tuple[int, int], str] = OrderedDict()
        self._times: Counter[int] = Counter()
        self._lengths: list[int] = []
        """Of what is known, each once, in order."""
        self._powers: Hashes = np.empty(0, dtype=np.uint64)

    def name_of(self, prompt: Sequence[int]) -> str | None:
        """The conversation that this prompt continues: the one with which it has most in common."""
        hashes: list[int] = self._hashes(prompt).tolist()
        for place in range(bisect_right(self._lengths, len(hashes)) - 1, -1, -1):
            length = self._lengths[place]
            found = self._names.get((length, hashes[length - 1])) if length else None
            if found is not None:
                return found
        return None

    def remember(self, prompt: Sequence[int], sampled: Sequence[int], name: str) -> None:
        """A call of this conversation has ended."""
        hashes = self._hashes([*prompt, *sampled])
        if not len(hashes):
            return
        key = (len(hashes), int(hashes[-1]))
        if key not in self._names:
            self._times[key[0]] += 1
            if self._times[key[0]] == 1:
                insort(self._lengths, key[0])
        self._names[key] = name
        self._names.move_to_end(key)
        if len(self._names) > self._most:
            (length, _), _ = self._names.popitem(last=False)
            self._times[length] -= 1
            if not self._times[length]:
                del self._times[length]
                self._lengths.remove(length)

    def _hashes(self, ids: Sequence[int]) -> Hashes:
        """For each length the sum of ids times powers of a factor, modulo 2**64."""
        data = np.asarray(ids, dtype=np.uint64)
        if len(data) > len(self._powers):
            factors = np.full(2 * len(data), _FACTOR, dtype=np.uint64)
            self._powers = np.cumprod(factors, dtype=np.uint64)
        found: Hashes = np.cumsum((data + np.uint64(1)) * self._powers[: len(data)], dtype=np.uint64)
        return found
