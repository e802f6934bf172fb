"""Starting workers for a planned run: as many as what is owed still needs, recorded in the run's folder."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.cluster.executors import executor_for, located
from gymnast.cluster.submissions import forget_intent, read_submissions, take_number, write_intent, write_submission
from gymnast.cluster.turns import one_writer
from gymnast.errors import NotFoundError, StartError, UserError
from gymnast.store.chunk_look import chunk_views, read_chunk_plan
from gymnast.store.manifest import read_manifest, write_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gymnast.cluster.executor import ClusterExecutor, JobView, Submission, WorkersWanted
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.paths import RunPaths

_PATIENCE_S: Final = 120.0
"""For another submit, which may have much code to bring and a slow scheduler to ask, or for a merge."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands for whoever wants to add workers."""

    open_chunks: int
    chunks: int
    jobs: tuple[tuple[Submission, tuple[JobView, ...]], ...] = ()
    """Of every submission so far."""

    @property
    def live(self) -> int:
        """Workers that wait or run."""
        return sum(not view.state.is_over for _, views in self.jobs for view in views)

    def needed(self, asked: int) -> int:
        """How many more workers make sense, if `asked` should work at most: each needs a chunk that is not done."""
        return max(0, min(asked, self.open_chunks) - self.live)

    def live_submissions(self) -> list[Submission]:
        """Those of which a worker still waits or runs."""
        return [one for one, views in self.jobs if any(not view.state.is_over for view in views)]


def standing(layout: ChunkLayout) -> Standing:
    """How a planned run stands."""
    plan = read_chunk_plan(layout)
    open_chunks = sum(not view.look.is_done for view in chunk_views(layout, plan))
    begun = [one for one in map(located, read_submissions(layout)) if one is not None]
    found = [(one, tuple(executor_for(one).states(one))) for one in begun]
    return Standing(open_chunks, len(plan.chunks), tuple(found))


def record_found(layout: ChunkLayout, found: Standing) -> None:
    """Record what a submit had started that was killed before it could. Only while no other submit is at work."""
    intended = {one.number for one in read_submissions(layout) if not one.jobs}
    for submission, _ in found.jobs:
        if submission.number in intended:
            write_submission(layout, submission)


@contextmanager
def one_submit(layout: ChunkLayout) -> Iterator[None]:
    """Of two submits at the same moment, one counts workers and adds some, then the other."""
    with one_writer(layout.folder / "submit.lock", layout.submitting, _PATIENCE_S):
        yield


def start_workers(
    paths: RunPaths,
    layout: ChunkLayout,
    wanted: WorkersWanted,
    make_executor: Callable[[int], ClusterExecutor],
    code: str,
) -> Submission:
    """Start workers and record it. `code` says what they run, for the run's manifest."""
    number = take_number(layout)
    try:
        submission = make_executor(number).submit(wanted, number, partial(write_intent, layout))
    except UserError as error:
        if isinstance(error, StartError | NotFoundError):
            forget_intent(layout, number)
        raise UserError(
            error.what, where=error.where, next=f"{error.next or 'mend that'}; then go on with --resume: it is planned"
        ) from error
    write_submission(layout, submission)
    _note_code(paths, layout, number, code)
    return submission


def _note_code(paths: RunPaths, layout: ChunkLayout, number: int, code: str) -> None:
    with one_writer(paths.lock, layout.writing, _PATIENCE_S):
        manifest = read_manifest(paths.manifest)
        if manifest is not None:
            versions = {**manifest.versions, f"code of submission {number}": code}
            write_manifest(paths.manifest, msgspec.structs.replace(manifest, versions=versions))


def cancel_run(layout: ChunkLayout, jobs: Sequence[str] = ()) -> list[tuple[Submission, tuple[JobView, ...]]]:
    """End the workers of a run, or those of these jobs (arrays, or elements of them). Returns what was told to end."""
    ended = []
    for submission, views in standing(layout).jobs:
        live = tuple(view for view in views if not view.state.is_over and is_meant(view.job, jobs))
        if jobs and not set(submission.jobs) <= set(jobs):
            if live:
                executor_for(submission).cancel(submission, tuple(view.job for view in live))
        else:  # all of it, with what waits for its end
            executor_for(submission).cancel(submission)
        ended.append((submission, live))
    return ended


def is_meant(job: str, jobs: Sequence[str]) -> bool:
    """Whether a worker's job is one of these, or belongs to one of these; no jobs are all jobs."""
    return not jobs or job in jobs or job.rpartition("_")[0] in jobs
