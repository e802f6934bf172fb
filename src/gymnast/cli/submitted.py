"""What `gymnast submit` says about what it did or would do, and how it stays until all is done."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.cluster.account import RunAccount
    from gymnast.cluster.executor import JobView
    from gymnast.cluster.submit_run import SubmitRequest, Submitted
    from gymnast.cluster.submitting import Standing
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.types.events import RunFinished

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
            yield _nothing_owed(request)
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
    yield f"next      gymnast status {shlex.quote(str(run))}    (also: logs, cancel)"


def _nothing_owed(request: SubmitRequest) -> str:
    from gymnast.cluster.account import run_account
    from gymnast.store.chunk_layout import ChunkLayout

    failed = sum(run_account(ChunkLayout.of(request.paths)).failed.values())
    merge = f"gymnast merge {shlex.quote(str(request.run))}"
    if not failed:
        return f"nothing is owed: {merge}"
    return f"nothing is owed, {failed} failed for good: {merge}, or try those again with --resume --retry-failed"


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
    """Wait for the workers and the merge; where no job of the scheduler merges, do that here. Judge as collect does."""
    import time

    from gymnast.cluster.submitting import standing
    from gymnast.store.chunk_layout import ChunkLayout

    layout = ChunkLayout.of(request.paths)
    while (now := standing(layout)).live:
        shared.say(f"{now.live} workers, {now.chunks - now.open_chunks} of {now.chunks} chunks done")
        time.sleep(_LOOK_S)
    if now.open_chunks:
        _say_bad_ends(done.before, now)
    merging = _ended_merge(layout, _finish(done)) if request.finish else None
    code = _merge_here(request) if merging is None else judge_merge(request, merging, is_settled=not now.open_chunks)
    return _judge_run(request, layout) or code


def _say_bad_ends(before: Standing, now: Standing) -> None:
    """Why work is left: how the workers ended that we waited for."""
    from collections import Counter

    from gymnast.cluster.job_failures import failure_of

    earlier = {view.job for _, views in before.jobs for view in views if view.state.is_over}
    ended = [failure_of(view) for _, views in now.jobs for view in views if view.job not in earlier]
    for kind, number in Counter(kind for kind in ended if kind is not None).most_common():
        shared.say(f"{number} workers ended with work left: {kind.name}, {kind.hint}")


def _ended_merge(layout: ChunkLayout, job: str | None) -> JobView | None:
    """The job that merges, when it is over: the one just queued, or a later one that took its place."""
    import time

    from gymnast.cli.chunk_status import merge_jobs

    while True:
        views = merge_jobs(layout)
        live = [view for view in views if not view.state.is_over]
        if not live:
            return next((view for view in views if view.job == job), None)
        job = live[-1].job
        time.sleep(_LOOK_S)


def judge_merge(request: SubmitRequest, view: JobView, *, is_settled: bool) -> int:
    """Say how a job ended that should have merged. One that was taken back because another merged is no matter."""
    is_merged = view.state == "completed" or request.paths.done.exists()
    if is_merged and not view.exit_code:
        return 0
    words = {"cancelled": "was cancelled", "unknown": "is not known to Slurm any more"}
    ended = (
        f"ended with exit code {view.exit_code}" if view.exit_code else words.get(view.state, f"ended: {view.state}")
    )
    log = f": see {shlex.quote(view.log)}" if view.log and Path(view.log).exists() else ""
    shared.say(f"job {view.job}, which should {' and '.join(request.finish)}, {ended}{log}")
    if not is_merged:
        shared.say("the run is not merged")
    if is_settled and not is_merged:
        shared.say(f"next: gymnast merge {shlex.quote(str(request.run))}")
    return view.exit_code or 1


def _merge_here(request: SubmitRequest) -> int:
    import subprocess

    start = (sys.executable, "-m", "gymnast.cli.main")
    for words in request.finish_commands():
        code = subprocess.run((*start, *words), check=False).returncode  # noqa: S603 - our own command
        if code:
            return code
    return 0


def _judge_run(request: SubmitRequest, layout: ChunkLayout) -> int:
    """What is missing of the run and what to do about it, as collect says it. Returns its exit code."""
    from gymnast.cluster.account import run_account
    from gymnast.rollouts.verdict import Allowance, exit_code, explanation

    account = run_account(layout)
    finished = _finished(request, account)
    for line in explanation(finished):
        shared.say(line)
    return exit_code(finished, Allowance())


def _finished(request: SubmitRequest, account: RunAccount) -> RunFinished:
    from gymnast.types.events import RunFinished

    engine = request.collect.engine
    return RunFinished(
        requested=account.requested,
        scored=account.scored,
        failed=account.failed,
        owed=account.unsettled,
        state="incomplete" if account.unsettled else "complete",
        seconds=0.0,
        output=str(request.run),
        concurrency=engine.concurrency or engine.cap,
    )
