"""Errors of training come back from Ray whole."""

from __future__ import annotations

import pytest
import ray

from gymnast.train import FewerRolloutsError


def _raise(_: int) -> None:
    raise FewerRolloutsError("1 of 2 rollouts", 2, 1, {"worker_died": 1}, ["0:1"])


@pytest.mark.usefixtures("ray_cluster")
def test_the_error_crosses_ray() -> None:
    with pytest.raises(FewerRolloutsError) as caught:
        ray.get(ray.remote(_raise).remote(0))
    assert caught.value.missing == ("0:1",)
