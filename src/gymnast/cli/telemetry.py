"""`--track` and `--trace`: what a command reports to trackers and collectors, opened and closed with it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gymnast.cli.options import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.traced_runner import Tracer
    from gymnast.tracking.choice import TrackerChoice
    from gymnast.tracking.run_tracking import RunTracking
    from gymnast.types.events import RunFinished
    from gymnast.types.telemetry import TelemetryOptions


@dataclass(slots=True)
class Telemetry:
    """Where a run is reported to."""

    tracking: RunTracking | None = None
    tracer: Tracer | None = None
    finished: RunFinished | None = None
    """How the run ended; set by the command."""

    def watch(self, engine: Engine) -> AbstractContextManager[object]:
        """Report the engine while the context is open."""
        return self.tracking.watch(engine) if self.tracking is not None else ExitStack()


def check_telemetry(track: list[str] | None, trace: str | None, trace_sample: float) -> TelemetryOptions:
    """The options for workers that start later. Raises UserError for invalid ones."""
    from gymnast.types.telemetry import TelemetryOptions

    if track:
        from gymnast.tracking.choice import parse_trackers

        parse_trackers(track)
    if trace is not None:
        from gymnast.tracking.span_exporter import traces_url

        traces_url(trace)
    return TelemetryOptions(tuple(track or ()), trace, trace_sample)


@contextmanager
def open_telemetry(
    track: Sequence[str] | None, trace: str | None, trace_sample: float, *, worker: str | None = None
) -> Iterator[Telemetry | None]:
    """What the options ask for; None without any. At the end, trackers and collectors get a bounded time."""
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
