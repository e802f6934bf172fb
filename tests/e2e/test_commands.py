"""The command line as users type it: demo, collect, config, the ng_ commands, and how things go wrong."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.commands import BIN, DEMO_POLICY, Outcome, Served
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl

Run = Callable[..., Outcome]
Serve = Callable[..., Served]
MCQA_DATA = "resources_servers/mcqa/data/example.jsonl"
MCQA = ("-e", "mcqa", "-c", DEMO_POLICY)
COLLECT = ("collect", *MCQA, "-i", MCQA_DATA, "-o", "x.jsonl")


def keys(path: Path) -> list[tuple[int, int]]:
    return sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in read_jsonl(path))


# --- the demo and collect --------------------------------------------------------------------------------------------


def test_the_demo_collects_with_the_policy_that_ships(run: Run, tmp_path: Path) -> None:
    first = run("gymnast", "demo", "--tasks-per-level", "1", "-n", "4")
    assert first.code == 0, first.err
    output = tmp_path / "demo" / "rollouts.jsonl"
    rollouts = read_jsonl(output)
    assert len(rollouts) == 4 * 6 * 4
    by_agent: dict[str, list[float]] = {}
    for row in rollouts:
        by_agent.setdefault(row["agent_ref"]["name"], []).append(row["reward"])
    assert len(by_agent) == 4
    assert all(name in first.out for name in by_agent)
    assert all(0.2 < sum(rewards) / len(rewards) < 0.95 for rewards in by_agent.values())
    assert "pass@4" in first.out
    for made in ("tasks.jsonl", "rollouts.jsonl", "rollouts_reward_profiling.jsonl", "report.html"):
        assert f"demo/{made}" in first.out
        assert (tmp_path / "demo" / made).is_file()
    audited = run("gymnast", "tokens", "audit", str(output))
    assert audited.code == 0, audited.out
    assert ".md" not in first.out  # pages are in a clone, not in a wheel
    run("gymnast", "demo", "--tasks-per-level", "1", "-n", "4")  # seeded: the same tokens again
    assert sampled(read_jsonl(output)) == sampled(rollouts)


def test_the_next_command_of_the_demo_runs_as_printed(run: Run, serve: Serve, tmp_path: Path) -> None:
    shown = run("gymnast", "demo", "--tasks-per-level", "1", "-n", "1", "--output-dir", "a demo").out
    (following,) = [line for line in shown.splitlines() if line.startswith("next ")]
    command, *arguments = shlex.split(following.removeprefix("next").partition("  (")[0])
    policy = serve("-c", DEMO_POLICY).url("policy_model")
    values = {"URL": f"{policy}/v1", "MODEL": "demo"}
    done = run(command, *(values.get(word, word) for word in arguments), "--limit", "1")
    assert done.code == 0, done.err
    assert len(read_jsonl(tmp_path / "rollouts.jsonl")) == 1


def sampled(rollouts: list[dict[str, Any]]) -> dict[tuple[int, int], list[list[int]]]:
    return {
        (row["_ng_task_index"], row["_ng_rollout_index"]): [
            call["sampled"] for call in row["_ng_token_ledger"]["calls"]
        ]
        for row in rollouts
    }


def test_collect_writes_what_it_promises(run: Run, tmp_path: Path) -> None:
    done = run("gymnast", *COLLECT, "-n", "3", "--temperature", "0.5", "--limit", "4")
    assert done.code == 0, done.err
    wanted = [(task, rollout) for task in range(4) for rollout in range(3)]
    assert keys(tmp_path / "x.jsonl") == keys(tmp_path / "x_materialized_inputs.jsonl") == wanted
    assert (tmp_path / "x_failures.jsonl").read_text() == ""
    row = read_jsonl(tmp_path / "x_materialized_inputs.jsonl")[0]
    assert row["responses_create_params"]["temperature"] == 0.5
    assert row["agent_ref"] == {"name": "mcqa_simple_agent"}  # the only agent there is
    assert not (tmp_path / "x_logs").exists()


def test_an_earlier_run_is_never_overwritten_by_accident(run: Run, tmp_path: Path) -> None:
    assert run("gymnast", *COLLECT).code == 0
    before = (tmp_path / "x.jsonl").read_bytes()
    refused = run("gymnast", *COLLECT)
    assert refused.code == 2
    assert "an earlier run exists: x.jsonl" in refused.err
    assert "--overwrite" in refused.err
    assert (tmp_path / "x.jsonl").read_bytes() == before
    assert run("gymnast", *COLLECT, "--overwrite", "--limit", "2").code == 0
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 2


def test_json_output_is_events_and_nothing_else(run: Run) -> None:
    done = run("gymnast", *COLLECT, "--json")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [event["type"] for event in events] == ["run_started", *["rollout_scored"] * 5, "run_finished"]
    assert events[-1]["scored"] == events[0]["requested"] == 5


def test_failures_are_recorded_explained_and_exit_1(run: Run, tmp_path: Path) -> None:
    script = [
        {"when": "capital", "replies": [{"status": 400, "body": {"error": "bad grammar"}}]},
        {"replies": ["\\boxed{A}"]},
    ]
    (tmp_path / "script.json").write_text(json.dumps(script))
    scripted = ("-c", "responses_api_models/scripted_model/configs/scripted_model.yaml")
    override = "++policy_model.responses_api_models.scripted_model.script=script.json"
    done = run("gymnast", "collect", "-e", "mcqa", *scripted, override, "-i", MCQA_DATA, "-o", "x.jsonl")
    assert done.code == 1
    assert "4 of 5 rollouts were scored" in done.err
    assert "1 × model_rejected (layer data_schema)" in done.err
    assert "Traceback" not in done.err
    failure = read_jsonl(tmp_path / "x_failures.jsonl")[0]
    assert failure["failure"]["body"] == '{"error":"bad grammar"}'
    assert failure["failure"]["chain"] == ["policy_model/v1/responses 400", "mcqa_simple_agent/run 500"]
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 4


def test_rows_that_an_environment_would_refuse_are_reported_before_the_first_call(run: Run, tmp_path: Path) -> None:
    rows = example_rows("mcqa")
    rows[2]["grading_mode"] = "no_such_mode"
    write_jsonl(tmp_path / "in.jsonl", rows)
    refused = run("gymnast", "collect", *MCQA, "-i", "in.jsonl", "-o", "x.jsonl")
    assert refused.code == 2
    assert "line 3: the row does not fit 'mcqa': 'grading_mode'" in refused.err
    assert not (tmp_path / "x.jsonl").exists()
    done = run("gymnast", "collect", *MCQA, "-i", "in.jsonl", "-o", "x.jsonl", "--skip-bad-rows")
    assert done.code == 1
    (failure,) = read_jsonl(tmp_path / "x_failures.jsonl")
    assert failure["_ng_task_index"] == 2
    assert failure["failure"]["kind"] == "bad_row"
    assert len(read_jsonl(tmp_path / "x.jsonl")) == len(rows) - 1


def test_a_verifier_that_refuses_rows_fails_those_rows_only(run: Run, tmp_path: Path) -> None:
    rows = example_rows("mcqa")
    rows[2]["grading_mode"] = "no_such_mode"
    write_jsonl(tmp_path / "in.jsonl", rows)
    done = run(
        "ng_collect_rollouts",
        f"+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,{DEMO_POLICY}]",
        "+agent_name=mcqa_simple_agent",
        "+input_jsonl_fpath=in.jsonl",
        "+output_jsonl_fpath=x.jsonl",
    )
    assert done.code == 1
    failure = read_jsonl(tmp_path / "x_failures.jsonl")[0]
    assert failure["_ng_task_index"] == 2
    assert (failure["failure"]["kind"], failure["failure"]["layer"]) == ("seed_rejected", "data_schema")
    assert "grading_mode" in failure["failure"]["body"]


def test_a_crashing_environment_leaves_its_traceback_in_the_log(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "resources_servers" / "shaky"
    home.mkdir(parents=True)
    (home / "app.py").write_text(
        "from gymnast.kit import Environment, Task\n\nclass Shaky(Environment[Task, None]):\n"
        "    async def verify(self, attempt):\n        raise LookupError('lost it')\n"
    )
    ref = {"resources_server": {"type": "resources_servers", "name": "shaky"}}
    model = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
    agent = {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py", **ref, **model}}}
    server = {"resources_servers": {"shaky": {"entrypoint": "app.py", "domain": "other"}}}
    (tmp_path / "shaky.yaml").write_text(yaml.safe_dump({"shaky": server, "agent": agent}))
    write_jsonl(tmp_path / "in.jsonl", [{"responses_create_params": {"input": "x"}}])
    done = run("gymnast", "collect", "-c", "shaky.yaml", "-c", DEMO_POLICY, "-i", "in.jsonl", "-o", "x.jsonl")
    assert done.code == 1
    assert "Traceback" not in done.err
    failure = read_jsonl(tmp_path / "x_failures.jsonl")[0]["failure"]
    assert (failure["kind"], failure["stage"], failure["body"]) == (
        "verifier_error",
        "verify",
        "LookupError('lost it')",
    )
    log = (tmp_path / "x_logs" / "shaky.log").read_text()
    assert "Traceback" in log
    assert "lost it" in log


def test_request_boundary_lines_on_request(run: Run) -> None:
    done = run("gymnast", *COLLECT, "++global_aiohttp_client_request_debug=True", "--limit", "1")
    lines = [line for line in done.err.splitlines() if line.startswith("[request-boundary]")]
    assert [line.split("to=")[1].split(" at=")[0] for line in lines] == [
        "mcqa GET /tools",
        "mcqa POST /seed_session",
        "policy_model POST /v1/responses",
        "mcqa POST /verify",
        "mcqa_simple_agent POST /run",
    ]
    assert all("rollout=0-0" in line for line in lines[1:])  # the agent asks for tools once, for all rollouts
    assert all("status=200" in line for line in lines)
    assert "[request-boundary]" not in run("gymnast", *COLLECT, "--overwrite").err


@pytest.mark.usefixtures("own_registry")
def test_collect_through_a_running_serve(run: Run, serve: Serve, tmp_path: Path) -> None:
    serve(*MCQA)
    done = run(
        "gymnast", "collect", "--no-serve", "-a", "mcqa_simple_agent", "-i", MCQA_DATA, "-o", "x.jsonl", "-n", "2"
    )
    assert done.code == 0, done.err
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 10
    wrong = run("gymnast", "collect", "--no-serve", "-a", "mcqa_agent", "-i", MCQA_DATA, "-o", "y.jsonl")
    assert wrong.code == 2
    assert "did you mean 'mcqa_simple_agent'" in wrong.err


def test_a_policy_served_by_us_is_an_endpoint_like_any_other(run: Run, serve: Serve, tmp_path: Path) -> None:
    url = serve("-c", DEMO_POLICY).url("policy_model") + "/v1"
    write_mixed(tmp_path)
    for model_type in ("vllm_model", "openai_model"):
        done = run(
            *("gymnast", "collect", "-e", "mcqa", "-e", "example_multi_step", "--model-type", model_type, "-m", "demo"),
            *("--model-url", url, "-i", "tasks.jsonl", "-o", f"{model_type}.jsonl"),
        )
        assert done.code == 0, done.err
        assert len(read_jsonl(tmp_path / f"{model_type}.jsonl")) == 10


def write_mixed(folder: Path) -> Path:
    rows = [{**row, "agent_ref": {"name": "mcqa_simple_agent"}} for row in example_rows("mcqa")]
    rows += [
        {**row, "agent_ref": {"name": "example_multi_step_simple_agent"}} for row in example_rows("example_multi_step")
    ]
    return write_jsonl(folder / "tasks.jsonl", rows)


def test_collect_with_an_environment_in_a_child(run: Run, tmp_path: Path) -> None:
    done = run("gymnast", *COLLECT, "++mcqa.resources_servers.mcqa.runs_in=child")
    assert done.code == 0, done.err
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 5


def test_ctrl_c_ends_a_collection_with_130_and_keeps_what_was_scored(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps([{"text": "\\boxed{B}", "latency_s": 0.3}]))
    command = [
        *(
            str(BIN / "gymnast"),
            "collect",
            "-e",
            "mcqa",
            "-i",
            MCQA_DATA,
            "-o",
            "x.jsonl",
            "-n",
            "50",
            "--concurrency",
            "2",
        ),
        *("-c", "responses_api_models/scripted_model/configs/scripted_model.yaml"),
        "++policy_model.responses_api_models.scripted_model.script=script.json",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not ((tmp_path / "x.jsonl").exists() and (tmp_path / "x.jsonl").read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert len(read_jsonl(tmp_path / "x.jsonl")) >= 2


# --- what goes wrong is explained ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("collect", "-e", "mcqa", "-c", DEMO_POLICY, "-i", "nope.jsonl", "-o", "x.jsonl"),
            2,
            "'nope.jsonl' does not exist",
        ),
        (("collect", "-e", "mcqq", "-i", MCQA_DATA, "-o", "x.jsonl"), 2, "did you mean 'resources_servers/mcqa"),
        (("collect", "-e", "mcqa", "-i", MCQA_DATA, "-o", "x.jsonl"), 2, "no model is configured as the policy"),
        (
            ("collect", *MCQA, "-a", "mcqa_agent", "-i", MCQA_DATA, "-o", "x.jsonl"),
            2,
            "did you mean 'mcqa_simple_agent'",
        ),
        (("collect", "--inptu", "x"), 2, "--input"),
        (("collect", *MCQA, "-i", MCQA_DATA, "-o", "x.jsonl", "-n", "0"), 2, "--num-repeats"),
        (("colect",), 2, "colect"),
        (
            ("config", "validate", "-e", "mcqa", "++mcqa.resources_servers.mcqa.grading_mod=x"),
            2,
            "did you mean 'grading_mode'",
        ),
        (("config", "validate"), 2, "no instances"),
        (("config", "explain", "policy_bas_url", "+policy_base_url=x"), 2, "did you mean 'policy_base_url'"),
        (("serve",), 2, "no instances to serve"),
        (("serve", *MCQA, "--head-port", "many"), 2, "a number or 'auto'"),
        (("status", "--head", "http://127.0.0.1:9"), 2, "no head server answers at http://127.0.0.1:9"),
    ],
)
def test_mistakes_are_explained_without_a_traceback(run: Run, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = run("gymnast", *arguments)
    assert done.code == code
    assert said in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_bad_yaml_names_file_line_and_column(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: 1\nb: [1, 2\nc: 3\n")
    done = run("gymnast", "collect", "-c", "bad.yaml", "-i", "x", "-o", "y.jsonl")
    assert done.code == 2
    assert "bad.yaml:3:" in done.err


def test_bad_rows_are_all_named_before_anything_is_spent(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"broken\n\n{"responses_create_params": {"input": 1}}\n')
    done = run("gymnast", "collect", *MCQA, "-i", "in.jsonl", "-o", "x.jsonl")
    assert done.code == 2
    assert all(f"line {number}:" in done.err for number in (1, 2, 3))
    assert not (tmp_path / "x.jsonl").exists()
    assert not (tmp_path / "x_materialized_inputs.jsonl").exists()


def test_a_bug_of_ours_says_so_and_exits_3(run: Run, tmp_path: Path) -> None:
    sitecustomize = tmp_path / "sitecustomize.py"
    sitecustomize.write_text(
        "import gymnast.cli.options as options\n"
        "def broken(*args, **kwargs):\n    raise ZeroDivisionError('our fault')\n"
        "options.load = broken\n"
    )
    done = run("gymnast", "config", "show", env={"PYTHONPATH": str(tmp_path)})
    assert done.code == 3
    assert "ZeroDivisionError: our fault" in done.err
    assert "this is a bug in Gymnast" in done.err


def test_an_output_folder_that_cannot_be_written(run: Run) -> None:
    done = run("gymnast", "collect", *MCQA, "-i", MCQA_DATA, "-o", "/proc/nowhere/x.jsonl")
    assert done.code == 2
    assert "Traceback" not in done.err


# --- config ----------------------------------------------------------------------------------------------------------


def test_config_show_masks_and_explains(run: Run, tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text(
        "policy_base_url: http://h/v1\npolicy_api_key: sk-hidden\npolicy_model_name: m\n"
    )
    arguments = ("-e", "mcqa", "--model-type", "vllm_model")
    shown = run("gymnast", "config", "show", *arguments)
    assert shown.code == 0, shown.err
    values = yaml.safe_load(shown.out)
    assert values["policy_model"]["responses_api_models"]["vllm_model"]["base_url"] == "http://h/v1"
    assert "sk-hidden" not in shown.out
    assert run("gymnast", "config", "show", *arguments, "--json").json() == values
    with_origins = run("gymnast", "config", "show", *arguments, "--origins").out
    assert "policy_base_url: 'http://h/v1'  # env.yaml:1" in with_origins
    assert "sk-hidden" not in with_origins
    explained = run("gymnast", "config", "explain", "policy_model", *arguments, "++policy_base_url=http://other/v1").out
    assert "base_url = 'http://other/v1'  (written as ${policy_base_url})" in explained
    unset = run(
        "gymnast", "config", "explain", "mcqa_simple_agent.responses_api_agents.simple_agent.max_steps", *arguments
    )
    assert "max_steps = 64\n  from default" in unset.out
    valid = run("gymnast", "config", "validate", *arguments)
    assert valid.code == 0
    assert "valid: 3 instances" in valid.out
    result = run("gymnast", "config", "validate", "-e", "mcqa", "--json", "++mcqa.resources_servers.mcqa.x=1")
    assert result.code == 2
    assert result.json()["problems"][0]["what"] == "unknown setting 'x' of mcqa"


def test_unknown_settings_are_errors_unless_they_are_allowed(run: Run) -> None:
    unknown = ("++mcqa.resources_servers.mcqa.x=1", "++mcqa_simple_agent.responses_api_agents.simple_agent.y=1")
    for command in (COLLECT, ("serve", *MCQA, "--head-port", "auto")):
        refused = run("gymnast", *command, *unknown)
        assert refused.code == 2
        assert "unknown setting 'x' of mcqa" in refused.err
        assert "unknown setting 'y' of simple_agent" in refused.err
    allowed = run("gymnast", *COLLECT, *unknown, "++error_on_unknown_settings=false")
    assert allowed.code == 0, allowed.err


def test_num_workers_is_accepted_with_a_warning(run: Run) -> None:
    done = run("gymnast", *COLLECT, "++mcqa.resources_servers.mcqa.num_workers=4")
    assert done.code == 0
    assert "num_workers of 'mcqa' has no effect" in done.err


def test_validate_starts_nothing_and_finds_everything(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        "a:\n  resources_servers:\n    mcqa: {entrypoint: app.py, domain: knowledge, grading_mode: wrong, extra: 1}\n"
        "b:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n      max_steps: -1\n"
        "      model_server: {type: responses_api_models, name: policy_modle}\n"
    )
    done = run("gymnast", "config", "validate", "-c", "bad.yaml")
    assert done.code == 2
    for said in (
        "unknown setting 'extra'",
        "'grading_mode'",
        "'max_steps'",
        "requires 'resources_server'",
        "did you mean 'policy_model'",
    ):
        assert said in done.err


# --- the ng_ commands ------------------------------------------------------------------------------------------------

NG_CONFIG = f"+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,{DEMO_POLICY}]"


@pytest.mark.usefixtures("own_registry")
def test_the_incumbents_workflow_word_by_word(run: Run, tmp_path: Path) -> None:
    """ng_run in one shell, ng_status and ng_collect_rollouts in another."""
    with (tmp_path / "talk").open("w") as talk:
        server = subprocess.Popen(
            [str(BIN / "ng_run"), NG_CONFIG, "+head_server.host=127.0.0.1", "+head_server.port=0"],
            cwd=tmp_path,
            stdout=talk,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 300
        while "3 healthy" not in run("ng_status").out:  # as NeMo Gym's, it exits with 0 if nothing runs
            assert time.monotonic() < deadline, (tmp_path / "talk").read_text()
            time.sleep(0.2)
        assert "3 healthy, 0 unhealthy" in run("ng_status").out
        done = run(
            "ng_collect_rollouts",
            "+agent_name=mcqa_simple_agent",
            f"+input_jsonl_fpath={MCQA_DATA}",
            "+output_jsonl_fpath=results/x.jsonl",
            "+num_repeats=2",
            "+num_samples_in_parallel=4",
            "+responses_create_params={temperature: 0.7}",
        )
        assert done.code == 0, done.err
        assert len(read_jsonl(tmp_path / "results" / "x.jsonl")) == 10
        inputs = read_jsonl(tmp_path / "results" / "x_materialized_inputs.jsonl")
        assert inputs[0]["responses_create_params"]["temperature"] == 0.7
    finally:
        server.terminate()
        server.wait(timeout=300)


def test_ng_collect_in_one_command_keeps_an_earlier_run_aside(run: Run, tmp_path: Path) -> None:
    arguments = (
        NG_CONFIG,
        "+agent_name=mcqa_simple_agent",
        f"+input_jsonl_fpath={MCQA_DATA}",
        "+output_jsonl_fpath=x.jsonl",
    )
    assert run("ng_collect_rollouts", *arguments).code == 0
    again = run("ng_collect_rollouts", *arguments, "+limit=2")
    assert again.code == 0, again.err
    assert "moved to x_previous_1" in again.err
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 2
    assert len(read_jsonl(tmp_path / "x_previous_1" / "x.jsonl")) == 5


def test_ng_overrides_merge_shallowly_and_say_what_that_dropped(run: Run, tmp_path: Path) -> None:
    rows = [
        {
            **row,
            "responses_create_params": {
                **row["responses_create_params"],
                "reasoning": {"effort": "low", "summary": "auto"},
            },
        }
        for row in example_rows("mcqa")
    ]
    write_jsonl(tmp_path / "in.jsonl", rows)
    done = run(
        *("ng_collect_rollouts", NG_CONFIG, "+agent_name=mcqa_simple_agent", "+input_jsonl_fpath=in.jsonl"),
        *("+output_jsonl_fpath=x.jsonl", "+responses_create_params.reasoning.effort=high"),
    )
    assert done.code == 0, done.err
    assert "'reasoning.summary' was dropped from 5 rows" in done.err
    assert read_jsonl(tmp_path / "x_materialized_inputs.jsonl")[0]["responses_create_params"]["reasoning"] == {
        "effort": "high"
    }


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("ng_collect_rollouts", NG_CONFIG, "+output_jsonl_fpath=x"), 2, "+input_jsonl_fpath=… is required"),
        (("ng_collect_rollouts", NG_CONFIG, f"+input_jsonl_fpath={MCQA_DATA}"), 2, "+output_jsonl_fpath=… is required"),
        (
            (
                "ng_collect_rollouts",
                NG_CONFIG,
                f"+input_jsonl_fpath={MCQA_DATA}",
                "+output_jsonl_fpath=x",
                "+num_repeats=0",
            ),
            2,
            "num_repeats must be",
        ),
        (("ng_collect_rollouts", "--config", "x"), 1, "no config file 'x'"),
        (("ng_collect_rollouts", "--confit", "x"), 2, "no option --confit"),
        (("ng_validate", "+config_paths=[resources_servers/mcqa/configs/nope.yaml]"), 1, "did you mean"),
        (("ng_dump_config", "+config_paths=[nope.yaml]"), 1, "no config file 'nope.yaml'"),
        (
            ("ng_run", "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]"),
            1,
            "no model is configured as the policy",
        ),
    ],
)
def test_ng_exit_codes(run: Run, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = run(*arguments)
    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err


def test_ng_looking_commands(run: Run) -> None:
    dumped = run("ng_dump_config", NG_CONFIG, "+policy_api_key=sk-hidden")
    assert dumped.code == 0
    assert yaml.safe_load(dumped.out)["mcqa"]["resources_servers"]["mcqa"]["domain"] == "knowledge"
    assert "sk-hidden" not in dumped.out
    assert run("ng_validate", "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]").code == 0
    assert run("ng_version").out.startswith("gymnast ")
    for name in (
        "ng_run",
        "ng_collect_rollouts",
        "ng_status",
        "ng_dump_config",
        "ng_validate",
        "ng_version",
        "ng_help",
    ):
        assert name in run("ng_help").out
        assert (BIN / name.replace("ng_", "nemo_gym_")).exists()
    assert run("ng_collect_rollouts", "--help").code == 0


def test_help_is_there_for_every_command(run: Run) -> None:
    for command in ((), ("collect",), ("serve",), ("status",), ("demo",), ("config",), ("config", "show")):
        done = run("gymnast", *command, "--help")
        assert done.code == 0
        assert "Usage:" in done.out
    assert "1800" in run("gymnast", "collect", "--help").out  # deadlines are shown
    assert run("gymnast", "version").out.strip()


def test_output_into_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    shell = f"'{BIN / 'gymnast'}' config show -e mcqa --origins | head -n 1"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, env=env, check=False)
    assert "Traceback" not in done.stderr
    assert done.stdout
