"""Fixtures of the cluster tests: one Slurm for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.slurm_cluster import SlurmCluster, running_slurm


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A real Slurm; whoever hurts it mends it."""
    with running_slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster
