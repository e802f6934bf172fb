"""What people are told of jobs that ended badly. On a real Slurm: tests/cluster/test_submit_wait.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymnast.chunks.worker_spec import ConfigArguments
from gymnast.cli.submit_output import merge_exit_code
from gymnast.executors.executor import failure_of
from gymnast.executors.slurm.states import parse_squeue
from gymnast.executors.submit_run import SubmitRequest
from gymnast.rollouts.options import RunOptions
from gymnast.types.job import JobState, JobView


def row(state: str, reason: str, node: str = "") -> JobView:
    """A job as squeue tells it."""
    return parse_squeue(f"7_1|{state}|0|{node}|{reason}|100|100|0|\n")[0]


def request(folder: Path) -> SubmitRequest:
    config: Any = None
    collect = RunOptions(source=folder / "tasks.jsonl", output=folder / "my run.jsonl")
    return SubmitRequest(collect, config, ConfigArguments(), finish=("merge",), cwd=folder)


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (row("CANCELLED", "JobArrayTaskLimit"), None),
        (row("CANCELLED", "Dependency"), None),
        (row("CANCELLED", "DependencyNeverSatisfied"), "DependencyNeverSatisfied"),
        (row("PENDING", "JobArrayTaskLimit"), "JobArrayTaskLimit"),
        (row("FAILED", "BadConstraints"), "BadConstraints"),
        (row("TIMEOUT", "TimeLimit", "n1"), "TimeLimit"),
    ],
)
def test_why_a_job_had_waited_is_not_why_it_ended(view: JobView, reason: str | None) -> None:
    assert view.reason == reason


def test_a_job_that_waited_in_vain_was_not_cancelled_by_a_user() -> None:
    kind, usual = failure_of(row("CANCELLED", "DependencyNeverSatisfied")), failure_of(row("CANCELLED", "Dependency"))
    assert kind is not None
    assert usual is not None
    assert kind.name == usual.name == "job_cancelled"
    assert "a job that it waited for did not end well" in kind.hint
    assert "the job was cancelled (gymnast cancel, scancel)" in usual.hint


@pytest.mark.parametrize(
    ("state", "exit_code", "said", "code"),
    [
        (JobState.CANCELLED, 0, "was cancelled", 1),
        (JobState.TIMED_OUT, 0, "ended: timed_out", 1),
        (JobState.UNKNOWN, None, "is no longer known to Slurm", 1),
        (JobState.FAILED, 2, "ended with exit code 2", 2),
    ],
)
def test_a_merge_that_ended_badly_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: JobState, exit_code: int | None, said: str, code: int
) -> None:
    view = JobView(job="17", state=state, exit_code=exit_code)
    assert merge_exit_code(request(tmp_path), view, is_settled=True) == code
    message = capsys.readouterr().err
    assert f"job 17, which should merge, {said}\nthe run is not merged\n" in message
    assert f"next: gymnast merge '{tmp_path}/my run.jsonl'" in message
    merge_exit_code(request(tmp_path), view, is_settled=False)
    assert "gymnast merge" not in capsys.readouterr().err, "it would refuse what is owed"


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.UNKNOWN])
def test_a_run_that_is_merged_needs_no_job(tmp_path: Path, capsys: pytest.CaptureFixture[str], state: JobState) -> None:
    """Another submit's job merged, or Slurm has forgotten the one that did."""
    (tmp_path / "my run.jsonl.done").touch()
    view = JobView(job="17", state=state, exit_code=0)
    assert merge_exit_code(request(tmp_path), view, is_settled=True) == 0
    assert not capsys.readouterr().err
