"""The simulated cluster, small and rough: whatever is preempted, and whenever, every rollout is merged once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROUGH = """
--tasks 150 --repeats 4 --jobs 6 --slots 8 --mean-s 300 --longest-s 1500
--preempted-per-hour 4 --time-limit-s 2400 --warned-s 120 --queue-s 60 --start-up-s 60
"""
SCRIPT = Path(__file__).parents[2] / "bench" / "cluster_simulation.py"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_rough_cluster(seed: int) -> None:
    options = f"--seeds {seed} {ROUGH}".split()
    done = subprocess.run([sys.executable, str(SCRIPT), "--json", *options], capture_output=True, text=True, check=True)
    data = json.loads(done.stdout)  # it has merged: 600 rollouts, none twice, none owed
    assert data["preemptions"] + data["time_limits"] > 10
    assert data["losses"]["abandoned_s"] == 0.0, "a living worker lost its chunk"
