"""What every executor must do, on the real thing. Subclasses say which one; nothing here knows them apart."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from gymnast.errors import UserError
from gymnast.executors.executor import Executor, Submission
from gymnast.types.job import JobState, JobView
from tests.cluster.runs import SharedRun, kill, shared_run, undisturbed, wait_for_all, wait_until


@dataclass(frozen=True)
class Refused:
    """An executor that cannot start anything, and what its scheduler says about it."""

    executor: Executor
    words: str


class ExecutorConformance(ABC):
    """The suite. An executor is made anew for every question: another process may be the one that asks."""

    start_s: ClassVar[float] = 30.0
    """How long its scheduler may take to start a worker."""

    @abstractmethod
    def executor(self) -> Executor:
        """An executor with room for a few workers."""

    @abstractmethod
    def refused(self) -> Refused:
        """One whose scheduler refuses."""

    @pytest.fixture
    def submitted(self) -> Iterator[list[Submission]]:
        """Submissions of a test; whatever of them is left is ended."""
        found: list[Submission] = []
        yield found
        for submission in found:
            self.executor().cancel(submission)
        for submission in found:
            wait_for_all(self.executor(), submission)

    def submit(
        self, run: SharedRun, submitted: list[Submission], count: int, *arguments: str, number: int | None = None
    ) -> Submission:
        number = number if number is not None else len(submitted) + 1
        submission = self.executor().submit(run.wanted(count, arguments=arguments), number)
        submitted.append(submission)
        assert submission.number == number
        assert submission.workers == count
        assert submission.executor == self.executor().name
        return submission

    def finished(self, submission: Submission) -> list[JobView]:
        views = wait_for_all(self.executor(), submission)
        assert len(views) == submission.workers
        assert len({view.job for view in views}) == len(views)
        return views

    def wait_for_work(self, run: SharedRun, rollouts: int = 3) -> None:
        wait_until(lambda: run.scored() >= rollouts, f"{rollouts} scored rollouts", within_s=self.start_s + 60)

    # --- the suite ---------------------------------------------------------------------------------------------------

    def test_workers_score_everything_once_and_end(self, tmp_path: Path, submitted: list[Submission]) -> None:
        run = shared_run(tmp_path, tasks=30, failing=10, chunk_rows=6)
        submission = self.submit(run, submitted, 3)
        seen: set[JobState] = set()

        def have_begun() -> bool:
            seen.update(view.state for view in self.executor().states(submission))
            return run.scored() > 0

        wait_until(have_begun, "the first scored rollout", within_s=self.start_s + 60)
        assert seen <= {JobState.PENDING, JobState.RUNNING, JobState.COMPLETED}
        views = self.finished(submission)
        assert {(view.state, view.exit_code) for view in views} == {(JobState.COMPLETED, 0)}, views
        assert run.merge() == undisturbed(tmp_path, run)
        for view in views:
            assert view.log is not None
            assert Path(view.log).is_file(), view
            assert view.node
            assert view.started_at is not None
            assert view.ended_at is not None
            assert view.started_at <= view.ended_at

    def test_a_cancel_leaves_rollouts_owed_and_a_resume_finishes(
        self, tmp_path: Path, submitted: list[Submission]
    ) -> None:
        run = shared_run(tmp_path, tasks=150, chunk_rows=10, mean_s=0.2)
        first = self.submit(run, submitted, 2)
        self.wait_for_work(run)
        self.executor().cancel(first)
        assert {view.state for view in self.finished(first)} == {JobState.CANCELLED}
        self.executor().cancel(first)  # what is over already is no error
        scored = run.scored()
        assert 0 < scored < run.requested
        assert run.account().owed == run.requested - scored
        second = self.submit(run, submitted, 3)
        assert {view.state for view in self.finished(second)} == {JobState.COMPLETED}
        run.merge()

    def test_one_worker_can_be_cancelled(self, tmp_path: Path, submitted: list[Submission]) -> None:
        run = shared_run(tmp_path, tasks=40, chunk_rows=5, mean_s=0.3)
        submission = self.submit(run, submitted, 2)
        wait_until(
            lambda: all(view.state is JobState.RUNNING for view in self.executor().states(submission)),
            "both run",
            within_s=self.start_s + 60,
        )
        self.wait_for_work(run)
        one = self.executor().states(submission)[0].job
        self.executor().cancel(submission, (one,))
        states = {view.job: view.state for view in self.finished(submission)}
        assert states.pop(one) is JobState.CANCELLED
        assert set(states.values()) == {JobState.COMPLETED}
        run.merge()

    def test_the_chunks_of_a_killed_worker_are_taken_over(self, tmp_path: Path, submitted: list[Submission]) -> None:
        run = shared_run(tmp_path, tasks=60, chunk_rows=10, mean_s=0.2, held=True)
        submission = self.submit(run, submitted, 3)
        wait_until(lambda: len({holder.pid for holder in run.holders().values()}) > 1, "two holders")
        victim = next(iter(run.holders().values()))
        kill(victim.pid)
        run.release()
        views = self.finished(submission)
        assert sorted(view.state.value for view in views) == ["completed", "completed", "failed"], views
        run.merge()

    def test_a_worker_that_was_away_for_too_long_changes_nothing(
        self, tmp_path: Path, submitted: list[Submission]
    ) -> None:
        """It is stopped until others have taken what it held, and then goes on as if nothing had happened."""
        run = shared_run(tmp_path, tasks=40, chunk_rows=10, mean_s=0.2)
        submission = self.submit(run, submitted, 2)
        self.wait_for_work(run)
        held = {chunk: holder.pid for chunk, holder in run.holders().items()}
        chunk, pid = next(iter(held.items()))
        kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: run.holders().get(chunk) is None or run.holders()[chunk].pid != pid, "taken over")
        finally:
            kill(pid, signal.SIGCONT)
        self.finished(submission)
        assert run.merge() == undisturbed(tmp_path, run)

    def test_a_bad_command_is_reported_in_its_own_words(self, tmp_path: Path, submitted: list[Submission]) -> None:
        run = shared_run(tmp_path, tasks=3)
        submission = self.submit(run, submitted, 1, "--no-such-option")
        (view,) = self.finished(submission)
        assert view.state is JobState.FAILED
        assert view.exit_code == 2
        assert view.log is not None
        assert "--no-such-option" in Path(view.log).read_text()

    def test_a_refusal_is_reported_in_the_words_of_the_scheduler(self, tmp_path: Path) -> None:
        run = shared_run(tmp_path, tasks=3)
        refused = self.refused()
        with pytest.raises(UserError, match=refused.words):
            refused.executor.submit(run.wanted(1), 1)

    def test_what_was_only_intended_is_found_again(self, tmp_path: Path, submitted: list[Submission]) -> None:
        """Whoever submitted died before it could say what it had started."""
        run = shared_run(tmp_path, tasks=20, chunk_rows=10, mean_s=0.2)
        noted: list[Submission] = []

        def note(intent: Submission) -> None:
            noted.append(intent)
            found = self.executor().find(intent)
            assert found is None or all(view.state.is_over for view in self.executor().states(found)), "not started yet"

        submission = self.executor().submit(run.wanted(2), 1, note)
        submitted.append(submission)
        wait_until(lambda: self.executor().find(noted[0]) is not None, "found", within_s=self.start_s)
        found = self.executor().find(noted[0])
        assert found == submission
        self.executor().cancel(found)
        assert {view.state for view in self.finished(submission)} <= {JobState.CANCELLED, JobState.COMPLETED}

    def test_two_submissions_share_a_run(self, tmp_path: Path, submitted: list[Submission]) -> None:
        run = shared_run(tmp_path, tasks=40, chunk_rows=5)
        both = [self.submit(run, submitted, 2) for _ in range(2)]
        views = [view for submission in both for view in self.finished(submission)]
        assert {view.state for view in views} == {JobState.COMPLETED}
        assert len({view.job for view in views}) == 4
        assert run.merge() == undisturbed(tmp_path, run)

    def test_more_workers_than_chunks_end_by_themselves(self, tmp_path: Path, submitted: list[Submission]) -> None:
        run = shared_run(tmp_path, tasks=4, repeats=1, chunk_rows=4)
        assert {view.state for view in self.finished(self.submit(run, submitted, 4))} == {JobState.COMPLETED}
        run.merge()
