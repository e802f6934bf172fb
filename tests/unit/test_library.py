"""The library: a run as an async iterator, and servers that stay up for batches of rows."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import gymnast
from gymnast.api.collector import stamp_rows
from gymnast.errors import DataError, UserError
from gymnast.rollouts import record_stream
from gymnast.store.manifest import RunState, read_manifest
from gymnast.store.paths import RunPaths
from tests.helpers.commands import DEMO_POLICY
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl

NAMES: dict[str, Any] = {"environments": ["mcqa"], "config_paths": [DEMO_POLICY]}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa"))


async def test_collect_yields_every_record_once_and_keeps_the_files(tmp_path: Path, tasks: Path) -> None:
    output = tmp_path / "x.jsonl"
    events: list[Any] = []
    records = [
        record async for record in gymnast.collect(tasks, output, num_repeats=3, on_event=events.append, **NAMES)
    ]
    wanted = {(task, rollout) for task in range(len(example_rows("mcqa"))) for rollout in range(3)}
    assert {tuple(record.key) for record in records} == wanted
    assert len(records) == len(wanted) == len(read_jsonl(output))
    assert all(record.is_scored and record.reward == record.data["reward"] for record in records)
    manifest = read_manifest(RunPaths(output).manifest)
    assert manifest is not None
    assert manifest.state is RunState.COMPLETE
    assert type(events[0]).__name__ == "RunStarted"


async def test_leaving_early_ends_the_run_and_resume_sees_every_rollout_once(tmp_path: Path, tasks: Path) -> None:
    output = tmp_path / "x.jsonl"
    async with aclosing(gymnast.collect(tasks, output, num_repeats=40, concurrency=2, **NAMES)) as records:
        first = await anext(records)
    manifest = read_manifest(RunPaths(output).manifest)
    assert manifest is not None
    assert manifest.state is RunState.INTERRUPTED
    kept = read_jsonl(output)
    again = [record async for record in gymnast.collect(tasks, output, num_repeats=40, resume=True, **NAMES)]
    assert len({record.key for record in again}) == len(again) == manifest.counts.requested
    assert [record.data for record in again[: len(kept)]] == kept
    assert first.key in {record.key for record in again}


async def test_an_earlier_run_is_not_overwritten(tmp_path: Path, tasks: Path) -> None:
    output = tmp_path / "x.jsonl"
    assert [record async for record in gymnast.collect(tasks, output, **NAMES)]
    with pytest.raises(UserError, match="an earlier run exists"):
        _ = [record async for record in gymnast.collect(tasks, output, **NAMES)]


async def test_warnings_and_notes_of_the_configuration_reach_the_caller(tmp_path: Path, tasks: Path) -> None:
    messages: list[str] = []
    names = {**NAMES, "config_paths": [DEMO_POLICY, DEMO_POLICY], "overrides": ["+uv_cache_dir=x"]}
    run = gymnast.collect(tasks, tmp_path / "x.jsonl", limit=1, on_note=messages.append, **names)
    assert [record async for record in run]
    assert "warning: '+uv_cache_dir=x' has no effect in Gymnast" in messages
    assert f"note: {DEMO_POLICY} is listed twice; loaded once" in messages, "nothing is wrong"


async def test_a_slow_taker_slows_the_run_and_not_the_memory(
    tmp_path: Path, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_stream, "_MAX_WAITING", 8)
    output, most, seen = tmp_path / "x.jsonl", 0, 0
    async for _ in gymnast.collect(tasks, output, num_repeats=20, concurrency=4, **NAMES):
        seen += 1
        if seen < 20:
            await asyncio.sleep(0.02)
            most = max(most, len(read_jsonl(output)) - seen)
    assert seen == 20 * len(example_rows("mcqa"))
    assert most <= 8 + 4


async def test_rows_come_back_with_their_outcomes_batch_after_batch() -> None:
    rows = [{**row, "place": place} for place, row in enumerate(example_rows("mcqa") * 2)]
    async with gymnast.Collector(**NAMES) as collector:
        assert collector.agents == ["mcqa_simple_agent"]
        for _ in range(2):
            results = [pair async for pair in collector.run(rows)]
            assert sorted(row["place"] for row, _ in results) == list(range(len(rows)))
            assert all(record.is_scored for _, record in results)
            assert all(record.data["_ng_task_index"] == row["_ng_task_index"] for row, record in results)


async def test_a_batch_with_missing_rollouts_is_an_error_that_survives_pickling(tmp_path: Path) -> None:
    rows = [dict(row) for row in example_rows("mcqa")]
    rows[1]["grading_mode"] = "no such mode"
    async with gymnast.Collector(**NAMES) as collector:
        with pytest.raises(gymnast.MissingRolloutsError) as caught:
            _ = [pair async for pair in collector.run(rows, max_attempts=1)]
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.requested, error.scored, error.owed) == (len(rows), len(rows) - 1, 0)
        assert sum(error.failed.values()) == 1
        assert f"{len(rows) - 1} of {len(rows)} rollouts were scored" in str(error)
        pairs = [pair async for pair in collector.run(rows, max_attempts=1, max_failed=1)]
    failed = [record for _, record in pairs if not record.is_scored]
    assert len(failed) == 1
    assert failed[0].reward is None
    assert failed[0].data["failure"]["kind"] == failed[0].failure_kind


def test_rows_are_stamped_as_a_plan_would() -> None:
    row: dict[str, Any] = {"responses_create_params": {"input": "q"}}
    rows = stamp_rows([dict(row), {**row, "n": 1}, dict(row), {**row, "_ng_task_index": 0}], ["a"])
    assert [(one["_ng_task_index"], one["_ng_rollout_index"]) for one in rows] == [(1, 0), (2, 0), (1, 1), (0, 0)]
    assert all(one["agent_ref"] == {"name": "a"} for one in rows)


def test_all_rows_that_cannot_be_run_are_named_at_once() -> None:
    good: dict[str, Any] = {"responses_create_params": {"input": "q"}, "agent_ref": {"name": "a"}}
    unknown = {**good, "agent_ref": {"name": "c"}}
    bad: list[dict[str, Any]] = [{}, good, unknown, {**good, "_ng_task_index": "1"}, {**unknown, "_ng_task_index": 7}]
    with pytest.raises(DataError) as caught:
        stamp_rows(bad, ["a", "b"])
    text = str(caught.value)
    assert "4 of 5 rows" in text
    assert "row 0: needs" in text
    assert "row 2: no agent 'c'" in text
    assert "row 3: _ng_task_index" in text
    assert "row 4 (task 7): no agent 'c'" in text
