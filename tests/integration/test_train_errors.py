"""Errors of training come back from other processes whole."""

from __future__ import annotations

import pickle
import subprocess
import sys

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
