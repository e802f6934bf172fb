"""Fixtures shared by all tests: real processes, real sockets on port 0, real files; nothing is left running."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop
from hypothesis import HealthCheck, settings

from gymnast.config import Config, load_config, read_environ
from gymnast.wire.http_client import HttpClient
from tests.helpers.commands import Outcome, Served, run_command, serving
from tests.helpers.skip_report import (
    pytest_make_collect_report,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport", "pytest_terminal_summary"]

# How fast examples are made says more about the machine than about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

BOTH_LOOPS = {"test_http_client.py", "test_deadline.py", "test_transports.py", "test_listener.py"}
"""Tests of code that leans on the event loop run on asyncio's as well as on uvloop."""

TEARDOWN_S = 900.0
REAL_STDERR = pytest.StashKey[int]()


class StrictLoop(uvloop.Loop):
    """uvloop whose unclosed sockets fail the test: as errors, its own warnings would make it wait for them for ever."""

    def close(self) -> None:
        with warnings.catch_warnings(record=True) as left:
            warnings.simplefilter("always")
            super().close()
        assert not left, f"left open: {[str(warning.message) for warning in left]}"


def pytest_configure(config: pytest.Config) -> None:
    capturing = config.pluginmanager.getplugin("capturemanager")
    with capturing.global_and_fixture_disabled() if capturing is not None else nullcontext():
        config.stash[REAL_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[REAL_STDERR])


def pytest_collection_finish() -> None:
    """What was imported stays: garbage collection, which each run does when it starts, need not walk it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """A test that failed is not timed any more while it is torn down: one that hangs there ends the run."""
    faulthandler.dump_traceback_later(TEARDOWN_S, exit=True, file=item.config.stash[REAL_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """Tests run on uvloop, as our commands do."""
    factories: dict[str, Callable[[], Any]] = {"uvloop": StrictLoop}
    if item.path.name in BOTH_LOOPS:
        factories["asyncio"] = asyncio.new_event_loop
    return factories


@pytest.fixture(scope="session", autouse=True)
def private_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Registry, logs and cache of the test run are its own, and nothing of the user's environment leaks in."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RUNTIME", "STATE", "CACHE"):
            patch.setenv(f"GYMNAST_{name}_DIR", str(home / name.lower()))
        for name in ("GYMNAST_TOKEN", "NEMO_GYM_EXTRA_ROOTS"):
            patch.delenv(name, raising=False)
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # or each of our commands compiles its modules anew
        yield


@pytest.fixture
def own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry in which only this test's serves are listed."""
    monkeypatch.setenv("GYMNAST_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture(scope="session", autouse=True)
def no_process_left() -> Iterator[None]:
    """A test run that leaves processes behind fails."""
    yield
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=3)
    running = [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    for process in running:
        process.kill()
    assert not running, f"left running: {running}"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Outcome]:
    """Runs one of our commands in the test's folder: run('gymnast', 'status')."""
    return partial(run_command, tmp_path)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Starts `gymnast serve` (on a free head port unless told) and stops it after the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(serving(tmp_path, *arguments, **options))


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    """An HTTP client."""
    async with HttpClient() as client:
        yield client


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., Config]:
    """Loads a configuration as if called in the test's folder."""

    def load(*overrides: str, config_paths: Sequence[str] = (), **options: Any) -> Config:
        return load_config(overrides, environ=read_environ(), config_paths=config_paths, cwd=tmp_path, **options)

    return load
