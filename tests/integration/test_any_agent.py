"""Any agent with any environment: recipes by name, swapped into a run, and matrices of agents and models."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnast.cli.matrix import Cell, CellResult, make_cells, run_matrix
from gymnast.config import compose, read_environ
from gymnast.config.agent_recipes import list_recipes
from gymnast.config.roots import Roots
from gymnast.errors import ConfigError, UserError
from tests.helpers.commands import DEMO_POLICY, Outcome
from tests.helpers.jsonl import example_rows, read_jsonl

COUNTER = "example_session_state_mgmt"
ROWS = f"resources_servers/{COUNTER}/data/example.jsonl"
SHIPPED = {"claude_code", "codex", "openhands", "mini_swe_agent", "pydantic_ai", "langgraph", "smolagents"}
Invoke = Callable[..., Outcome]

PROGRAM = """
import json, os, sys, urllib.request

def send(url, body):
    key = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), key), timeout=60) as reply:
        return json.loads(reply.read() or b"null")

def mcp(method, **params):
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return send(os.environ["GYMNAST_MCP_URL"], request)["result"]

def chat(messages, tools=()):
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, **({"tools": tools} if tools else {})}
    return send(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)["choices"][0]["message"]
"""
LOOP = """
tools = [{"type": "function", "function": {"name": t["name"], "parameters": t["inputSchema"]}}
         for t in mcp("tools/list")["tools"]]
messages = [{"role": "user", "content": sys.stdin.read()}]
while messages[-1]["role"] != "assistant":
    message = chat(messages, tools)
    messages.append(message)
    for call in message.get("tool_calls") or ():
        arguments = json.loads(call["function"]["arguments"])
        output = mcp("tools/call", name=call["function"]["name"], arguments=arguments)["content"][0]["text"]
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
"""


def write_recipe(folder: Path, name: str, body: str = LOOP, **settings: Any) -> None:
    """A recipe in `agents/`, with a program next to it."""
    agents = folder / "agents"
    agents.mkdir(exist_ok=True)
    (agents / f"{name}_program.py").write_text(PROGRAM + textwrap.dedent(body))
    command = ["{python}", f"{{recipe_dir}}/{name}_program.py"]
    recipe = {"description": "a test", "implementation": "command_agent", "settings": {"command": command, **settings}}
    (agents / f"{name}.yaml").write_text(json.dumps(recipe))


def collect(invoke: Invoke, *more: str, output: str = "out/run.jsonl") -> Outcome:
    arguments = ("-e", COUNTER, "-c", DEMO_POLICY, "-i", ROWS, "--limit", "2", "-o", output, "--max-attempts", "1")
    return invoke("gymnast", "collect", *arguments, *more)


def test_a_recipe_replaces_the_harness_without_touching_yaml(invoke: Invoke, tmp_path: Path) -> None:
    write_recipe(tmp_path, "mine", offers_tools=True)
    result = collect(invoke, "--agent", "mine")
    assert result.code == 0, result.err
    records = read_jsonl(tmp_path / "out/run.jsonl")
    assert {record["agent_ref"]["name"] for record in records} == {f"{COUNTER}_mine"}
    assert [record["reward"] for record in sorted(records, key=lambda one: one["_ng_task_index"])][1] == 1.0
    for record in records:
        usage, metrics = record["response"]["usage"], record["ng_model_call_capture"]["metrics"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (metrics["tokens_in"], metrics["tokens_out"])
        turns = sum(item["type"] != "function_call_output" for item in record["response"]["output"])
        assert metrics["num_calls"] == turns


def test_workers_of_a_submitted_run_use_the_recipe(invoke: Invoke, tmp_path: Path) -> None:
    write_recipe(tmp_path, "mine", offers_tools=True)
    chunks = ("--workers", "2", "--chunk-rows", "1", "--executor", "local", "--wait", "--no-profile")
    run = ("-e", COUNTER, "-c", DEMO_POLICY, "-i", ROWS, "--limit", "2", "-o", "out/run.jsonl", *chunks)
    result = invoke("gymnast", "submit", *run, "--agent", "agents/mine.yaml")
    assert result.code == 0, result.err
    records = read_jsonl(tmp_path / "out/run.jsonl")
    assert [record["agent_ref"]["name"] for record in records] == [f"{COUNTER}_mine"] * 2
    assert all(record["ng_model_call_capture"]["metrics"]["num_calls"] for record in records)
    again = invoke("gymnast", "submit", *run, "--agent", "simple_agent", "--resume")
    assert again.code == 2
    assert f"{COUNTER}_mine" in again.err


def test_rows_that_name_the_replaced_agent_run_with_the_recipe(invoke: Invoke, tmp_path: Path) -> None:
    write_recipe(tmp_path, "mine")
    row = {**example_row(), "agent_ref": {"type": "responses_api_agents", "name": f"{COUNTER}_simple_agent"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    result = invoke(
        "gymnast", "collect", "-e", COUNTER, "-c", DEMO_POLICY, "-i", "rows.jsonl", "-o", "o.jsonl", "-a", "mine"
    )
    assert result.code == 0, result.err
    (record,) = read_jsonl(tmp_path / "o.jsonl")
    assert record["agent_ref"] == {"type": "responses_api_agents", "name": f"{COUNTER}_mine"}


def example_row() -> dict[str, Any]:
    row: dict[str, Any] = example_rows(COUNTER)[1]
    return row


def test_an_unknown_agent_lists_what_there_is(invoke: Invoke) -> None:
    result = collect(invoke, "--agent", "claude_cod")
    assert result.code == 2
    assert "no agent 'claude_cod'" in result.err
    assert "claude_code" in result.err


def test_a_program_that_is_not_installed_is_named_with_its_install_command(invoke: Invoke, tmp_path: Path) -> None:
    write_recipe(tmp_path, "gone", command=["no-such-program-here", "-x"], install="npm install -g no-such-program")
    result = collect(invoke, "--agent", "gone")
    assert result.code == 2
    assert "'no-such-program-here'" in result.err
    assert "npm install -g no-such-program" in result.err


def test_a_missing_python_package_is_named_with_its_install_command(invoke: Invoke, tmp_path: Path) -> None:
    write_recipe(tmp_path, "gone", python_packages=["json", "no_such_package"], install="pip install no-such")
    result = collect(invoke, "--agent", "gone")
    assert result.code == 2
    assert "cannot import the package 'no_such_package'" in result.err
    assert "pip install no-such" in result.err


def test_a_program_may_be_named_relative_to_where_gymnast_started(invoke: Invoke, tmp_path: Path) -> None:
    write_recipe(tmp_path, "mine")
    (tmp_path / "tools").mkdir()
    start = tmp_path / "tools" / "start.sh"
    start.write_text(f'#!/bin/sh\nexec "$1" "{tmp_path}/agents/mine_program.py"\n')
    start.chmod(0o755)
    result = collect(invoke, "--agent", "mine", '++agent_settings.command=["tools/start.sh","{python}"]')
    assert result.code == 0, result.err
    start.chmod(0o644)
    result = collect(invoke, "--agent", "mine", '++agent_settings.command=["tools/start.sh"]', output="b.jsonl")
    assert (result.code, "not executable" in result.err) == (2, True)


def test_settings_of_a_recipe_can_be_overridden(invoke: Invoke, tmp_path: Path) -> None:
    write_recipe(tmp_path, "mine")
    config = f"{COUNTER}_mine.responses_api_agents.command_agent"
    result = collect(invoke, "--agent", "mine", "++agent_settings.max_model_calls=1", f"++{config}.model_name=other")
    assert result.code == 0, result.err
    record = read_jsonl(tmp_path / "out/run.jsonl")[0]
    assert record["response"]["incomplete_details"] == {"reason": "max_model_calls"}


@pytest.mark.parametrize(
    ("environment", "rows", "reason"),
    [
        (
            "example_multi_turn_gymnasium",
            "example_multi_turn_gymnasium/data/example",
            "it steps its environment turn by",
        ),
        ("tau2/tau2_retail", "tau2/data/retail", "it plays the user"),
    ],
)
def test_an_agent_that_is_part_of_its_environment_is_not_replaced(
    invoke: Invoke, environment: str, rows: str, reason: str
) -> None:
    """Without a simulated user, every conversation ended after one message and scored 0."""
    told = invoke(
        *("gymnast", "collect", "-e", environment, "-c", DEMO_POLICY, "-o", "o.jsonl"),
        *("-i", f"resources_servers/{rows}.jsonl", "--agent", "simple_agent"),
    )
    assert told.code == 2
    assert reason in told.err


def test_the_replaced_agent_hands_over_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path, "mine")
    override = f"++{COUNTER}_simple_agent.responses_api_agents.simple_agent.verify_timeout_s=7"
    config = compose(
        read_environ(), environments=[COUNTER], config_paths=[DEMO_POLICY], agent="mine", overrides=[override]
    )
    assert config.agent_renames == {f"{COUNTER}_simple_agent": f"{COUNTER}_mine"}
    agent = config.instance(f"{COUNTER}_mine")
    assert agent.settings["verify_timeout_s"] == 7
    assert agent.environments == [f"{COUNTER}_resources_server"]
    assert agent.datasets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "a mapping"),
        ("description: x", "needs 'implementation'"),
        ("{description: x, implementation: command_agent, setings: {}}", "unknown key 'setings'"),
        ("{description: x, implementation: y, settings: {model_server: {}}}", "leave it out"),
        ("{description: x, implementation: y, settings: []}", "must be a mapping"),
        ("a: [", "agents/bad.yaml"),
    ],
)
def test_a_bad_recipe_is_explained(invoke: Invoke, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "bad.yaml").write_text(text)
    result = collect(invoke, "--agent", "bad")
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert invoke("gymnast", "agents").code == 0


def test_the_shipped_recipes_load_and_are_listed(invoke: Invoke, tmp_path: Path) -> None:
    listed = list_recipes(Roots((), tmp_path))
    assert {item.name for item in listed} >= SHIPPED
    for item in listed:
        assert item.problem is None
        config = compose(
            read_environ(), environments=[COUNTER], config_paths=[DEMO_POLICY], search_dirs=[tmp_path], agent=item.name
        ).require_valid()
        assert config.agents == [f"{COUNTER}_{item.name}"]
    entries = {entry["name"]: entry for entry in invoke("gymnast", "agents", "--json").json()}
    assert entries["claude_code"]["install"] == "npm install -g @anthropic-ai/claude-code"
    assert "codex exec" in invoke("gymnast", "agents", "codex").out.replace(", ", " ")


def test_a_recipe_without_an_environment_is_an_error() -> None:
    with pytest.raises((UserError, ConfigError), match="no agent is configured"):
        compose(read_environ(), config_paths=[DEMO_POLICY], agent="codex")


# --- matrices --------------------------------------------------------------------------------------------------------


def test_a_matrix_is_one_run_a_cell_and_one_table(invoke: Invoke, tmp_path: Path) -> None:
    write_recipe(tmp_path, "mine")
    result = collect(invoke, "--agent", "mine,simple_agent", "--model", "org/x,y")
    assert result.code == 0, result.err
    rows = [line for line in result.out.splitlines() if "complete" in line]
    assert len(rows) == 4
    cells = json.loads((tmp_path / "out/run/matrix.json").read_text())["cells"]
    assert [(cell["agent"], cell["model"]) for cell in cells] == [
        *[("mine", "org/x"), ("mine", "y")],
        *[("simple_agent", "org/x"), ("simple_agent", "y")],
    ]
    assert all((tmp_path / cell["output"]).is_file() for cell in cells)
    assert {cell["scored"] for cell in cells} == {2}


def test_a_failed_cell_does_not_end_the_others_and_resume_finishes_it(invoke: Invoke, tmp_path: Path) -> None:
    write_recipe(tmp_path, "mine")
    write_recipe(tmp_path, "broken", "sys.exit('it broke')")
    write_recipe(tmp_path, "gone", command=["no-such-program-here"], install="install it so")
    agents = ("--agent", "broken,gone,mine", "--json")
    result = collect(invoke, *agents)
    assert result.code == 2
    cells = result.json()["cells"]
    assert [cell["state"] for cell in cells] == ["complete", "failed", "complete"]
    assert [cell["exit_code"] for cell in cells] == [1, 2, 0]
    assert cells[0]["failed"] == {"agent_exited": 2}
    assert cells[0]["mean_reward"] is None
    assert "install it so" in cells[1]["error"]
    write_recipe(tmp_path, "gone")
    again = collect(invoke, *agents, "--resume")
    assert again.code == 1, again.err
    assert [cell["scored"] for cell in again.json()["cells"]] == [0, 2, 2]
    assert again.json()["cells"][2]["output_tokens"] == cells[2]["output_tokens"]


def test_a_misspelt_agent_in_a_matrix_ends_it_before_anything_runs(invoke: Invoke, tmp_path: Path) -> None:
    result = collect(invoke, "--agent", "simple_agent,codexx")
    assert (result.code, "codex" in result.err) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("agents", ["a,,b", "simple_agent,simple_agent", ","])
def test_a_matrix_with_odd_names_is_refused(invoke: Invoke, agents: str) -> None:
    assert collect(invoke, "--agent", agents).code == 2


def test_an_interrupted_matrix_lists_what_did_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run_cell(cell: Cell) -> tuple[int, list[CellResult]]:
        if cell.agent == "b":
            raise KeyboardInterrupt
        if cell.agent == "a":
            raise RuntimeError("a bug")
        return 0, [CellResult(agent=cell.agent, model=cell.model, state="complete", exit_code=0)]

    code = run_matrix(make_cells("a,ok,b,c", None), tmp_path, run_cell, as_json=True)
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert code == 130
    assert [cell["state"] for cell in cells] == ["failed", "complete", "not_run", "not_run"]
    assert json.loads((tmp_path / "matrix.json").read_text())["cells"] == cells


def test_cells_with_similar_names_have_their_own_folders() -> None:
    cells = make_cells("x/a.yaml,y/a.yaml,A", "m/1,m:1,../..")
    assert len({cell.folder.lower() for cell in cells}) == 9
    assert not any("/" in cell.folder or cell.folder.startswith(".") for cell in cells)


def test_eval_takes_a_matrix_too(invoke: Invoke, tmp_path: Path) -> None:
    rows = "".join(json.dumps(example_row()) + "\n" for _ in range(2))
    (tmp_path / "tasks.jsonl").write_text(rows)
    write_recipe(tmp_path, "mine")
    result = invoke(
        *("gymnast", "eval", "tasks.jsonl", "-e", COUNTER, "-c", DEMO_POLICY, "-o", "ev", "-n", "1"),
        *("--agent", "mine,simple_agent", "--json", "--max-attempts", "1"),
    )
    assert result.code == 0, result.err
    cells = result.json()["cells"]
    assert [(cell["agent"], cell["benchmark"], cell["scored"]) for cell in cells] == [
        ("mine", "tasks", 2),
        ("simple_agent", "tasks", 2),
    ]
    assert all(cell["metrics"] for cell in cells)


def test_a_misspelt_agent_in_a_matrix_of_benchmarks_ends_it_before_anything_runs(
    invoke: Invoke, tmp_path: Path
) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps(example_row()) + "\n")
    result = invoke(
        *("gymnast", "eval", "tasks.jsonl", "-e", COUNTER, "-c", DEMO_POLICY, "-o", "ev"),
        *("--agent", "simple_agent,codexx"),
    )
    assert (result.code, "codex" in result.err) == (2, True)
    assert not (tmp_path / "ev").exists()
