"""Attempts in worker processes: several cells, one engine. A worker that dies costs its attempts, not the run."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self

from gymnast.errors import StartError
from gymnast.rollouts.attempt import Failed, Outcome
from gymnast.rollouts.worker_messages import (
    Abandon,
    Beat,
    Begin,
    CannotStart,
    Done,
    End,
    Up,
    Work,
    frame,
    read_frame,
    to_engine,
)
from gymnast.runtime.control import instance_data
from gymnast.runtime.spawn import OwnProcess
from gymnast.types.failure import FailureDetail, Stage
from gymnast.wire.trail import Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from gymnast.config import Instance
    from gymnast.rollouts.executor import Job
    from gymnast.runtime.cell import CellOptions

START_TIMEOUT_S: Final = 300.0
MAX_RESTARTS: Final = 5
_FRAME_LIMIT: Final = 1 << 24


class WorkerPool:
    """An executor with several processes. Attempts go to the worker with the fewest."""

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
        self.begin = Begin(
            [instance_data(instance) for instance in instances],
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def attempt(self, job: Job, timeout_s: float) -> Outcome:
        while not (up := [worker for worker in self._workers if worker.is_up]):
            coming = [worker.coming for worker in self._workers if worker.coming is not None]
            if not coming:
                detail = FailureDetail("worker_died", Stage.AGENT, "no worker process is left")
                return Failed(detail, 0.0, time.time())
            await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
        return await min(up, key=lambda worker: len(worker.jobs)).attempt(job, timeout_s)

    async def _stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))


class _Worker:
    """One worker process as the engine sees it."""

    def __init__(self, pool: WorkerPool, index: int, on_death: Callable[[str], None]) -> None:
        self.is_up = False
        self.coming: asyncio.Task[None] | None = None
        """Under way from its death until it is back; attempts wait for that instead of failing one after the other."""
        self.jobs: dict[int, tuple[Job, asyncio.Future[Outcome], float]] = {}
        self._pool = pool
        self._name = f"worker-{index}"
        self._process: OwnProcess | None = None
        self._on_death = on_death
        self._numbers = count()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._stopping = False
        self._restarts = 0
        self._calls_seen = self._rejections_seen = 0

    async def start(self) -> None:
        self._process = OwnProcess(self._name, self._pool.log_dir / f"{self._name}.log")
        self._calls_seen = self._rejections_seen = 0
        reader, self._writer = await self._process.start("gymnast.rollouts.worker", limit=_FRAME_LIMIT)
        self._writer.write(frame(self._pool.begin))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                first = await read_frame(reader)
        except TimeoutError as error:
            raise StartError(f"{self._name} was not ready in time", where=self._process.log_tail()) from error
        message = to_engine.decode(first) if first is not None else None
        if isinstance(message, CannotStart):
            raise StartError(message.what, where=message.where, next=message.next)
        if not isinstance(message, Up):
            raise StartError(f"{self._name} ended while starting", where=self._process.log_tail())
        self.is_up = True
        self._reading = asyncio.create_task(self._read(reader))

    def _send(self, message: Work | Abandon) -> None:
        assert self._writer is not None
        with suppress(RuntimeError):  # uvloop's, when the process is gone and `_read` has yet to hear of it
            self._writer.write(frame(message))

    async def attempt(self, job: Job, timeout_s: float) -> Outcome:
        number = next(self._numbers)
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.jobs[number] = (job, future, time.time())
        self._send(Work(number, job.line, job.attempts, timeout_s))
        try:
            return await future
        except asyncio.CancelledError:
            if self.is_up:
                self._send(Abandon(number))
            raise
        finally:
            self.jobs.pop(number, None)

    async def stop(self) -> None:
        self._stopping = True
        self.is_up = False
        if self.coming is not None:
            self.coming.cancel()
            await asyncio.gather(self.coming, return_exceptions=True)
        if self._process is not None:
            await self._process.stop(frame(End()))
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while (data := await read_frame(reader)) is not None:
            message: Any = to_engine.decode(data)
            if isinstance(message, Done):
                found = self.jobs.get(message.number)
                if found is not None and not found[1].done():
                    found[1].set_result(message.outcome)
            elif isinstance(message, Beat):
                self._take_beat(message)
        if not self._stopping:
            self.is_up = False
            self.coming = asyncio.create_task(self._come_back())

    def _take_beat(self, beat: Beat) -> None:
        signals = self._pool.signals
        for number, (stage, instance) in beat.places.items():
            found = self.jobs.get(number)
            if found is not None and (found[0].trail.stage, found[0].trail.instance) != (stage, instance):
                found[0].trail.enter(Stage(stage), instance)
        for number, (endpoint, frames) in beat.standing.items():
            found = self.jobs.get(number)
            if found is not None:
                found[0].trail.endpoint, found[0].frames = endpoint, frames
        signals.model_calls += beat.model_calls - self._calls_seen
        for _ in range(beat.rejections - self._rejections_seen):
            signals.rejected(beat.rejection_latency_s)
        self._calls_seen, self._rejections_seen = beat.model_calls, beat.rejections
        self._pool.longest_lag_s = max(self._pool.longest_lag_s, beat.lag_s)

    async def _come_back(self) -> None:
        """Its attempts failed with it; a few times it is started again."""
        try:
            await self._note_death()
            while self._restarts < MAX_RESTARTS and not self._stopping and not self.is_up:
                self._restarts += 1
                await asyncio.sleep(0.2 * 2**self._restarts)
                await self._try_to_start()
        finally:
            self.coming = None

    async def _try_to_start(self) -> None:
        try:
            await self.start()
        except StartError as error:  # it may have died once more: that is what further restarts are for
            self._on_death(f"{self._name} could not be started again: {error.what}")

    async def _note_death(self) -> None:
        assert self._process is not None
        await self._process.wait()
        note = self._process.death_note()
        kind = "out_of_memory" if self._process.was_out_of_memory else "worker_died"
        for job, future, started_at in list(self.jobs.values()):
            if not future.done():
                detail = FailureDetail(kind, job.trail.stage, note.splitlines()[0], instance=self._name)
                future.set_result(Failed(detail, time.time() - started_at, started_at))
        self._on_death(note)
        self._process.kill()
