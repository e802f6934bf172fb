"""`gym eval submit`: a job file is checked as a whole, its scripts are valid shell, sbatch gets one a benchmark."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymnast.compat.gym_entry import run_gym
from gymnast.compat.job_file import read_job_file
from gymnast.compat.job_script import build_script
from gymnast.config.write_overrides import quote_override
from gymnast.errors import UserError

Said = pytest.CaptureFixture[str]


def job_values(folder: Path) -> dict[str, Any]:
    return {
        "services": {"policy-1": {"type": "vllm", "container": "vllm/vllm", "model": "org/model", "port": 8100}},
        "compute": {"site": {"type": "slurm", "account": "team", "node_pools": {"gpu": {"partition": "batch"}}}},
        "driver": {
            "policy_model": "policy-1",
            "benchmarks": {"gpqa": {"run": {"agent_name": "a b", "responses_create_params": {"temperature": 0.5}}}},
        },
        "job": {"output_path": str(folder / "jobs")},
    }


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return job_values(tmp_path)


def write(values: dict[str, Any]) -> Path:
    Path("job.yaml").write_text(yaml.safe_dump(values))
    return Path("job.yaml")


def script(values: dict[str, Any], *overrides: str) -> str:
    text = build_script(read_job_file(write(values), overrides), "gpqa", "/jobs/gpqa")
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    return text


def run_script(text: str, folder: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run a script with these programs of bash in front of the real ones."""
    for name, source in programs.items():
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/bash\n{source}\n")
        program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(["bash"], input=text, text=True, capture_output=True, check=False, env=environ, cwd=folder)


def test_a_script_starts_the_services_waits_for_them_and_runs_the_benchmark(values: dict[str, Any]) -> None:
    lines = script(values).splitlines()
    assert lines[0] == "#!/bin/bash"
    for line in ("--job-name=gym-gpqa", "--account=team", "--chdir=/jobs/gpqa", "--partition=batch", "--nodes=1"):
        assert f"#SBATCH {line}" in lines
    start = next(line for line in lines if "vllm serve" in line)
    assert "--container-image=vllm/vllm --output=logs/policy-1.log vllm serve org/model --port 8100" in start
    assert "for _i in $(seq 1 12); do" in lines
    assert any("curl -sf http://localhost:8100/health" in line for line in lines)
    assert shlex.split(next(line for line in lines if "agent_name" in line)) == ["+agent_name='a b'"]
    assert "    +responses_create_params.temperature=0.5" in lines
    assert "    +policy_base_url=http://localhost:8100/v1" in lines
    assert lines[-1].endswith('--container-image=python:3.12 --output=logs/driver.log "${GYM_CMD[@]}"')


def test_texts_with_quotes_reach_the_commands_as_they_are(values: dict[str, Any], tmp_path: Path) -> None:
    """The driver's step, with `srun` and `gym` that print what they get."""
    odd = """it's "odd" $HOME `x`"""
    values["driver"]["benchmarks"]["gpqa"] = {"prepare": {"name": odd}, "run": {"name": odd}}
    values["driver"]["env"] = {"WORD": odd}
    del values["driver"]["policy_model"], values["services"]["policy-1"]
    text = script(values)
    skip_options = 'while [[ $1 == --* ]]; do shift; done\nexec "$@"'
    done = run_script(text, tmp_path, srun=skip_options, gym='printf "%s\\n" "$WORD" "$@"')
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        odd, "eval", "prepare", f"+name={quote_override(odd)}",
        odd, "eval", "run", "+output_jsonl_fpath=artifacts/rollouts.jsonl", f"+name={quote_override(odd)}",
    ]  # fmt: skip


@pytest.mark.parametrize("timeout_s", [1, 60])
def test_a_service_may_have_any_name(values: dict[str, Any], tmp_path: Path, timeout_s: int) -> None:
    """Names that differ only in signs have variables of their own, and a name is no command."""
    odd = "1 b$(touch odd)"
    ray = {"type": "ray", "container": "ray"}
    check = {"path": "/", "port": 9, "timeout_seconds": timeout_s}
    values["services"] = {"1-b": ray, "1_b": ray, odd: {**ray, "health_check": check}}
    del values["driver"]["policy_model"]
    text = script(values)
    assert len(set(re.findall(r"^\w+_PID=", text, re.MULTILINE))) == 3
    done = run_script(text, tmp_path, srun="exit 1", curl="exit 7")
    assert done.returncode == 1
    assert f"ERROR: {odd} " in done.stderr
    assert not (tmp_path / "odd").exists()


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("services.policy-1.placement", "elsewhere", "which compute does not define"),
        ("services.policy-1.number_of_instances", 0, "greater than or equal to 1"),
        ("services.policy-1.tensor_parallel_size", 16, "needs 16 GPUs"),
        ("services.policy-1.typo", 1, "Extra inputs"),
        ("services.ray", {"type": "ray", "container": "ray", "health_check": {"path": "/"}}, "needs a port"),
        ("services.policy-1.container", "a\nb", "expected a single line"),
        ("services.policy-1.env", {"A B": "x"}, "environment variable"),
        ("compute.second", {"type": "slurm", "account": "x"}, "expected one cluster"),
        ("driver.policy_model", "other", "the services are policy-1"),
        ("driver.benchmarks.gpqa.run.policy_api_key", "x", "and so does policy_model"),
        ("driver.gym_install", {"ref": "main"}, "driver.gym_install.repo"),
        ("driver.benchmarks", {"../x": {}}, "name of a folder"),
    ],
)
def test_a_job_file_that_cannot_work_is_refused(values: dict[str, Any], path: str, value: Any, text: str) -> None:
    values["compute"]["site"]["node_pools"]["gpu"]["gpus_per_node"] = 8
    *parents, key = path.split(".")
    node = values
    for step in parents:
        node = node[step]
    node[key] = value
    with pytest.raises(UserError, match=text):
        read_job_file(write(values), ())


def test_overrides_and_warnings(values: dict[str, Any]) -> None:
    job = read_job_file(
        write(values), ["++services.policy-1.model=other", "compute.site.node_pools.gpu.gpus_per_node=8"]
    )
    assert "vllm serve other " in build_script(job, "gpqa", "/x")
    assert list(job.warnings) == ["service 'policy-1' uses 1 of 8 GPUs of a node"]


def test_jobs_are_submitted_from_their_own_folders(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    values["driver"]["benchmarks"]["aime24"] = {}
    write(values)
    assert run_gym(["eval", "submit", "-c", "job.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().out.count("#!/bin/bash") == 2
    assert not (tmp_path / "jobs").exists()
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/sh\necho "$1" >> "$0.log"\necho "Submitted batch job 17"\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run_gym(["eval", "submit", "--config", "job.yaml"]) == 0
    assert capsys.readouterr().out.count("Slurm job 17") == 2
    scripts = [Path(line) for line in (tmp_path / "sbatch.log").read_text().splitlines()]
    assert [path.parent.name for path in scripts] == ["aime24", "gpqa"]
    for path in scripts:
        assert path.read_text().startswith("#!/bin/bash")
        assert {each.name for each in path.parent.iterdir()} == {"job.sh", "logs", "artifacts"}


def test_a_mount_that_does_not_exist_is_reported_before_anything_is_written(
    values: dict[str, Any], tmp_path: Path, capsys: Said
) -> None:
    values["driver"]["mounts"] = [f"{tmp_path}:/here", f"{tmp_path}/nope:/data:ro"]
    write(values)
    assert run_gym(["eval", "submit", "--config", "job.yaml"]) == 1
    assert f"driver: {tmp_path}/nope" in capsys.readouterr().err
    assert not (tmp_path / "jobs").exists()
    assert run_gym(["eval", "submit"]) == 2
