"""`gymnast submit` and its companions on a real Slurm, as people use them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.cluster.desk import Desk
from tests.cluster.loopback_ssh import login_node
from tests.cluster.runs import wait_until
from tests.cluster.slurm_cluster import SlurmCluster
from tests.helpers.commands import BIN, Outcome
from tests.helpers.jsonl import read_jsonl

pytestmark = pytest.mark.usefixtures("slurm")


def test_one_command_from_tasks_to_a_profile(desk: Desk, slurm: SlurmCluster) -> None:
    desk.hold()
    done = desk.submit("--workers", "3", "--chunk-rows", "5", "--json", held_from=1)
    assert done.code == 0, done.err
    data = done.json()
    assert (data["rollouts"], data["workers_added"]) == (60, 3)
    finish = data["submission"]["details"]["finish"]
    assert slurm.ask("squeue", "-h", "-j", finish, "-o", "%T %r").strip() == "PENDING Dependency"
    wait_until(lambda: desk.scored() > 0, "the first")
    during = desk.status()
    assert during["requested"] == 60
    settled = during["scored"] + sum(during["failed"].values())
    assert settled + during["in_flight"] + during["unknown"] + during["owed"] == 60
    jobs = {view["job"]: view["state"] for view in during["jobs"]}
    assert set(jobs) >= {f"{data['submission']['jobs'][0]}_{worker}" for worker in range(3)}
    desk.release()
    wait_until((desk.folder / "x_reward_profiling.jsonl").exists, "the profile")
    rows = read_jsonl(desk.run)
    assert len({(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows}) == len(rows) == 60
    assert len(read_jsonl(desk.folder / "x_reward_profiling.jsonl")) == 30
    versions = yaml.safe_load((desk.folder / "x_run.json").read_text())["versions"]
    assert versions["code of submission 1"].startswith("installed gymnast ")


def test_a_dry_run_shows_the_very_scripts_and_writes_nothing(desk: Desk) -> None:
    words = ["--workers", "3", "--chunk-rows", "5", "--time", "10", "--comment", "it's mine", "--sbatch=--nice=5"]
    before = sorted(desk.folder.rglob("*"))
    dry = desk.submit(*words, "--dry-run", "--json")
    assert dry.code == 0, dry.err
    assert sorted(desk.folder.rglob("*")) == before
    data = dry.json()
    assert sum(chunk["rows"] for chunk in data["chunks"]) == data["rollouts"] == 60
    assert desk.submit(*words).code == 0
    workers, finish = data["scripts"].items()
    assert Path(workers[0]).read_text() == workers[1]
    assert "--nice=5" in workers[1]
    real = Path(finish[0]).read_text().splitlines()
    dry_lines = finish[1].splitlines()
    assert [line for line in real if "--dependency" not in line] == [x for x in dry_lines if "--dependency" not in x]
    shown = desk.submit(*words, "--dry-run", "--resume")
    assert "workers   0 on slurm, in addition to 3 already on it" in shown.out or "workers   " in shown.out


def test_two_submits_at_the_same_moment_make_one_run(desk: Desk) -> None:
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: desk.submit("--workers", "2", "--chunk-rows", "5"), range(2)))
    codes = sorted(done.code for done in both)
    assert codes == [0, 2], [done.err for done in both]
    loser = next(done for done in both if done.code == 2)
    assert "--resume" in loser.err
    wait_until((desk.folder / "x.jsonl.done").exists, "merged")
    assert len(read_jsonl(desk.run)) == 60


def test_a_resume_adds_what_is_still_needed_and_no_more(desk: Desk) -> None:
    words = ["--workers", "4", "--chunk-rows", "10", "--concurrency", "1"]
    desk.hold()
    assert desk.submit(*words, held_from=1).code == 0
    again = desk.submit(*words, "--resume", "--json", held_from=1).json()
    assert (again["workers_before"], again["workers_added"]) == (4, 0)
    wait_until(lambda: desk.scored() > 0, "the first")
    cancelled = desk.gymnast("cancel", "x.jsonl", "--json")
    assert len(cancelled.json()["cancelled"]) == 4
    desk.release()
    wait_until(lambda: not any(view["state"] == "running" for view in desk.status()["jobs"]), "all ended")
    open_chunks = 6 - desk.status()["states"].get("done", 0)
    more = desk.submit(*words, "--resume", "--json", held_from=1).json()
    assert more["workers_added"] == min(4, open_chunks)
    wait_until((desk.folder / "x.jsonl.done").exists, "merged")
    assert len(read_jsonl(desk.run)) == 60
    assert desk.submit(*words, "--resume", held_from=1).out.splitlines()[1].startswith("nothing is owed")


def test_a_change_is_refused_on_resume(desk: Desk) -> None:
    assert desk.submit("--workers", "1", mean_s=1.0).code == 0
    refused = desk.submit("--workers", "1", "--resume", "--temperature", "0.5", mean_s=1.0)
    assert refused.code == 2
    assert "temperature" in refused.err


def test_logs_show_first_what_failed(desk: Desk, slurm: SlurmCluster) -> None:
    changed = desk.queue(slurm, "prepare")
    assert desk.submit("--run-after", "prepare", "--workers", "2", "--chunk-rows", "5").code == 0
    order = desk.folder / "x_chunks" / "order.json"
    order.write_text(order.read_text().replace('"run_id": "', '"run_id": "another-'))
    changed.touch()
    wait_until(lambda: "failed" in {view["state"] for view in desk.status()["jobs"]}, "refused")
    data = desk.gymnast("logs", "x.jsonl", "--json").json()
    assert data[0]["failure"] == "job_refused"
    assert "belong to different runs" in data[0]["end_of_log"]
    shown = desk.gymnast("logs", "x.jsonl", "--follow")
    assert "job_refused" in shown.out
    assert desk.gymnast("logs", "x.jsonl", "--job", "77").code == 2


def test_over_ssh(desk: Desk, slurm: SlurmCluster, tmp_path: Path) -> None:
    """The far side has Slurm's configuration, and our side has not: every command goes over ssh."""
    environment = {"SLURM_CONF": str(slurm.folder / "slurm.conf")}
    with login_node(tmp_path / "ssh", environment) as node, pytest.MonkeyPatch.context() as patch:
        patch.delenv("SLURM_CONF")
        name = desk.cluster(ssh_options=list(node.options))
        done = desk.submit("--cluster", name, "--host", "login", "--workers", "2", "--json")
        assert done.code == 0, done.err
        assert done.json()["submission"]["details"]["host"] == "login"
        wait_until((desk.folder / "x.jsonl.done").exists, "merged")
        states = {view["state"] for view in desk.status()["jobs"]}
        assert states == {"completed"}
        assert "Accepted publickey" in node.log.read_text()
        assert desk.gymnast("cancel", "x.jsonl").code == 0
    lost = desk.gymnast("cancel", "x.jsonl")
    assert lost.code == 2
    assert "ssh to login failed" in lost.err


def test_a_snapshot_takes_along_what_was_asked(desk: Desk) -> None:
    """Uncommitted changes go with snapshot+dirty and stay behind with snapshot; workers run in the snapshot."""
    git = ["git", "-C", str(desk.folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    (desk.folder / ".gitignore").write_text("x*\n")
    (desk.folder / "extra.py").write_text("")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    (desk.folder / "extra.py").write_text("# changed")
    (desk.folder / "new.py").write_text("")
    done = desk.submit("--workers", "1", "--code", "snapshot+dirty", "--json")
    assert done.code == 0, done.err
    details = done.json()["submission"]["details"]
    folder = Path(details["code_folder"])
    assert (folder / "extra.py").read_text() == "# changed"
    assert (folder / "new.py").exists()
    script = (Path(details["folder"]) / "workers.sh").read_text()
    assert f"--chdir={folder}" in script
    assert f"export PYTHONPATH={folder}" in script
    wait_until((desk.folder / "x.jsonl.done").exists, "merged")
    clean = desk.submit("--workers", "1", "--code", "snapshot", "--overwrite")
    assert "2 uncommitted changes were left out" in clean.err


ENGINE = Path(__file__).parents[1] / "helpers" / "openai_server.py"


def with_server(desk: Desk, *words: str, engine: str = "") -> Outcome:
    """A run whose policy is served in each job."""
    command = f"{sys.executable} {ENGINE} --port {{port}} {engine}"
    served = ["--server", "command", "--server-command", command, "-m", "small", "--server-ready-path", "/health"]
    common = ["-e", "arithmetic", "--model-type", "vllm_model", "-o", "x.jsonl", "-n", "2"]
    rows = ["-i", "resources_servers/arithmetic/data/example.jsonl"]
    return desk.gymnast("submit", *common, *rows, *served, "--executor", "slurm", *words)


def test_a_policy_server_in_every_job(desk: Desk) -> None:
    gpus = ["--server-gpus", "4", "--server-replicas", "2", "--tensor-parallel", "2"]
    done = with_server(desk, "--workers", "2", "--chunk-rows", "5", *gpus, "--json", engine="--say GPUs:{gpus}")
    assert done.code == 0, done.err
    wait_until((desk.folder / "x.jsonl.done").exists, "merged")
    assert len(read_jsonl(desk.run)) == 10
    folder = Path(done.json()["submission"]["details"]["folder"])
    said = [path.read_text() for path in folder.glob("*/logs/policy.*.log")]
    assert sorted(text.split("GPUs:")[1].split()[0] for text in said) == ["0,1", "0,1", "2,3", "2,3"], "two in each job"


@pytest.mark.parametrize("executor", ["slurm", "local"])
def test_a_sandbox_in_every_job(desk: Desk, executor: str) -> None:
    """A worker starts when the sandbox of its job answers, and has its address in its environment."""
    sandbox = ["--with-sandbox", "--sandbox-command", f"{sys.executable} {ENGINE} --port {{port}}"]
    desk.hold()
    words = ["--workers", "2", "--chunk-rows", "5", "--executor", executor]
    done = desk.submit(*sandbox, *words, held_from=1)
    assert done.code == 0, done.err
    wait_until(lambda: desk.scored() > 0, "the first")
    holder = json.loads(next(desk.folder.glob("x_chunks/c/*/lease.1.json")).read_text())["holder"]
    variables = Path(f"/proc/{holder['pid']}/environ").read_text().split("\0")
    host, port = (
        next(one for one in variables if one.startswith(f"NEMO_SKILLS_SANDBOX_{name}=")).partition("=")[2]
        for name in ("HOST", "PORT")
    )
    with urllib.request.urlopen(f"http://{host}:{port}/health", timeout=60) as answer:
        assert answer.status == 200
    desk.release()
    wait_until(lambda: not desk.status()["owed"] + desk.status()["in_flight"], "all settled")
    wait_until(lambda: {view["state"] for view in desk.status()["jobs"]} == {"completed"}, "all ended")


def test_a_worker_in_a_container(desk: Desk) -> None:
    """Apptainer is not everywhere: a stand-in notes its options and runs what comes after the image."""
    stand_in = desk.folder / "bin" / "apptainer"
    stand_in.parent.mkdir()
    find_image = 'while [[ $1 != *.sif ]]; do shift; done; shift; exec "$@"'
    stand_in.write_text(f'#!/bin/bash\necho "$@" >>{desk.folder}/options\n{find_image}\n')
    stand_in.chmod(0o755)
    name = desk.cluster(
        runtime="apptainer",
        container="own",
        containers={"own": {"image": "/images/own.sif", "mounts": ["/data:/data:ro"]}},
        setup=[f"export PATH={stand_in.parent}:$PATH"],
        python=sys.executable,
    )
    done = desk.submit("--cluster", name, "--code", "container", "--workers", "1", "--wait")
    assert done.code == 0, done.err
    assert "code      container image:/images/own.sif" in done.out
    options = (desk.folder / "options").read_text()
    assert f"exec --bind=/data:/data:ro --bind={desk.folder}:{desk.folder}" in options
    assert len(read_jsonl(desk.run)) == 60


def test_servers_on_nodes_of_their_own(desk: Desk, slurm: SlurmCluster) -> None:
    """A heterogeneous job: the worker in one part, the servers on two nodes of the other."""
    name = desk.cluster(worker={"partition": "short", "time": 5}, time=5)
    done = with_server(desk, "--cluster", name, "--workers", "2", "--max-running", "1", "--server-nodes", "2", "--json")
    assert done.code == 0, done.err
    submission = done.json()["submission"]
    assert len(submission["jobs"]) == 2, "Slurm has no arrays of heterogeneous jobs"
    parts = slurm.ask("squeue", "-h", "-t", "all", "-j", submission["jobs"][0], "-o", "%i %P %D").split("\n")
    assert {part.split()[1:] and tuple(part.split()[1:]) for part in parts if part} == {("short", "1"), ("cpu", "2")}
    wait_until((desk.folder / "x.jsonl.done").exists, "merged")
    assert len(read_jsonl(desk.run)) == 10
    assert {view["state"] for view in desk.status()["jobs"]} == {"completed"}


def test_a_server_that_does_not_start_ends_the_job_with_its_name(desk: Desk) -> None:
    assert with_server(desk, "--workers", "1", "--no-merge", engine="--crash").code == 0
    wait_until(lambda: desk.status()["jobs"][0]["state"] == "failed", "the job's end")
    log = Path(desk.status()["jobs"][0]["log"]).read_text()
    assert "policy" in log
    assert "while starting" in log


def test_the_page_about_slurm_runs_as_written(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "slurm.md").read_text()
    matches = re.findall(r"^```(bash|yaml)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "cluster_configs").mkdir()
    (tmp_path / "cluster_configs" / "mine.yaml").write_text(next(text for kind, text in matches if kind == "yaml"))
    script = "set -euo pipefail\n" + "\n".join(text for kind, text in matches if kind == "bash")
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(read_jsonl(tmp_path / "runs" / "a.jsonl")) == 40
    assert len(read_jsonl(tmp_path / "runs" / "a_reward_profiling.jsonl")) == 5


def test_a_job_that_is_not_there_cannot_be_waited_for(desk: Desk, slurm: SlurmCluster) -> None:
    done = desk.submit("--run-after", "no-such-job")
    assert (done.code, "no job named 'no-such-job' is pending or running" in done.err) == (2, True)
    prepared = desk.queue(slurm, "prepare")
    done = desk.submit("--run-after", "prepare", "--workers", "1")
    assert done.code == 0, done.err
    assert desk.scored() == 0
    prepared.touch()
    wait_until((desk.folder / "x.jsonl.done").exists, "merged")
    assert len(read_jsonl(desk.run)) == 60
