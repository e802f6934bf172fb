"""Blocking calls of a trainer's adapter: their results arrive, and one that hangs does not keep the process alive."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from gymnast.train.background_loop import BackgroundLoop, run_in_daemon

HANGS = """
import threading
from gymnast.train.background_loop import BackgroundLoop, run_in_daemon

called = threading.Event()
def wait_for_what_never_comes():
    called.set()
    threading.Event().wait()

BackgroundLoop().start(run_in_daemon(wait_for_what_never_comes))
called.wait()
print("done")
"""


def test_a_process_ends_although_a_call_hangs() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_results_and_errors_arrive() -> None:
    background = BackgroundLoop()
    try:
        assert background.run(run_in_daemon(lambda: 7)) == 7
        with pytest.raises(ZeroDivisionError):
            background.run(run_in_daemon(lambda: 1 // 0))
    finally:
        background.close()


async def test_a_call_that_was_cancelled_may_still_end() -> None:
    loop = asyncio.get_running_loop()
    entered, leave = asyncio.Event(), asyncio.Event()

    def call() -> None:
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(leave.wait(), loop).result()

    waiting = asyncio.create_task(run_in_daemon(call))
    await entered.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    leave.set()
    assert await run_in_daemon(lambda: "next") == "next"
