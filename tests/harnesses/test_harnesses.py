"""Real programs as agents, against a scripted policy: each recipe that is installed solves the task, with exact tokens.

`make test-harnesses` installs them (GYMNAST_HARNESSES is the folder). What is not installed is skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.helpers.command_functions import invoke_command
from tests.helpers.counting_policy import INPUT_TOKENS, OUTPUT_TOKENS
from tests.helpers.jsonl import read_jsonl

INSTALLED = Path(os.environ.get("GYMNAST_HARNESSES", ".venv-harnesses")).absolute()
COUNTER = "example_session_state_mgmt"
ROWS = f"resources_servers/{COUNTER}/data/example.jsonl"
POLICY = """
policy_model:
  responses_api_models:
    scripted_model: {entrypoint: app.py, script: "tests.helpers.counting_policy:answer"}
"""
PROGRAMS = {
    "claude_code": "npm/node_modules/.bin/claude",
    "codex": "npm/node_modules/.bin/codex",
    "openhands": "openhands/bin/openhands",
}
PYTHON = {
    "pydantic_ai": "pydantic_ai",
    "langgraph": "langgraph",
    "smolagents": "smolagents",
    "smolagents_code": "smolagents",
    "mini_swe_agent": "mini_swe_agent",
}
CALLS = 3
"""Two steps of the first task, and the answer."""


def settings_of(agent: str) -> list[str]:
    if agent in PROGRAMS:
        if not (INSTALLED / PROGRAMS[agent]).exists():
            pytest.skip(f"{agent} is not installed in {INSTALLED}")
        return []
    python = INSTALLED / PYTHON[agent] / "bin/python"
    if not python.exists():
        pytest.skip(f"{agent} is not installed in {INSTALLED}")
    return [f"++agent_settings.python={python}"]


def collect(folder: Path, agent: str, *more: str) -> list[dict[str, Any]]:
    (folder / "policy.yaml").write_text(POLICY)
    folders = [str((INSTALLED / program).parent) for program in PROGRAMS.values()]
    path = os.pathsep.join([*folders, os.environ["PATH"]])
    result = invoke_command(
        *(folder, "gymnast", "collect", "-e", COUNTER, "-c", "policy.yaml", "-i", ROWS, "-o", "run.jsonl"),
        *("--agent", agent, "--max-attempts", "1", "++agent_settings.timeout_s=400", *settings_of(agent), *more),
        env={"PATH": path, "HOME": str(folder / "no-such-home")},
    )
    assert result.code == 0, result.err
    return read_jsonl(folder / "run.jsonl")


@pytest.mark.parametrize("agent", [*PROGRAMS, *PYTHON])
def test_a_real_program_solves_the_task_with_exact_tokens(agent: str, tmp_path: Path) -> None:
    (record,) = collect(tmp_path, agent, "--limit", "1")
    assert record["reward"] == 1.0
    assert record["agent_ref"]["name"] == f"{COUNTER}_{agent}"
    usage, capture = record["response"]["usage"], record["ng_model_call_capture"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (CALLS * INPUT_TOKENS, CALLS * OUTPUT_TOKENS)
    assert (capture["metrics"]["num_calls"], capture["metrics"]["failed_calls"]) == (CALLS, 0)
    invocation = record["ng_agent_observations"]["records"][0]
    assert (invocation["exit_code"], invocation["tool_calls"]) == (0, CALLS - 1)
    names = [item["name"] for item in record["response"]["output"] if item["type"] == "function_call"]
    if agent not in {"smolagents_code", "mini_swe_agent"}:
        assert [name for name in names if name != "final_answer"] == ["increment_counter"] * (CALLS - 1)
    assert not [child for child in psutil.Process().children(recursive=True) if child.status() != "zombie"]


@pytest.mark.parametrize("agent", ["claude_code", "codex"])
def test_programs_run_side_by_side(agent: str, tmp_path: Path) -> None:
    records = collect(tmp_path, agent, "--no-preflight", "--concurrency", "3", "--limit", "3")
    assert [record["reward"] for record in records] == [1.0] * 3
