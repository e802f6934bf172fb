"""Continuous batching: sequences join and leave between steps, and what earlier turns computed is used again.

`Batch` is the plain core: put sequences in, call `step`, take finished ones out. It knows no threads and no clock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gymnast.hub.responses_api_models.embedded_model.sampling import choose, log_probabilities
from gymnast.hub.responses_api_models.embedded_model.transformer import Cache, Transformer
from gymnast.tokens.engine import Finish, Sampling

PREFILL: Final = 512
"""Prompt tokens a step computes at most, so that running sequences do not wait long for new ones."""
_KEPT_TOKENS: Final = 32_768
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


@dataclass(slots=True, eq=False)
class _Running:
    sequence: Generation
    cache: Cache
    pending: list[int]
    """Tokens whose keys and values are not computed yet."""
    chance: np.random.Generator


class Batch:
    """The sequences that wait and run, and the caches that are kept of finished ones."""

    def __init__(self, transformer: Transformer, *, max_batch: int, kept_tokens: int = _KEPT_TOKENS) -> None:
        self._transformer = transformer
        self._max_batch = max_batch
        self._waiting: deque[Generation] = deque()
        self._running: list[_Running] = []
        self._kept_tokens = kept_tokens
        self._kept = _Kept(kept_tokens)

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
        self._kept = _Kept(self._kept_tokens)

    def step(self) -> list[Generation]:
        """Compute once; the sequences that this finished."""
        gone = self._drop_cancelled()
        while self._waiting and len(self._running) < self._max_batch:
            self._running.append(self._start(self._waiting.popleft()))
        asked = self._portions()
        if not asked:
            return gone
        logits = self._transformer.forward([(one.cache, ids) for one, ids in asked])
        logprobs = log_probabilities(logits)
        for (one, _), row in zip(asked, logprobs, strict=True):
            if not one.pending:
                self._sample(one, row)
        finished = [one for one in self._running if one.sequence.finish]
        for one in finished:
            self._running.remove(one)
            self._kept.keep([*one.sequence.prompt, *one.sequence.sampled][: one.cache.length], one.cache)
        return [*gone, *(one.sequence for one in finished)]

    def _start(self, sequence: Generation) -> _Running:
        cache = self._kept.longest(sequence.prompt, self._transformer) or Cache(self._transformer.shape)
        sequence.reused = cache.length
        chance = np.random.Generator(np.random.PCG64(sequence.seed))
        return _Running(sequence, cache, list(sequence.prompt[cache.length :]), chance)

    def _portions(self) -> list[tuple[_Running, list[int]]]:
        """What to compute now: a token of each sequence that decodes, and some of the prompts."""
        room, portions = PREFILL, []
        for one in self._running:
            ids = one.pending[: room if len(one.pending) > 1 else 1]
            if not ids:
                continue
            room -= len(ids) if len(one.pending) > 1 else 0
            one.pending = one.pending[len(ids) :]
            portions.append((one, ids))
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
            self._running = [one for one in self._running if not one.sequence.is_cancelled]
            self._waiting = deque(sequence for sequence in self._waiting if not sequence.is_cancelled)
            for sequence in gone:
                sequence.finish = "abort"
        return gone


class _Kept:
    """Caches of finished sequences, by their ids; the ones not used for longest go first."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._held = 0
        self._caches: OrderedDict[bytes, tuple[NDArray[np.int32], Cache]] = OrderedDict()

    def keep(self, ids: Sequence[int], cache: Cache) -> None:
        array = np.asarray(ids, np.int32)
        key = array.tobytes()
        if key not in self._caches:
            self._held += len(array)
        self._caches[key] = (array, cache)
        self._caches.move_to_end(key)
        while self._held > self._tokens:
            _, (dropped, _) = self._caches.popitem(last=False)
            self._held -= len(dropped)

    def longest(self, prompt: Sequence[int], transformer: Transformer) -> Cache | None:
        """A copy of the longest beginning of the prompt that is held; the last token is always computed anew."""
        wanted = np.asarray(prompt[:-1], np.int32)
        best, key = 0, b""
        for held, (ids, _) in self._caches.items():
            size = min(len(ids), len(wanted))
            differ = np.flatnonzero(ids[:size] != wanted[:size])
            common = int(differ[0]) if len(differ) else size
            if common > best:
                best, key = common, held
        if best < _WORTH_REUSING:
            return None
        self._caches.move_to_end(key)
        return self._caches[key][1].prefix(best, transformer.shape)
