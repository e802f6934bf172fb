"""The embedded engine: a transformer, and a thread that computes while the event loop stays free."""

from __future__ import annotations

import asyncio
import hashlib
import queue
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gymnast.hub.responses_api_models.embedded_model.batching import Batch, Generation
from gymnast.hub.responses_api_models.embedded_model.blas import set_blas_threads
from gymnast.hub.responses_api_models.embedded_model.transformer import Transformer
from gymnast.tokens.engine import Asker, BadGeneration, Generated, Sampling, WeightSpan
from gymnast.tokens.session import room_left

_HIGHEST_TEMPERATURE: Final = 1000.0


class EngineStopped(RuntimeError):  # noqa: N818 - what it is
    """The engine was stopped while or before this was asked of it."""


@dataclass(frozen=True, slots=True)
class _Asked:
    generation: Generation
    answer: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class _Change:
    transformer: Transformer
    version: str
    answer: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


class EmbeddedEngine:
    """Samples with a transformer of this process. Stop it after use: its thread starts with the first request."""

    def __init__(
        self,
        transformer: Transformer,
        *,
        max_batch: int = 32,
        max_context: int | None = None,
        seed: int | None = None,
        version: str = "embedded",
        threads: int = 1,
    ) -> None:
        self._batch = Batch(transformer, max_batch=max_batch)
        self.max_context = min(max_context or transformer.shape.context, transformer.shape.context)
        self._shape = transformer.shape
        self._seed = seed
        self._version = version
        self._threads = threads
        self._inbox: queue.SimpleQueue[_Asked | _Change | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    async def stop(self) -> None:
        """Let go of the thread; who still waits is told so."""
        self._is_stopped = True
        if self._thread is not None:
            thread, self._thread = self._thread, None
            self._inbox.put(None)
            await asyncio.to_thread(thread.join)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, who: Asker) -> Generated:
        """Raises ContextOverflow when the prompt leaves no room, BadGeneration for what this engine cannot do."""
        self._check(prompt_ids, sampling)
        most = room_left(prompt_ids, self.max_context, sampling)
        generation = Generation(prompt_ids, sampling, self._seed_of(prompt_ids, sampling, who), most)
        await self._computed(generation)
        ids = generation.sampled
        return Generated(
            token_ids=ids,
            logprobs=generation.logprobs,
            finish=generation.finish or "abort",
            weight_versions=_spans(generation.weights, len(ids)),
            cached_tokens=generation.reused,
        )

    async def change_weights(self, transformer: Transformer, version: str) -> None:
        """Sample with other weights from the next token on. What is being sampled says where they begin.

        Raises BadGeneration when the model has another shape.
        """
        if transformer.shape != self._shape:
            raise BadGeneration("the new weights are of a model with another shape")
        loop = asyncio.get_running_loop()
        change = _Change(transformer, version, loop.create_future(), loop)
        self._send(change)
        await change.answer

    async def _computed(self, generation: Generation) -> None:
        loop = asyncio.get_running_loop()
        asked = _Asked(generation, loop.create_future(), loop)
        self._send(asked)
        try:
            await asked.answer
        except asyncio.CancelledError:
            generation.is_cancelled = True
            raise

    def _send(self, message: _Asked | _Change) -> None:
        if self._is_stopped:
            raise EngineStopped("the embedded engine was stopped")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="embedded-engine", daemon=True)
            self._thread.start()
        self._inbox.put(message)

    def _check(self, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        if not prompt_ids:
            raise BadGeneration("the prompt has no tokens")
        if reason := objection(sampling):
            raise BadGeneration(reason)
        if not all(0 <= token < self._shape.vocabulary for token in prompt_ids):
            raise BadGeneration(f"the prompt has ids outside 0 to {self._shape.vocabulary - 1}")

    def _seed_of(self, prompt_ids: Sequence[int], sampling: Sampling, who: Asker) -> int:
        """Follows from the request's seed and prompt; else from the engine's, who asks and what; else any.

        The prompt counts, so that turns which share a seed do not share their random numbers.
        """
        if sampling.seed is None and self._seed is None:
            return secrets.randbits(64)
        own = f"{self._seed}/{who.rollout_id or who.session_id}" if sampling.seed is None else f"{sampling.seed}"
        told = f"{own}/{list(prompt_ids)}"
        return int.from_bytes(hashlib.blake2b(told.encode(), digest_size=8).digest(), "little")

    def _work(self) -> None:
        before = set_blas_threads(self._threads)
        waiting: dict[int, _Asked] = {}
        while self._take_in(waiting):
            try:
                finished = self._batch.step()
            except Exception as error:  # noqa: BLE001 - the boundary of the thread: whoever waits is told
                self._batch.clear()
                _settle_all(waiting, error)
                continue
            for generation in finished:
                _settle(waiting.pop(id(generation)), None)
        _settle_all(waiting, EngineStopped("the embedded engine was stopped"))
        if before is not None:
            set_blas_threads(before)

    def _take_in(self, waiting: dict[int, _Asked]) -> bool:
        """New requests; waits for one when there is nothing to compute. False at the end."""
        while self._batch.is_idle or not self._inbox.empty():
            message = self._inbox.get()
            if message is None:
                return False
            if isinstance(message, _Change):
                self._change(message, waiting)
                continue
            message.generation.weights.append((self._version, 0))
            waiting[id(message.generation)] = message
            self._batch.add(message.generation)
        return True

    def _change(self, change: _Change, waiting: Mapping[int, _Asked]) -> None:
        self._batch.change(change.transformer)
        self._version = change.version
        for asked in waiting.values():
            asked.generation.weights.append((change.version, len(asked.generation.sampled)))
        _settle(change, None)


def objection(sampling: Sampling) -> str | None:
    """Why the engine cannot sample so."""
    if sampling.extra:
        return f"the embedded policy does not know {', '.join(sorted(sampling.extra))}"
    if not 0 <= sampling.temperature <= _HIGHEST_TEMPERATURE or not 0 < sampling.top_p <= 1:
        return f"the temperature is 0 to {_HIGHEST_TEMPERATURE:g}, and top_p above 0 and at most 1"
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        return "at least one token must be asked for"
    return None


def _settle_all(waiting: dict[int, _Asked], error: Exception) -> None:
    for asked in waiting.values():
        _settle(asked, error)
    waiting.clear()


def _spans(weights: Sequence[tuple[str, int]], count: int) -> tuple[WeightSpan, ...]:
    """Which weights sampled which tokens, without versions that sampled none."""
    ends = [*(start for _, start in weights[1:]), count]
    return tuple(
        WeightSpan(version, start, end) for (version, start), end in zip(weights, ends, strict=True) if end > start
    )


def _settle(asked: _Asked | _Change, error: Exception | None) -> None:
    def settle() -> None:
        if not asked.answer.done():
            if error is None:
                asked.answer.set_result(None)
            else:
                asked.answer.set_exception(error)

    if not asked.loop.is_closed():
        asked.loop.call_soon_threadsafe(settle)
