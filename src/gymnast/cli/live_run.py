"""A run as the command line shows it: events, the live view, metrics, signals, telemetry, the summary."""

from __future__ import annotations

import asyncio
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gymnast.cli.live_view import live_view
from gymnast.cli.main import INTERRUPTED
from gymnast.cli.options import say
from gymnast.cli.progress import Progress, describe_invocation, format_usage, print_summary
from gymnast.cli.signals import Interrupts
from gymnast.config import read_environ
from gymnast.rollouts.exit_status import exit_code, explain_missing
from gymnast.rollouts.observer import RunObserver
from gymnast.rollouts.run import collect_run
from gymnast.runtime.listener import loop_factory
from gymnast.store.manifest import RunState
from gymnast.store.paths import RunPaths
from gymnast.types.events import RunFinished

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gymnast.config import Config
    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.exit_status import Allowance
    from gymnast.rollouts.observer import TakeSnapshot
    from gymnast.rollouts.options import RunOptions
    from gymnast.tracking.telemetry import Telemetry
    from gymnast.types.events import Event

Result = TypeVar("Result")


class LiveRun:
    """One run of an engine with its view in the terminal. With `as_json`, standard output has only its events.

    `adapt_hint` puts what to do about failures into the words of the command that collects.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        metrics_port: int | None = None,
        telemetry: Telemetry | None = None,
        interrupts: Interrupts | None = None,
        adapt_hint: Callable[[str], str] = str,
    ) -> None:
        self._as_json = as_json
        self._metrics_port = metrics_port
        self._telemetry = telemetry
        self._interrupts = interrupts or Interrupts()
        self._adapt_hint = adapt_hint
        self._progress = Progress()
        self._encoder = msgspec.json.Encoder()

    @property
    def is_interrupted(self) -> bool:
        return self._interrupts.count > 0

    def collect(self, options: RunOptions, config: Config) -> RunFinished:
        """Collect a run and return how it ended."""
        environ = read_environ()
        return self.run(lambda observer: collect_run(options, config, environ, observer))

    def run(self, work: Callable[[RunObserver], Coroutine[Any, Any, Result]]) -> Result:
        """Run whatever runs an engine, and return its result."""
        tracer = self._telemetry.tracer if self._telemetry is not None else None
        observer = RunObserver(self._listen, say, self._watch, tracer=tracer)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            result = runner.run(work(observer))
        self._interrupts.ignore_further()
        return result

    def exit_code(self, finished: RunFinished, allowance: Allowance) -> int:
        """The exit code of the run that ended like this."""
        return INTERRUPTED if self.is_interrupted and finished.owed else exit_code(finished, allowance)

    def report(self, finished: RunFinished, allowance: Allowance) -> int:
        """Print the summary, unless the events were printed. Returns the exit code."""
        if not self._as_json:
            _print_result(finished, self._adapt_hint)
        return self.exit_code(finished, allowance)

    def report_missing(self, finished: RunFinished, allowance: Allowance) -> int:
        """Say only what is missing, where a table of several runs follows. Returns the exit code."""
        for line in explain_missing(finished):
            say(line)
        return self.exit_code(finished, allowance)

    def _listen(self, event: Event) -> None:
        self._progress(event)
        if self._telemetry is not None and isinstance(event, RunFinished):
            self._telemetry.finished = event
        if self._as_json:
            sys.stdout.write(self._encoder.encode(event).decode() + "\n")
            sys.stdout.flush()

    def _watch(self, engine: Engine, take_snapshot: TakeSnapshot) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(self._interrupts.control(engine))
        stack.enter_context(live_view(take_snapshot))
        if self._metrics_port is not None:
            from gymnast.cli.metrics import metrics_endpoint

            stack.enter_context(metrics_endpoint(self._metrics_port, take_snapshot))
        if self._telemetry is not None:
            stack.enter_context(self._telemetry.watch(engine))
        return stack


def describe_outcome(finished: RunFinished) -> str:
    """`40 of 40, complete`, or what is not scored: `30 of 40 scored, 10 failed`."""
    failed = sum(finished.failed.values())
    if finished.state == RunState.COMPLETE and failed:
        return f"{finished.scored} of {finished.requested} scored, {failed} failed"
    return f"{finished.scored} of {finished.requested}, {finished.state}"


def _print_result(finished: RunFinished, adapt_hint: Callable[[str], str]) -> None:
    """Print the summary of the run, where its files are, and what to do about failures."""
    print_summary(finished.agents)
    invocation = describe_invocation(finished)
    if invocation is not None:
        print(f"now       {invocation}")
    paths = RunPaths(Path(finished.output))
    print(f"rollouts  {paths.output}  ({describe_outcome(finished)})")
    print(f"inputs    {paths.materialized_inputs}")
    if finished.attempts > finished.scored:
        print(f"failures  {paths.failures}")
    if finished.spent.calls:
        print(f"models    {format_usage(finished.spent)}")
    print(f"view      gymnast view {shlex.quote(str(paths.output))}")
    for line in explain_missing(finished):
        print(adapt_hint(line), file=sys.stderr)
    if finished.longest_lag_s > 0.5:
        say(
            f"note: the event loop stood still for up to {finished.longest_lag_s:.1f} s: an environment computed in it "
            "(move it out with --workers or runs_in: child), or the machine was busy"
        )
