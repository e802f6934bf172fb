"""Every recipe for verl, unchanged but for what a machine without a GPU needs: three steps of verl's own main_ppo.

Two of them are submitted with their scripts to a real Slurm. Device and inference replica are stand-ins, as in
test_verl_loops.py; the replica plays verifier cases, so every environment gives rewards.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from gymnast.train import has_signal
from gymnast.train.verl_collector import VerlCollector
from gymnast.train.verl_dataset import ROW
from tests.cluster.slurm_cluster import running_slurm
from tests.train.test_verl_recipes import ENVIRONMENTS_OF
from tests.train.verl_loop.row_checks import ROWS, require_rows_as_sampled
from tests.train.verl_loop.running import ROOT, STEPS, Loop, make_recipe_loop
from tests.train.verl_loop.scripted_client import ScriptedClient

pytestmark = [pytest.mark.timeout(3600), pytest.mark.loops]
FOLDER = ROOT / "recipes" / "verl"
ON_SLURM = ["mcqa", "multi_turn"]


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS_OF))
def test_the_environments_of_a_recipe_score_what_verls_servers_sample(name: str, tmp_path: Path) -> None:
    """Without verl's trainer: its configuration, our endpoint for its servers, the real environments."""
    loop = make_recipe_loop(tmp_path, FOLDER / f"{name}.yaml", ENVIRONMENTS_OF[name])
    with initialize_config_dir(config_dir=str(FOLDER), version_base=None):
        config = compose(name, overrides=list(loop.overrides))
    collector = VerlCollector(config, ScriptedClient(loop.model, tmp_path / "script.json"))
    try:
        columns = {ROW: (tmp_path / "train.jsonl").read_text().splitlines()}
        tasks = collector.tasks(columns, validate=False)
        batch = collector.background.run(collector.collect(tasks, 2, validate=False))
    finally:
        collector.close()
    assert all(sample.is_trainable for sample in batch.samples), batch.masked()
    assert any(has_signal(group) for group in batch.groups)


@pytest.mark.parametrize("name", sorted(set(ENVIRONMENTS_OF) - set(ON_SLURM)))
def test_verl_trains_with_a_recipe(name: str, tmp_path: Path) -> None:
    loop = make_recipe_loop(tmp_path, FOLDER / f"{name}.yaml", ENVIRONMENTS_OF[name])
    loop.run("first")
    require_training(loop)


@pytest.mark.parametrize("name", ON_SLURM)
def test_a_recipe_is_submitted_to_slurm(name: str, tmp_path: Path) -> None:
    loop = make_recipe_loop(tmp_path, FOLDER / f"{name}.yaml", ENVIRONMENTS_OF[name])
    files = [str(tmp_path / part) for part in ("model", "train.jsonl", "validation.jsonl")]
    environ = {**loop.environ("first"), "GPUS": "1", "VENV": sys.prefix}
    joined = [f"ray_kwargs.ray_init.{name}=null" for name in ("num_cpus", "num_gpus")]  # the job's cluster has them
    with running_slurm(tmp_path / "slurm", NODES="1", CPUS="16", GPUS="1"):
        environ["SLURM_CONF"] = os.environ["SLURM_CONF"]
        done = subprocess.run(
            [FOLDER / f"{name}.sh", *files, *loop.overrides, *joined],
            env=environ,
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )
        job = done.stdout.split()[-1].decode()
        subprocess.run(["srun", f"--dependency=afterany:{job}", "true"], env=environ, check=True)
    require_training(loop)


def require_training(loop: Loop) -> None:
    """Three steps with tokens as sampled, rollouts that all have a reward, and a signal."""
    require_rows_as_sampled(loop, "first")
    steps = loop.logged("first")
    assert len(steps) >= STEPS
    for step in range(1, STEPS + 1):
        assert steps[step]["gymnast/samples"] == steps[step]["gymnast/trained_samples"] == ROWS
        assert abs(steps[step]["actor/ppo_kl"]) < 1e-4
    assert any(row.advantage for rows in loop.trained("first") for row in rows)
