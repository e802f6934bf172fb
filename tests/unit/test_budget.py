"""Budgets: what a run may spend, what it says it spent, and that it stops cleanly and goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gymnast
from gymnast.errors import MissingRolloutsError, UserError
from gymnast.rollouts.budget import Budget
from gymnast.rollouts.verdict import OUT_OF_BUDGET
from gymnast.store.manifest import Counts, Manifest, RunState, read_manifest, write_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.usage import ModelUsage
from tests.support import DEMO_POLICY, SCRIPTED, example_rows, read_jsonl, run_command, write_jsonl

MODEL = "policy_model.responses_api_models.scripted_model"
PRICES = f"++{MODEL}.prices={{input: 1.0, output: 2.0}}"
REPLY = {"text": "\\boxed{B}", "usage": {"input_tokens": 100, "output_tokens": 10}}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa")[:4])


Scripted = Callable[..., dict[str, Any]]


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    """A policy that says these things turn by turn; 110 tokens a call, which cost 120 of a millionth."""

    def configured(*replies: Any, prices: bool = True, **settings: Any) -> dict[str, Any]:
        script = tmp_path / "script.json"
        script.write_text(json.dumps(list(replies) or [REPLY]))
        given = [f"++{MODEL}.{name}={value}" for name, value in {"script": script, **settings}.items()]
        overrides = [*given, *([PRICES] if prices else [])]
        return {"environments": ["mcqa"], "config_paths": [SCRIPTED], "overrides": overrides}

    return configured


def manifest_of(output: Path) -> Manifest:
    found = read_manifest(RunPaths(output).manifest)
    assert found is not None
    return found


async def run(tasks: Path, output: Path, names: dict[str, Any], **more: Any) -> list[Any]:
    return [record async for record in gymnast.collect(tasks, output, **{"concurrency": 1, **names, **more})]


# --- what is recorded ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
async def test_records_say_what_their_model_calls_used(
    tmp_path: Path, tasks: Path, scripted: Scripted, workers: int
) -> None:
    output = tmp_path / "x.jsonl"
    await run(tasks, output, scripted(), workers=workers)
    for record in read_jsonl(output):
        usage = record["_ng_model_usage"]
        assert usage.pop("latency_ms") > 0
        assert usage.pop("cost") == pytest.approx(120e-6)
        assert usage == {
            "calls": 1,
            "input_tokens": 100,
            "cached_tokens": None,
            "output_tokens": 10,
            "reasoning_tokens": None,
            "ttft_ms": None,
        }
        assert list(record)[-3:] == ["_ng_task_index", "_ng_rollout_index", "agent_ref"]
        assert "ng_model_call_capture" not in record
    spent = manifest_of(output).spent
    assert (spent.calls, spent.tokens) == (4, 440)
    assert spent.cost == pytest.approx(480e-6)


@pytest.mark.parametrize("workers", [0, 1])
async def test_failed_attempts_say_what_they_used(
    tmp_path: Path, tasks: Path, scripted: Scripted, workers: int
) -> None:
    output, events = tmp_path / "x.jsonl", list[Any]()
    names = scripted({"status": 400, "body": "no"})
    with pytest.raises(MissingRolloutsError):
        await run(tasks, output, names, workers=workers, max_attempts=1, on_event=events.append)
    failures = read_jsonl(RunPaths(output).failures)
    assert [row["_ng_model_usage"]["failed_calls"] for row in failures] == [1] * 4
    assert [row["_ng_model_usage"]["cost"] for row in failures] == [0.0] * 4
    assert events[-1].spent.failed_calls == 4


async def test_every_call_is_listed_where_that_is_asked_for(tmp_path: Path, tasks: Path, scripted: Scripted) -> None:
    names = scripted()
    names["overrides"].append("++observability_enabled=true")
    output = tmp_path / "x.jsonl"
    await run(tasks, output, names)
    capture = read_jsonl(output)[0]["ng_model_call_capture"]
    assert capture["rollout_id"] == "0-0"
    metrics = dict(capture["metrics"])
    assert metrics.pop("latency_total_ms") > 0
    assert metrics == {
        "tokens_in": 100,
        "tokens_out": 10,
        "tokens_reasoning": None,
        "tokens_total": 110,
        "cached_tokens": None,
        "num_calls": 1,
    }
    (call,) = capture["calls"]
    assert (call["call_index"], call["dialect"], call["status_code"]) == (0, "responses", 200)
    assert call["model_ref"] == {"type": "responses_api_models", "name": "policy_model"}
    assert call["tokens_in"] == 100
    assert "gaps" not in capture


# --- budgets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"max_tokens": 500}, {"max_cost": 0.0005}])
async def test_a_used_up_budget_ends_the_run_and_a_larger_one_goes_on(
    tmp_path: Path, tasks: Path, scripted: Scripted, limit: dict[str, Any]
) -> None:
    output, events = tmp_path / "x.jsonl", list[Any]()
    with pytest.raises(MissingRolloutsError, match="budget"):
        await run(tasks, output, scripted(), num_repeats=5, on_event=events.append, **limit)
    manifest = manifest_of(output)
    assert manifest.state is RunState.INTERRUPTED
    assert (manifest.counts.scored, manifest.counts.owed) == (5, 15)
    assert "used up" in (manifest.note or "")
    assert events[-1].is_out_of_budget
    with pytest.raises(MissingRolloutsError):  # what was spent before counts
        await run(tasks, output, scripted(), num_repeats=5, resume=True, **limit)
    assert manifest_of(output).counts.scored == 5
    larger = {name: value * 2 for name, value in limit.items()}
    with pytest.raises(MissingRolloutsError):
        await run(tasks, output, scripted(), num_repeats=5, resume=True, **larger)
    assert 9 <= manifest_of(output).counts.scored <= 10
    records = await run(tasks, output, scripted(), num_repeats=5, resume=True)
    assert len({record.key for record in records}) == 20
    assert manifest_of(output).state is RunState.COMPLETE
    assert manifest_of(output).spent.calls == 20


async def test_a_budget_that_suffices_changes_nothing(tmp_path: Path, tasks: Path, scripted: Scripted) -> None:
    output = tmp_path / "x.jsonl"
    assert len(await run(tasks, output, scripted(), max_tokens=440)) == 4
    assert manifest_of(output).state is RunState.COMPLETE


async def test_overstepping_is_bounded_by_what_was_in_flight(tmp_path: Path, tasks: Path, scripted: Scripted) -> None:
    output = tmp_path / "x.jsonl"
    with pytest.raises(MissingRolloutsError):
        await run(tasks, output, scripted(latency_s=0.02), num_repeats=10, concurrency=6, max_tokens=1000)
    spent = manifest_of(output).spent.tokens
    assert 1000 <= spent <= 1000 + 6 * 110


async def test_failed_attempts_count(tmp_path: Path, scripted: Scripted) -> None:
    """Each attempt has one good call, and one that fails."""
    rows = example_rows("example_session_state_mgmt")[:3]
    source, output = write_jsonl(tmp_path / "in.jsonl", rows), tmp_path / "x.jsonl"
    tool = {"tool_calls": [{"name": "get_counter_value", "arguments": {}}], "usage": REPLY["usage"]}
    names = {**scripted(tool, {"status": 400, "body": "no"}), "environments": ["example_session_state_mgmt"]}
    with pytest.raises(MissingRolloutsError, match="budget of 200 tokens is used up: 220"):
        await run(source, output, names, num_repeats=4, max_tokens=200, max_attempts=1)
    counts = manifest_of(output).counts
    assert (counts.scored, sum(counts.failed.values()), counts.owed) == (0, 2, 10)


async def test_a_budget_of_money_needs_prices(tmp_path: Path, tasks: Path, scripted: Scripted) -> None:
    output = tmp_path / "x.jsonl"
    with pytest.raises(UserError, match="policy_model") as caught:
        await run(tasks, output, scripted(prices=False), max_cost=1.0)
    assert "policy_model.responses_api_models.scripted_model.prices" in str(caught.value)
    assert not RunPaths(output).existing()


async def test_after_a_crash_the_records_say_what_was_spent(tmp_path: Path, tasks: Path, scripted: Scripted) -> None:
    output = tmp_path / "x.jsonl"
    await run(tasks, output, scripted())
    paths = RunPaths(output)
    kept = manifest_of(output)
    behind = {"counts": {"requested": 4, "owed": 4}, "spent": {}, "state": "running"}
    stale = orjson.loads(paths.manifest.read_bytes()) | behind
    paths.manifest.write_bytes(orjson.dumps(stale))
    await run(tasks, output, scripted(), max_tokens=440, resume=True)
    assert manifest_of(output).spent.tokens == kept.spent.tokens == 440


async def test_a_collector_minds_a_budget_of_its_own_for_each_batch(scripted: Scripted) -> None:
    rows = example_rows("mcqa")[:4]
    async with gymnast.Collector(**scripted()) as collector:
        for _ in range(2):
            with pytest.raises(MissingRolloutsError, match="2 of 4 rollouts were scored") as caught:
                _ = [pair async for pair in collector.run(rows, concurrency=1, max_tokens=200)]
            assert "budget" in str(caught.value)
    async with gymnast.Collector(**scripted(prices=False)) as collector:
        with pytest.raises(UserError, match="needs prices"):
            _ = [pair async for pair in collector.run(rows, max_cost=1)]


def test_the_command_says_what_was_spent_and_ends_with_a_code_of_its_own(tmp_path: Path, tasks: Path) -> None:
    names = ["-e", "mcqa", "-c", DEMO_POLICY, "-i", str(tasks), "-o", "x.jsonl", "-n", "30", "--concurrency", "1"]
    done = run_command(tmp_path, "gymnast", "collect", *names, PRICES, "--max-cost", "0.0005")
    assert done.code == OUT_OF_BUDGET == 4
    assert "the budget of 0.0005 is used up" in done.err
    assert "--resume and a larger budget" in done.err
    assert "models    " in done.out
    status = run_command(tmp_path, "gymnast", "status", "x.jsonl")
    assert "tokens in" in status.out
    again = run_command(tmp_path, "gymnast", "collect", *names, "--resume", "--max-tokens", "100000000", "--json")
    assert again.code == 0
    finished = orjson.loads(again.out.splitlines()[-1])
    assert finished["spent"]["calls"] == 120
    refused = run_command(tmp_path, "gymnast", "collect", *names, "--overwrite", "--max-cost", "-1")
    assert refused.code == 2


def test_the_contracts_command_takes_budgets(tmp_path: Path, tasks: Path) -> None:
    fields = [
        f"+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,{DEMO_POLICY}]",
        "+agent_name=mcqa_simple_agent",
        f"+input_jsonl_fpath={tasks}",
        "+output_jsonl_fpath=x.jsonl",
        "+num_repeats=30",
        "+num_samples_in_parallel=1",
    ]
    done = run_command(tmp_path, "ng_collect_rollouts", *fields, "+max_tokens=100")
    assert done.code == OUT_OF_BUDGET
    wrong = run_command(tmp_path, "ng_collect_rollouts", *fields, "+max_cost=much")
    assert wrong.code == 2


# --- the pure part ---------------------------------------------------------------------------------------------------

costs = st.none() | st.floats(0, 100)
limits = st.none() | st.floats(0.01, 100)


@given(limits, st.none() | st.integers(1, 1000), costs, st.integers(0, 1000), st.integers(0, 2))
def test_a_budget_is_used_up_when_it_is_reached_or_cannot_be_kept(
    max_cost: float | None, max_tokens: int | None, cost: float | None, tokens: int, unmetered: int
) -> None:
    spent = ModelUsage(calls=9, input_tokens=tokens, unmetered_calls=unmetered, cost=cost)
    said = Budget(max_cost, max_tokens).used_up(spent)
    by_cost = max_cost is not None and (cost is None or cost >= max_cost)
    by_tokens = max_tokens is not None and (unmetered > 0 or tokens >= max_tokens)
    assert (said is not None) == (by_cost or by_tokens)


@pytest.mark.parametrize("limits", [(0.0, None), (-1.0, None), (None, 0), (float("nan"), None)])
def test_a_budget_of_nothing_is_refused(limits: Any) -> None:
    with pytest.raises(UserError, match="more than nothing"):
        Budget(*limits)


def test_old_manifests_have_spent_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x_run.json"
    manifest = Manifest(
        run_id="r", state=RunState.COMPLETE, output="x", created_at=0.0, updated_at=0.0, versions={}, source={},
        plan={}, settings={}, code={}, counts=Counts(),
    )  # fmt: skip
    write_manifest(path, manifest)
    data = orjson.loads(path.read_bytes())
    del data["spent"]
    path.write_bytes(orjson.dumps(data))
    found = read_manifest(path)
    assert found is not None
    assert found.spent == ModelUsage()
