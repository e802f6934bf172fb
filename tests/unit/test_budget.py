"""Budgets: what a run may spend, what it says it spent, and that it stops cleanly and goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gymnast
from gymnast.errors import MissingRolloutsError, UserError
from gymnast.rollouts.budget import Budget
from gymnast.rollouts.exit_status import OUT_OF_BUDGET
from gymnast.store.manifest import Counts, Manifest, RunState, read_manifest, write_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.usage import ModelUsage
from tests.helpers.commands import DEMO_POLICY, Outcome
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl
from tests.helpers.metered_runs import PRICES, USAGE, collect_all, manifest_of, metered_policy


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa")[:4])


Policy = Callable[..., dict[str, Any]]


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return partial(metered_policy, tmp_path)


# --- what is recorded ------------------------------------------------------------------------------------------------


async def test_every_call_is_listed_where_that_is_asked_for(tmp_path: Path, tasks: Path, policy: Policy) -> None:
    names = policy()
    names["overrides"].append("++observability_enabled=true")
    output = tmp_path / "x.jsonl"
    await collect_all(tasks, output, names)
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
    tmp_path: Path, tasks: Path, policy: Policy, limit: dict[str, Any]
) -> None:
    output, events = tmp_path / "x.jsonl", list[Any]()
    with pytest.raises(MissingRolloutsError, match="budget"):
        await collect_all(tasks, output, policy(), num_repeats=5, on_event=events.append, **limit)
    manifest = manifest_of(output)
    assert manifest.state is RunState.INTERRUPTED
    assert (manifest.counts.scored, manifest.counts.owed) == (5, 15)
    assert "used up" in (manifest.note or "")
    assert events[-1].is_out_of_budget
    with pytest.raises(MissingRolloutsError):  # what was spent before counts
        await collect_all(tasks, output, policy(), num_repeats=5, resume=True, **limit)
    assert manifest_of(output).counts.scored == 5
    larger = {name: value * 2 for name, value in limit.items()}
    with pytest.raises(MissingRolloutsError):
        await collect_all(tasks, output, policy(), num_repeats=5, resume=True, **larger)
    assert 9 <= manifest_of(output).counts.scored <= 10
    records = await collect_all(tasks, output, policy(), num_repeats=5, resume=True)
    assert len({record.key for record in records}) == 20
    assert manifest_of(output).state is RunState.COMPLETE
    assert manifest_of(output).spent.calls == 20


async def test_a_budget_that_suffices_changes_nothing(tmp_path: Path, tasks: Path, policy: Policy) -> None:
    output = tmp_path / "x.jsonl"
    assert len(await collect_all(tasks, output, policy(), max_tokens=440)) == 4
    assert manifest_of(output).state is RunState.COMPLETE


async def test_overstepping_is_bounded_by_what_was_in_flight(tmp_path: Path, tasks: Path, policy: Policy) -> None:
    output = tmp_path / "x.jsonl"
    with pytest.raises(MissingRolloutsError):
        await collect_all(tasks, output, policy(latency_s=0.02), num_repeats=10, concurrency=6, max_tokens=1000)
    spent = manifest_of(output).spent.tokens
    assert 1000 <= spent <= 1000 + 6 * 110


async def test_failed_attempts_count(tmp_path: Path, policy: Policy) -> None:
    """Each attempt has one good call, and one that fails."""
    rows = example_rows("example_session_state_mgmt")[:3]
    source, output = write_jsonl(tmp_path / "in.jsonl", rows), tmp_path / "x.jsonl"
    tool = {"tool_calls": [{"name": "get_counter_value", "arguments": {}}], "usage": USAGE}
    names = {**policy(tool, {"status": 400, "body": "no"}), "environments": ["example_session_state_mgmt"]}
    with pytest.raises(MissingRolloutsError, match="budget of 200 tokens is used up: 220"):
        await collect_all(source, output, names, num_repeats=4, max_tokens=200, max_attempts=1)
    counts = manifest_of(output).counts
    assert (counts.scored, sum(counts.failed.values()), counts.owed) == (0, 2, 10)


async def test_a_budget_of_money_needs_prices(tmp_path: Path, tasks: Path, policy: Policy) -> None:
    output = tmp_path / "x.jsonl"
    with pytest.raises(UserError, match="policy_model") as caught:
        await collect_all(tasks, output, policy(prices=False), max_cost=1.0)
    assert "policy_model.responses_api_models.scripted_model.prices" in str(caught.value)
    assert not RunPaths(output).existing_files()


async def test_after_a_crash_the_records_say_what_was_spent(tmp_path: Path, tasks: Path, policy: Policy) -> None:
    output = tmp_path / "x.jsonl"
    await collect_all(tasks, output, policy())
    paths = RunPaths(output)
    kept = manifest_of(output)
    behind = {"counts": {"requested": 4, "owed": 4}, "spent": {}, "state": "running"}
    stale = orjson.loads(paths.manifest.read_bytes()) | behind
    paths.manifest.write_bytes(orjson.dumps(stale))
    await collect_all(tasks, output, policy(), max_tokens=440, resume=True)
    assert manifest_of(output).spent.tokens == kept.spent.tokens == 440


async def test_a_collector_minds_a_budget_of_its_own_for_each_batch(policy: Policy) -> None:
    rows = example_rows("mcqa")[:4]
    async with gymnast.Collector(**policy()) as collector:
        for _ in range(2):
            with pytest.raises(MissingRolloutsError, match="2 of 4 rollouts were scored") as caught:
                _ = [pair async for pair in collector.run(rows, concurrency=1, max_tokens=200)]
            assert "budget" in str(caught.value)
    async with gymnast.Collector(**policy(prices=False)) as collector:
        with pytest.raises(UserError, match="needs prices"):
            _ = [pair async for pair in collector.run(rows, max_cost=1)]


def test_the_command_says_what_was_spent_and_ends_with_a_code_of_its_own(
    tmp_path: Path, tasks: Path, invoke: Callable[..., Outcome]
) -> None:
    names = ["-e", "mcqa", "-c", DEMO_POLICY, "-i", str(tasks), "-o", "x.jsonl", "-n", "30", "--concurrency", "1"]
    done = invoke("gymnast", "collect", *names, PRICES, "--max-cost", "0.0005")
    assert done.code == OUT_OF_BUDGET == 4
    assert "the budget of 0.0005 is used up" in done.err
    assert "--resume and a larger budget" in done.err
    assert "models    " in done.out
    status = invoke("gymnast", "status", "x.jsonl")
    assert "tokens in" in status.out
    again = invoke("gymnast", "collect", *names, "--resume", "--max-tokens", "100000000", "--json")
    assert again.code == 0
    finished = orjson.loads(again.out.splitlines()[-1])
    assert finished["spent"]["calls"] == 120
    refused = invoke("gymnast", "collect", *names, "--overwrite", "--max-cost", "-1")
    assert refused.code == 2


def test_the_contracts_command_takes_budgets(tasks: Path, invoke: Callable[..., Outcome]) -> None:
    fields = [
        f"+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,{DEMO_POLICY}]",
        "+agent_name=mcqa_simple_agent",
        f"+input_jsonl_fpath={tasks}",
        "+output_jsonl_fpath=x.jsonl",
        "+num_repeats=30",
        "+num_samples_in_parallel=1",
    ]
    done = invoke("ng_collect_rollouts", *fields, "+max_tokens=100")
    assert done.code == OUT_OF_BUDGET
    wrong = invoke("ng_collect_rollouts", *fields, "+max_cost=much")
    assert wrong.code == 2


# --- the pure part ---------------------------------------------------------------------------------------------------

costs = st.none() | st.floats(0, 100)
limits = st.none() | st.floats(0.01, 100)


@given(limits, st.none() | st.integers(1, 1000), costs, st.integers(0, 1000), st.integers(0, 2))
def test_a_budget_is_used_up_when_it_is_reached_or_cannot_be_kept(
    max_cost: float | None, max_tokens: int | None, cost: float | None, tokens: int, unmetered: int
) -> None:
    spent = ModelUsage(calls=9, input_tokens=tokens, unmetered_calls=unmetered, cost=cost)
    said = Budget(max_cost, max_tokens).exhausted_reason(spent)
    by_cost = max_cost is not None and (cost is None or cost >= max_cost)
    by_tokens = max_tokens is not None and (unmetered > 0 or tokens >= max_tokens)
    assert (said is not None) == (by_cost or by_tokens)


@pytest.mark.parametrize("limits", [(0.0, None), (-1.0, None), (None, 0), (float("nan"), None)])
def test_a_budget_of_nothing_is_refused(limits: Any) -> None:
    with pytest.raises(UserError, match="a budget must be positive"):
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
