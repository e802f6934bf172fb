"""A run whose process was killed, looked at from outside."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from gymnast.rollouts.inspect_run import inspect_run, is_being_written
from gymnast.store.manifest import Counts, Manifest, RunState, write_manifest
from gymnast.store.paths import RunPaths
from tests.helpers.commands import holding_lock


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
