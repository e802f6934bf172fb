"""The main program of a worker process: a cell of its own, attempts on request, an end when the engine ends."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

from gymnast.errors import UserError
from gymnast.rollouts.executor import HereExecutor, Job
from gymnast.rollouts.worker_messages import (
    Abandon,
    Beat,
    Begin,
    CannotStart,
    Done,
    End,
    ToEngine,
    Up,
    Work,
    frame,
    read_frame,
    to_worker,
)
from gymnast.runtime.cell import Cell, CellOptions
from gymnast.runtime.control import CONTROL_FD_FLAG, instance_from
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.runtime.listener import loop_factory
from gymnast.runtime.spawn import end_with_parent
from gymnast.types.task import RolloutKey
from gymnast.wire.in_flight import frames_of

_BEAT_S: Final = 0.25
_STANDING_S: Final = 1.0
_MOST_STANDING: Final = 20


def main() -> None:
    """Be a worker of the engine at the other end of the control socket."""
    parser = argparse.ArgumentParser()
    parser.add_argument(CONTROL_FD_FLAG, type=int, required=True)
    sock = socket.socket(fileno=parser.parse_args().control_fd)
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # schedulers signal every process; the engine decides when we end
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_work(sock))
    _end_group()


async def _work(sock: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 24)
    first = await read_frame(reader)
    begin = to_worker.decode(first) if first is not None else None
    if not isinstance(begin, Begin):
        return
    options = CellOptions(
        log_dir=Path(begin.log_dir),
        cache_dir=Path(begin.cache_dir),
        request_debug=begin.request_debug,
        strict_settings=begin.strict_settings,
        token_form=begin.token_form,
        config=begin.config,
    )
    cell = Cell([instance_from(data) for data in begin.instances], options)
    try:
        await cell.__aenter__()
    except UserError as error:
        writer.write(frame(CannotStart(error.what, error.where, error.next)))
        await writer.drain()
        return
    try:
        with rare_garbage_collection():
            await _Worker(cell, reader, writer, captures=begin.captures).run()
    finally:
        await cell.__aexit__(None, None, None)


class _Worker:
    """Makes the attempts it is sent."""

    def __init__(
        self, cell: Cell, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, captures: bool
    ) -> None:
        self._executor = HereExecutor(
            cell.calls,
            cell.signals,
            explain=cell.explain,
            captures=captures,
            tokens=cell.options.tokens_of(cell.instances),
        )
        self._cell = cell
        self._reader = reader
        self._writer = writer
        self._tasks: dict[int, tuple[asyncio.Task[None], Job]] = {}
        self._latency_s = 0.0
        self._lag_s = 0.0
        self._told_at = 0.0
        cell.signals.listeners.append(self._note_rejection)

    async def run(self) -> None:
        self._send(Up())
        beating = asyncio.create_task(self._beat_for_ever())
        while (data := await read_frame(self._reader)) is not None:
            message = to_worker.decode(data)
            if isinstance(message, Work):
                job = Job(RolloutKey(0, message.number), message.line, "", message.attempts)
                self._tasks[message.number] = (asyncio.create_task(self._one(message, job)), job)
            elif isinstance(message, Abandon):
                found = self._tasks.get(message.number)
                if found is not None:
                    found[0].cancel()
            elif isinstance(message, End):
                break
        beating.cancel()
        for task, _ in self._tasks.values():
            task.cancel()
        await asyncio.gather(beating, *(task for task, _ in self._tasks.values()), return_exceptions=True)

    async def _one(self, work: Work, job: Job) -> None:
        try:
            outcome = await self._executor.attempt(job, work.timeout_s)
            self._send(Done(work.number, outcome))
        finally:
            self._tasks.pop(work.number, None)

    def _send(self, message: ToEngine) -> None:
        self._writer.write(frame(message))

    def _note_rejection(self, latency_s: float) -> None:
        self._latency_s = latency_s

    async def _beat_for_ever(self) -> None:
        signals = self._cell.signals
        while True:
            before = time.monotonic()
            await asyncio.sleep(_BEAT_S)
            self._lag_s = max(0.0, time.monotonic() - before - _BEAT_S)
            places = {number: (job.trail.stage.value, job.trail.instance) for number, (_, job) in self._tasks.items()}
            standing = self._standing(time.monotonic())
            self._send(Beat(places, signals.model_calls, signals.rejections, self._latency_s, self._lag_s, standing))

    def _standing(self, now: float) -> dict[int, tuple[str, list[str]]]:
        """Where attempts stand in the code that have not moved for a while, each told about now and then."""
        if now < self._told_at + _STANDING_S:
            return {}
        self._told_at = now
        still = [entry for entry in self._tasks.items() if entry[1][1].trail.since < now - _STANDING_S]
        return {
            number: (job.trail.endpoint, frames_of(task.get_coro())) for number, (task, job) in still[:_MOST_STANDING]
        }


def _end_group() -> None:
    """Nothing that was started here lives on."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
