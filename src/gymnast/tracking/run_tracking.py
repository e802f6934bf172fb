"""A run as trackers see it: its figures while it runs; its summary, report and manifest at the end.

Figures are sampled by time, never per rollout: about once a second at first, rarer the longer a run takes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.config.environ import child_environ
from gymnast.errors import UserError
from gymnast.store.manifest import read_manifest
from gymnast.store.paths import RunPaths
from gymnast.tracking.messages import Finish
from gymnast.tracking.publisher import DEFAULT_WAIT_S, Publisher, TrackedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gymnast.rollouts.engine import Engine
    from gymnast.store.manifest import Manifest
    from gymnast.tracking.choice import TrackerChoice
    from gymnast.types.events import RunFinished

_MIN_INTERVAL_S: Final = 1.0
_MAX_INTERVAL_S: Final = 15.0
_POINTS_PER_AGE: Final = 200
"""A run of so many intervals' length is sampled at that interval."""
REPORT_TIMEOUT_S: Final = 60.0
_MAX_AGENTS: Final = 100
"""Agents with figures of their own; trackers cannot show thousands of series."""
_INTERRUPTED: Final = "interrupted"


class RunTracking:
    """Reports one run to trackers. Use `watch` while its engine runs, then `finish`."""

    def __init__(
        self,
        choices: Sequence[TrackerChoice],
        say: Callable[[str], None],
        *,
        worker: str | None = None,
        wait_s: float | None = None,
    ) -> None:
        """`worker` names one of several workers of a run; each has a tracker run of its own, in one group."""
        self._choices = choices
        self._say = say
        self._worker = worker
        self._wait_s = DEFAULT_WAIT_S if wait_s is None else wait_s
        self._publisher: Publisher | None = None
        self._before: tuple[float, int] | None = None

    @contextmanager
    def watch(self, engine: Engine) -> Iterator[None]:
        """Sample the engine while the block is open, once more when it ends."""
        publisher = self._start(engine)
        if publisher is None:
            yield
            return
        task = asyncio.create_task(self._sample(engine, publisher))
        try:
            yield
        finally:
            task.cancel()
            publisher.log(*self._point(engine))

    def _start(self, engine: Engine) -> Publisher | None:
        try:
            publisher = Publisher(
                self._choices,
                lambda: describe_run(RunPaths(Path(engine.store.name)), engine.store.run_id, self._worker),
                self._say,
                wait_s=self._wait_s,
            )
            publisher.start()
        except (OSError, RuntimeError) as error:  # no file or thread is free
            self._say(f"warning: --track: {error}; the run continues without trackers")
            return None
        self._publisher = publisher
        return publisher

    def finish(self, finished: RunFinished | None) -> None:
        """End the trackers' runs, with the report and the manifest. None if an error ended the run."""
        if self._publisher is None:
            return
        if finished is None:
            self._publisher.finish(Finish(_INTERRUPTED))
            return
        paths = RunPaths(Path(finished.output))
        has_report = self._worker is None and finished.state != _INTERRUPTED  # who interrupts does not want to wait
        files = [*self._report(paths, finished)] if has_report else []
        files += [str(path.absolute()) for path in (paths.manifest, paths.aggregate_metrics) if path.is_file()]
        self._publisher.finish(Finish(finished.state, summarize(finished), files))

    async def _sample(self, engine: Engine, publisher: Publisher) -> None:
        started = time.monotonic()
        while True:
            publisher.log(*self._point(engine))
            age_s = time.monotonic() - started
            await asyncio.sleep(min(max(age_s / _POINTS_PER_AGE, _MIN_INTERVAL_S), _MAX_INTERVAL_S))

    def _point(self, engine: Engine) -> tuple[int, dict[str, float]]:
        now, tokens = time.monotonic(), engine.store.spent.output_tokens
        figures = make_figures(engine, now)
        if self._before is not None and now > self._before[0]:
            seconds, more = now - self._before[0], tokens - self._before[1]
            figures["throughput/output_tokens_per_second"] = max(0, more) / seconds
        self._before = now, tokens
        return int(figures["progress/scored"] + figures["progress/failed"]), figures

    def _report(self, paths: RunPaths, finished: RunFinished) -> Iterator[str]:
        """Build the HTML report in a process of its own: it reads every record."""
        if not finished.scored:
            return
        report = paths.logs / "report.html"
        command = [sys.executable, "-m", "gymnast", "report", str(paths.output), "--output", str(report)]
        try:
            process = subprocess.run(  # noqa: S603 - our own command
                command, capture_output=True, timeout=REPORT_TIMEOUT_S, check=False, env=child_environ({})
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            why = "takes too long" if isinstance(error, subprocess.TimeoutExpired) else str(error)
            self._say(f"warning: the report {why} and is not sent to the trackers (gymnast report {paths.output})")
            return
        if process.returncode == 0 and report.is_file():
            yield str(report.absolute())
        else:
            last = process.stderr.decode(errors="replace").strip().splitlines()[-1:]
            self._say(f"warning: no report for the trackers: {' '.join(last)} (gymnast report {paths.output})")


def describe_run(paths: RunPaths, run_id: str, worker: str | None = None) -> TrackedRun:
    """What trackers are told about a run on disk."""
    try:
        manifest = read_manifest(paths.manifest)
    except UserError:  # the run itself says what is wrong with it
        manifest = None
    name = f"{paths.output.parent.absolute().name}/{paths.output.stem}"
    log_dir = paths.logs if worker is None else paths.logs / worker
    return TrackedRun(
        name=name if worker is None else f"{name}/{worker}",
        run_id=run_id,
        log_dir=log_dir,
        state=paths.tracking if worker is None else log_dir / "tracking.json",
        event_dir=paths.events / run_id / (worker or ""),
        config={"run_id": run_id, **(describe_manifest(manifest) if manifest is not None else {})},
        group=None if worker is None else run_id,
    )


def describe_manifest(manifest: Manifest) -> dict[str, Any]:
    """The settings of a run, and the digests of its inputs and code."""
    return {
        "output": manifest.output,
        "source": manifest.source,
        "plan": manifest.plan,
        "settings": manifest.settings,
        "code": manifest.code,
        "versions": manifest.versions,
        "created_at": manifest.created_at,
    }


def make_figures(engine: Engine, now: float) -> dict[str, float]:
    """The figures of a run at this moment; unknown ones are left out."""
    store = engine.store
    counts, totals = store.counts(), store.totals()
    failed = sum(counts.failed.values())
    figures: dict[str, float] = {
        "progress/scored": counts.scored,
        "progress/failed": failed,
        "progress/owed": counts.owed,
        "progress/share": (counts.scored + failed) / counts.requested if counts.requested else 1.0,
        "progress/in_flight": len(engine.in_flight),
        "progress/concurrency_limit": engine.limit.current,
        "throughput/rollouts_per_second": engine.pace.per_second(now),
    }
    retried: dict[str, int] = {}
    for agent, total in islice(totals.items(), _MAX_AGENTS):
        stats, name = total.stats(), agent or "no_agent"
        if stats.mean_reward is not None:
            figures[f"reward/{name}"] = stats.mean_reward
        figures[f"reward_n/{name}"] = stats.scored - stats.masked
        if stats.truncated:
            figures[f"truncated/{name}"] = stats.truncated
        for kind, number in total.retried.items():
            retried[kind] = retried.get(kind, 0) + number
    figures |= {f"failures/{kind}": number for kind, number in counts.failed.items()}
    figures |= {f"retries/{kind}": number for kind, number in retried.items()}
    spent = store.spent
    known = {
        "tokens/input": spent.input_tokens,
        "tokens/cached": spent.cached_tokens,
        "tokens/output": spent.output_tokens,
        "tokens/reasoning": spent.reasoning_tokens,
        "models/calls": spent.calls,
        "models/failed_calls": spent.failed_calls,
        "cost/total": spent.cost,
    }
    if spent.calls:
        figures |= {name: number for name, number in known.items() if number is not None}
    return figures


def summarize(finished: RunFinished) -> dict[str, Any]:
    """The figures of a finished run."""
    spent = finished.spent
    return {
        "requested": finished.requested,
        "scored": finished.scored,
        "failed": finished.failed,
        "owed": finished.owed,
        "attempts": finished.attempts,
        "retries": finished.retries,
        "seconds": finished.seconds,
        "rollouts_per_second": (finished.requested - finished.owed - finished.settled_before)
        / max(finished.seconds, 1e-9),
        "reward": {
            name or "no_agent": {"mean": stats.mean_reward, "n": stats.scored - stats.masked}
            for name, stats in finished.agents.items()
        },
        "tokens": {"input": spent.input_tokens, "output": spent.output_tokens},
        "cost": spent.cost if spent.calls else None,
        **({"note": finished.note} if finished.note else {}),
    }
