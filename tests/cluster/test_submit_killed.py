"""A submit that is killed when Slurm has its jobs and the run's folder has no record of them: nothing is lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cluster.desk import Desk
from tests.cluster.runs import wait_until
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.test_submit import with_server

pytestmark = pytest.mark.usefixtures("slurm")
WORDS = ["--workers", "2", "--chunk-rows", "5", "--comment", "mine", "--name", "my-name"]
LONG_S = 20.0
"""A rollout of a run that must not end while it is looked at, however slow the machine is."""


@pytest.fixture
def deadly(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An sbatch that kills who called it once it has queued so many scripts as its file `after` says."""
    folder = tmp_path_factory.mktemp("deadly")
    (folder / "after").write_text("1")
    (folder / "sbatch").write_text(
        f"""#!/bin/bash
{shutil.which("sbatch")} "$@"
left=$(($(<{folder}/after) - 1))
echo $left >{folder}/after
[[ $left -ne 0 ]] || kill -KILL $PPID
"""
    )
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def recorded(desk: Desk) -> list[str]:
    return sorted(path.name for path in (desk.folder / "x_chunks" / "submissions").glob("*.json"))


def test_its_jobs_are_listed_and_cancelled(desk: Desk, slurm: SlurmCluster, deadly: Path) -> None:
    assert desk.submit(*WORDS, mean_s=LONG_S).code == -9
    assert recorded(desk) == []
    queued = slurm.ask("squeue", "-h", "--name=my-name", "-o", "%F %k").split("\n")[0]
    number, comment = queued.split()
    assert comment == "mine"
    assert {view["job"] for view in desk.status()["jobs"]} == {f"{number}_0", f"{number}_1"}
    wait_until(lambda: desk.scored() > 0, "the first")
    assert {view["job"] for view in desk.gymnast("logs", "x.jsonl", "--json").json()} == {f"{number}_0", f"{number}_1"}
    assert sorted(desk.gymnast("cancel", "x.jsonl", "--json").json()["cancelled"]) == [f"{number}_0", f"{number}_1"]
    wait_until(lambda: {view["state"] for view in desk.status()["jobs"]} == {"cancelled"}, "cancelled")


def test_a_resume_counts_its_workers_and_records_them(desk: Desk, slurm: SlurmCluster, deadly: Path) -> None:
    """Killed after the job that merges was queued, too: that one is found as well, and another one replaces it."""
    (deadly / "after").write_text("2")
    assert desk.submit(*WORDS, mean_s=LONG_S).code == -9
    finish = slurm.ask("squeue", "-h", "--name=my-name-finish", "-o", "%F").strip()
    again = desk.submit(*WORDS, "--resume", "--json", mean_s=LONG_S)
    assert again.code == 0, again.err
    assert (again.json()["workers_before"], again.json()["workers_added"]) == (2, 0)
    assert recorded(desk) == ["1.json"]
    assert finish in (desk.folder / "x_chunks" / "submissions" / "1.json").read_text()
    more = desk.submit("--workers", "3", *WORDS[2:], "--resume", "--json", mean_s=LONG_S)
    assert more.code == 0, more.err
    assert (more.json()["workers_before"], more.json()["workers_added"]) == (2, 1)
    assert slurm.ask("squeue", "-h", "-t", "pending", "-j", finish, "-o", "%T").strip() == "", "one merges, not two"


def test_a_resume_queues_the_merge_that_never_was(desk: Desk, slurm: SlurmCluster, deadly: Path) -> None:
    """Killed between the workers and the job that merges."""
    assert desk.submit(*WORDS, mean_s=LONG_S).code == -9
    named = ("squeue", "-h", "--name=my-name-finish", "-o")
    assert slurm.ask(*named, "%F").strip() == ""
    again = desk.submit(*WORDS, "--resume", "--json", mean_s=LONG_S)
    assert again.code == 0, again.err
    workers = desk.status()["jobs"][0]["job"].partition("_")[0]
    assert again.json()["workers_added"] == 0
    assert slurm.ask(*named, "%F").strip() == again.json()["finish"]
    assert f"afterany:{workers}" in slurm.ask(*named, "%E")
    third = desk.submit(*WORDS, "--resume", mean_s=LONG_S)
    assert "2 workers are already on it: none was added" in third.out, "one merges, not two"
    assert len(slurm.ask(*named, "%F").split()) == 1
    desk.gymnast("cancel", "x.jsonl")
    wait_until(lambda: slurm.ask(*named, "%F").strip() == "", "the job that merges is cancelled, too")


def test_of_jobs_that_are_not_an_array_those_that_were_queued_are_found(desk: Desk, deadly: Path) -> None:
    """Heterogeneous jobs are queued one by one; the second is never."""
    name = desk.cluster(worker={"partition": "short", "time": 5}, time=5)
    assert with_server(desk, "--cluster", name, "--workers", "2", "--chunk-rows", "5").code == -9
    (job,) = desk.status()["jobs"]
    assert job["job"].endswith("+0"), "its first part stands for it"
    desk.gymnast("cancel", "x.jsonl")
    wait_until(lambda: desk.status()["jobs"][0]["state"] in {"cancelled", "completed"}, "cancelled")


def test_a_submit_that_was_refused_leaves_nothing_to_look_for(desk: Desk) -> None:
    assert desk.submit(*WORDS, "--partition", "nowhere").code == 2
    assert not list((desk.folder / "x_chunks").rglob("intent.json"))
