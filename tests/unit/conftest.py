"""A unit test starts no process and does not sleep: one that has to belongs in tests/integration."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from gymnast.wire.http_client import HttpClient
from tests.helpers.command_functions import invoke_command
from tests.helpers.commands import Outcome
from tests.helpers.model_bench import Bench

TESTS: Final = str(Path(__file__).parents[1])
MIN_SLEEP_S: Final = 0.05
"""Shorter sleeps only let other tasks and threads run."""
PROCESS_EVENTS: Final = frozenset({"os.exec", "os.fork", "os.posix_spawn", "os.system", "subprocess.Popen"})


class Watch:
    """What the current test did that a unit test must not do."""

    def __init__(self) -> None:
        self.offences: list[str] = []
        sys.addaudithook(self._audit)  # hooks can't be removed, so there is one for all tests

    def _audit(self, event: str, _: tuple[Any, ...]) -> None:
        if event in PROCESS_EVENTS:
            self.offences.append(event)

    def on_sleep(self, sleep: Callable[..., Any], name: str) -> Callable[..., Any]:
        """A sleep that notes calls from tests; how long the product sleeps is its own business."""

        def watched(delay: float, *arguments: Any) -> Any:
            if delay >= MIN_SLEEP_S and sys._getframe(1).f_code.co_filename.startswith(TESTS):
                self.offences.append(f"{name}({delay})")
            return sleep(delay, *arguments)

        return watched


@pytest.fixture(scope="session")
def watch() -> Watch:
    return Watch()


@pytest.fixture(autouse=True)
def no_process_and_no_sleep(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that starts a process or sleeps."""
    monkeypatch.setattr(asyncio, "sleep", watch.on_sleep(asyncio.sleep, "asyncio.sleep"))
    monkeypatch.setattr(time, "sleep", watch.on_sleep(time.sleep, "time.sleep"))
    watch.offences.clear()
    before = _trace_of_children()
    yield
    if _trace_of_children() != before:  # uvloop's are not audited
        watch.offences.append("a child process")
    if watch.offences:
        text = f"a unit test must not start a process or sleep: {', '.join(watch.offences[:5])}"
        pytest.fail(f"{text}; move it to tests/integration", pytrace=False)


def _trace_of_children() -> tuple[int, bool]:
    """Changes when a process is started and when it ends. Cheap: it is read twice a test."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        has_children = False
    else:
        has_children = True
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt, has_children


@pytest.fixture
def invoke(tmp_path: Path) -> Callable[..., Outcome]:
    """Calls one of our commands as a function, in the test's folder: invoke('gymnast', 'status')."""
    return partial(invoke_command, tmp_path)


@pytest.fixture
async def bench(http: HttpClient) -> AsyncIterator[Bench]:
    """Model servers in this process and the endpoints behind them."""
    async with AsyncExitStack() as stack:
        yield Bench(stack, http)
