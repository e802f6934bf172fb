"""`gymnast status RUN` for a submitted run: its counts, workers and jobs, and rollouts of unknown state."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Final

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.chunks.status import RunStatus
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.paths import RunPaths
    from gymnast.types.job import JobView

_MAX_ROWS: Final = 20
_POLL_S: Final = 2.0


def show_chunk_status(paths: RunPaths, *, as_json: bool, watch: bool = False) -> int:
    """Print the state of a submitted run. 0 if workers are running or queued, or nothing is owed."""
    import msgspec

    from gymnast.store.chunk_layout import ChunkLayout

    layout = ChunkLayout.of(paths)
    status = read_status(layout)
    while watch and status.unsettled:
        print(status_line(status), flush=True)
        time.sleep(_POLL_S)
        status = read_status(layout)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(status)).decode())
    else:
        _print(paths, status)
    return 1 if _state(status) == "interrupted" else 0


def read_status(layout: ChunkLayout) -> RunStatus:
    """Read the status of the run, with the state of its jobs from the schedulers."""
    from gymnast.chunks.status import LivenessCheck, read_run_status
    from gymnast.chunks.worker_spec import read_worker_spec
    from gymnast.store.atomic import file_clock

    lease_s, jobs = read_worker_spec(layout).options.lease_s, tuple(_jobs(layout))
    return read_run_status(layout, LivenessCheck(lease_s=lease_s, now=file_clock(layout.folder), jobs=jobs))


def _state(status: RunStatus) -> str:
    """The state of the run. Jobs that are queued or starting hold no chunk yet."""
    if not status.unsettled:
        return "complete"
    if status.states["held"]:
        return "running"
    return "interrupted" if all(job.state.is_over for job in status.jobs) else "waiting for jobs"


def status_line(status: RunStatus) -> str:
    """Describe the state of a run in one line."""
    failed = sum(status.failed.values())
    text = f"{status.scored + failed}/{status.requested} rollouts"
    text += f"  {failed} failed" if failed else ""
    means = [stats.mean_reward for stats in status.agents.values() if stats.mean_reward is not None]
    text += f"  reward {means[0]:.3f}" if len(means) == 1 else ""
    text += f"  {status.in_flight} in flight  {status.owed} owed"
    text += f"  {status.unknown} unknown" if status.unknown else ""
    return text + f"  {sum(worker.chunks_held > 0 for worker in status.workers)} workers active"


def _jobs(layout: ChunkLayout) -> list[JobView]:
    from gymnast.errors import UserError
    from gymnast.executors.registry import executor_for, locate_submission
    from gymnast.executors.submissions import read_submissions

    jobs: list[JobView] = []
    for submission in read_submissions(layout):
        try:
            known = locate_submission(submission)
            jobs += executor_for(known).states(known) if known is not None else []
        except UserError as error:
            shared.say(f"note: {submission.executor} does not report the state of its jobs: {error.what}")
    return jobs


def merge_jobs(layout: ChunkLayout) -> list[JobView]:
    """The merge jobs of the run, the newest last."""
    from gymnast.executors.registry import locate_submission
    from gymnast.executors.slurm.executor import SlurmExecutor
    from gymnast.executors.submissions import read_submissions

    slurm = SlurmExecutor()
    submissions = [known for known in map(locate_submission, read_submissions(layout)) if known is not None]
    return [view for view in map(slurm.finish_state, submissions) if view is not None]


def _merge_job(paths: RunPaths) -> JobView | None:
    """The merge job: of several, one that has not ended, or the newest."""
    from gymnast.errors import UserError
    from gymnast.store.chunk_layout import ChunkLayout

    try:
        views = merge_jobs(ChunkLayout.of(paths))
    except UserError as error:
        shared.say(f"note: the state of the merge job is unknown: {error.what}")
        return None
    return next((view for view in reversed(views) if not view.state.is_over), views[-1] if views else None)


def _describe_merge(view: JobView, paths: RunPaths) -> str:
    text = f"job {view.job} {view.state.value}"
    text += f", {view.reason}" if view.reason else ""
    if view.exit_code:
        text += f", exit code {view.exit_code}: gymnast logs {shlex.quote(str(paths.output))} --job finish"
    return text


def _print(paths: RunPaths, status: RunStatus) -> None:
    from gymnast.cli.progress import agent_lines, format_usage

    state = _state(status)
    print(f"{paths.output}: {state}, in {len(status.chunks)} chunks")
    print(
        f"  {status.requested} requested = {status.scored} scored + {sum(status.failed.values())} failed"
        f" + {status.in_flight} in flight + {status.unknown} unknown + {status.owed} owed"
    )
    for line in agent_lines(status.agents):
        print(line)
    for kind, number in sorted(status.failed.items(), key=lambda pair: -pair[1]):
        print(f"  {number} × {kind}")
    print("  chunks: " + ", ".join(f"{number} {name}" for name, number in status.states.items() if number))
    if status.spent.calls:
        print(f"  {format_usage(status.spent)}")
    _print_chunks(status)
    _print_workers(status)
    merge = _merge_job(paths)
    if merge is not None:
        print(f"  merge: {_describe_merge(merge, paths)}")
    if not status.unsettled and not paths.done.exists():
        is_pending = merge is not None and not merge.state.is_over
        run = shlex.quote(str(paths.output))
        shared.say("next: wait for the merge job" if is_pending else f"next: gymnast merge {run}")
    elif state == "interrupted":
        shared.say("next: gymnast submit --resume adds workers for the rollouts that are still owed")


def _print_chunks(status: RunStatus) -> None:
    """Chunks in progress, those with the oldest heartbeat first."""
    from rich.table import Table

    from gymnast.chunks.status import ChunkState
    from gymnast.cli.progress import print_table

    active = [chunk for chunk in status.chunks if chunk.state not in {ChunkState.FREE, ChunkState.DONE}]
    if not active:
        return
    active.sort(key=lambda chunk: -(chunk.heard_s or 0.0))
    more = f", {_MAX_ROWS} of {len(active)}" if len(active) > _MAX_ROWS else ""
    headings = ("chunk", "state", "settled", "in flight", "unknown", "owed", "worker", "job", "heard")
    table = Table(*headings, title=f"active chunks{more}", title_justify="left", box=None, padding=(0, 2))
    for chunk in active[:_MAX_ROWS]:
        settled = f"{chunk.scored + sum(chunk.failed.values())}/{chunk.requested}"
        heard = f"{chunk.heard_s:.0f} s ago" if chunk.heard_s is not None else chunk.why or ""
        numbers = (str(chunk.in_flight or ""), str(chunk.unknown or ""), str(chunk.owed or ""))
        table.add_row(chunk.chunk, chunk.state.value, settled, *numbers, chunk.worker or "", chunk.job or "", heard)
    print_table(table)


def _print_workers(status: RunStatus) -> None:
    """Workers that hold chunks or whose job failed, and the states of all jobs."""
    from collections import Counter

    from rich.table import Table

    from gymnast.cli.progress import print_table

    shown = [worker for worker in status.workers if worker.chunks_held or worker.state not in {"", "completed"}]
    if shown:
        more = f", {_MAX_ROWS} of {len(shown)}" if len(shown) > _MAX_ROWS else ""
        headings = ("worker", "job", "state", "scored", "failed", "in flight", "unknown", "owed", "chunks")
        table = Table(*headings, title=f"workers{more}", title_justify="left", box=None, padding=(0, 2))
        for worker in shown[:_MAX_ROWS]:
            numbers = (worker.scored, sum(worker.failed.values()), worker.in_flight, worker.unknown, worker.owed)
            chunks = f"{worker.chunks_done} done, {worker.chunks_held} held"
            table.add_row(
                worker.worker, worker.job or "", worker.state, *(str(number or "") for number in numbers), chunks
            )
        print_table(table)
    if status.jobs:
        states = Counter(job.state.value for job in status.jobs)
        print("  jobs: " + ", ".join(f"{number} {name}" for name, number in states.most_common()))
        _print_failed_jobs(status.jobs)


def _print_failed_jobs(jobs: list[JobView]) -> None:
    """What each kind of job failure means, and which jobs failed that way, with the scheduler's reason."""
    from gymnast.executors.executor import failure_of

    failed = [(job, kind) for job in jobs if (kind := failure_of(job)) is not None]
    for kind in dict.fromkeys(kind for _, kind in failed):
        print(f"    {kind.name}: {kind.hint}")
    for job, kind in failed[:_MAX_ROWS]:
        reason = f", {job.reason.splitlines()[-1]}" if job.reason else ""
        print(f"    {job.job} {job.state.value}: {kind.name}{reason}")
    if len(failed) > _MAX_ROWS:
        print(f"    … and {len(failed) - _MAX_ROWS} more")
