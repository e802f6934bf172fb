"""A run whose process was killed, looked at from outside."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from gymnast.rollouts.inspect_run import inspect_run, is_being_written
from gymnast.store.manifest import Counts, Manifest, RunState, write_manifest
from gymnast.store.paths import RunPaths
from tests.helpers.commands import holding_lock
from tests.helpers.jsonl import write_jsonl


async def test_a_run_whose_process_is_gone_without_a_word_is_interrupted(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "x.jsonl")
    facts: dict[str, Any] = {"versions": {}, "source": {}, "plan": {}, "settings": {}, "code": {}}
    facts |= {"run_id": "r", "output": "x.jsonl", "created_at": 0.0, "updated_at": 0.0}
    write_manifest(paths.manifest, Manifest(state=RunState.RUNNING, counts=Counts(3, 1, {}, 2, 1, 0), **facts))
    process = holding_lock(paths.lock)
    try:
        assert is_being_written(paths)
        assert (await inspect_run(paths.output)).state == "running"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    paths.socket.write_text("")  # left behind as well
    assert not is_being_written(paths)
    look = await inspect_run(paths.output)
    assert (look.state, look.live, look.manifest.state) == ("interrupted", None, RunState.RUNNING)


async def test_the_records_of_a_killed_run_are_counted_although_its_manifest_lags_behind(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "x.jsonl")
    facts: dict[str, Any] = {"versions": {}, "source": {}, "plan": {}, "settings": {}, "code": {}}
    facts |= {"run_id": "r", "output": "x.jsonl", "created_at": 0.0, "updated_at": 0.0}
    write_manifest(paths.manifest, Manifest(state=RunState.RUNNING, counts=Counts(5, 0, {}, 5, 0, 0), **facts))
    usage = {"calls": 1, "input_tokens": 2, "output_tokens": 3}
    keys = [{"_ng_task_index": number, "_ng_rollout_index": 0} for number in range(5)]
    agent = {"agent_ref": {"name": "a"}}
    write_jsonl(paths.materialized_inputs, [{**key, **agent} for key in keys])
    write_jsonl(paths.output, [{**key, **agent, "reward": 0.5, "_ng_model_usage": usage} for key in keys[:2]])
    whole = paths.output.read_bytes()
    paths.output.write_bytes(whole + b'{"_ng_task_index": 2, "rew')
    failure = {"kind": "model_auth", "run_id": "r"}
    write_jsonl(paths.failures, [{**keys[3], **agent, "failure": failure, "_ng_failure_terminal": True}])
    look = await inspect_run(paths.output)
    counts = look.manifest.counts
    assert (look.state, counts.scored, counts.failed, counts.owed) == ("interrupted", 2, {"model_auth": 1}, 2)
    assert look.agents["a"].mean_reward == pytest.approx(0.5)
    assert look.manifest.spent.calls == 2
    assert paths.output.read_bytes() == whole + b'{"_ng_task_index": 2, "rew', "looking must not repair"
