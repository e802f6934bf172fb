"""Rollouts by seed: the documented calls of the pipeline, seeds, scripts, keys, and the numbers across seeds."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymnast import UserError, nemo_gym_rollouts, run_cmd, wrap_arguments
from gymnast.compat.nemo_skills.options import parse_sbatch_options
from gymnast.compat.nemo_skills.seeds import find_seeds, resolve_seeds, seed_output
from gymnast.errors import DataError, NotFoundError
from gymnast.profile.seeds import combine_seeds
from gymnast.store.paths import RunPaths
from tests.helpers.commands import Outcome
from tests.helpers.jsonl import write_jsonl

SITE = """
executor: slurm
account: research
runtime: pyxis
container: nemo-rl
containers:
  nemo-rl: registry/nemo-rl:1
  vllm: registry/vllm:1
  sandbox: registry/sandbox:1
mounts: [LUSTRE:/workspace]
gpus_per_node: 8
"""


def quoted_start(start: str) -> str:
    """The start of a value as a script has it, with a quote before it where the path needs one."""
    return start if shlex.quote(start) == start else f"'{start}"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A cluster of the user, as named in the documented calls."""
    (tmp_path / "cluster_configs").mkdir()
    (tmp_path / "cluster_configs" / "mine.yaml").write_text(SITE.replace("LUSTRE", f"{tmp_path}/lustre"))
    monkeypatch.chdir(tmp_path)
    return "mine"


def test_the_documented_call_runs_with_only_the_import_changed(cluster: str, tmp_path: Path) -> None:
    run_number = 2
    result = nemo_gym_rollouts(
        ctx=wrap_arguments(
            "+agent_name=math_with_judge_simple_agent "
            "+num_samples_in_parallel=64 "
            "+responses_create_params.max_output_tokens=65536 "
            "+responses_create_params.temperature=1.0 "
            "+responses_create_params.top_p=1.0 "
        ),
        num_random_seeds=4,
        starting_seed=0,
        cluster=cluster,
        config_paths=(
            "resources_servers/math_with_judge/configs/dapo17k.yaml,"
            "responses_api_models/vllm_model/configs/vllm_model.yaml"
        ),
        input_file="resources_servers/math_with_judge/data/aime24_validation.jsonl",
        output_dir=f"/workspace/results/math_verification_aime24/run{run_number}",
        gym_path="/opt/nemo-rl/3rdparty/Gym-workspace/Gym",
        with_sandbox=False,
        model="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        server_type="vllm",
        server_gpus=8,
        server_args="--trust-remote-code --dtype auto --mamba_ssm_cache_dtype float32 --reasoning-parser deepseek_r1 ",
        partition=None,
        exclusive=True,
        dry_run=True,  # the only argument that is ours: nothing is submitted here
    )
    assert [job.output.name for job in result.jobs] == [f"rollouts-rs{seed}.jsonl" for seed in range(4)]
    assert len(result.scripts) == 4
    script = result.scripts[3]
    assert "#SBATCH --exclusive" in script
    assert "#SBATCH --gpus-per-node=8" in script
    assert "--container-image=registry/vllm:1" in script
    assert "--container-image=registry/nemo-rl:1" in script
    assert script.count("sidecar.pyz") == 2
    assert not list(tmp_path.glob("lustre/**/*"))
    # What the call names as containers see it is used by its name outside, and mounted under that.
    results = f"{tmp_path}/lustre/results/math_verification_aime24/run2"
    assert {str(job.output.parent) for job in result.jobs} == {results}
    assert f"#SBATCH --output={quoted_start(f'{results}/jobs/')}" in script
    mounts = shlex.quote(f"--container-mounts={tmp_path}/lustre:/workspace,{results}:{results}") + " "
    assert script.replace("\\\n    ", "").count(mounts) == 2


def test_where_logs_go_elsewhere_containers_still_have_the_folder_of_the_rollouts(cluster: str, tmp_path: Path) -> None:
    result = nemo_gym_rollouts(
        cluster=cluster,
        config_paths="a.yaml",
        input_file="x.jsonl",
        output_dir=str(tmp_path / "out"),
        log_dir="/workspace/logs",
        server_address="http://node:8000",
        dry_run=True,
    )
    script = result.scripts[0].replace("\\\n    ", "")
    logs = f"{tmp_path}/lustre/logs"
    mounts = f"{tmp_path}/lustre:/workspace,{tmp_path}/out:{tmp_path}/out,{logs}:{logs}"
    assert shlex.quote(f"--container-mounts={mounts}") + " " in script


def test_options_that_mean_nothing_here_are_taken_and_said(
    cluster: str, tmp_path: Path, invoke: Callable[..., Outcome]
) -> None:
    """On the command line as from Python; what nobody knows is refused."""
    words = ["--cluster", cluster, "--config_paths", "a.yaml", "--input_file", "x", "--output_dir", "out", "--dry_run"]
    words += ["--server_address", "http://node:8000", "--no-reuse_code", "--reuse_code_exp", "old", "+a=1"]
    result = invoke("gymnast", "nemo-gym-rollouts", *words, "--skip_hf_home_check")
    assert result.code == 0, result.err
    assert [line.split()[1] for line in result.err.splitlines()] == [
        "reuse_code",
        "reuse_code_exp",
        "skip_hf_home_check",
    ]
    refused = invoke("gymnast", "nemo-gym-rollouts", *words, "--reuse-cod")
    assert (refused.code, "unknown option --reuse-cod" in refused.err) == (2, True)


def test_data_steps_are_jobs(cluster: str, tmp_path: Path) -> None:
    command = "cd /opt/Gym && ng_download_dataset_from_hf +repo_id=a/b +artifact_fpath=v.jsonl +output_fpath=x.jsonl"
    fetched = run_cmd(
        ctx=wrap_arguments(""),
        cluster=cluster,
        command=command,
        container="nemo-rl",
        expname="download_gym_data",
        partition="cpu",
        num_gpus=0,
        dry_run=True,
    )
    assert fetched.message is not None
    assert shlex.quote(command) in fetched.message.replace("\\\n    ", "")
    assert "#SBATCH --partition=cpu" in fetched.message
    assert "gpus" not in fetched.message, "the site's number is not for a job that wants none"
    result = nemo_gym_rollouts(
        cluster=cluster,
        config_paths=["a.yaml"],
        input_file="x.jsonl",
        output_dir=str(tmp_path / "out"),
        server_address="http://node:8000",
        run_after=["123"],
        before=[["data", "download", "--repo-id", "a/b", "--artifact", "v.jsonl", "--output", "x.jsonl"]],
        dry_run=True,
    )
    data, collect = result.scripts
    assert "data download --repo-id a/b" in data.replace("\\\n    ", "")
    assert "afterok:123" in data
    assert "sidecar.pyz" in collect


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"server_type": "vllm", "server_address": "http://a"}, "either in the job"),
        ({"server_type": "vllm"}, "needs a model"),
        ({"server_gpus": 8}, "none is configured"),
        ({"server_args": "--x"}, "none is configured"),
        ({"server_type": "vlm", "model": "m"}, "no server type 'vlm'"),
        ({"server_type": "vllm", "model": "m", "server_container": "vlm"}, "no container 'vlm'"),
        ({"config_paths": ""}, "config_paths must be given"),
        ({"cluster": "min"}, "no cluster 'min'"),
        ({"num_random_seeds": 2, "random_seeds": "1,2,3"}, "num_random_seeds is 2, but random_seeds lists 3"),
        ({"random_seeds": "1,x"}, "expected a seed, got 'x'"),
        ({"mount_paths": "relative"}, "a mount is"),
    ],
)
def test_calls_that_cannot_be_meant_are_refused_in_words(
    cluster: str, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    call = {"cluster": cluster, "config_paths": "a.yaml", "input_file": "x.jsonl", "output_dir": str(tmp_path / "out")}
    with pytest.raises(UserError, match=said):
        nemo_gym_rollouts(**{**call, "dry_run": True, **options})


def test_a_container_that_the_site_does_not_have_is_never_taken_for_an_image(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        nemo_gym_rollouts(
            cluster=cluster,
            config_paths="a.yaml",
            input_file="x",
            output_dir=str(tmp_path),
            server_type="sglang",  # its container is named after it unless told otherwise
            model="m",
            dry_run=True,
        )
    assert "there is no container 'sglang' at mine" in str(caught.value)


def test_a_sandbox_is_a_component_and_its_address_is_found_in_the_job(cluster: str, tmp_path: Path) -> None:
    result = nemo_gym_rollouts(
        cluster=cluster,
        config_paths="a.yaml",
        input_file="x",
        output_dir=str(tmp_path),
        server_address="h:1",
        with_sandbox=True,
        dry_run=True,
    )
    assert "--container-image=registry/sandbox:1" in result.scripts[0]
    with pytest.raises(UserError, match="sandbox service"):
        nemo_gym_rollouts(
            config_paths="a.yaml", input_file="x", output_dir=str(tmp_path), with_sandbox=True, dry_run=True
        )


def test_a_real_key_stands_in_no_script(cluster: str, tmp_path: Path) -> None:
    call: dict[str, Any] = {
        "config_paths": "a.yaml",
        "input_file": "x",
        "output_dir": str(tmp_path / "out"),
        "server_address": "https://models.example/v1",
        "policy_api_key": "sk-very-secret",
    }
    result = nemo_gym_rollouts(**call, dry_run=True)
    assert "oc.env:GYMNAST_POLICY_API_KEY" in result.scripts[0]
    assert "sk-very-secret" not in result.scripts[0]
    with pytest.raises(UserError, match="GYMNAST_POLICY_API_KEY must be set"):
        nemo_gym_rollouts(**call, cluster=cluster)


def test_options_about_packing_are_noted_and_misspelt_ones_refused(tmp_path: Path) -> None:
    messages: list[str] = []
    call: dict[str, Any] = {"config_paths": "a.yaml", "input_file": "x", "output_dir": str(tmp_path), "dry_run": True}
    nemo_gym_rollouts(**call, reuse_code=False, on_note=messages.append)
    assert messages == ["note: reuse_code has no effect here"]
    with pytest.raises(TypeError, match="no option 'sever_gpus'"):
        nemo_gym_rollouts(**call, sever_gpus=8)


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ({}, [None]),
        ({"num_random_seeds": 3}, [0, 1, 2]),
        ({"num_random_seeds": 2, "starting_seed": 5}, [5, 6]),
        ({"random_seeds": "3,1,3"}, [3, 1]),
        ({"random_seeds": "0..2,7-8"}, [0, 1, 2, 7, 8]),
        ({"random_seeds": [4, 2]}, [4, 2]),
    ],
)
def test_seeds_that_are_meant(given_: dict[str, Any], meant: list[int | None]) -> None:
    assert resolve_seeds(**given_) == meant


def test_seeds_in_a_folder_are_found_again(tmp_path: Path) -> None:
    for seed in (10, 2, None):
        seed_output(tmp_path, seed).touch()
    RunPaths(seed_output(tmp_path, 2)).failures.touch()
    assert list(find_seeds(tmp_path)) == [None, 2, 10]


def test_each_engine_draws_with_its_own_seed(tmp_path: Path) -> None:
    """Engines begin with one and the same seed unless told otherwise, and two seeds of a run would begin alike."""
    call: dict[str, Any] = {
        "config_paths": "a.yaml",
        "input_file": "x",
        "output_dir": str(tmp_path),
        "model": "m",
        "server_type": "vllm",
        "random_seeds": "7,8",
        "dry_run": True,
    }
    assert ["--seed 7" in script for script in nemo_gym_rollouts(**call).scripts] == [True, False]
    assert all("--seed=1" in script for script in nemo_gym_rollouts(**call, server_args="--seed=1").scripts)
    assert not any("--seed 7" in script for script in nemo_gym_rollouts(**call, server_args="--seed=1").scripts)


def test_a_server_on_several_nodes_is_one_as_in_that_pipeline(tmp_path: Path) -> None:
    call: dict[str, Any] = {"config_paths": "a.yaml", "input_file": "x", "output_dir": str(tmp_path), "model": "m"}
    result = nemo_gym_rollouts(**call, server_type="vllm", server_gpus=8, server_nodes=2, dry_run=True)
    assert "--tensor-parallel-size 8 --pipeline-parallel-size 2" in result.scripts[0]


def test_further_options_of_sbatch() -> None:
    assert parse_sbatch_options("comment=x,gpu_bind=none") == ("--comment=x", "--gpu-bind=none")
    assert parse_sbatch_options("--constraint=h100 --nice") == ("--constraint=h100", "--nice")
    assert parse_sbatch_options({"time_min": "1:00"}) == ("--time-min=1:00",)
    assert parse_sbatch_options(None) == ()


# --- across seeds ----------------------------------------------------------------------------------------------------


def seed_run(folder: Path, seed: int, rewards: dict[int, float | None], answers: dict[int, str] | None = None) -> None:
    """A seed's files: a reward for each task, None where there is no score."""
    paths = RunPaths(seed_output(folder, seed))
    keys = [{"_ng_task_index": task, "_ng_rollout_index": 0} for task in rewards]
    rows = [{"responses_create_params": {"input": "x"}, **key} for key in keys]
    paths.materialized_inputs.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    scored = [
        {"reward": reward, **({"extracted_answer": answers[task]} if answers else {}), **key}
        for key, (task, reward) in zip(keys, rewards.items(), strict=True)
        if reward is not None
    ]
    write_jsonl(paths.output, scored)


def test_across_seeds_by_hand(tmp_path: Path) -> None:
    seed_run(tmp_path, 0, {0: 1.0, 1: 0.0, 2: 0.0}, {0: "a", 1: "x", 2: "q"})
    seed_run(tmp_path, 1, {0: 1.0, 1: 1.0, 2: 0.0}, {0: "a", 1: "b", 2: "q"})
    seed_run(tmp_path, 2, {0: 0.0, 1: 0.0, 2: 0.0}, {0: "c", 1: "x", 2: "r"})
    combined = combine_seeds(find_seeds(tmp_path))
    assert [round(estimate.value, 6) for _, estimate in combined.pass_at] == [
        round((2 / 3 + 1 / 3) / 3, 6),
        round((1 + 2 / 3) / 3, 6),
        round(2 / 3, 6),
    ]
    assert combined.majority_at[-1][0] == 3
    assert combined.majority_at[-1][1].value == pytest.approx(1 / 3)  # "a" wins task 0, "x" wins task 1, "q" task 2
    assert combined.voted_by == "extracted_answer"
    assert (combined.tasks, combined.rollouts, combined.missing, combined.k) == (3, 9, 0, 3)
    assert combined.metrics["pass@3/accuracy"] == pytest.approx(100 * 2 / 3)


def test_what_is_missing_is_counted_and_never_a_zero(tmp_path: Path) -> None:
    seed_run(tmp_path, 0, {0: 1.0, 1: 1.0})
    seed_run(tmp_path, 1, {0: 1.0, 1: None})
    combined = combine_seeds(find_seeds(tmp_path))
    assert combined.pass_at[0][1].value == 1.0
    assert (combined.missing, combined.rollouts, combined.voted_by) == (1, 3, "reward")
    assert [one.scored for one in combined.seeds] == [2, 1]


def test_seeds_over_other_tasks_are_refused(tmp_path: Path) -> None:
    seed_run(tmp_path, 0, {0: 1.0})
    seed_run(tmp_path, 1, {0: 1.0, 1: 1.0})
    with pytest.raises(DataError, match="seed 1 has different rollouts from the first seed"):
        combine_seeds(find_seeds(tmp_path))
    with pytest.raises(NotFoundError, match="no seed has started yet"):
        combine_seeds({})
