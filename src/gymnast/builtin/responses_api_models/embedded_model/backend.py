"""The embedded token backend: a transformer, and a thread that computes while the event loop stays free."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import queue
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gymnast.kit import BadGeneration, Caller, GeneratedTokens, Sampling, WeightSpan, remaining_tokens

from .batching import Batch, Generation
from .transformer import Transformer

_MAPS: Final = Path("/proc/self/maps")
_SPELLINGS: Final = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")
_MAX_TEMPERATURE: Final = 1000.0


class BackendStopped(RuntimeError):  # noqa: N818 - names the state
    """The backend was stopped before it could answer the request."""


@dataclass(frozen=True, slots=True)
class _Request:
    generation: Generation
    result: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class _Change:
    transformer: Transformer
    version: str
    result: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


class EmbeddedBackend:
    """Samples with a transformer in this process. Its thread starts with the first request; `stop` ends it."""

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
        self._inbox: queue.SimpleQueue[_Request | _Change | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    async def stop(self) -> None:
        """End the thread; waiting requests raise BackendStopped."""
        self._is_stopped = True
        if self._thread is not None:
            thread, self._thread = self._thread, None
            self._inbox.put(None)
            await asyncio.to_thread(thread.join)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, caller: Caller) -> GeneratedTokens:
        """Raises ContextOverflow if the prompt leaves no room, BadGeneration for unsupported requests."""
        self._check(prompt_ids, sampling)
        max_tokens = remaining_tokens(prompt_ids, self.max_context, sampling)
        generation = Generation(prompt_ids, sampling, self._seed_of(prompt_ids, sampling, caller), max_tokens)
        await self._compute(generation)
        ids = generation.sampled
        return GeneratedTokens(
            token_ids=ids,
            logprobs=generation.logprobs,
            finish=generation.finish or "abort",
            weight_versions=_spans(generation.weights, len(ids)),
            cached_tokens=generation.reused,
        )

    async def change_weights(self, transformer: Transformer, version: str) -> None:
        """Use other weights from the next token on. Generations in flight record where the weights changed.

        Raises BadGeneration if the model's shape differs.
        """
        if transformer.shape != self._shape:
            raise BadGeneration("the new weights are for a model with a different shape")
        loop = asyncio.get_running_loop()
        change = _Change(transformer, version, loop.create_future(), loop)
        self._send(change)
        await change.result

    async def _compute(self, generation: Generation) -> None:
        loop = asyncio.get_running_loop()
        request = _Request(generation, loop.create_future(), loop)
        self._send(request)
        try:
            await request.result
        except asyncio.CancelledError:
            generation.is_cancelled = True
            raise

    def _send(self, message: _Request | _Change) -> None:
        if self._is_stopped:
            raise BackendStopped("the embedded backend was stopped")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="embedded-backend", daemon=True)
            self._thread.start()
        self._inbox.put(message)

    def _check(self, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        if not prompt_ids:
            raise BadGeneration("the prompt has no tokens")
        if reason := objection(sampling):
            raise BadGeneration(reason)
        if not all(0 <= token < self._shape.vocabulary for token in prompt_ids):
            raise BadGeneration(f"the prompt has ids outside 0 to {self._shape.vocabulary - 1}")

    def _seed_of(self, prompt_ids: Sequence[int], sampling: Sampling, caller: Caller) -> int:
        """Derived from the request's seed, or the backend's seed and the caller; random without either.

        The prompt is included, so that turns with the same seed draw different random numbers.
        """
        if sampling.seed is None and self._seed is None:
            return secrets.randbits(64)
        own = f"{self._seed}/{caller.rollout_id or caller.session_id}" if sampling.seed is None else f"{sampling.seed}"
        identity = f"{own}/{list(prompt_ids)}"
        return int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=8).digest(), "little")

    def _work(self) -> None:
        before = set_blas_threads(self._threads)
        waiting: dict[int, _Request] = {}
        while self._take_in(waiting):
            try:
                finished = self._batch.step()
            except Exception as error:  # noqa: BLE001 - the boundary of the thread: waiting requests get the error
                self._batch.clear()
                _settle_all(waiting, error)
                continue
            for generation in finished:
                _settle(waiting.pop(id(generation)), None)
        _settle_all(waiting, BackendStopped("the embedded backend was stopped"))
        if before is not None:
            set_blas_threads(before)

    def _take_in(self, waiting: dict[int, _Request]) -> bool:
        """Accept new requests, waiting for one if the batch is idle. False after `stop`."""
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

    def _change(self, change: _Change, waiting: Mapping[int, _Request]) -> None:
        self._batch.change(change.transformer)
        self._version = change.version
        for request in waiting.values():
            request.generation.weights.append((change.version, len(request.generation.sampled)))
        _settle(change, None)


def objection(sampling: Sampling) -> str | None:
    """Why the backend cannot sample with these parameters, or None."""
    if sampling.extra:
        return f"the embedded policy does not support {', '.join(sorted(sampling.extra))}"
    if not 0 <= sampling.temperature <= _MAX_TEMPERATURE or not 0 < sampling.top_p <= 1:
        return f"temperature must be from 0 to {_MAX_TEMPERATURE:g}, and top_p above 0 and at most 1"
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        return "max_tokens must be at least 1"
    return None


def _settle_all(waiting: dict[int, _Request], error: Exception) -> None:
    for request in waiting.values():
        _settle(request, error)
    waiting.clear()


def _spans(weights: Sequence[tuple[str, int]], count: int) -> tuple[WeightSpan, ...]:
    """Which weights sampled which tokens; versions without tokens are left out."""
    ends = [*(start for _, start in weights[1:]), count]
    return tuple(
        WeightSpan(version, start, end) for (version, start), end in zip(weights, ends, strict=True) if end > start
    )


def _settle(request: _Request | _Change, error: Exception | None) -> None:
    def settle() -> None:
        if not request.result.done():
            if error is None:
                request.result.set_result(None)
            else:
                request.result.set_exception(error)

    if not request.loop.is_closed():
        request.loop.call_soon_threadsafe(settle)


def set_blas_threads(count: int) -> int | None:
    """Set the number of threads of this process; returns the previous number, or None if it cannot be set."""
    before = None
    for library in _openblas():
        for spelling in _SPELLINGS:
            get = getattr(library, spelling.format("get_num_threads"), None)
            put = getattr(library, spelling.format("set_num_threads"), None)
            if get is not None and put is not None:
                before = int(get())
                put(count)
                break
    return before


def _openblas() -> list[ctypes.CDLL]:
    """The libraries that are already loaded; opening one again gives the same handle."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if "openblas" in line.rsplit("/", 1)[-1]}
    return [ctypes.CDLL(path) for path in sorted(paths)]
