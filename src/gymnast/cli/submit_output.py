"""What `gymnast submit` prints about what it did or would do, and how it waits for the run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.chunks.status import RunStatus
    from gymnast.executors.submit_run import SubmitRequest, SubmitResult
    from gymnast.executors.worker_jobs import SubmissionStatus
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.types.events import RunFinished
    from gymnast.types.job import JobView

_POLL_S: Final = 2.0


def submit(request: SubmitRequest, *, wait: bool, as_json: bool) -> int:
    """Submit, print what was done, and wait for the run if `wait`. Returns the exit code."""
    from gymnast.executors.submit_run import submit_run

    result = submit_run(request)
    for warning in result.warnings:
        shared.say(f"warning: {warning}")
    for note in result.notes:
        shared.say(f"note: {note}")
    if result.code is not None and result.code.note:
        shared.say(f"note: {result.code.note}")
    if as_json:
        shared.print_json(_to_json(request, result))
    else:
        for line in _lines(request, result):
            print(line)
    return _wait(request, result) if wait else 0


def _to_json(request: SubmitRequest, result: SubmitResult) -> dict[str, Any]:
    import msgspec

    submission = result.submission
    return {
        "run": str(request.run),
        "rollouts": result.plan.requested,
        "chunks": result.before.chunks,
        "open_chunks": result.before.open_chunks,
        "workers_before": result.before.live,
        "workers_added": submission.workers if submission is not None else 0,
        "submission": msgspec.to_builtins(submission),
        "finish": _finish(result),
    }


def _finish(result: SubmitResult) -> str | None:
    """The job that merges once the workers have ended, if this submission queued one."""
    submission = result.submission or result.merge_submission
    return submission.details.get("finish") if submission is not None else None


def _lines(request: SubmitRequest, result: SubmitResult) -> Iterator[str]:
    run, submission = request.run, result.submission
    yield f"run       {run}  ({result.plan.requested} rollouts in {result.before.chunks} chunks)"
    if submission is None:
        if not result.before.open_chunks:
            yield _nothing_owed(request)
        else:
            yield f"{result.before.live} workers are already on it: none was added"
        if (finish := _finish(result)) is not None:
            yield f"then      {' and '.join(request.finish)}, job {finish}, which was not queued before"
        return
    more = f", in addition to {result.before.live} already on it" if result.before.live else ""
    yield f"workers   {submission.workers}{more}  ({submission.executor} {', '.join(submission.jobs[:4])})"
    if result.code is not None:
        yield f"code      {result.code.choice} {result.code.digest}"
    if (finish := _finish(result)) is not None:
        yield f"then      {' and '.join(request.finish)}, job {finish}"
    yield f"next      gymnast status {shlex.quote(str(run))}    (also: logs, cancel)"
    yield f"view      gymnast view {shlex.quote(str(run))}"


def _nothing_owed(request: SubmitRequest) -> str:
    from gymnast.chunks.status import read_run_status
    from gymnast.store.chunk_layout import ChunkLayout

    failed = sum(read_run_status(ChunkLayout.of(request.paths)).failed.values())
    merge = f"gymnast merge {shlex.quote(str(request.run))}"
    if not failed:
        return f"nothing is owed: {merge}"
    return f"nothing is owed, {failed} failed permanently: {merge}, or retry them with --resume --retry-failed"


def show_dry_run(request: SubmitRequest, *, as_json: bool) -> int:
    """Print the plan and the scripts."""
    from gymnast.executors.submit_run import dry_run

    preview = dry_run(request)
    if as_json:
        body = {
            "run": str(request.run),
            "rollouts": preview.plan.requested,
            "chunks": [
                {"id": chunk.id, "first_row": chunk.first_row, "rows": chunk.rows} for chunk in preview.plan.chunks
            ],
            "workers": preview.workers,
            "workers_before": preview.live,
            "executor": request.site.executor,
            "code": preview.code.details() if preview.code else None,
            "scripts": dict(preview.scripts),
        }
        shared.print_json(body)
        return 0
    sizes = sorted(chunk.rows for chunk in preview.plan.chunks)
    print(f"# run       {request.run}")
    print(f"# plan      {preview.plan.requested} rollouts in {len(sizes)} chunks of {sizes[0]} to {sizes[-1]}")
    print(f"# workers   {preview.workers} on {request.site.executor}, in addition to {preview.live} already on it")
    if preview.code is not None:
        print(f"# code      {preview.code.choice} {preview.code.digest}")
    for path, text in preview.scripts:
        print(f"\n# ---- {path}\n{text}", end="")
    return 0


def _wait(request: SubmitRequest, result: SubmitResult) -> int:
    """Wait for the workers and the merge job; merge here if there is no such job. Exit codes are those of collect."""
    import time

    from gymnast.executors.worker_jobs import read_submission_status
    from gymnast.store.chunk_layout import ChunkLayout

    layout = ChunkLayout.of(request.paths)
    while (now := read_submission_status(layout)).live:
        shared.say(f"{now.live} workers, {now.chunks - now.open_chunks} of {now.chunks} chunks done")
        time.sleep(_POLL_S)
    if now.open_chunks:
        _report_failed_workers(result.before, now)
    merge_job = _wait_for_merge(layout, _finish(result)) if request.finish else None
    code = (
        _merge_locally(request)
        if merge_job is None
        else merge_exit_code(request, merge_job, is_settled=not now.open_chunks)
    )
    return _run_exit_code(request, layout) or code


def _report_failed_workers(before: SubmissionStatus, now: SubmissionStatus) -> None:
    """Say why work is left: how the workers of this submission ended."""
    from collections import Counter

    from gymnast.executors.executor import failure_of

    earlier = {view.job for _, views in before.jobs for view in views if view.state.is_over}
    ended = [failure_of(view) for _, views in now.jobs for view in views if view.job not in earlier]
    for kind, number in Counter(kind for kind in ended if kind is not None).most_common():
        shared.say(f"{number} workers ended before the work was done: {kind.name}, {kind.hint}")


def _wait_for_merge(layout: ChunkLayout, job: str | None) -> JobView | None:
    """Wait for the merge job to end: the one just queued, or a later one that replaced it."""
    import time

    from gymnast.cli.chunk_status import merge_jobs

    while True:
        views = merge_jobs(layout)
        live = [view for view in views if not view.state.is_over]
        if not live:
            return next((view for view in views if view.job == job), None)
        job = live[-1].job
        time.sleep(_POLL_S)


def merge_exit_code(request: SubmitRequest, view: JobView, *, is_settled: bool) -> int:
    """Report how the merge job ended. A cancelled one is fine if another merged the run."""
    is_merged = view.state == "completed" or request.paths.done.exists()
    if is_merged and not view.exit_code:
        return 0
    ends = {"cancelled": "was cancelled", "unknown": "is no longer known to Slurm"}
    end = f"ended with exit code {view.exit_code}" if view.exit_code else ends.get(view.state, f"ended: {view.state}")
    log = f": see {shlex.quote(view.log)}" if view.log and Path(view.log).exists() else ""
    shared.say(f"job {view.job}, which should {' and '.join(request.finish)}, {end}{log}")
    if not is_merged:
        shared.say("the run is not merged")
    if is_settled and not is_merged:
        shared.say(f"next: gymnast merge {shlex.quote(str(request.run))}")
    return view.exit_code or 1


def _merge_locally(request: SubmitRequest) -> int:
    import subprocess

    start = (sys.executable, "-P", "-m", "gymnast.cli.main")
    for words in request.finish_commands():
        code = subprocess.run((*start, *words), check=False).returncode  # noqa: S603 - our own command
        if code:
            return code
    return 0


def _run_exit_code(request: SubmitRequest, layout: ChunkLayout) -> int:
    """Report what the run lacks and what to do about it, as collect does. Returns its exit code."""
    from gymnast.chunks.status import read_run_status
    from gymnast.rollouts.exit_status import Allowance, exit_code, explain_missing

    status = read_run_status(layout)
    finished = _finished_event(request, status)
    for line in explain_missing(finished):
        shared.say(line)
    return exit_code(finished, Allowance())


def _finished_event(request: SubmitRequest, status: RunStatus) -> RunFinished:
    from gymnast.types.events import RunFinished

    engine = request.run_options.engine
    return RunFinished(
        requested=status.requested,
        scored=status.scored,
        failed=status.failed,
        owed=status.unsettled,
        state="incomplete" if status.unsettled else "complete",
        seconds=0.0,
        output=str(request.run),
        concurrency=engine.concurrency or engine.cap,
        agents=status.agents,
    )
