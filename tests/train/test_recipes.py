"""The recipes: a policy learns. Those for verl are in test_verl_recipes.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--generations", "1"), "--generations must be at least 2, got 1: with one, all advantages are 0"),
        (("--tasks", "1"), "--tasks must be at least 2, got 1"),
        (("--steps", "0"), "--steps must be at least 1, got 0"),
        (("--clip", "-0.2"), "--clip must be above 0, got -0.2"),
        (("--learning-rate", "nan"), "--learning-rate must be above 0, got nan"),
        (("--kl", "-1"), "--kl must be at least 0, got -1.0"),
    ],
)
def test_a_plan_that_cannot_be_trained_is_reported_before_anything_starts(
    tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    command = [sys.executable, str(RECIPES / "grpo_embedded.py"), "--out", str(tmp_path / "out"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.endswith(f"error: {problem}\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.learning
@pytest.mark.timeout(4 * 3600)  # against a hang; a busy machine may take as long as it takes
def test_a_policy_learns(tmp_path: Path) -> None:
    """A short run of the recipe, one seed: held-out reward rises. The recipe itself asserts that ratios are 1.

    With 800 rollouts on each side, chance moves the difference by 0.025: the bar is well above that, and well below the
    0.1 to 0.15 that this run learns.
    """
    subprocess.run(
        [
            sys.executable, str(RECIPES / "grpo_embedded.py"), "--out", str(tmp_path), "--steps", "18",
            "--evaluate-every", "18", "--held-out", "400", "--learning-rate", "3e-4",
        ],
        check=True,
        cwd=ROOT,
    )  # fmt: skip
    points = json.loads((tmp_path / "curve.json").read_text())["points"]
    assert points[-1]["reward"] >= points[0]["reward"] + 0.06, (
        f"{points[0]['reward']:.3f} -> {points[-1]['reward']:.3f}"
    )
    assert (tmp_path / "report.html").exists()
