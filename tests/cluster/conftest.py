"""Fixtures of the cluster tests: one Slurm for all of them, and a folder to work in for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.desk import Desk
from tests.cluster.slurm_cluster import SlurmCluster, running_slurm


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A real Slurm; whoever hurts it mends it."""
    with running_slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Where somebody works; what was submitted there is cancelled at the end."""
    desk = Desk(tmp_path)
    yield desk
    if (tmp_path / "x_chunks" / "plan.json").exists():
        desk.gymnast("cancel", "x.jsonl")
