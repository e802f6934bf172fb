"""Which conversation a prompt of ids continues, told from the ids alone. Pure.

Between model server and engine only tokens travel. A prompt that begins with everything that another call sent and got
is the next turn of that conversation, and belongs where its prefix is cached.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


class Continuations:
    """The newest conversations by their last tokens."""

    def __init__(self, most: int = 65536) -> None:
        self._most = most
        self._names: OrderedDict[tuple[int, bytes], str] = OrderedDict()
        self._lengths: Counter[int] = Counter()

    def name_of(self, prompt: Sequence[int]) -> str | None:
        """The conversation that this prompt continues: the one with which it has most in common."""
        data = np.asarray(prompt, dtype=np.int64)
        digest = hashlib.blake2b(digest_size=16)
        done = 0
        found = None
        for length in sorted(length for length in self._lengths if length <= len(data)):
            digest.update(data[done:length].tobytes())
            done = length
            found = self._names.get((length, digest.copy().digest()), found)
        return found

    def remember(self, prompt: Sequence[int], sampled: Sequence[int], name: str) -> None:
        """A call of this conversation has ended."""
        data = np.concatenate([np.asarray(prompt, dtype=np.int64), np.asarray(sampled, dtype=np.int64)])
        key = (len(data), hashlib.blake2b(data.tobytes(), digest_size=16).digest())
        if key not in self._names:
            self._lengths[key[0]] += 1
        self._names[key] = name
        self._names.move_to_end(key)
        if len(self._names) > self._most:
            (length, _), _ = self._names.popitem(last=False)
            self._lengths[length] -= 1
            if not self._lengths[length]:
                del self._lengths[length]
