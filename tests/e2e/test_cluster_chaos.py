"""A small storm over local workers, in every test run; `make test-cluster` has the large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.executors.local import LocalExecutor
from tests.cluster.chaos import Chaos
from tests.cluster.runs import shared_run, undisturbed


@pytest.mark.parametrize("seed", [1])
def test_killed_workers_lose_nothing_and_leave_no_trace(tmp_path: Path, seed: int) -> None:
    run = shared_run(tmp_path, tasks=200, failing=20, chunk_rows=20, mean_s=0.15)
    chaos = Chaos(run, LocalExecutor(grace_s=20), workers=4, every_s=1.0, seed=seed)
    chaos.until_settled()
    assert chaos.kills > 0
    assert run.merge() == undisturbed(tmp_path, run)
