"""`gymnast submit --wait` on a real Slurm: it ends well only if every rollout was scored and the run was merged."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from gymnast.executors.submissions import read_submissions
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.paths import RunPaths
from tests.cluster.desk import Desk
from tests.cluster.runs import wait_until
from tests.cluster.slurm_cluster import SlurmCluster
from tests.helpers.commands import Outcome
from tests.helpers.jsonl import write_jsonl

pytestmark = pytest.mark.usefixtures("slurm")
WORDS = ("--workers", "2", "--chunk-rows", "5")


def finish_jobs(desk: Desk) -> list[str]:
    layout = ChunkLayout.of(RunPaths(desk.run))
    return [one.details["finish"] for one in read_submissions(layout) if "finish" in one.details]


def waiting(desk: Desk, pool: ThreadPoolExecutor, *words: str, held_from: int | None = None) -> Future[Outcome]:
    """A submit that stays, as soon as its jobs are queued."""
    found = pool.submit(desk.submit, *WORDS, *words, "--wait", held_from=held_from)
    wait_until(lambda: bool(finish_jobs(desk)), "queued")
    return found


def test_a_run_that_is_cancelled_meanwhile_has_not_succeeded(desk: Desk) -> None:
    with ThreadPoolExecutor() as pool:
        desk.hold()
        stays = waiting(desk, pool, "--max-running", "1", held_from=0)
        wait_until(lambda: any(view["state"] == "running" for view in desk.status()["jobs"]), "one runs")
        assert desk.gymnast("cancel", "x.jsonl").code == 0
        desk.release()
        done = stays.result(timeout=300)
    assert done.code == 1, done.err
    assert "2 workers ended before the work was done: job_cancelled" in done.err
    assert f"job {finish_jobs(desk)[0]}, which should merge and profile, was cancelled" in done.err
    assert "the run is not merged" in done.err
    assert "are still owed: run the same command with --resume" in done.err
    shown = desk.gymnast("status", "x.jsonl")
    assert "job_cancelled: the job was cancelled" in shown.out
    assert "JobArrayTaskLimit" not in shown.out, "why it had waited before"
    assert f"merge: job {finish_jobs(desk)[0]} cancelled\n" in shown.out


def test_a_merge_that_is_cancelled_has_not_succeeded(desk: Desk, slurm: SlurmCluster) -> None:
    with ThreadPoolExecutor() as pool:
        with slurm.starting_nothing():
            stays = waiting(desk, pool)
            slurm.ask("scancel", finish_jobs(desk)[0])
        done = stays.result(timeout=300)
    assert done.code == 1, done.err
    assert "the run is not merged" in done.err
    assert f"next: gymnast merge {desk.run}" in done.err
    shown = desk.gymnast("status", "x.jsonl")
    assert "next: gymnast merge" in shown.err
    assert desk.submit(*WORDS, "--resume", "--wait").code == 0, "it merges here"
    assert (desk.folder / "x.jsonl.done").exists()


def test_a_merge_that_another_submit_took_over_is_waited_for(desk: Desk) -> None:
    """The second submit takes the first one's job back and queues its own; both stay to the end of that."""
    with ThreadPoolExecutor() as pool:
        desk.hold()
        stays = waiting(desk, pool, held_from=0)
        more = desk.submit("--workers", "4", "--chunk-rows", "5", "--resume", held_from=0)
        assert more.code == 0, more.err
        desk.release()
        done = stays.result(timeout=300)
    assert done.code == 0, done.err
    assert (desk.folder / "x.jsonl.done").exists()


@pytest.mark.parametrize("executor", ["slurm", "local"])
def test_rollouts_that_failed_for_good_are_named(desk: Desk, executor: str) -> None:
    write_jsonl(desk.folder / "tasks.jsonl", [*desk.rows[:4], {**desk.rows[4], "fails": True}])
    done = desk.submit("--workers", "1", "--executor", executor, "--wait")
    assert done.code == 1, done.err
    assert "8 of 10 rollouts were scored" in done.err
    assert "2 × agent_rejected" in done.err
    assert "--resume --retry-failed" in done.err
    assert (desk.folder / "x.jsonl.done").exists()
    again = desk.submit("--workers", "1", "--executor", executor, "--resume")
    assert again.code == 0, again.err
    assert "nothing is owed, 2 failed permanently" in again.out
    assert "--resume --retry-failed" in again.out


def _says(command: Callable[[], Outcome], text: str) -> bool:
    return text in command().out


def test_status_and_logs_know_the_job_that_merges(desk: Desk, slurm: SlurmCluster) -> None:
    with slurm.starting_nothing():
        assert desk.submit("--workers", "1").code == 0
        finish = finish_jobs(desk)[0]
        slurm.ask("scontrol", "hold", finish)
    wait_until(lambda: desk.status()["scored"] == 60, "all scored")
    shown = desk.gymnast("status", "x.jsonl")
    assert f"merge: job {finish} pending" in shown.out
    assert "gymnast merge" not in shown.err
    slurm.ask("scontrol", "release", finish)
    wait_until((desk.folder / "x.jsonl.done").exists, "merged")
    for name in ("finish", finish):  # the job prints its result after the run is marked as done
        logs = partial(desk.gymnast, "logs", "x.jsonl", "--job", name)
        wait_until(partial(_says, logs, "(60 of 60)"), "said")


def test_workers_that_waited_in_vain_are_not_called_cancelled_by_a_user(desk: Desk, slurm: SlurmCluster) -> None:
    prepared = desk.queue(slurm, "prepare", code=1)
    assert desk.submit("--run-after", "prepare", "--workers", "1").code == 0
    prepared.touch()
    wait_until(lambda: desk.status()["jobs"][0]["state"] == "cancelled", "given up")
    for command in ("status", "logs"):
        shown = desk.gymnast(command, "x.jsonl").out
        assert "a job that it waited for did not end well" in shown
        assert "the job was cancelled" not in shown


def test_hints_can_be_pasted(desk: Desk) -> None:
    done = desk.submit("--workers", "1", "-o", "my run.jsonl")
    assert done.code == 0, done.err
    line = next(line for line in done.out.splitlines() if line.startswith("next"))
    words = shlex.split(line.partition("(")[0])[2:]
    assert desk.gymnast(*words).code == 0
    assert desk.gymnast("cancel", "my run.jsonl").code == 0
