"""Tools that are never offered: which tools a run offers, what is warned about, and what a resumed run does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gymnast.checks.environment import check_environment
from gymnast.config import Config, compose, read_environ
from gymnast.rollouts.identity import comparable_settings
from gymnast.rollouts.options import RunOptions, run_options
from gymnast.rollouts.prepare import PreparedRun, prepare_run
from gymnast.rollouts.servers import reachable_instances
from gymnast.rollouts.tool_modes import environment_tools, offer_row_tools, restore_tool_modes, tool_modes
from gymnast.store.lock import RunLock
from gymnast.store.manifest import read_manifest, write_manifest
from tests.helpers.jsonl import write_jsonl

APP = '''
from gymnast.kit import Environment, Task, tool

class EchoTask(Task):
    word: str

class Echo(Environment[EchoTask, None]):
    @tool
    async def shout(self, text: str) -> str:
        """Say it louder."""
        return text.upper()

    async def verify(self, attempt):
        return 1.0 if attempt.task.word.upper() in attempt.text else 0.0
'''
CONFIG = """
echo:
  resources_servers:
    echo: {entrypoint: app.py, domain: other}
echo_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: echo}
      model_server: {type: responses_api_models, name: policy_model}
"""
ROW: dict[str, Any] = {"responses_create_params": {"input": "Shout the word tree."}, "word": "tree"}
REFUSING = {**ROW, "responses_create_params": {"input": "x", "tools": []}}


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "resources_servers" / "echo"
    (folder / "configs").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "app.py").write_text(APP)
    (folder / "configs" / "echo.yaml").write_text(CONFIG)
    write_jsonl(folder / "data" / "example.jsonl", [ROW])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(*overrides: str) -> Config:
    config = compose(read_environ({}), environments=["echo"], model_type="scripted_model", overrides=overrides)
    return config.require_valid()


def prepare(config: Config, options: RunOptions) -> PreparedRun:
    with RunLock(options.paths.lock):
        return prepare_run(options, config.agents, lambda names: reachable_instances(config, names))


def options_for(config: Config, rows: list[Any], folder: Path, **changes: Any) -> RunOptions:
    write_jsonl(folder / "rows.jsonl", rows)
    return replace(run_options(config, source=folder / "rows.jsonl", output=folder / "out.jsonl"), **changes)


def test_a_run_whose_rows_say_nothing_offers_the_environments_tools_and_is_silent(echo: Path) -> None:
    config = load()
    prepared = prepare(config, options_for(config, [ROW], echo))
    assert prepared.warnings == []
    assert tool_modes(prepared.instances) == {"echo_simple_agent": "auto"}
    assert environment_tools(config.instance("echo")) == ["shout"]


def test_a_run_that_offers_no_tools_of_an_environment_is_warned_about_before_it_starts(echo: Path) -> None:
    config = load()
    (warning,) = prepare(config, options_for(config, [REFUSING], echo)).warnings
    assert "'echo' has tools (shout), but none is offered to the model: every row has `tools: []`" in warning


def test_the_ng_commands_offer_what_rows_declare_and_say_what_differs(echo: Path) -> None:
    config = offer_row_tools(load())
    (warning,) = prepare(config, options_for(config, [ROW], echo)).warnings
    assert "the rows declare none" in warning
    assert "`gymnast collect`" in warning
    configured = offer_row_tools(load("++echo_simple_agent.responses_api_agents.simple_agent.tools=auto"))
    assert tool_modes(configured.instances.values()) == {"echo_simple_agent": "auto"}


def test_one_row_that_offers_tools_is_enough(echo: Path) -> None:
    config = load()
    assert prepare(config, options_for(config, [REFUSING, ROW], echo)).warnings == []


def test_a_run_from_before_the_setting_resumes_and_offers_what_it_offered(echo: Path) -> None:
    config = load()
    options = options_for(config, [ROW], echo)
    paths = prepare(config, options).paths
    manifest = read_manifest(paths.manifest)
    assert manifest is not None
    del manifest.settings["plan"]["tools"]
    write_manifest(paths.manifest, manifest)
    resumed = prepare(config, replace(options, existing="resume"))
    assert tool_modes(resumed.instances) == {"echo_simple_agent": "row"}
    again = prepare(config, replace(options, existing="resume"))  # and once more
    assert tool_modes(again.instances) == {"echo_simple_agent": "row"}


def test_a_run_resumed_with_other_tools_is_refused(echo: Path) -> None:
    config = load()
    options = options_for(config, [ROW], echo)
    prepare(config, options)
    other = load("++echo_simple_agent.responses_api_agents.simple_agent.tools=row")
    with pytest.raises(Exception, match=r'plan\.tools\.echo_simple_agent: "auto" -> "row"'):
        prepare(other, replace(options, existing="resume"))
    assert prepare(config, replace(options, existing="resume")).warnings == []


def test_settings_of_older_runs_compare_equal(echo: Path) -> None:
    instances = list(load().instances.values())
    new = comparable_settings(instances, RunOptions())
    old = msgspec.json.decode(msgspec.json.encode(new))
    del old["plan"]["tools"]
    started = restore_tool_modes(instances, old)
    assert {name: value for name, value in comparable_settings(started, RunOptions()).items() if name != "plan"} == {
        name: value for name, value in old.items() if name != "plan"
    }


async def test_check_env_passes_on_the_readmes_environment(echo: Path) -> None:
    result = await check_environment("echo")
    assert result.ok, result
    assert "no verifier cases" in (result.result("cases").skipped or "")
    assert result.result("tools").ok
