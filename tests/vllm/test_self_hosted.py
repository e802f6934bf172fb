"""The real vLLM as the policy server of a job: started, found, used and ended by the job itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gymnast import nemo_gym_rollouts, wrap_arguments
from gymnast.store.paths import RunPaths
from tests.helpers.jsonl import read_jsonl
from tests.helpers.waiting import eventually
from tests.vllm.conftest import ENV, SERVE, VENV, VLLM

pytestmark = pytest.mark.timeout(900)


def option(name: str, value: object) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag} {value}"


def vllm_processes() -> set[int]:
    """The servers below this process; other tests have some, too."""
    found = set()
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "vllm" in " ".join(one.cmdline()).lower():
                found.add(one.pid)
    return found


async def test_a_job_serves_its_own_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figures: Callable[..., None]
) -> None:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    began, said, before = time.monotonic(), list[str](), vllm_processes()
    result = nemo_gym_rollouts(
        ctx=wrap_arguments("+agent_name=mcqa_simple_agent +responses_create_params.max_output_tokens=16"),
        config_paths=(
            "resources_servers/mcqa/configs/mcqa.yaml,responses_api_models/vllm_model/configs/vllm_model.yaml"
        ),
        input_file="resources_servers/mcqa/data/example.jsonl",
        output_dir=str(tmp_path / "out"),
        model=str(VENV / "models" / "tiny"),
        server_type="vllm",
        server_entrypoint=f"{VLLM} serve",
        server_args=" ".join(["--served-model-name tiny", *(option(*item) for item in SERVE.items())]),
        random_seeds="3",
        server_ready_timeout_s=600,
        on_note=said.append,
    )
    job = result.jobs[0]
    assert job.exit_code == 0, said
    records = read_jsonl(job.output)
    assert job.output.name == "rollouts-rs3.jsonl"
    assert len(records) == 5
    assert all(record["response"]["usage"]["output_tokens"] > 0 for record in records)
    assert RunPaths(job.output).done.exists()
    log = next((tmp_path / "out" / "jobs").glob("*/*/job/logs/policy.0.log")).read_text()
    assert "seed=3" in log or "'seed': 3" in log  # the engine draws with the run's seed
    figures(seconds=round(time.monotonic() - began, 1), rollouts=len(records))
    await eventually(lambda: vllm_processes() <= before)
