"""The main program of a worker process: runs a cell, makes attempts on request, exits with the engine."""

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
from gymnast.rollouts.attempt import fail_unexpected
from gymnast.rollouts.runner import LocalRunner, WorkItem
from gymnast.rollouts.worker_messages import (
    AttemptDone,
    CancelAttempt,
    Heartbeat,
    MakeAttempt,
    StartFailed,
    StartWorker,
    StopWorker,
    ToEngine,
    WorkerReady,
    encode_frame,
    read_frame,
    worker_decoder,
)
from gymnast.runtime.cell import Cell, CellOptions
from gymnast.runtime.control import CONTROL_FD_FLAG, parse_instance
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.runtime.listener import loop_factory
from gymnast.runtime.spawn import die_with_parent
from gymnast.types.task import RolloutKey
from gymnast.wire.in_flight import coroutine_frames
from gymnast.wire.spans import SpanRecorder

_log = logging.getLogger(__name__)
_HEARTBEAT_S: Final = 0.25
_STUCK_AFTER_S: Final = 1.0
_MAX_STUCK: Final = 20


def main() -> None:
    """Run a worker for the engine at the other end of the control socket."""
    parser = argparse.ArgumentParser()
    parser.add_argument(CONTROL_FD_FLAG, type=int, required=True)
    sock = socket.socket(fileno=parser.parse_args().control_fd)
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(
        signal.SIGTERM, lambda *_: None
    )  # schedulers signal every process; the engine decides when workers exit
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run_worker(sock))
    _kill_group()


async def _run_worker(sock: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 24)
    first = await read_frame(reader)
    start_message = worker_decoder.decode(first) if first is not None else None
    if not isinstance(start_message, StartWorker):
        return
    options = CellOptions(
        log_dir=Path(start_message.log_dir),
        cache_dir=Path(start_message.cache_dir),
        request_debug=start_message.request_debug,
        strict_settings=start_message.strict_settings,
        token_form=start_message.token_form,
        config=start_message.config,
    )
    cell = Cell([parse_instance(data) for data in start_message.instances], options)
    try:
        await cell.__aenter__()
    except UserError as error:
        writer.write(encode_frame(StartFailed(error.what, error.where, error.next)))
        await writer.drain()
        return
    try:
        with rare_garbage_collection():
            await _Worker(cell, reader, writer, captures=start_message.captures).run()
    finally:
        await cell.__aexit__(None, None, None)


class _Worker:
    """Makes the attempts that the engine sends."""

    def __init__(
        self, cell: Cell, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, captures: bool
    ) -> None:
        self._runner = LocalRunner(
            cell.calls,
            cell.signals,
            explain=cell.explain,
            captures=captures,
            tokens=cell.options.tokens_of(cell.instances),
        )
        self._cell = cell
        self._reader = reader
        self._writer = writer
        self._tasks: dict[int, tuple[asyncio.Task[None], WorkItem]] = {}
        self._latency_s = 0.0
        self._lag_s = 0.0
        self._reported_stuck_at = 0.0
        cell.signals.listeners.append(self._note_rejection)

    async def run(self) -> None:
        self._send(WorkerReady())
        heartbeats = asyncio.create_task(self._send_heartbeats())
        while (data := await read_frame(self._reader)) is not None:
            message = worker_decoder.decode(data)
            if isinstance(message, MakeAttempt):
                item = WorkItem(RolloutKey(0, message.number), message.line, "", message.attempts)
                if message.trace is not None:
                    item.progress.spans = SpanRecorder.from_header(message.trace)
                self._tasks[message.number] = (asyncio.create_task(self._run_attempt(message, item)), item)
            elif isinstance(message, CancelAttempt):
                entry = self._tasks.get(message.number)
                if entry is not None:
                    entry[0].cancel()
            elif isinstance(message, StopWorker):
                break
        heartbeats.cancel()
        for task, _ in self._tasks.values():
            task.cancel()
        await asyncio.gather(heartbeats, *(task for task, _ in self._tasks.values()), return_exceptions=True)

    async def _run_attempt(self, work: MakeAttempt, item: WorkItem) -> None:
        started = time.monotonic()
        try:
            outcome = await self._runner.attempt(item, work.timeout_s)
            recorder = item.progress.spans
            self._send(AttemptDone(work.number, outcome, recorder.spans if recorder is not None else []))
        except Exception as error:  # noqa: BLE001 - the engine must hear of every attempt, also if it cannot be encoded
            _log.exception("an attempt raised")
            self._send(AttemptDone(work.number, fail_unexpected(error, started, item.progress)))
        finally:
            self._tasks.pop(work.number, None)

    def _send(self, message: ToEngine) -> None:
        data = encode_frame(message)
        try:
            self._writer.write(data)
        except RuntimeError:  # of uvloop: the engine is gone, and no process reads what is sent
            _log.info("the engine has closed the connection")

    def _note_rejection(self, latency_s: float) -> None:
        self._latency_s = latency_s

    async def _send_heartbeats(self) -> None:
        signals = self._cell.signals
        while True:
            before = time.monotonic()
            await asyncio.sleep(_HEARTBEAT_S)
            now = time.monotonic()
            self._lag_s = max(0.0, now - before - _HEARTBEAT_S)
            stages = {
                number: (item.progress.stage.value, item.progress.instance, now - item.progress.since)
                for number, (_, item) in self._tasks.items()
            }
            stuck = self._find_stuck(now)
            counts = (signals.model_calls, signals.rejections, self._latency_s, self._lag_s)
            self._send(Heartbeat(stages, *counts, stuck, dict(signals.retried_calls)))

    def _find_stuck(self, now: float) -> dict[int, tuple[str, list[str]]]:
        """The endpoints and stacks of attempts that have not moved for a while; empty between two reports."""
        if now < self._reported_stuck_at + _STUCK_AFTER_S:
            return {}
        self._reported_stuck_at = now
        stuck = [entry for entry in self._tasks.items() if entry[1][1].progress.since < now - _STUCK_AFTER_S]
        return {
            number: (item.progress.endpoint, coroutine_frames(task.get_coro()))
            for number, (task, item) in stuck[:_MAX_STUCK]
        }


def _kill_group() -> None:
    """Kill everything this process started."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
