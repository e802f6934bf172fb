"""Continuous batching: sequences join and leave between steps, and what earlier turns computed is used again.

`Batch` is the plain core: put sequences in, call `step`, take finished ones out. It knows no threads and no clock.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gymnast.hub.responses_api_models.embedded_model.cache import Cache, Pool, Saved
from gymnast.hub.responses_api_models.embedded_model.sampling import choose, log_probabilities
from gymnast.hub.responses_api_models.embedded_model.transformer import Transformer
from gymnast.tokens.engine import Finish, Sampling

PREFILL: Final = 512
"""Prompt tokens a step computes at most, so that running sequences do not wait long for new ones."""
_KEPT_BYTES: Final = 256 * 1024 * 1024
_WORTH_REUSING: Final = 16


@dataclass(slots=True, eq=False)
class Generation:
    """A request: its prompt, how to sample, and what was sampled so far."""

    prompt: Sequence[int]
    sampling: Sampling
    seed: int
    """Of its own random numbers: what else runs does not change them."""
    most: int
    """Tokens to sample at most."""
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Finish | None = None
    reused: int = 0
    is_cancelled: bool = False
    """Set from outside; the next step lets go of it."""
    weights: list[tuple[str, int]] = field(default_factory=list)
    """Versions of the weights, each with the place in `sampled` where it begins."""


@dataclass(slots=True, eq=False)
class _Running:
    sequence: Generation
    cache: Cache
    pending: list[int]
    """Tokens whose keys and values are not computed yet."""
    chance: np.random.Generator


class Batch:
    """The sequences that wait and run, and the caches that are kept of finished ones."""

    def __init__(self, transformer: Transformer, *, max_batch: int, kept_bytes: int = _KEPT_BYTES) -> None:
        self._transformer = transformer
        self._max_batch = max_batch
        self._waiting: deque[Generation] = deque()
        self._running: list[_Running] = []
        self._kept_bytes = kept_bytes
        self.clear()

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._running

    def add(self, sequence: Generation) -> None:
        """Let a sequence join as soon as there is room."""
        self._waiting.append(sequence)

    def clear(self) -> None:
        """Forget everything: after a failed step nobody knows how far the caches are."""
        self._waiting.clear()
        self._running.clear()
        self._pool = Pool(self._transformer.shape)
        self._kept = _Kept(self._kept_bytes)

    def change(self, transformer: Transformer) -> None:
        """Go on with other weights of the same shape. Running sequences keep the keys and values they have."""
        self._transformer = transformer
        self._kept = _Kept(self._kept_bytes)

    def step(self) -> list[Generation]:
        """Compute once; the sequences that this finished."""
        gone = self._drop_cancelled()
        while self._waiting and len(self._running) < self._max_batch:
            self._running.append(self._start(self._waiting.popleft()))
        asked = self._portions()
        if not asked:
            return gone
        decoding = sum(bool(one.sequence.sampled) for one, _ in asked)
        logits = self._transformer.forward([(one.cache, ids) for one, ids in asked], decoding=decoding)
        logprobs = log_probabilities(logits)
        for (one, _), row in zip(asked, logprobs, strict=True):
            if not one.pending:
                self._sample(one, row)
        finished = [one for one in self._running if one.sequence.finish]
        for one in finished:
            self._running.remove(one)
            self._kept.keep([*one.sequence.prompt, *one.sequence.sampled][: one.cache.length], one.cache.saved())
            one.cache.free()
        return [*gone, *(one.sequence for one in finished)]

    def _start(self, sequence: Generation) -> _Running:
        cache = self._kept.longest(sequence.prompt, self._pool) or Cache(self._pool)
        sequence.reused = cache.length
        chance = np.random.Generator(np.random.PCG64(sequence.seed))
        return _Running(sequence, cache, list(sequence.prompt[cache.length :]), chance)

    def _portions(self) -> list[tuple[_Running, list[int]]]:
        """What to compute now: a token of each sequence that decodes, then some of the prompts."""
        portions = [(one, one.pending) for one in self._running if one.sequence.sampled]
        room = PREFILL
        for one in self._running:
            if not one.sequence.sampled and room:
                portions.append((one, one.pending[:room]))
                room -= len(portions[-1][1])
        for one, ids in portions:
            one.pending = one.pending[len(ids) :]
        return portions

    def _sample(self, one: _Running, logprobs: NDArray[np.float64]) -> None:
        sequence = one.sequence
        token = choose(logprobs, sequence.sampling, one.chance.random())
        sequence.sampled.append(token)
        sequence.logprobs.append(float(logprobs[token]))
        one.pending = [token]
        if token in sequence.sampling.stop_token_ids:
            sequence.finish = "stop"
        elif len(sequence.sampled) >= sequence.most:
            sequence.finish = "length"

    def _drop_cancelled(self) -> list[Generation]:
        gone = [one.sequence for one in self._running if one.sequence.is_cancelled]
        gone += [sequence for sequence in self._waiting if sequence.is_cancelled]
        if gone:
            for one in self._running:
                if one.sequence.is_cancelled:
                    one.cache.free()
            self._running = [one for one in self._running if not one.sequence.is_cancelled]
            self._waiting = deque(sequence for sequence in self._waiting if not sequence.is_cancelled)
            for sequence in gone:
                sequence.finish = "abort"
        return gone


class _Kept:
    """What finished sequences computed, by their ids; what was not used for longest goes first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._saved: OrderedDict[bytes, Saved] = OrderedDict()
        self._sorted: list[bytes] = []
        """The keys, in order: what has most in common with a prompt stands beside where the prompt would."""

    def keep(self, ids: Sequence[int], saved: Saved) -> None:
        key = _key(ids)
        if key not in self._saved:
            self._held_bytes += saved.size_bytes
            insort(self._sorted, key)
        self._saved[key] = saved
        self._saved.move_to_end(key)
        while self._held_bytes > self._most_bytes:
            dropped, forgotten = self._saved.popitem(last=False)
            self._held_bytes -= forgotten.size_bytes
            del self._sorted[bisect_left(self._sorted, dropped)]

    def longest(self, prompt: Sequence[int], pool: Pool) -> Cache | None:
        """The longest beginning of the prompt that is held; the last token is always computed anew."""
        wanted = _key(prompt[:-1])
        place = bisect_left(self._sorted, wanted)
        beside = self._sorted[max(0, place - 1) : place + 1]
        length, key = max(((_common(wanted, held), held) for held in beside), default=(0, b""))
        if length < _WORTH_REUSING:
            return None
        self._saved.move_to_end(key)
        return Cache.of_saved(pool, self._saved[key], length)


def _key(ids: Sequence[int]) -> bytes:
    """Sorts as the ids do."""
    return np.asarray(ids, ">u4").tobytes()


def _common(one: bytes, other: bytes) -> int:
    """How many ids two keys have in common from the start."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(np.frombuffer(one[:size], "u4") != np.frombuffer(other[:size], "u4"))
    return int(differ[0]) if len(differ) else size // 4
