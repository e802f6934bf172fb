"""`track` and `trace`: what a run reports to trackers and collectors, opened and closed with it."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gymnast.errors import UserError
from gymnast.types.telemetry import DEFAULT_TRACE_SAMPLE, TelemetryOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.observer import TakeSnapshot, Watch
    from gymnast.rollouts.traced_runner import Tracer
    from gymnast.tracking.choice import TrackerChoice
    from gymnast.tracking.run_tracking import RunTracking
    from gymnast.types.events import RunFinished


@dataclass(slots=True)
class Telemetry:
    """Where a run is reported to."""

    tracking: RunTracking | None = None
    tracer: Tracer | None = None
    finished: RunFinished | None = None
    """How the run ended; set by what runs it."""

    def watch(self, engine: Engine) -> AbstractContextManager[object]:
        """Report the engine while the context is open."""
        return self.tracking.watch(engine) if self.tracking is not None else ExitStack()

    def watch_too(self, watch: Watch) -> Watch:
        """As `watch`, and what else watches the engine."""

        def watch_both(engine: Engine, take_snapshot: TakeSnapshot) -> ExitStack:
            stack = ExitStack()
            stack.enter_context(watch(engine, take_snapshot))
            stack.enter_context(self.watch(engine))
            return stack

        return watch_both


def check_telemetry(track: list[str] | None, trace: str | None, trace_sample: float) -> TelemetryOptions:
    """The options for workers that start later. Raises UserError for invalid ones."""
    if track:
        from gymnast.tracking.choice import parse_trackers

        parse_trackers(track)
    if trace is not None:
        from gymnast.tracking.span_exporter import traces_url

        traces_url(trace)
    _check_sample(trace, trace_sample)
    return TelemetryOptions(tuple(track or ()), trace, trace_sample)


def _check_sample(trace: str | None, sample: float) -> None:
    if trace is None and sample != DEFAULT_TRACE_SAMPLE:
        raise UserError(
            "--trace-sample has no effect without --trace", next="for example --trace http://localhost:4318"
        )


@contextmanager
def open_telemetry(
    track: Sequence[str | TrackerChoice] | None,
    trace: str | None,
    trace_sample: float,
    say: Callable[[str], None],
    *,
    worker: str | None = None,
) -> Iterator[Telemetry | None]:
    """What the options ask for; None without any. At the end, trackers and collectors get a bounded time."""
    _check_sample(trace, trace_sample)
    choices: tuple[TrackerChoice, ...] = ()
    if track:
        from gymnast.tracking.choice import parse_trackers

        choices = parse_trackers(track)
    if not choices and trace is None:
        yield None
        return
    telemetry = Telemetry()
    with ExitStack() as stack:
        if trace is not None:
            from gymnast.config.environ import read_telemetry
            from gymnast.rollouts.traced_runner import Tracer
            from gymnast.tracking.span_exporter import SpanExporter

            exporter = stack.enter_context(SpanExporter(trace, read_telemetry(), say))
            telemetry.tracer = Tracer(trace_sample, exporter.put)
        if choices:
            from gymnast.tracking.run_tracking import RunTracking

            tracking = telemetry.tracking = RunTracking(choices, say, worker=worker)
            stack.callback(lambda: tracking.finish(telemetry.finished))
        yield telemetry


@asynccontextmanager
async def report_run(
    track: Sequence[str] | None, trace: str | None, trace_sample: float, say: Callable[[str], None]
) -> AsyncIterator[Telemetry]:
    """As `open_telemetry`, but the wait at the end does not block the event loop."""
    with ExitStack() as opening:
        telemetry = opening.enter_context(open_telemetry(track, trace, trace_sample, say))
        stack = opening.pop_all()
    try:
        yield telemetry or Telemetry()
    finally:
        await asyncio.to_thread(stack.close)
