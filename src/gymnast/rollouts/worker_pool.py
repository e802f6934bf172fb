"""Runs attempts in worker processes: several cells, one engine. A worker that dies fails its attempts, not the run.

States of a worker: starting, ready, restarting (it died; after growing pauses, up to `MAX_RESTARTS` times), dead.
Invariants:
- Every attempt sent to a worker gets one outcome: the worker's, or a failure when the worker dies.
- While no worker is ready and one is restarting, attempts wait; once all are dead, they fail.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from gymnast.errors import StartError
from gymnast.rollouts.attempt import Failed, Outcome
from gymnast.rollouts.worker_messages import (
    AttemptDone,
    CancelAttempt,
    Heartbeat,
    MakeAttempt,
    StartFailed,
    StartWorker,
    StopWorker,
    WorkerReady,
    encode_frame,
    engine_decoder,
    read_frame,
)
from gymnast.runtime.control import encode_instance
from gymnast.runtime.spawn import ControlledProcess
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.wire.progress import Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gymnast.config import Instance
    from gymnast.rollouts.runner import WorkItem
    from gymnast.runtime.cell import CellOptions

START_TIMEOUT_S: Final = 300.0
MAX_RESTARTS: Final = 5
_FRAME_LIMIT: Final = 1 << 24


class WorkerPool:
    """An attempt runner with several processes. Attempts go to the least-loaded worker."""

    def __init__(
        self,
        number: int,
        instances: Sequence[Instance],
        options: CellOptions,
        *,
        on_death: Callable[[str], None],
        captures: bool = False,
    ) -> None:
        self.signals = Signals()
        self.longest_lag_s = 0.0
        self._workers = [_Worker(self, index, on_death) for index in range(number)]
        log_dir: Path = options.log_dir or options.cache_dir
        self.log_dir = log_dir
        self.start_message = StartWorker(
            [encode_instance(instance) for instance in instances],
            str(log_dir),
            str(options.cache_dir),
            options.request_debug,
            options.strict_settings,
            captures,
            options.token_form,
            dict(options.config),
        )

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(worker.start() for worker in self._workers))
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def attempt(self, item: WorkItem, timeout_s: float) -> Outcome:
        while not (ready := [worker for worker in self._workers if worker.is_ready]):
            restarts = [worker.restart for worker in self._workers if worker.restart is not None]
            if not restarts:
                detail = FailureDetail(FailureKind.WORKER_DIED, Stage.AGENT, "all worker processes died")
                return Failed(detail, 0.0, time.time())
            await asyncio.wait(restarts, return_when=asyncio.FIRST_COMPLETED)
        return await min(ready, key=lambda worker: len(worker.pending)).attempt(item, timeout_s)

    async def _stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))


class _PendingAttempt(NamedTuple):
    item: WorkItem
    future: asyncio.Future[Outcome]
    started_at: float


class _Worker:
    """The engine's side of one worker process."""

    def __init__(self, pool: WorkerPool, index: int, on_death: Callable[[str], None]) -> None:
        self.is_ready = False
        self.restart: asyncio.Task[None] | None = None
        """Runs from its death until it is back; attempts wait for it instead of failing one after another."""
        self.pending: dict[int, _PendingAttempt] = {}
        self._pool = pool
        self._name = f"worker-{index}"
        self._process: ControlledProcess | None = None
        self._on_death = on_death
        self._numbers = count()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._stopping = False
        self._restarts = 0
        self._calls_seen = self._rejections_seen = 0
        self._retries_seen: Counter[str] = Counter()

    async def start(self) -> None:
        self._process = ControlledProcess(self._name, self._pool.log_dir / f"{self._name}.log")
        self._calls_seen = self._rejections_seen = 0
        self._retries_seen = Counter()
        reader, self._writer = await self._process.start("gymnast.rollouts.worker", limit=_FRAME_LIMIT)
        self._writer.write(encode_frame(self._pool.start_message))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                first = await read_frame(reader)
        except TimeoutError as error:
            raise StartError(f"{self._name} was not ready in time", where=self._process.log_tail()) from error
        message = engine_decoder.decode(first) if first is not None else None
        if isinstance(message, StartFailed):
            raise StartError(message.what, where=message.where, next=message.next)
        if not isinstance(message, WorkerReady):
            raise StartError(f"{self._name} exited while starting", where=self._process.log_tail())
        self.is_ready = True
        self._reading = asyncio.create_task(self._read(reader))

    def _send(self, message: MakeAttempt | CancelAttempt) -> None:
        assert self._writer is not None
        with suppress(RuntimeError):  # from uvloop, if the process is dead and `_read` has not noticed yet
            self._writer.write(encode_frame(message))

    async def attempt(self, item: WorkItem, timeout_s: float) -> Outcome:
        number = next(self._numbers)
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.pending[number] = _PendingAttempt(item, future, time.time())
        recorder = item.progress.spans
        trace = recorder.traceparent() if recorder is not None else None
        self._send(MakeAttempt(number, item.line, item.index, timeout_s, trace))
        try:
            return await future
        except asyncio.CancelledError:
            if self.is_ready:
                self._send(CancelAttempt(number))
            raise
        finally:
            self.pending.pop(number, None)

    async def stop(self) -> None:
        self._stopping = True
        self.is_ready = False
        if self.restart is not None:
            self.restart.cancel()
            await asyncio.gather(self.restart, return_exceptions=True)
        if self._process is not None:
            await self._process.stop(encode_frame(StopWorker()))
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while (data := await read_frame(reader)) is not None:
            try:
                message: Any = engine_decoder.decode(data)
            except msgspec.MsgspecError as error:  # an outcome is lost: its worker starts again, its attempts fail
                self._on_death(f"{self._name} sent a message that cannot be read: {error}")
                assert self._process is not None
                self._process.kill()
                break
            if isinstance(message, AttemptDone):
                pending = self.pending.get(message.number)
                if pending is not None and message.spans and pending.item.progress.spans is not None:
                    pending.item.progress.spans.add(message.spans)
                if pending is not None and not pending.future.done():
                    pending.future.set_result(message.outcome)
            elif isinstance(message, Heartbeat):
                self._handle_heartbeat(message)
        if not self._stopping:
            self.is_ready = False
            self.restart = asyncio.create_task(self._recover())

    def _handle_heartbeat(self, heartbeat: Heartbeat) -> None:
        signals = self._pool.signals
        now = time.monotonic()
        for number, (stage, instance, in_stage_s) in heartbeat.stages.items():
            pending = self.pending.get(number)
            if pending is not None:
                progress = pending.item.progress
                if (progress.stage, progress.instance) != (stage, instance):
                    progress.enter(Stage(stage), instance)
                progress.since = now - in_stage_s
        for number, (endpoint, frames) in heartbeat.stuck.items():
            pending = self.pending.get(number)
            if pending is not None:
                pending.item.progress.endpoint, pending.item.frames = endpoint, frames
        signals.model_calls += heartbeat.model_calls - self._calls_seen
        for _ in range(heartbeat.rejections - self._rejections_seen):
            signals.record_rejection(heartbeat.rejection_latency_s)
        self._calls_seen, self._rejections_seen = heartbeat.model_calls, heartbeat.rejections
        signals.retried_calls += Counter(heartbeat.retried_calls) - self._retries_seen
        self._retries_seen = Counter(heartbeat.retried_calls)
        self._pool.longest_lag_s = max(self._pool.longest_lag_s, heartbeat.lag_s)

    async def _recover(self) -> None:
        """Fail its attempts, and restart it up to a few times."""
        try:
            await self._handle_death()
            while self._restarts < MAX_RESTARTS and not self._stopping and not self.is_ready:
                self._restarts += 1
                await asyncio.sleep(0.2 * 2**self._restarts)
                await self._try_start()
        finally:
            self.restart = None

    async def _try_start(self) -> None:
        try:
            await self.start()
        except StartError as error:  # it may have died again: that is what further restarts are for
            self._on_death(f"{self._name} could not be restarted: {error.what}")

    async def _handle_death(self) -> None:
        assert self._process is not None
        await self._process.wait()
        note = self._process.describe_death()
        kind = FailureKind.OUT_OF_MEMORY if self._process.was_oom_killed else FailureKind.WORKER_DIED
        for pending in list(self.pending.values()):
            if not pending.future.done():
                stage, started_at = pending.item.progress.stage, pending.started_at
                detail = FailureDetail(kind, stage, note.splitlines()[0], instance=self._name)
                pending.future.set_result(Failed(detail, time.time() - started_at, started_at))
        self._on_death(note)
        self._process.kill()
