"""Tokens end to end: engines that report ids in chat form, workers that share an engine, audit and export."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import run_command
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl

ENGINE = Path(__file__).parents[1] / "helpers" / "openai_server.py"
ENVIRONMENT = "resources_servers/mcqa/configs/mcqa.yaml"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa"))


def local_engine(folder: Path, *arguments: str, **settings: Any) -> str:
    """A config whose policy is a program that the run starts."""
    command = [sys.executable, str(ENGINE), "--port", "{port}", *arguments]
    model = {"entrypoint": "app.py", "model": "small", "command": command, "uses_reasoning_parser": False, **settings}
    path = folder / "policy.yaml"
    path.write_text(json.dumps({"policy_model": {"responses_api_models": {"local_vllm_model": model}}}))
    return str(path)


def collect(folder: Path, rows: Path, config: str, *more: str) -> list[Any]:
    arguments = ["--config", ENVIRONMENT, "--config", config, "--input", str(rows), "--output", "r.jsonl", *more]
    done = run_command(folder, "gymnast", "collect", *arguments)
    assert done.code == 0, done.err
    return read_jsonl(folder / "r.jsonl")


def test_workers_share_the_engines_that_a_run_starts(tmp_path: Path, rows: Path) -> None:
    log = tmp_path / "starts.txt"
    config = local_engine(tmp_path, "--count-starts", str(log))
    records = collect(tmp_path, rows, config, "--workers", "2", "--num-repeats", "4")
    assert len(records) == 20
    assert log.read_text().count("started") == 1


def test_ids_that_an_engine_reports_in_chat_form_become_an_audited_ledger(tmp_path: Path, rows: Path) -> None:
    config = local_engine(tmp_path, "--token-ids", return_token_id_information=True)
    records = collect(tmp_path, rows, config)
    assert all(record["_ng_token_ledger"]["calls"][0]["ids_sent"] is False for record in records)
    done = run_command(tmp_path, "gymnast", "tokens", "audit", "r.jsonl")
    assert done.code == 0, done.err
    assert "prompts sent as ids   0 of 5 calls" in done.out
    assert "Exact: tokens trained on are tokens sampled." in done.out
    data = json.loads(run_command(tmp_path, "gymnast", "tokens", "audit", "r.jsonl", "--json").out)
    assert (data["exact"], data["rollouts"], data["drift"]) == (True, 5, 0)
    per_rollout = run_command(tmp_path, "gymnast", "tokens", "audit", "r.jsonl", "--per-rollout").out.splitlines()
    assert [json.loads(line)["exact"] for line in per_rollout] == [True] * 5


def test_export_writes_whole_prompts_on_items_and_never_over_the_run(tmp_path: Path, rows: Path) -> None:
    config = local_engine(tmp_path, "--token-ids", return_token_id_information=True)
    collect(tmp_path, rows, config)
    done = run_command(tmp_path, "gymnast", "tokens", "export", "r.jsonl", "--output", "whole.jsonl")
    assert done.code == 0, done.err
    for record in read_jsonl(tmp_path / "whole.jsonl"):
        last = record["response"]["output"][-1]
        assert len(last["generation_token_ids"]) == len(last["generation_log_probs"]) > 0
        assert last["prompt_token_ids"]
        assert "_ng_token_ledger" not in record
    assert run_command(tmp_path, "gymnast", "tokens", "export", "r.jsonl", "--output", "r.jsonl").code == 2


def test_runs_without_ledgers_are_not_called_exact(tmp_path: Path, rows: Path) -> None:
    collect(tmp_path, rows, local_engine(tmp_path))
    done = run_command(tmp_path, "gymnast", "tokens", "audit", "r.jsonl")
    assert done.code == 1
    assert "5 rollouts have no token ledger" in done.out
    (tmp_path / "torn.jsonl").write_text('{"reward": 1.0, "resp')
    torn = run_command(tmp_path, "gymnast", "tokens", "audit", "torn.jsonl")
    assert torn.code == 2
    assert "torn.jsonl line 1" in torn.err


def test_ng_collect_rollouts_writes_items_as_nemo_gym_does(tmp_path: Path, rows: Path) -> None:
    config = local_engine(tmp_path, "--token-ids", return_token_id_information=True)
    done = run_command(
        tmp_path,
        "ng_collect_rollouts",
        f"+config_paths=[{ENVIRONMENT},{config}]",
        f"+input_jsonl_fpath={rows}",
        "+output_jsonl_fpath=r.jsonl",
        "+agent_name=mcqa_simple_agent",
    )
    assert done.code == 0, done.err
    for record in read_jsonl(tmp_path / "r.jsonl"):
        assert record["response"]["output"][-1]["generation_token_ids"]
        assert "_ng_token_ledger" not in record
