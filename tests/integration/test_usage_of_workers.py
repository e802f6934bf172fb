"""What model calls used stands in the records, whether rollouts run in this process or in workers of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymnast.errors import MissingRolloutsError
from gymnast.store.paths import RunPaths
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl
from tests.helpers.metered_runs import collect_all, manifest_of, metered_policy


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa")[:4])


@pytest.mark.parametrize("workers", [0, 1])
async def test_records_say_what_their_model_calls_used(tmp_path: Path, tasks: Path, workers: int) -> None:
    output = tmp_path / "x.jsonl"
    await collect_all(tasks, output, metered_policy(tmp_path), workers=workers)
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
async def test_failed_attempts_say_what_they_used(tmp_path: Path, tasks: Path, workers: int) -> None:
    output, events = tmp_path / "x.jsonl", list[Any]()
    names = metered_policy(tmp_path, {"status": 400, "body": "no"})
    with pytest.raises(MissingRolloutsError):
        await collect_all(tasks, output, names, workers=workers, max_attempts=1, on_event=events.append)
    failures = read_jsonl(RunPaths(output).failures)
    assert [row["_ng_model_usage"]["failed_calls"] for row in failures] == [1] * 4
    assert [row["_ng_model_usage"]["cost"] for row in failures] == [0.0] * 4
    assert events[-1].spent.failed_calls == 4
