"""Fixtures of the trainer tests: real rollouts of the embedded policy, collected once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gymnast import Collector
from gymnast.builtin.responses_api_models.embedded_model.policy import SHIPPED
from gymnast.train import Batch, BatchOptions, SampleOptions, collect_batch
from gymnast.train.background_loop import BackgroundLoop
from tests.helpers.train_tasks import ENVIRONMENTS, TOKENS, shop_tasks

HERE = Path(__file__).parent

# Threads that wait for each other by spinning take many times as long beside other work, and tiny models need only one.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Trainers are slow to import and to start, Ray as well: what takes seconds alone takes minutes beside others."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1800))


def pytest_configure(config: pytest.Config) -> None:
    # Trainers and what they import warn about each other; of our own modules every warning stays an error.
    config.addinivalue_line("filterwarnings", "ignore::Warning:(?!gymnast)")
    config.addinivalue_line("markers", "loops: a whole training with verl; `make test-train-loops` runs these")
    config.addinivalue_line("markers", "learning: trains a policy for minutes; `-m learning` runs it alone")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """Ray on this machine, however busy that is."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "600")
    import ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def background() -> Iterator[BackgroundLoop]:
    thread = BackgroundLoop("tests")
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def make_collector() -> Callable[..., Collector]:
    """Environments with the embedded policy, in training mode."""

    def make(**more: Any) -> Collector:
        return Collector(environments=ENVIRONMENTS, model_type="embedded_model", overrides=[TOKENS], **more)

    return make


@pytest.fixture(scope="session")
def collector(background: BackgroundLoop, make_collector: Callable[..., Collector]) -> Collector:
    return background.enter(make_collector())


@pytest.fixture(scope="session")
def real_batch(background: BackgroundLoop, collector: Collector) -> Batch:
    """Rollouts of several turns with tools, four of each task, with their records."""
    options = BatchOptions(sample=SampleOptions(keep_line=True))
    return background.run(collect_batch(collector, shop_tasks(6), generations=4, options=options))


@pytest.fixture(scope="session")
def policy_folder() -> Path:
    """The embedded policy as a folder that transformers reads."""
    return SHIPPED
