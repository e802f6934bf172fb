"""Workers are at it and nothing waits for their end: a resume queues the job that merges. Real Slurm: tests/cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gymnast.chunks.worker_spec import ConfigArguments
from gymnast.executors.executor import Submission, WorkerRequest
from gymnast.executors.hosts import CommandResult
from gymnast.executors.site import Site
from gymnast.executors.slurm import executor as executor_module
from gymnast.executors.slurm.assembly import WORKER, SlurmOptions
from gymnast.executors.slurm.executor import SlurmExecutor
from gymnast.executors.submissions import read_submissions
from gymnast.executors.submit_run import SubmitRequest, add_missing_merge
from gymnast.executors.worker_jobs import SubmissionStatus
from gymnast.rollouts.options import RunOptions
from gymnast.sidecars.component import Component
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.types.job import JobState, JobView

PENDING = "{}|PENDING|0||Dependency|N/A|N/A|0|\n"


@dataclass
class Queue:
    """A Slurm that queues everything and runs nothing."""

    name: str = "here"
    scripts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Text and word of each job."""
    cancelled: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str], *, timeout_s: float = 60.0) -> CommandResult:
        words = [word for word in command if "=" not in word and word != "env"]
        live = [job for job in self.scripts if job not in self.cancelled]
        if words[0] == "sbatch":
            number = str(100 + len(self.scripts))
            path = next(word for word in words if word.endswith(".sh"))
            self.scripts[number] = (Path(path).read_text(), words[-1])
            return CommandResult(0, f"{number}\n", "")
        if words[0] == "squeue" and "-j" in words:
            asked = words[words.index("-j") + 1].split(",")
            return CommandResult(0, "".join(PENDING.format(job) for job in asked if job in live), "")
        if words[0] == "squeue":
            return CommandResult(0, "".join(f"{job} {self.scripts[job][1]}\n" for job in live), "")
        if words[0] == "scancel":
            self.cancelled += words[1:]
            return CommandResult(0, "", "")
        return CommandResult(127, "", "not found")

    def waits_for(self, job: str) -> str:
        lines = self.scripts[job][0].splitlines()
        return next(line for line in lines if "--dependency" in line).partition("dependency=")[2]


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> dict[str | None, Queue]:
    """By login node; None is here."""
    found: dict[str | None, Queue] = {None: Queue(), "far": Queue("far")}
    monkeypatch.setattr(executor_module, "make_host", lambda host, _: found[host])
    return found


def request(folder: Path, **more: Any) -> SubmitRequest:
    site = Site(executor="slurm", name="mine")
    options = RunOptions(output=folder / "x.jsonl")
    config: Any = None
    return SubmitRequest(options, config, ConfigArguments(), site, finish=("merge",), cwd=folder, **more)


def submitted(folder: Path, number: int, *, finish: bool = False, host: str | None = None) -> Submission:
    site = Site(executor="slurm", name="mine", host=host)
    words = (("merge", "x"),) if finish else ()
    beside = (Component("policy", ("serve", "model-A")),)
    options = SlurmOptions(site=site, components=beside, worker=Component(WORKER, (), is_main=True), finish=words)
    return SlurmExecutor(options).submit(WorkerRequest(run=folder / "x.jsonl", count=2, name="mine"), number)


def before(*submissions: Submission) -> SubmissionStatus:
    running = (JobView(job="1_0", state=JobState.RUNNING),)
    return SubmissionStatus(3, 3, tuple((one, running) for one in submissions))


def layout_in(folder: Path) -> ChunkLayout:
    layout = ChunkLayout(folder / "x_chunks")
    layout.submissions.mkdir(parents=True, exist_ok=True)
    return layout


def test_it_waits_for_all_that_live_and_is_queued_once(tmp_path: Path, queues: dict[str | None, Queue]) -> None:
    layout, first, second = layout_in(tmp_path), submitted(tmp_path, 1), submitted(tmp_path, 2)
    submission = add_missing_merge(request(tmp_path), layout, before(first, second))
    assert submission is not None
    job = submission.details["finish"]
    assert queues[None].waits_for(job) == f"afterany:{first.jobs[0]},afterany:{second.jobs[0]}"
    assert [one.details.get("finish") for one in read_submissions(layout)] == [job]
    assert add_missing_merge(request(tmp_path), layout, before(first, submission)) is None
    again = add_missing_merge(request(tmp_path), layout, before(first, second))  # killed before it was recorded
    assert again == submission
    assert len(queues[None].scripts) == 3


def test_it_leaves_the_files_of_jobs_alone_that_have_not_started(
    tmp_path: Path, queues: dict[str | None, Queue]
) -> None:
    layout, first = layout_in(tmp_path), submitted(tmp_path, 1)
    folder = Path(first.details["folder"])
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert json.loads(files["policy.json"])["command"] == ["serve", "model-A"]
    assert add_missing_merge(request(tmp_path, name="another"), layout, before(first)) is not None
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "finish.sh"} == files
    assert "#SBATCH --job-name=mine-finish" in (folder / "finish.sh").read_text()


def test_jobs_of_another_cluster_are_not_waited_for(tmp_path: Path, queues: dict[str | None, Queue]) -> None:
    layout, first, far = layout_in(tmp_path), submitted(tmp_path, 1), submitted(tmp_path, 2, host="far")
    submission = add_missing_merge(request(tmp_path), layout, before(first, far))
    assert submission is not None
    assert submission.number == 1
    assert queues[None].waits_for(submission.details["finish"]) == f"afterany:{first.jobs[0]}"
    assert len(queues["far"].scripts) == 1


def test_one_that_waits_for_some_only_is_replaced(tmp_path: Path, queues: dict[str | None, Queue]) -> None:
    layout, first, second = layout_in(tmp_path), submitted(tmp_path, 1, finish=True), submitted(tmp_path, 2)
    submission = add_missing_merge(request(tmp_path), layout, before(first, second))
    assert submission is not None
    assert queues[None].cancelled == [first.details["finish"]]


def test_where_none_is_needed_none_is_queued(tmp_path: Path, queues: dict[str | None, Queue]) -> None:
    layout, first = layout_in(tmp_path), submitted(tmp_path, 1)
    old = msgspec.structs.replace(first, details={key: text for key, text in first.details.items() if key != "token"})
    assert add_missing_merge(request(tmp_path), layout, before(old)) is None
    assert add_missing_merge(replace(request(tmp_path), finish=()), layout, before(first)) is None
    assert add_missing_merge(request(tmp_path), layout, SubmissionStatus(0, 3)) is None
    assert len(queues[None].scripts) == 1
