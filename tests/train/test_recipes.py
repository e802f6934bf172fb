"""The recipes: a policy learns. Those for verl are in test_verl_recipes.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"


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
