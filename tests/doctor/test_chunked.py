"""Doctor on runs in chunks: whoever planned one has ended, and what is not scored is owed by its workers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from gymnast.doctor.examine import Target, examine
from gymnast.doctor.facts import Facts, JobFacts
from gymnast.doctor.rules.infra import job_cannot_start, job_ended
from gymnast.store.chunk_files import ChunkPlan
from tests.doctor.lab import RIGHT, Lab

LOGS = Path(__file__).parent / "logs"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A run in chunks that is planned, and that nobody works on."""
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path)
    lab.collect(RIGHT)
    for name in ("x.jsonl", "x.jsonl.done", "x.err"):
        (tmp_path / name).unlink()
    lab.manifest(state="running")
    (tmp_path / "x_chunks").mkdir()
    plan = ChunkPlan(run_id="r", rows=6, size_bytes=0, crc32=0, requested=6, chunks=())
    (tmp_path / "x_chunks" / "plan.json").write_bytes(msgspec.json.encode(plan))
    return lab


def with_log(lab: Lab, *names: str) -> None:
    (lab.folder / "x_logs").mkdir(exist_ok=True)
    for name in names:
        shutil.copy(LOGS / name, (lab.folder / "x_logs" / name).with_suffix(".log"))


def test_nobody_is_said_to_have_killed_the_command_that_only_planned(lab: Lab) -> None:
    _, report = lab.doctor("x.jsonl")
    assert "collector_killed" not in {finding["id"] for finding in report["findings"]}
    assert "gymnast submit" in report["findings"][0]["next"]
    assert "collect" not in json.dumps([finding["next"] for finding in report["findings"]])


def test_rollouts_of_a_run_that_is_not_finished_are_owed_not_lost(lab: Lab) -> None:
    _, out, _ = lab.gymnast("doctor", "x.jsonl")
    assert "6 requested, 0 scored, 0 lost, 6 owed" in out.splitlines()[0]


def test_what_slurm_did_is_answered_with_the_command_that_began_the_run(lab: Lab) -> None:
    with_log(lab, "slurm_time_limit.out")
    _, report = lab.doctor("x.jsonl")
    first = report["findings"][0]
    assert first["id"] == "time_limit"
    assert "the same gymnast submit command with --resume" in first["next"]


def test_a_policy_server_that_crashed_is_quoted_and_nobody_cancelled_the_job(lab: Lab) -> None:
    with_log(lab, "slurm_policy_crashed.out")
    _, report = lab.doctor("x.jsonl")
    first, *others = report["findings"]
    assert (first["id"], first["layer"]) == ("engine_dead", "model_serving")
    quotes = [seen["quote"] for seen in first["evidence"]]
    assert any("policy exited with code 1 while starting" in quote for quote in quotes)
    assert "the weights are gone" in quotes
    assert {other["follows"] for other in others} == {"engine_dead"}


def test_a_server_that_ends_because_the_job_was_cancelled_is_not_the_cause(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        "slurmstepd-n0: error: *** JOB 38 ON n0 CANCELLED AT 2026-11-15T10:45:50 ***\n"
        "gymnast: component policy ended (exit code 143) before worker did\n"
    )
    assert [finding.id for finding in examine(Target(logs=(log,))).findings] == ["job_cancelled"]


def test_a_server_that_was_started_again_did_not_end_the_job(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("[policy.0] policy exited with code 1; starting again (1 of 3)\n")
    assert examine(Target(logs=(log,))).is_healthy


def test_a_traceback_goes_before_the_step_that_it_ended(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1\n'
    log.write_text(trace + "srun: error: n0: task 0: Exited with exit code 1\n")
    assert [finding.id for finding in examine(Target(logs=(log,))).findings] == ["code_exception", "task_refused"]


def test_a_step_that_failed_is_a_guess(tmp_path: Path) -> None:
    (only,) = examine(Target(logs=(LOGS / "slurm_step_failed.out",))).findings
    assert (only.layer.value, only.confidence.value) == ("infra", "low")


def test_a_merge_job_that_found_the_run_unfinished_is_not_the_cause(lab: Lab) -> None:
    with_log(lab, "slurm_policy_crashed.out", "gymnast-x-1-finish.log")
    _, report = lab.doctor("x.jsonl")
    assert report["findings"][0]["id"] == "engine_dead"
    assert "finish.log" not in json.dumps(report["findings"])
    assert "refused_to_start" not in {finding["id"] for finding in report["findings"]}


def test_a_merge_job_is_heard_where_nothing_else_says_why(lab: Lab) -> None:
    with_log(lab, "gymnast-x-1-finish.log")
    (lab.folder / "x_logs" / "gymnast-x-1-finish.log").write_text("OSError: [Errno 28] No space left on device\n")
    _, report = lab.doctor("x.jsonl")
    assert report["findings"][0]["id"] == "disk_full"


@pytest.mark.parametrize("state", ["PENDING", "CANCELLED"])
def test_a_job_whose_dependency_can_never_be_met_was_not_cancelled_by_anybody(state: str) -> None:
    job = JobFacts("7", state, "DependencyNeverSatisfied", "0:0", {}, "scontrol show job")
    facts = Facts("job 7", 0.0, job=job)
    assert job_ended.apply(facts) is None
    found = job_cannot_start.apply(facts)
    assert found is not None
    assert "DependencyNeverSatisfied" in found.symptom
