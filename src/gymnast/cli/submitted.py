"""What `gymnast submit` says about what it did or would do, and how it stays until all is done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.cluster.executor import Submission
    from gymnast.cluster.submit_run import SubmitRequest, Submitted

_LOOK_S: Final = 2.0


def submit(request: SubmitRequest, *, wait: bool, as_json: bool) -> int:
    """Submit, say what was done, and stay if that was asked. Returns the exit code."""
    from gymnast.cluster.submit_run import submit_run

    done = submit_run(request)
    for warning in done.warnings:
        shared.say(f"warning: {warning}")
    if done.code is not None and done.code.note:
        shared.say(f"note: {done.code.note}")
    if as_json:
        shared.print_json(_told(request, done))
    else:
        for line in _lines(request, done):
            print(line)
    return _stay(request, done) if wait else 0


def _told(request: SubmitRequest, done: Submitted) -> dict[str, Any]:
    import msgspec

    submission = done.submission
    return {
        "run": str(request.run),
        "rollouts": done.plan.requested,
        "chunks": done.before.chunks,
        "open_chunks": done.before.open_chunks,
        "workers_before": done.before.live,
        "workers_added": submission.workers if submission is not None else 0,
        "submission": msgspec.to_builtins(submission),
        "finish": _finish(done),
    }


def _finish(done: Submitted) -> str | None:
    """The job that merges when the workers have ended, if one was queued just now."""
    submission = done.submission or done.finishing
    return submission.details.get("finish") if submission is not None else None


def _lines(request: SubmitRequest, done: Submitted) -> Iterator[str]:
    run, submission = request.run, done.submission
    yield f"run       {run}  ({done.plan.requested} rollouts in {done.before.chunks} chunks)"
    if submission is None:
        if not done.before.open_chunks:
            yield f"nothing is owed: gymnast merge {run}"
        else:
            yield f"{done.before.live} workers are at it already: none was added"
        if (finish := _finish(done)) is not None:
            yield f"then      {' and '.join(request.finish)}, job {finish}, which had not been queued"
        return
    more = f", beside {done.before.live} that are at it" if done.before.live else ""
    yield f"workers   {submission.workers}{more}  ({submission.executor} {', '.join(submission.jobs[:4])})"
    if done.code is not None:
        yield f"code      {done.code.choice} {done.code.digest}"
    if (finish := _finish(done)) is not None:
        yield f"then      {' and '.join(request.finish)}, job {finish}"
    yield f"next      gymnast status {run}    (also: logs, cancel)"


def show_dry_run(request: SubmitRequest, *, as_json: bool) -> int:
    """Print the plan and the scripts."""
    from gymnast.cluster.submit_run import dry_run

    found = dry_run(request)
    if as_json:
        told = {
            "run": str(request.run),
            "rollouts": found.plan.requested,
            "chunks": [{"id": one.id, "first_row": one.first_row, "rows": one.rows} for one in found.plan.chunks],
            "workers": found.workers,
            "workers_before": found.live,
            "executor": request.site.executor,
            "code": found.code.details() if found.code else None,
            "scripts": dict(found.scripts),
        }
        shared.print_json(told)
        return 0
    sizes = sorted(one.rows for one in found.plan.chunks)
    print(f"# run       {request.run}")
    print(f"# plan      {found.plan.requested} rollouts in {len(sizes)} chunks of {sizes[0]} to {sizes[-1]}")
    print(f"# workers   {found.workers} on {request.site.executor}, beside {found.live} that are at it")
    if found.code is not None:
        print(f"# code      {found.code.choice} {found.code.digest}")
    for path, text in found.scripts:
        print(f"\n# ---- {path}\n{text}", end="")
    return 0


def _stay(request: SubmitRequest, done: Submitted) -> int:
    """Wait for the workers; where no job of the scheduler merges, do that here."""
    import subprocess
    import time

    from gymnast.cluster.submitting import standing
    from gymnast.store.chunk_layout import ChunkLayout

    layout = ChunkLayout.of(request.paths)
    while (now := standing(layout)).live:
        shared.say(f"{now.live} workers, {now.chunks - now.open_chunks} of {now.chunks} chunks done")
        time.sleep(_LOOK_S)
    waited_for = done.submission or done.finishing
    if waited_for is not None and _finish(done) is not None:
        return _stay_for_finish(waited_for)
    start = (sys.executable, "-m", "gymnast.cli.main")
    for words in request.finish_commands():
        code = subprocess.run((*start, *words), check=False).returncode  # noqa: S603 - our own command
        if code:
            return code
    return 0


def _stay_for_finish(submission: Submission) -> int:
    import time

    from gymnast.cluster.slurm.executor import SlurmExecutor

    while (view := SlurmExecutor().finish_state(submission)) is not None and not view.state.is_over:
        time.sleep(_LOOK_S)
    if view is None or view.exit_code is None:
        return 1
    if view.exit_code:
        shared.say(f"job {view.job} ended with exit code {view.exit_code}: see {view.log}")
    return view.exit_code
