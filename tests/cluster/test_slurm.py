"""Workers as jobs of a real Slurm: the suite of all executors, and what only Slurm does to jobs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from gymnast.errors import UserError
from gymnast.executors.executor import Executor, Submission, failure_of
from gymnast.executors.site import Site, parse_site
from gymnast.executors.slurm.assembly import SlurmOptions
from gymnast.executors.slurm.executor import SlurmExecutor
from gymnast.types.job import JobState
from tests.cluster.conformance import ExecutorConformance, Refused
from tests.cluster.runs import SharedRun, kill, shared_run, undisturbed, wait_for_all, wait_until
from tests.cluster.slurm_cluster import SlurmCluster


def executor(**site: object) -> SlurmExecutor:
    return SlurmExecutor(SlurmOptions(site=parse_site({"partition": "cpu", **site}, name="test")))


@pytest.mark.usefixtures("slurm")
class TestSlurm(ExecutorConformance):
    """What every executor must do."""

    def executor(self) -> Executor:
        return executor()

    def refused(self) -> Refused:
        return Refused(executor(partition="nowhere"), "invalid partition specified: nowhere")


def one_view(found: SlurmExecutor, submission: Submission) -> tuple[JobState, int | None, str | None]:
    (view,) = wait_for_all(found, submission)
    kind = failure_of(view)
    return view.state, view.exit_code, kind.name if kind is not None else None


@pytest.fixture(scope="module", autouse=True)
def deaf(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Submission:
    """A job that neither the signal before the end of its time nor SIGTERM ends. Its minute passes while others run."""
    folder = tmp_path_factory.mktemp("deaf")
    program = folder / "deaf"
    program.write_text("#!/bin/bash\ntrap '' USR1 TERM\nwhile :; do sleep 1; done\n")
    program.chmod(0o755)
    return executor(python=str(program), time="1", drain_s=10).submit(shared_run(folder, tasks=2).wanted(1), 1)


def test_no_more_run_at_once_than_asked(slurm: SlurmCluster, tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=12, repeats=1, chunk_rows=2, mean_s=0.3)
    submission = executor().submit(run.wanted(5, max_running=2), 1)
    most = 0

    def are_over() -> bool:
        nonlocal most
        states = [view.state for view in executor().states(submission)]
        most = max(most, sum(state is JobState.RUNNING for state in states))
        return all(state.is_over for state in states)

    wait_until(are_over, "all over")
    assert most == 2
    run.merge()


def test_a_job_whose_time_is_up_hands_back_and_queues_itself_again(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Slurm's shortest time is a minute; the signal may come a quarter of one early, or a third of one late.

    One worker alone cannot do the rest before its signal, even if it comes late and the other's early.
    """
    run = shared_run(tmp_path, tasks=300, repeats=1, chunk_rows=20, mean_s=1.5)
    found = executor(time="1", drain_s=45, requeue=1)
    submission = found.submit(run.wanted(2), 1)
    again = [f"{submission.jobs[0]}_{worker}" for worker in range(2)]
    wait_until(
        lambda: all("restarted 1" in (view.reason or "") for view in found.states(submission)), "both queued again"
    )
    assert run.scored() < run.requested
    assert not run.holders(), "what was not done was handed back"
    for job in again:
        slurm.start_now(job)
    wait_for_all(found, submission)
    log = Path(found.states(submission)[0].log or "").read_text()
    assert "back into the queue (0 of 1 times so far)" in log
    # A second minute may not be enough either, and then they are told to end for good.
    rest = executor().submit(run.wanted(2), 2)
    wait_for_all(executor(), rest)
    run.merge()


def test_a_node_that_is_lost_takes_its_job_but_not_its_worker(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Slurm gives the job up while the worker goes on writing: nothing is lost, nothing counts twice."""
    run = shared_run(tmp_path, tasks=60, repeats=2, chunk_rows=10, mean_s=0.5, held=True)
    found = executor(extra_sbatch=["--exclusive"])  # a node each
    submission = found.submit(run.wanted(2), 1)
    wait_until(lambda: len({holder.job for holder in run.holders().values()}) == 2, "both at work")
    run.release()
    wait_until(lambda: run.scored() > 3, "some scored")
    victim = found.states(submission)[0]
    assert victim.node is not None
    slurm.kill_node(victim.node)
    slurm.ask("scontrol", "update", f"nodename={victim.node}", "state=down", "reason=lost")  # what it finds out in time
    try:
        wait_until(lambda: found.states(submission)[0].state is JobState.NODE_FAILED, "given up")
        kind = failure_of(found.states(submission)[0])
        assert kind is not None
        assert kind.name == "node_failed"
        (zombie,) = {holder.pid for holder in run.holders().values() if holder.job == victim.job}
        assert Path(f"/proc/{zombie}").exists(), "it goes on"
        more = executor().submit(run.wanted(1), 2)
        kill(zombie, signal.SIGSTOP)  # as if cut off: its leases go to others, and then it is back
        wait_until(lambda: zombie not in {holder.pid for holder in run.holders().values()}, "taken over")
        kill(zombie, signal.SIGCONT)
        wait_for_all(executor(), more)
        wait_until(lambda: run.account().unsettled == 0, "nothing owed")
        assert run.merge() == undisturbed(tmp_path, run)
    finally:
        slurm.up()
        wait_until(lambda: slurm.node_state(victim.node or "") in {"idle", "mixed", "allocated"}, "the node is back")


def test_a_controller_that_is_away_costs_nothing(slurm: SlurmCluster, tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=80, repeats=1, chunk_rows=5, mean_s=1.5)
    found = executor()
    submission = found.submit(run.wanted(2), 1)
    wait_until(lambda: run.scored() > 0, "the first")
    slurm.stop_controller()
    before = run.scored()
    try:
        wait_until(lambda: run.scored() > before, "workers go on")
    finally:
        slurm.up()
    assert {view.state for view in wait_for_all(found, submission)} == {JobState.COMPLETED}
    run.merge()


def test_a_worker_whose_place_is_taken_by_others_hands_back(slurm: SlurmCluster, tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=60, repeats=1, chunk_rows=10, mean_s=0.5)
    found = executor(exclusive="true", extra_sbatch=["--nodelist=n3"])
    submission = found.submit(run.wanted(1), 1)
    wait_until(lambda: run.scored() > 2, "at work")
    urgent = ["--partition=urgent", "--nodelist=n3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1"]
    slurm.ask("sbatch", "--parsable", *urgent)
    state, _, kind = one_view(found, submission)
    assert (state, kind) == (JobState.PREEMPTED, "job_preempted")
    assert not run.holders(), "what was not done was handed back"
    wait_for_all(executor(), executor().submit(run.wanted(1), 2))
    run.merge()


@pytest.mark.parametrize(
    ("words", "state", "code", "kind"),
    [
        ("exit 0", JobState.COMPLETED, 0, None),
        ("exit 2", JobState.FAILED, 2, "job_refused"),
        ("exit 75", JobState.FAILED, 75, "job_timed_out"),
        ("exit 3", JobState.FAILED, 3, "job_failed"),
        ("kill -9 $$", JobState.FAILED, 137, "job_failed"),
    ],
)
def test_what_an_exit_code_means(
    slurm: SlurmCluster, tmp_path: Path, words: str, state: JobState, code: int, kind: str | None
) -> None:
    fake = tmp_path / "fake"
    fake.write_text(f"#!/bin/bash\n{words}\n")
    fake.chmod(0o755)
    run = shared_run(tmp_path / "run", tasks=1)
    found = executor(python=str(fake))
    assert one_view(found, found.submit(run.wanted(1), 1)) == (state, code, kind)


def test_a_job_that_waits_for_a_failure_is_taken_away(slurm: SlurmCluster, tmp_path: Path) -> None:
    failing = slurm.ask("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 2; exit 1").strip()
    run = shared_run(tmp_path, tasks=1)
    site = parse_site({}, name="test")
    found = SlurmExecutor(SlurmOptions(site=site, after=(f"afterok:{failing}",)))
    submission = found.submit(run.wanted(1), 1)
    state, _, kind = one_view(found, submission)
    assert (state, kind) == (JobState.CANCELLED, "job_cancelled")


def test_a_requeue_by_another_user_is_not_a_loss(slurm: SlurmCluster, tmp_path: Path) -> None:
    """`scontrol requeue` kills the worker; when the job starts again, it takes what is left."""
    run = shared_run(tmp_path, tasks=60, repeats=1, chunk_rows=10, mean_s=0.3)
    found = executor(requeue=1)
    submission = found.submit(run.wanted(1), 1)
    wait_until(lambda: run.scored() > 3, "at work")
    job = f"{submission.jobs[0]}_0"
    slurm.ask("scontrol", "requeue", job)
    wait_until(lambda: found.states(submission)[0].state is JobState.PENDING, "queued again")
    slurm.start_now(job)
    assert one_view(found, submission) == (JobState.COMPLETED, 0, None)
    run.merge()


def test_jobs_that_slurm_never_knew_are_unknown(slurm: SlurmCluster, tmp_path: Path) -> None:
    details = {"logs": str(tmp_path / "%a.log"), "is_array": "yes", "folder": str(tmp_path)}
    gone = Submission(number=1, executor="slurm", jobs=("999999",), workers=2, at=0.0, by="x", details=details)
    assert [view.state for view in executor().states(gone)] == [JobState.UNKNOWN] * 2
    executor().cancel(gone)


def test_a_controller_that_does_not_answer_is_reported(slurm: SlurmCluster, tmp_path: Path) -> None:
    run: SharedRun = shared_run(tmp_path, tasks=1)
    slurm.stop_controller()
    try:
        with pytest.raises(UserError, match="Slurm refuses the job: "):
            executor().submit(run.wanted(1), 1)
    finally:
        slurm.up()


def test_a_site_without_slurm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = shared_run(tmp_path, tasks=1)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="there is no command `sbatch` on this machine"):
        SlurmExecutor(SlurmOptions(site=Site())).submit(run.wanted(1), 1)


def test_a_job_that_does_not_end_in_time_is_ended(deaf: Submission) -> None:
    state, _, kind = one_view(executor(), deaf)
    assert (state, kind) == (JobState.TIMED_OUT, "job_timed_out")
