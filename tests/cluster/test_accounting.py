"""A Slurm with accounting whose controller soon forgets jobs, as they do: what has ended is still told rightly."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gymnast.doctor.scheduler import read_job
from gymnast.executors.executor import Submission
from gymnast.executors.hosts import LocalHost
from gymnast.executors.site import parse_site
from gymnast.executors.slurm.assembly import SlurmOptions
from gymnast.executors.slurm.client import Slurm
from gymnast.executors.slurm.executor import SlurmExecutor
from gymnast.types.job import JobState
from tests.cluster.runs import kill, shared_run, wait_for_all, wait_until
from tests.cluster.slurm_cluster import SlurmCluster, running_slurm

PARTS = """#!/bin/bash
case $SLURM_ARRAY_TASK_ID in
  0) exit 0 ;;
  1) exit 3 ;;
  2) kill -KILL $$ ;;
esac
sleep 120
"""


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with running_slurm(tmp_path_factory.mktemp("accounted"), ACCOUNTING="yes", FORGET_S="2", NODES="2") as cluster:
        yield cluster


def remembered(cluster: SlurmCluster, job: str) -> set[str]:
    """The elements that the controller still knows."""
    listed = subprocess.run(
        ["squeue", "-h", "-r", "-t", "all", "-j", job, "-o", "%i"], capture_output=True, text=True, check=False
    )
    return set(listed.stdout.split())


def test_elements_of_an_array_that_goes_on(forgetful: SlurmCluster, tmp_path: Path) -> None:
    script = tmp_path / "parts.sh"
    script.write_text(PARTS)
    asked = ("sbatch", "--parsable", "--array=0-4", f"--output={tmp_path}/%a.log", str(script), "a-word")
    job = forgetful.ask(*asked).strip()
    elements = [f"{job}_{number}" for number in range(5)]
    wait_until(lambda: remembered(forgetful, job) == set(elements[3:]), "forgotten by the controller")
    forgetful.ask("scancel", elements[3])
    wait_until(lambda: remembered(forgetful, job) == {elements[4]}, "the cancelled one, too")
    slurm = Slurm(LocalHost())
    found = {view.job: view for view in slurm.views([job], elements)}
    assert [found[name].state for name in elements] == [
        *(JobState.COMPLETED, JobState.FAILED, JobState.FAILED, JobState.CANCELLED, JobState.RUNNING)
    ]
    assert found[elements[1]].exit_code == 3
    assert all(found[name].node and found[name].ended_at for name in elements[:4])
    told = read_job(job)
    assert told is not None
    assert (told.state, told.source) == ("FAILED", "sacct")
    assert told.id in elements[1:3]
    forgetful.ask("scancel", job)
    wait_until(lambda: not remembered(forgetful, job), "all forgotten")
    assert {view.state for view in slurm.views([job], elements)} >= {JobState.COMPLETED, JobState.CANCELLED}
    assert slurm.jobs_with_token("a-word", 2e9) == [], "not before they were submitted"
    assert slurm.jobs_with_token("a-word", next(view.started_at or 0.0 for view in found.values())) == [job]


def test_workers_of_a_submit_that_left_no_record(forgetful: SlurmCluster, tmp_path: Path) -> None:
    """Everything ended and was forgotten before anybody looked; one worker was killed."""
    run = shared_run(tmp_path, tasks=30, chunk_rows=5, mean_s=0.2, held=True)
    executor = SlurmExecutor(SlurmOptions(site=parse_site({"partition": "cpu"}, name="test")))
    intents: list[Submission] = []
    submission = executor.submit(run.wanted(3), 1, intents.append)
    wait_until(lambda: len({holder.pid for holder in run.holders().values()}) == 3, "all at work")
    victim = next(iter(run.holders().values()))
    kill(victim.pid, signal.SIGKILL)
    run.release()
    wait_for_all(executor, submission)
    wait_until(lambda: not remembered(forgetful, submission.jobs[0]), "forgotten")
    found = executor.find(intents[0])
    assert found is not None
    assert found.jobs == submission.jobs
    views = executor.states(found)
    assert sorted(view.state.value for view in views) == ["completed", "completed", "failed"], views
    assert [view.job for view in views if view.state is JobState.FAILED] == [victim.job]
    assert run.account().unsettled == 0
    assert executor.find(unheard_of(intents[0])) is None


def unheard_of(intent: Submission) -> Submission:
    """An intent of which Slurm has never heard."""
    return msgspec.structs.replace(intent, details={name: value + "x" for name, value in intent.details.items()})
