"""`gymnast logs RUN`: the logs of a run's workers, failed ones first."""

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

    from gymnast.errors import UserError
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.paths import RunPaths
    from gymnast.types.failure import KindInfo
    from gymnast.types.job import JobView

_POLL_S: Final = 0.5
_MAX_LOGS: Final = 8
_FINISH: Final = "finish"
"""The merge job, for --job; also the end of its log's name, where workers have numbers."""


def command(
    run: shared.Run,
    jobs: Annotated[
        list[str] | None,
        typer.Option("--job", help="Only this job (123), worker (123_4) or the merge (finish). Repeatable."),
    ] = None,
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Lines to show from the end of each log.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines until all workers have ended.")
    ] = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Show the logs of a run's workers, failed ones first."""
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.paths import RunPaths

    layout = ChunkLayout.of(RunPaths(run))
    if not layout.is_planned:
        raise _no_workers(RunPaths(run))
    views = _select_jobs(layout, jobs or [])
    if as_json:
        shared.print_json([_to_json(view, lines) for view in views])
        return 0
    shown = views if jobs or follow else views[:_MAX_LOGS]
    for view in shown:
        print(_headline(view))
        print(_log_tail(view, lines))
    if len(shown) < len(views):
        folder = shlex.quote(str(Path(views[-1].log or "").parent))
        shared.say(f"{len(views) - len(shown)} more: choose with --job, or see {folder}")
    if follow:
        _follow(layout, views, jobs or [])
    return 0


def _no_workers(paths: RunPaths) -> UserError:
    """A run by collect has no worker logs."""
    from gymnast.errors import UserError

    places = f"servers in separate processes logged to {paths.logs}" if paths.logs.is_dir() else ""
    return UserError(
        "only workers of gymnast submit have logs here; collect logs to the terminal",
        where=str(paths.output),
        next=places or f"gymnast doctor {shlex.quote(str(paths.output))} explains what went wrong",
    )


def _select_jobs(layout: ChunkLayout, jobs: list[str]) -> list[JobView]:
    """The selected workers: failed ones first, then running ones."""
    from gymnast.errors import NotFoundError, suggest
    from gymnast.executors.worker_jobs import matches_job, read_submission_status
    from gymnast.types.job import JobState

    workers = [view for _, views in read_submission_status(layout).jobs for view in views]
    selected = [view for view in workers if matches_job(view.job, jobs)]
    selected += _merges(layout, jobs) if jobs else []
    if not selected:
        if not jobs:
            raise NotFoundError("the run has no workers", next="start some with gymnast submit")
        known = [view.job for view in workers]
        raise NotFoundError(f"the run has no job or worker '{jobs[0]}'", next=suggest(jobs[0], known))
    ranks = {JobState.RUNNING: 1, JobState.PENDING: 2, JobState.COMPLETED: 3}
    return sorted(selected, key=lambda view: ranks.get(view.state, 0))


def _merges(layout: ChunkLayout, jobs: list[str]) -> list[JobView]:
    """The selected merge jobs: by number, or the newest as `finish`."""
    from gymnast.cli.chunk_status import merge_jobs

    views = merge_jobs(layout)
    newest = views[-1:] if _FINISH in jobs else []
    return [view for view in views if view.job in jobs or view in newest]


def _kind(view: JobView) -> KindInfo | None:
    """Why a worker failed. The kinds describe workers only: a merge job has just its log."""
    from gymnast.executors.executor import failure_of

    return None if (view.log or "").endswith(f"-{_FINISH}.log") else failure_of(view)


def _headline(view: JobView) -> str:
    code = f", exit code {view.exit_code}" if view.exit_code else ""
    kind = _kind(view)
    why = f": {kind.name}, {kind.hint}" if kind is not None else ""
    return f"==> {view.job} {view.state}{code}{f' on {view.node}' if view.node else ''}{why}\n    {view.log}"


def _log_tail(view: JobView, lines: int) -> str:
    from gymnast.runtime.venvs import read_tail

    path = Path(view.log) if view.log else None
    if path is None or not path.exists():
        return "(no output yet)"
    return read_tail(path, lines)


def _to_json(view: JobView, lines: int) -> dict[str, Any]:
    import msgspec

    kind = _kind(view)
    body: dict[str, Any] = msgspec.to_builtins(view)
    return {**body, "failure": kind.name if kind is not None else None, "end_of_log": _log_tail(view, lines)}


def _follow(layout: ChunkLayout, views: list[JobView], jobs: list[str]) -> None:
    """Print new lines of the logs, with the job's name, until every worker has ended."""
    files = {view.job: _LogFollower(view) for view in views}
    while True:
        for growing in files.values():
            for line in growing.new_lines():
                sys.stdout.write(f"{growing.job}  {line}\n")
        sys.stdout.flush()
        if all(view.state.is_over for view in views):
            return
        time.sleep(_POLL_S)
        views = _select_jobs(layout, jobs)


class _LogFollower:
    """A log file, read from where it ended when following started."""

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
