"""Configurations and rows of NeMo Gym 0.7: relays before agents, and rows that name an instance instead of an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.config import Config, compose, read_environ
from gymnast.config.known_keys import RUN_KEYS
from gymnast.data.datasets import configured_datasets
from gymnast.errors import NotFoundError, UserError
from gymnast.rollouts.options import read_agent_map
from gymnast.rollouts.splits import write_split
from tests.helpers.jsonl import read_jsonl

RELAY = """
mcqa_environment_server:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {type: responses_api_agents, name: mcqa_simple_agent}
"""
SECOND_AGENT = """
second:
  _copy: mcqa_simple_agent
"""
DATASET = """
mcqa:
  resources_servers:
    mcqa:
      datasets: [{name: mine, type: example, jsonl_fpath: rows.jsonl}]
"""


def load(folder: Path, text: str, *overrides: str) -> Config:
    (folder / "more.yaml").write_text(text)
    return compose(
        read_environ({}),
        overrides=overrides,
        environments=("mcqa",),
        config_paths=[str(folder / "more.yaml")],
        model_type="scripted_model",
        command_keys=RUN_KEYS,
    )


def test_a_relay_before_an_agent_is_read_and_its_agent_runs_the_rows(tmp_path: Path) -> None:
    config = load(tmp_path, RELAY).require_valid()
    assert "mcqa_environment_server" not in config.instances
    assert config.task_agents == {
        "mcqa": ("mcqa_simple_agent",),
        "mcqa_simple_agent": ("mcqa_simple_agent",),
        "mcqa_environment_server": ("mcqa_simple_agent",),
    }


def test_an_environment_server_that_is_not_a_relay_is_refused(tmp_path: Path) -> None:
    config = load(tmp_path, RELAY.replace("legacy_agent", "single_agent_turn"))
    assert "Gymnast does not run the environment server 'single_agent_turn'" in str(config.problems[0])
    assert len(config.problems) == 1


def test_tasks_of_an_environment_that_several_agents_use(tmp_path: Path) -> None:
    config = load(tmp_path, SECOND_AGENT).require_valid()
    assert config.task_agents["mcqa"] == ("mcqa_simple_agent", "second")
    with pytest.raises(NotFoundError, match="several agents use 'mcqa': mcqa_simple_agent, second"):
        config.agent_of("mcqa")


@pytest.mark.parametrize(("pin", "agent"), [("", "mcqa_simple_agent"), (", agent: second", "second")])
def test_datasets_of_an_environment_go_to_its_agent(tmp_path: Path, pin: str, agent: str) -> None:
    dataset = DATASET.replace("rows.jsonl", f"{tmp_path}/rows.jsonl{pin}")
    (tmp_path / "rows.jsonl").write_text('{"responses_create_params": {"input": "q"}}\n')
    config = load(
        tmp_path,
        dataset + (SECOND_AGENT if pin else ""),
        "++mcqa_simple_agent.responses_api_agents.simple_agent.datasets=[]",
    )
    assert [dataset.agent for dataset in configured_datasets(config.require_valid(), ["example"])][:1] == [agent]
    rows = read_jsonl(write_split(config, "example", tmp_path / "out.jsonl"))
    assert rows[0]["agent_ref"]["name"] == agent


def test_an_agent_map_is_a_mapping_of_names(tmp_path: Path) -> None:
    config = load(tmp_path, "{}", "+agent_map={mcqa: mcqa_simple_agent}")
    assert read_agent_map(config.require_valid()) == {"mcqa": "mcqa_simple_agent"}
    with pytest.raises(UserError, match="agent_map must be a mapping of names to agents"):
        read_agent_map(load(tmp_path, "agent_map: mcqa"))
