"""Continuous batching: sequences join and leave between steps, and the caches of earlier turns are reused.

`Batch` is the pure core: add sequences, call `step`, take finished ones. It uses no threads and no clock.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gymnast.kit import Finish, Sampling

from .cache import Cache, Pool, SavedBlocks
from .sampling import choose, log_probabilities
from .transformer import Transformer

PREFILL: Final = 512
"""Maximum prompt tokens per step, so that running sequences do not wait long for new ones."""
_CACHE_BYTES: Final = 256 * 1024 * 1024
_MIN_REUSED: Final = 16


@dataclass(slots=True, eq=False)
class Generation:
    """A request: its prompt, its sampling parameters, and the tokens sampled so far."""

    prompt: Sequence[int]
    sampling: Sampling
    seed: int
    """The seed of its own random numbers, independent of other sequences."""
    max_tokens: int
    """Maximum number of tokens to sample."""
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Finish | None = None
    reused: int = 0
    is_cancelled: bool = False
    """Set from outside; the next step drops the sequence."""
    weights: list[tuple[str, int]] = field(default_factory=list)
    """Versions of the weights, each with the index in `sampled` at which it starts."""


@dataclass(slots=True, eq=False)
class _ActiveSequence:
    sequence: Generation
    cache: Cache
    pending: list[int]
    """Tokens whose keys and values are not computed yet."""
    rng: np.random.Generator


class Batch:
    """The waiting and running sequences, and the prefix cache of finished ones."""

    def __init__(self, transformer: Transformer, *, max_batch: int, cache_bytes: int = _CACHE_BYTES) -> None:
        self._transformer = transformer
        self._max_batch = max_batch
        self._waiting: deque[Generation] = deque()
        self._running: list[_ActiveSequence] = []
        self._cache_bytes = cache_bytes
        self.clear()

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._running

    def add(self, sequence: Generation) -> None:
        """Add a sequence, which joins as soon as there is room."""
        self._waiting.append(sequence)

    def clear(self) -> None:
        """Drop everything: after a failed step the state of the caches is unknown."""
        self._waiting.clear()
        self._running.clear()
        self._pool = Pool(self._transformer.shape)
        self._prefix_cache = _PrefixCache(self._cache_bytes)

    def change(self, transformer: Transformer) -> None:
        """Use other weights of the same shape. Running sequences keep their keys and values."""
        self._transformer = transformer
        self._prefix_cache = _PrefixCache(self._cache_bytes)

    def step(self) -> list[Generation]:
        """Compute one step; returns the sequences that finished."""
        cancelled = self._drop_cancelled()
        while self._waiting and len(self._running) < self._max_batch:
            self._running.append(self._start(self._waiting.popleft()))
        portions = self._portions()
        if not portions:
            return cancelled
        decoding = sum(bool(running.sequence.sampled) for running, _ in portions)
        logits = self._transformer.forward([(running.cache, ids) for running, ids in portions], decoding=decoding)
        logprobs = log_probabilities(logits)
        for (running, _), row in zip(portions, logprobs, strict=True):
            if not running.pending:
                self._sample(running, row)
        finished = [running for running in self._running if running.sequence.finish]
        for running in finished:
            self._running.remove(running)
            self._prefix_cache.keep(
                [*running.sequence.prompt, *running.sequence.sampled][: running.cache.length], running.cache.save()
            )
            running.cache.free()
        return [*cancelled, *(running.sequence for running in finished)]

    def _start(self, sequence: Generation) -> _ActiveSequence:
        cache = self._prefix_cache.find_longest(sequence.prompt, self._pool) or Cache(self._pool)
        sequence.reused = cache.length
        rng = np.random.Generator(np.random.PCG64(sequence.seed))
        return _ActiveSequence(sequence, cache, list(sequence.prompt[cache.length :]), rng)

    def _portions(self) -> list[tuple[_ActiveSequence, list[int]]]:
        """What to compute in this step: a token of each decoding sequence, then parts of the prompts."""
        portions = [(running, running.pending) for running in self._running if running.sequence.sampled]
        room = PREFILL
        for running in self._running:
            if not running.sequence.sampled and room:
                portions.append((running, running.pending[:room]))
                room -= len(portions[-1][1])
        for running, ids in portions:
            running.pending = running.pending[len(ids) :]
        return portions

    def _sample(self, running: _ActiveSequence, logprobs: NDArray[np.float64]) -> None:
        sequence = running.sequence
        token = choose(logprobs, sequence.sampling, running.rng.random())
        sequence.sampled.append(token)
        sequence.logprobs.append(float(logprobs[token]))
        running.pending = [token]
        if token in sequence.sampling.stop_token_ids:
            sequence.finish = "stop"
        elif len(sequence.sampled) >= sequence.max_tokens:
            sequence.finish = "length"

    def _drop_cancelled(self) -> list[Generation]:
        cancelled = [running.sequence for running in self._running if running.sequence.is_cancelled]
        cancelled += [sequence for sequence in self._waiting if sequence.is_cancelled]
        if cancelled:
            for running in self._running:
                if running.sequence.is_cancelled:
                    running.cache.free()
            self._running = [running for running in self._running if not running.sequence.is_cancelled]
            self._waiting = deque(sequence for sequence in self._waiting if not sequence.is_cancelled)
            for sequence in cancelled:
                sequence.finish = "abort"
        return cancelled


class _PrefixCache:
    """The keys and values of finished sequences by their ids, with LRU eviction."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._saved: OrderedDict[bytes, SavedBlocks] = OrderedDict()
        self._sorted: list[bytes] = []
        """The sorted keys: the longest common prefix with a prompt is next to where the prompt would be."""

    def keep(self, ids: Sequence[int], saved: SavedBlocks) -> None:
        key = _key(ids)
        if key not in self._saved:
            self._held_bytes += saved.size_bytes
            insort(self._sorted, key)
        self._saved[key] = saved
        self._saved.move_to_end(key)
        while self._held_bytes > self._max_bytes:
            dropped, forgotten = self._saved.popitem(last=False)
            self._held_bytes -= forgotten.size_bytes
            del self._sorted[bisect_left(self._sorted, dropped)]

    def find_longest(self, prompt: Sequence[int], pool: Pool) -> Cache | None:
        """A cache with the longest known prefix of the prompt; the last token is always computed again."""
        prefix = _key(prompt[:-1])
        index = bisect_left(self._sorted, prefix)
        neighbours = self._sorted[max(0, index - 1) : index + 1]
        length, key = max(((_common_length(prefix, held), held) for held in neighbours), default=(0, b""))
        if length < _MIN_REUSED:
            return None
        self._saved.move_to_end(key)
        return Cache.from_saved(pool, self._saved[key], length)


def _key(ids: Sequence[int]) -> bytes:
    """A key that sorts like the ids."""
    return np.asarray(ids, ">u4").tobytes()


def _common_length(left: bytes, right: bytes) -> int:
    """The length of the common prefix of two keys, in ids."""
    size = min(len(left), len(right))
    differ = np.flatnonzero(np.frombuffer(left[:size], "u4") != np.frombuffer(right[:size], "u4"))
    return int(differ[0]) if len(differ) else size // 4
