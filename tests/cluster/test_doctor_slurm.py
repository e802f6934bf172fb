"""Doctor on jobs of a real Slurm that fail: which layer, which cause, what next."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gymnast.doctor.scheduler import read_job
from gymnast.types.failure import Layer
from tests.cluster.slurm_cluster import SlurmCluster
from tests.doctor.lab import Lab, endpoint, said
from tests.helpers.commands import BIN

_OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


@dataclass(frozen=True)
class JobFault:
    """A job that goes wrong, and what doctor must say of it first."""

    name: str
    script: str
    layer: Layer
    cause: str
    next: str
    options: tuple[str, ...] = ()
    state: tuple[str, ...] = _OVER
    """The state in which doctor is asked."""


PYTHON = "python3 -c \"raise ValueError('no such grader')\""
ONE_OF_TWO = "if [ $SLURM_ARRAY_TASK_ID = 1 ]; then srun no-such-command; fi"
JOBS = (
    JobFault("a task is killed", "srun bash -c 'kill -9 $$'", Layer.INFRA, "process_killed", "memory"),
    JobFault("no such command", "srun no-such-command", Layer.CONFIG, "command_missing", "srun which"),
    JobFault("a segmentation fault", "srun bash -c 'kill -SEGV $$'", Layer.INFRA, "process_crashed", "log"),
    JobFault("a program that fails", "exit 3", Layer.INFRA, "job_failed", "read the end of"),
    JobFault("an exception", PYTHON, Layer.VERIFIER, "program_error", "read the message and the code"),
    JobFault("one task of an array", ONE_OF_TWO, Layer.CONFIG, "command_missing", "srun which", ("--array=0-1",)),
    JobFault("held", "hostname", Layer.INFRA, "job_pending", "scontrol release", ("--hold",), ("PENDING",)),
    JobFault(
        "a dependency that cannot be met",
        "hostname",
        Layer.INFRA,
        "job_pending",
        "correct its request",
        ("--dependency=afterok:{failed}",),
        ("PENDING",),
    ),
)


def submit(lab: Lab, script: str, *options: str) -> str:
    asked = ["sbatch", "--parsable", "-o", f"{lab.folder}/slurm-%j.out", "--time=5", *options, "--wrap", script]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=lab.folder)
    return done.stdout.strip()


def wait_for(job: str, is_it: Callable[[Any], bool], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while (found := read_job(job)) is None or not is_it(found):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def is_over(job: str) -> Callable[[Any], bool]:
    """All tasks of it: squeue lists those that are not."""

    def look(_: Any) -> bool:
        listed = subprocess.run(["squeue", "-h", "-j", job], capture_output=True, text=True, check=False)
        return not listed.stdout.strip()

    return look


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("fault", JOBS, ids=lambda fault: fault.name)
def test_the_first_answer_about_a_job_is_right(lab: Lab, fault: JobFault) -> None:
    options = list(fault.options)
    if any("{failed}" in option for option in options):
        failed = submit(lab, "exit 1")
        wait_for(failed, is_over(failed))
        options = [option.format(failed=failed) for option in options]
    job = submit(lab, fault.script, *options)
    try:
        if fault.state == _OVER:
            wait_for(job, is_over(job))
        else:
            wait_for(job, lambda found: found.state in fault.state and found.reason not in {"None", "Dependency"})
        code, report = lab.doctor("--job", job)
    finally:
        subprocess.run(["scancel", job], check=False)
    first = report["findings"][0]
    assert (first["id"], first["layer"]) == (fault.cause, fault.layer.value), report["findings"]
    assert fault.next in first["next"]
    assert code == 1
    assert first["evidence"]


@pytest.mark.usefixtures("slurm")
def test_a_job_that_went_well_is_not_blamed(lab: Lab) -> None:
    job = submit(lab, "hostname")
    wait_for(job, is_over(job))
    code, report = lab.doctor("--job", job)
    assert (code, report["healthy"]) == (0, True), report["findings"]


def test_a_job_that_waits_its_turn_is_not_blamed(lab: Lab, slurm: SlurmCluster) -> None:
    """The nodes are full; it will come."""
    full = submit(lab, "sleep 60", "--exclusive", "-N", "4")
    waits = submit(lab, "hostname", "--exclusive", "-N", "4")
    try:
        wait_for(waits, lambda found: found.reason in {"Resources", "Priority"})
        code, report = lab.doctor("--job", waits)
    finally:
        slurm.ask("scancel", full, waits)
    assert code == 0, report["findings"]
    assert "job_waits" in {note["id"] for note in report["notes"]}


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("how", "cause", "next_step"), [("cancelled", "job_cancelled", "--resume"), ("time", "time_limit", "--time")]
)
def test_a_collection_that_slurm_ends_is_laid_to_slurm(lab: Lab, how: str, cause: str, next_step: str) -> None:
    """A run inside a job: what was scored stays, what is missing is charged to the scheduler."""
    lab.rows(400)
    with endpoint(lambda _, __: said("It is \\boxed{A}", delay_s=1.0)) as url:
        command = f"exec {BIN}/gymnast collect -e mcqa --model-type vllm_model -m lab --model-url {url}"
        command += " --concurrency 2 -i tasks.jsonl -o x.jsonl"
        job = submit(lab, command, "--time=1" if how == "time" else "--time=5")
        wait_for(job, lambda _: lab.output.exists() and lab.output.stat().st_size > 0)
        if how == "cancelled":
            subprocess.run(["scancel", job], check=True)
        wait_for(job, is_over(job), within_s=180)
    code, report = lab.doctor("x.jsonl", "--job", job)
    first = report["findings"][0]
    assert code == 1
    assert (first["id"], first["layer"]) == (cause, "infra"), [found["id"] for found in report["findings"]]
    assert next_step in first["next"]
    assert first["rollouts_lost"] == report["counts"]["lost"] > 200
