"""Rollouts by seed on a real Slurm: data first, a job with its own servers for each seed, all seeds together last."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymnast import UserError, nemo_gym_rollouts, run_cmd, wrap_arguments
from tests.cluster.runs import wait_until
from tests.cluster.slurm_cluster import SlurmCluster
from tests.helpers.jsonl import read_jsonl

pytestmark = pytest.mark.usefixtures("slurm")
ENGINE = f"{sys.executable} {Path(__file__).parents[1] / 'helpers' / 'openai_server.py'} --port {{port}}"

UNTIL_GO = "until [ -e go ]; do sleep 0.2; done"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "cluster_configs").mkdir()
    site = {"partition": "cpu", "time": 5, "drain_s": 30}
    (tmp_path / "cluster_configs" / "mine.yaml").write_text(yaml.safe_dump(site))
    monkeypatch.chdir(tmp_path)
    return "mine"


def collect(cluster: str, **options: Any) -> Any:
    return nemo_gym_rollouts(
        ctx=wrap_arguments("+agent_name=mcqa_simple_agent"),
        cluster=cluster,
        config_paths=(
            "resources_servers/mcqa/configs/mcqa.yaml,responses_api_models/vllm_model/configs/vllm_model.yaml"
        ),
        model="small",
        server_type="command",
        server_entrypoint=ENGINE,
        server_ready_path="/health",
        **{"input_file": "rows.jsonl", "output_dir": "out", **options},
    )


def summarised(path: Path) -> list[tuple[int, int, bool]]:
    if not path.exists():
        return []
    return [(one["seed"], one["scored"], one["is_done"]) for one in json.loads(path.read_text())["seeds"]]


def test_data_then_seeds_then_their_summary(cluster: str, tmp_path: Path, slurm: SlurmCluster) -> None:
    rows = Path(__file__).parents[2] / "src/gymnast/builtin/resources_servers/mcqa/data/example.jsonl"
    fetched = run_cmd(cluster=cluster, command=f"{UNTIL_GO}; cp {rows} rows.jsonl", expname="fetch_rows")
    assert fetched.job is not None
    result = collect(cluster, num_random_seeds=2, server_replicas=2, run_after=["fetch_rows"])
    assert [job.seed for job in result.jobs] == [0, 1]
    waiting = slurm.ask("squeue", "-h", "-j", ",".join(str(job.job) for job in result.jobs), "-o", "%i %E")
    assert fetched.job in waiting, "seeds wait for the data"
    more = collect(cluster, num_random_seeds=3, server_replicas=2, run_after=["fetch_rows"])
    assert [job.job for job in more.jobs[:2]] == [job.job for job in result.jobs], "those that wait are left alone"
    assert more.jobs[2].job not in {job.job for job in result.jobs}
    elsewhere = collect(cluster, num_random_seeds=1, output_dir="other", run_after=["fetch_rows"])
    assert elsewhere.jobs[0].job not in {job.job for job in more.jobs}
    again = collect(cluster, num_random_seeds=1, output_dir="other", run_after=["fetch_rows"])
    assert (again.jobs, again.others) == (elsewhere.jobs, elsewhere.others), "called twice, nothing is queued twice"
    chained = [
        collect(cluster, num_random_seeds=1, output_dir="other", run_after=[name])
        for name in ("nemo-gym-rollouts", "afterany:nemo-gym-rollouts-rs0", f"afterany:{elsewhere.jobs[0].job}")
    ]
    numbers = {one.jobs[0].job for one in (elsewhere, *chained)}
    assert len(numbers) == 4, "each was to wait for an earlier one"
    assert collect(cluster, num_random_seeds=1, output_dir="other").jobs[0].job in numbers
    for one in (elsewhere, *chained):
        slurm.ask("scancel", str(one.jobs[0].job), *one.others)
    (tmp_path / "go").touch()
    all_done = [(0, 5, True), (1, 5, True), (2, 5, True)]
    wait_until(lambda: summarised(tmp_path / "out" / "rollouts_metrics.json") == all_done, "all seeds")
    assert [len(read_jsonl(job.output)) for job in more.jobs] == [5, 5, 5]
    logs = list((tmp_path / "out" / "jobs" / "nemo-gym-rollouts-rs0").glob("1/*/logs/policy.*.log"))
    assert len(logs) == 2, "two replicas in the job"
    again = collect(cluster, num_random_seeds=2, run_after=["fetch_rows"])
    assert (again.jobs, again.skipped) == ((), (0, 1))


def test_a_job_to_wait_for_that_failed_is_an_error(cluster: str, slurm: SlurmCluster) -> None:
    failed = run_cmd(cluster=cluster, command="exit 3", expname="bad_fetch")
    assert failed.job is not None
    state = ("squeue", "-h", "-t", "all", "-j", failed.job, "-o", "%T")
    wait_until(lambda: slurm.ask(*state).strip() == "FAILED", "its end")
    with pytest.raises(UserError, match="'bad_fetch' did not succeed"):
        collect(cluster, run_after=["bad_fetch"], expname="never")
