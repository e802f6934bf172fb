"""Errors of training come back from Ray whole."""

from __future__ import annotations

import pytest
import ray

from gymnast.train import FewerRolloutsError
from gymnast.train.error_causes import describe_error


def _raise(_: int) -> None:
    raise FewerRolloutsError("1 of 2 rollouts", 2, 1, {"worker_died": 1}, ["0:1"])


@pytest.mark.usefixtures("ray_cluster")
def test_the_error_crosses_ray() -> None:
    with pytest.raises(FewerRolloutsError) as caught:
        ray.get(ray.remote(_raise).remote(0))
    assert caught.value.missing == ("0:1",)


class _EngineDeadError(RuntimeError):
    pass


def _compute() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _raise_chained(_: int) -> None:
    try:
        _compute()
    except RuntimeError as error:
        raise _EngineDeadError("the engine core died") from error


@pytest.mark.usefixtures("ray_cluster")
def test_the_cause_of_an_engine_error_is_shown() -> None:
    with pytest.raises(_EngineDeadError) as caught:
        ray.get(ray.remote(_raise_chained).remote(0))
    text = describe_error(caught.value)
    assert text.startswith("RuntimeError: CUDA error: an illegal memory access was encountered; raised as")
    assert text.endswith("the engine core died")
