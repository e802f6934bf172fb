"""Work in other processes: results, errors, deadlines, crashes; nothing is left running."""

from __future__ import annotations

import asyncio

import psutil
import pytest

from gymnast.kit.process_pool import (
    CpuTimeExceededError,
    ProcessPool,
    WorkerCrashedError,
    WorkerError,
    WorkerTimeoutError,
)
from tests.helpers.waiting import looks_during


async def test_results_come_back_and_workers_are_used_again() -> None:
    async with ProcessPool("operator:add", size=2, timeout_s=10) as pool:
        assert await pool.call(1, 2) == 3
        assert await asyncio.gather(*(pool.call([n], ["ü\u2028"]) for n in range(20))) == [
            [n, "ü\u2028"] for n in range(20)
        ]
        assert len(psutil.Process().children()) <= 2
    assert not psutil.Process().children()


async def test_large_arguments_and_results_pass() -> None:
    async with ProcessPool("operator:add", size=1, timeout_s=10) as pool:
        assert len(await pool.call("x" * 3_000_000, "y" * 3_000_000)) == 6_000_000


async def test_what_the_function_raises_is_reported_and_the_worker_lives_on() -> None:
    async with ProcessPool("operator:truediv", size=1, timeout_s=10) as pool:
        with pytest.raises(WorkerError, match="ZeroDivisionError: division by zero"):
            await pool.call(1, 0)
        before = psutil.Process().children()
        assert await pool.call(1, 2) == 0.5
        assert psutil.Process().children() == before
        with pytest.raises(WorkerError, match="not JSON compliant"):
            await pool.call(float(10**308), 1e-300)


async def test_late_work_is_killed_and_the_loop_goes_on() -> None:
    async with ProcessPool("re:findall", size=1, timeout_s=0.3) as pool:
        await pool.call("a", "a")
        work = asyncio.create_task(pool.call("(a+)+$", "a" * 40 + "b"))
        assert await looks_during(work) > 3
        with pytest.raises(WorkerTimeoutError, match=r"no result after 0\.3 s"):
            await work
        assert await pool.call("b+", "abba") == ["bb"]


async def test_cpu_time_is_bounded_and_waiting_is_not_work() -> None:
    async with ProcessPool("re:findall", size=1, cpu_s=0.3) as pool:
        with pytest.raises(CpuTimeExceededError, match=r"no result after 0\.3 s of CPU time"):
            await pool.call("(a+)+$", "a" * 40 + "b")
        assert await pool.call("b+", "abba") == ["bb"]
    async with ProcessPool("time:sleep", size=1, cpu_s=0.3) as pool:
        assert await pool.call(0.5) is None


async def test_a_worker_warms_up_before_time_counts() -> None:
    async with ProcessPool("operator:add", size=1, cpu_s=1, warm_up="gc:collect") as pool:
        assert await pool.call(1, 2) == 3
    async with ProcessPool("operator:add", size=1, cpu_s=1, warm_up="operator:add") as pool:
        with pytest.raises(WorkerCrashedError, match="TypeError"):
            await pool.call(1, 2)


async def test_a_crash_is_distinguished_from_an_error() -> None:
    async with ProcessPool("os:_exit", size=1, timeout_s=10) as pool:
        with pytest.raises(WorkerCrashedError, match="ended with code 7"):
            await pool.call(7)


async def test_memory_is_bounded() -> None:
    async with ProcessPool("operator:mul", size=1, timeout_s=10, memory_mb=256) as pool:
        with pytest.raises(WorkerError, match="MemoryError"):
            await pool.call("x", 1 << 30)


async def test_a_function_that_cannot_be_imported_is_named() -> None:
    async with ProcessPool("no_such_module:f", size=1, timeout_s=10) as pool:
        with pytest.raises(WorkerCrashedError, match="no_such_module"):
            await pool.call()


async def test_cancelled_work_leaves_no_stale_answer() -> None:
    async with ProcessPool("time:sleep", size=1, timeout_s=10) as pool:
        await pool.call(0)
        work = asyncio.create_task(pool.call(30))
        await asyncio.sleep(0.05)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await pool.call(0) is None
