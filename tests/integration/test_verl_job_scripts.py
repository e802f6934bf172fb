"""The job scripts of the verl recipes: clean for shellcheck, and callable from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.commands import BIN

FOLDER = Path(__file__).parents[2] / "recipes" / "verl"
SHELLCHECK = shutil.which("shellcheck", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
SBATCH = '#!/bin/sh\necho "RECIPES=$RECIPES"\nfor word in "$@"; do echo "$word"; done\n'


def test_shellcheck_finds_nothing() -> None:
    scripts = sorted(map(str, FOLDER.glob("*.sh")))
    recipes = {path.stem for path in FOLDER.glob("*.yaml")} - {"gymnast_base"}
    assert {Path(script).stem for script in scripts} == {*recipes, "launch", "submit"}
    done = subprocess.run([str(SHELLCHECK), *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("name", "nodes"), [("math", 1), ("workplace", 2), ("multi_environment", 2)])
def test_a_job_is_submitted_from_any_folder(tmp_path: Path, name: str, nodes: int) -> None:
    (tmp_path / "sbatch").write_text(SBATCH)
    (tmp_path / "sbatch").chmod(0o755)
    done = subprocess.run(
        [str(FOLDER / f"{name}.sh"), "/models/a model", "train.jsonl", "val.jsonl", "trainer.total_epochs=2"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"RECIPES={FOLDER}",
        f"--nodes={nodes}",
        "--gpus-per-node=8",
        f"{FOLDER}/submit.sh",
        name,
        "actor_rollout_ref.model.path=/models/a model",
        "data.train_files=[train.jsonl]",
        "data.val_files=[val.jsonl]",
        "trainer.total_epochs=2",
    ]
    assert (FOLDER / f"{name}.yaml").exists()
