"""The recipes for verl: verl takes their settings, and Gymnast knows what they name."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.utils.import_utils import load_class_from_fqn

from gymnast.config import compose as compose_gymnast
from gymnast.config import read_environ
from gymnast.train.verl_settings import model_overrides, read_settings, window_of

RECIPES = Path(__file__).parents[2] / "recipes" / "verl"
ENVIRONMENTS_OF: dict[str, list[str]] = {
    path.stem: yaml.safe_load(path.read_text())["gymnast"]["environments"]
    for path in RECIPES.glob("*.yaml")
    if path.stem != "gymnast_base"
}


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS_OF))
def test_verl_and_gymnast_know_what_a_recipe_says(name: str, policy_folder: Path) -> None:
    with initialize_config_dir(config_dir=str(RECIPES), version_base=None):
        config = compose(
            name, overrides=[f"actor_rollout_ref.model.path={policy_folder}", "data.train_files=[a.jsonl]"]
        )
    rollout = config.actor_rollout_ref.rollout
    assert load_class_from_fqn(rollout.agent.agent_loop_manager_class).__name__ == "GymnastQueueManager"
    assert config.trainer.use_v1
    assert config.data.custom_cls.name == "GymnastDataset"
    section: Any = OmegaConf.to_container(config.gymnast)
    settings = read_settings(section)
    assert settings.batch.row_timeout_s == 1800
    assert window_of(rollout) == config.data.max_prompt_length + config.data.max_response_length
    overrides = model_overrides(settings, str(policy_folder), rollout, "key")
    assert "++policy_model.responses_api_models.vllm_model.logprobs_mode=processed" in overrides
    found = compose_gymnast(
        read_environ(),
        environments=settings.environments,
        overrides=overrides,
        model_type="vllm_model",
        model="policy",
        model_url="http://127.0.0.1:1/v1",
    )
    found.require_valid()


def test_job_scripts_are_shell() -> None:
    for script in sorted(RECIPES.glob("*.sh")):
        subprocess.run(["bash", "-n", str(script)], check=True)


def test_every_recipe_has_its_script() -> None:
    assert len(ENVIRONMENTS_OF) >= 10
    for name in ENVIRONMENTS_OF:
        assert f'launch.sh" {name} ' in (RECIPES / f"{name}.sh").read_text()
