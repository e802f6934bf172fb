"""Errors of training come back from other processes whole."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from gymnast.train import FewerRolloutsError

_CHILD = """
import pickle, sys
from gymnast.train import FewerRolloutsError
error = FewerRolloutsError("1 of 2 rollouts", 2, 1, {"worker_died": 1}, ["0:1"])
sys.stdout.buffer.write(pickle.dumps(error))
"""


def test_the_error_crosses_process_borders() -> None:
    error = pickle.loads(subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, check=True).stdout)
    assert isinstance(error, FewerRolloutsError)
    assert (str(error), error.requested, error.scored, error.owed) == ("1 of 2 rollouts", 2, 1, 0)
    assert (error.failed, error.missing) == ({"worker_died": 1}, ("0:1",))


def _raise(_: int) -> None:
    raise FewerRolloutsError("1 of 2 rollouts", 2, 1, {"worker_died": 1}, ["0:1"])


def test_the_error_crosses_ray() -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        with pytest.raises(FewerRolloutsError) as caught:
            ray.get(ray.remote(_raise).remote(0))
        assert caught.value.missing == ("0:1",)
    finally:
        ray.shutdown()
