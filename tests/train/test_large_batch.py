"""A batch of 4,096 × 16 rollouts: every one is there, and memory is bounded by what the samples themselves hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "train_batch.py"


@pytest.mark.parametrize(("options", "most"), [([], 3.0), (["--stream"], 0.5)], ids=["whole", "streamed"])
def test_memory_of_a_large_batch(options: list[str], most: float) -> None:
    """The bench asserts that as many samples as were asked for come and can be trained on."""
    done = subprocess.run([sys.executable, str(BENCH), "--json", *options], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["large"]["rollouts"] == 4096 * 16
    assert found["grown_mb"] < most * found["large"]["samples_mb"], found
