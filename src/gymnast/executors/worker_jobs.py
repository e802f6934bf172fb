"""The workers of a run in chunks: which there are, starting more, cancelling them. Recorded in the run's folder."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.chunks.write_lease import hold_write_lease
from gymnast.errors import NotFoundError, StartError, UserError
from gymnast.executors.registry import executor_for, locate_submission
from gymnast.executors.submissions import (
    read_submissions,
    remove_intent,
    reserve_number,
    write_intent,
    write_submission,
)
from gymnast.store.chunk_state import read_chunk_plan, walk_chunks
from gymnast.store.manifest import read_manifest, write_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gymnast.executors.executor import Executor, Submission, WorkerRequest
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.paths import RunPaths
    from gymnast.types.job import JobView

_PATIENCE_S: Final = 120.0
"""For a merge, or for another submit, which may have much code to copy and a slow scheduler."""


@dataclass(frozen=True, slots=True)
class SubmissionStatus:
    """The chunks and jobs of a run, before workers are added."""

    open_chunks: int
    chunks: int
    jobs: tuple[tuple[Submission, tuple[JobView, ...]], ...] = ()
    """Of every submission so far."""

    @property
    def live(self) -> int:
        """Workers that are pending or running."""
        return sum(not view.state.is_over for _, views in self.jobs for view in views)

    def count_missing(self, requested: int) -> int:
        """How many workers to add for `requested` in total: each needs a chunk that is not done."""
        return max(0, min(requested, self.open_chunks) - self.live)

    def live_submissions(self) -> list[Submission]:
        """Submissions with a worker that is pending or running."""
        return [submission for submission, views in self.jobs if any(not view.state.is_over for view in views)]


def read_submission_status(layout: ChunkLayout) -> SubmissionStatus:
    """Read the chunks of a planned run, and ask its executors about its jobs."""
    plan = read_chunk_plan(layout)
    open_chunks = sum(not view.folder_state.is_done for view in walk_chunks(layout, plan))
    submissions = [item for item in map(locate_submission, read_submissions(layout)) if item is not None]
    jobs = tuple((submission, tuple(executor_for(submission).states(submission))) for submission in submissions)
    return SubmissionStatus(open_chunks, len(plan.chunks), jobs)


def record_recovered(layout: ChunkLayout, status: SubmissionStatus) -> None:
    """Record jobs of a submit that was killed before it could. Requires the submit lease."""
    intents = {submission.number for submission in read_submissions(layout) if not submission.jobs}
    for submission, _ in status.jobs:
        if submission.number in intents:
            write_submission(layout, submission)


@contextmanager
def hold_submit_lease(layout: ChunkLayout) -> Iterator[None]:
    """Let one submit at a time count workers and add some."""
    with hold_write_lease(layout.folder / "submit.lock", layout.submitting, _PATIENCE_S):
        yield


def start_workers(
    paths: RunPaths, layout: ChunkLayout, request: WorkerRequest, make_executor: Callable[[int], Executor], code: str
) -> Submission:
    """Start workers and record them. `code` describes what they run, for the run's manifest."""
    number = reserve_number(layout)
    try:
        submission = make_executor(number).submit(request, number, partial(write_intent, layout))
    except UserError as error:
        if isinstance(error, StartError | NotFoundError):
            remove_intent(layout, number)
        raise UserError(
            error.what,
            where=error.where,
            next=f"{error.next or 'fix that'}; then continue with --resume: the run is planned",
        ) from error
    write_submission(layout, submission)
    _record_code(paths, layout, number, code)
    return submission


def _record_code(paths: RunPaths, layout: ChunkLayout, number: int, code: str) -> None:
    with hold_write_lease(paths.lock, layout.writing, _PATIENCE_S):
        manifest = read_manifest(paths.manifest)
        if manifest is not None:
            versions = {**manifest.versions, f"code of submission {number}": code}
            write_manifest(paths.manifest, msgspec.structs.replace(manifest, versions=versions))


def cancel_run(layout: ChunkLayout, jobs: Sequence[str] = ()) -> list[tuple[Submission, tuple[JobView, ...]]]:
    """Cancel the workers of a run, or of these jobs (arrays, or elements of them). Returns what was cancelled."""
    cancelled = []
    for submission, views in read_submission_status(layout).jobs:
        live = tuple(view for view in views if not view.state.is_over and matches_job(view.job, jobs))
        if jobs and not set(submission.jobs) <= set(jobs):
            if live:
                executor_for(submission).cancel(submission, tuple(view.job for view in live))
        else:  # all of it, and the jobs that depend on it
            executor_for(submission).cancel(submission)
        cancelled.append((submission, live))
    return cancelled


def matches_job(job: str, jobs: Sequence[str]) -> bool:
    """Whether a worker's job is one of these, or an element of one. No jobs means all."""
    return not jobs or job in jobs or job.rpartition("_")[0] in jobs
