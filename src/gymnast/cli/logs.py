"""`gymnast logs RUN`: what the workers of a run said, those first that ended badly."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gymnast.cluster.executor import JobView
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.types.failure import FailureKind

_POLL_S: Final = 0.5
_SHOWN_AT_ONCE: Final = 8
_FINISH: Final = "finish"
"""The job that merges, for --job; also the end of its log's name, where workers have numbers."""


def command(
    run: Annotated[Path, typer.Argument(help="The run: its output file.")],
    jobs: Annotated[
        list[str] | None,
        typer.Option("--job", help="Only this job (123), worker (123_4) or the merge (finish). Repeatable."),
    ] = None,
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines of each log's end.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is added, until all are over.")
    ] = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Show the ends of the workers' logs: of those that failed, then of those that run."""
    from gymnast.rollouts.inspect_run import run_paths
    from gymnast.store.chunk_layout import ChunkLayout

    layout = ChunkLayout.of(run_paths(run))
    views = _chosen(layout, jobs or [])
    if as_json:
        shared.print_json([_told(view, lines) for view in views])
        return 0
    shown = views if jobs or follow else views[:_SHOWN_AT_ONCE]
    for view in shown:
        print(_headline(view))
        print(_end_of(view, lines))
    if len(shown) < len(views):
        folder = shlex.quote(str(Path(views[-1].log or "").parent))
        shared.say(f"{len(views) - len(shown)} more: choose with --job, or see {folder}")
    if follow:
        _follow(layout, views, jobs or [])
    return 0


def _chosen(layout: ChunkLayout, jobs: list[str]) -> list[JobView]:
    """Workers that were meant, those that failed first, then those that run."""
    from gymnast.cluster.executor import JobState
    from gymnast.cluster.submitting import is_meant, standing
    from gymnast.errors import NotFoundError, suggest

    every = [view for _, views in standing(layout).jobs for view in views]
    found = [view for view in every if is_meant(view.job, jobs)]
    found += _merges(layout, jobs) if jobs else []
    if not found:
        asked = jobs[0] if jobs else "any job"
        raise NotFoundError(f"the run has no worker of {asked}", next=suggest(asked, [view.job for view in every]))
    good = {JobState.PENDING: 2, JobState.RUNNING: 1, JobState.COMPLETED: 3}
    return sorted(found, key=lambda view: good.get(view.state, 0))


def _merges(layout: ChunkLayout, jobs: list[str]) -> list[JobView]:
    """Jobs that merge and were meant: by number, or the newest as `finish`."""
    from gymnast.cli.chunk_status import merge_jobs

    views = merge_jobs(layout)
    newest = views[-1:] if _FINISH in jobs else []
    return [view for view in views if view.job in jobs or view in newest]


def _kind(view: JobView) -> FailureKind | None:
    """The kind of a worker's bad end. What is said of kinds is of workers: a job that merges has only its log."""
    from gymnast.cluster.job_failures import failure_of

    return None if (view.log or "").endswith(f"-{_FINISH}.log") else failure_of(view)


def _headline(view: JobView) -> str:
    code = f", exit code {view.exit_code}" if view.exit_code else ""
    kind = _kind(view)
    why = f": {kind.name}, {kind.hint}" if kind is not None else ""
    return f"==> {view.job} {view.state}{code}{f' on {view.node}' if view.node else ''}{why}\n    {view.log}"


def _end_of(view: JobView, lines: int) -> str:
    from gymnast.runtime.venvs import tail

    path = Path(view.log) if view.log else None
    if path is None or not path.exists():
        return "(it has said nothing yet)"
    return tail(path, lines)


def _told(view: JobView, lines: int) -> dict[str, Any]:
    import msgspec

    kind = _kind(view)
    told: dict[str, Any] = msgspec.to_builtins(view)
    return {**told, "failure": kind.name if kind is not None else None, "end_of_log": _end_of(view, lines)}


def _follow(layout: ChunkLayout, views: list[JobView], jobs: list[str]) -> None:
    """Print what is added to the logs, with the job's name, until every worker is over."""
    files = {view.job: _Growing(view) for view in views}
    while True:
        for growing in files.values():
            for line in growing.new_lines():
                sys.stdout.write(f"{growing.job}  {line}\n")
        sys.stdout.flush()
        if all(view.state.is_over for view in views):
            return
        time.sleep(_POLL_S)
        views = _chosen(layout, jobs)


class _Growing:
    """A log file, read from where it ended when we began."""

    def __init__(self, view: JobView) -> None:
        self.job = view.job
        self._path = Path(view.log or "")
        self._read = self._path.stat().st_size if self._path.is_file() else 0
        self._rest = b""

    def new_lines(self) -> Iterator[str]:
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._read)
                data = stream.read()
        except OSError:
            return
        self._read += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
