"""A batch of 4,096 × 16 rollouts: every one is there, and memory is bounded by what the samples themselves hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench" / "train_batch.py"


def _figures(*options: str) -> dict[str, Any]:
    """The bench asserts that as many samples as were asked for come and can be trained on."""
    command = [sys.executable, str(BENCH), "--json", "--environment", "shop_lookup", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    data: dict[str, Any] = json.loads(done.stdout)["shop_lookup"]
    assert data["large"]["rollouts"] == 4096 * 16
    return data


def test_a_large_batch_takes_little_more_than_its_samples() -> None:
    found = _figures()
    assert found["grown_mb"] < 3 * found["held_mb"], found


def test_a_stream_does_not_grow_with_its_groups() -> None:
    found = _figures("--stream")
    assert found["grown_mb"] < found["small"]["peak_mb"] / 2, found
