"""One dataset that mixes all shipped environments by `agent_ref`, collected by one command: every reward is known.

GYMNAST_MIXED_ROLLOUTS says how many rollouts at least (2,000 is what a release is held to). The environment `verifiers`
takes part where its package is installed, or is allowed to be (GYMNAST_TEST_VERIFIERS).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from gymnast.config.roots import BUILTIN
from gymnast.runtime.venvs import unmet_requirements
from tests.helpers.commands import run_command
from tests.helpers.jsonl import read_jsonl, write_jsonl
from tests.helpers.mixed_policy import playable

ROOT = Path(__file__).parents[2]
SCRIPT = "++policy_model.responses_api_models.scripted_model.script=tests.helpers.mixed_policy:answer"


def agent_of(environment: str) -> str:
    name, _, flavor = environment.partition("/")
    config: dict[str, Any] = yaml.safe_load(
        (BUILTIN / "resources_servers" / name / "configs" / f"{flavor}.yaml").read_text()
    )
    return next(instance for instance, block in config.items() if "responses_api_agents" in block)


def takes_part(environment: str) -> bool:
    name = environment.partition("/")[0]
    if name in {"genrm_compare", "multichallenge"}:  # their judges answer in other words than the mixed policy's
        return False
    folder = BUILTIN / "resources_servers" / name
    return not unmet_requirements(folder) or "GYMNAST_TEST_VERIFIERS" in os.environ


def row_of(key: str, environment: str, case: dict[str, Any]) -> dict[str, Any]:
    request = {name: value for name, value in case["request"].items() if name != "response"}
    params = {**request["responses_create_params"], "metadata": {"case": key}}
    return {**request, "responses_create_params": params, "agent_ref": {"name": agent_of(environment)}}


def test_all_environments_in_one_run(tmp_path: Path) -> None:
    cases = [(key, name, case) for key, (name, case) in playable().items() if takes_part(name)]
    environments = sorted({name for _, name, _ in cases})
    wanted = int(os.environ.get("GYMNAST_MIXED_ROLLOUTS", "0"))
    repeats = max(2, -(-wanted // len(cases)))
    write_jsonl(tmp_path / "mixed.jsonl", [row_of(*case) for case in cases])
    done = run_command(
        tmp_path,
        "gymnast",
        *("collect", "-i", "mixed.jsonl", "-o", "out.jsonl", "-n", str(repeats), "--model-type", "scripted_model"),
        *(word for name in environments for word in ("-e", name)),
        SCRIPT,
        env={"PYTHONPATH": str(ROOT)},
        timeout_s=900,
    )
    assert done.code == 0, done.err
    records = read_jsonl(tmp_path / "out.jsonl")
    rewards: dict[str, set[float]] = {}
    for record in records:
        key = record["responses_create_params"]["metadata"]["case"]
        rewards.setdefault(key, set()).add(record["reward"])
    assert rewards == {key: {case["expected_reward"]} for key, _, case in cases}
    assert len(records) == len(cases) * repeats >= wanted
    failures = tmp_path / "out_failures.jsonl"
    assert not failures.exists() or not failures.read_bytes()
