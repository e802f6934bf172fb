"""What running a trivial Python program in the sandbox costs, as a ratio to a bare `python -c` in the same run.

    python bench/sandbox.py [--programs 200] [--json]

CPU counts everything: the program, the jail's server and our own side. Bars: at most 3 times the CPU of a bare process
at p50, and in parallel at least 0.4 of the bare rate. Rounds of both alternate, so that a busy host slows both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil

from gymnast.sandbox import Limits, Sandbox, SandboxSettings, open_sandbox

CODE = "print(1)"
ROUNDS = 5


async def bare() -> float:
    """One `python -c`; its CPU seconds."""
    before = _own_cpu(resource.RUSAGE_CHILDREN)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CODE, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert said == b"1\n"
    return _own_cpu(resource.RUSAGE_CHILDREN) - before


async def jailed(sandbox: Sandbox) -> float:
    result = await sandbox.run_python(CODE)
    assert result.stdout == "1\n", result
    return result.cpu_seconds


def _own_cpu(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def _jails_cpu() -> float:
    """Of the jails with everything that ended in them: the scheduler's own count, and what processes waited for."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            total += int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9
            used = process.cpu_times()
        except (OSError, psutil.Error):
            continue
        total += used.children_user + used.children_system
    return total


async def one_by_one(run: Callable[[], Awaitable[float]], count: int) -> tuple[list[float], float]:
    """CPU seconds of each program, and what else each cost on average: our side, and the rest of the jail."""
    ours, jails = _own_cpu(resource.RUSAGE_SELF), _jails_cpu()
    programs = [await run() for _ in range(count)]
    around = max(0.0, _jails_cpu() - jails - sum(programs))  # nothing for bare processes, which are no jail's
    return programs, (_own_cpu(resource.RUSAGE_SELF) - ours + around) / count


async def rate(run: Callable[[], Awaitable[float]], count: int, at_once: int) -> float:
    """Programs per second, several at once."""

    async def worker() -> None:
        for _ in range(count // at_once):
            await run()

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    return count / (time.perf_counter() - started)


async def measured(count: int) -> dict[str, float]:
    cores = len(os.sched_getaffinity(0))
    cpu: dict[str, list[float]] = {"bare": [], "jailed": []}
    rates: dict[str, list[float]] = {"bare": [], "jailed": []}
    async with open_sandbox(SandboxSettings(pool_size=cores)) as sandbox:
        ways: dict[str, Callable[[], Awaitable[float]]] = {"bare": bare, "jailed": lambda: jailed(sandbox)}
        await asyncio.gather(*(jailed(sandbox) for _ in range(2 * cores)))
        for _ in range(ROUNDS):
            for name, run in ways.items():
                programs, rest = await one_by_one(run, count // ROUNDS)
                cpu[name] += [used + rest for used in programs]
                rates[name].append(await rate(run, count // ROUNDS, 2 * cores))
        step = await session_ms(sandbox)
    used_once = await cold_ms(max(5, count // 20))
    bare_ms, jailed_ms = statistics.median(cpu["bare"]) * 1e3, statistics.median(cpu["jailed"]) * 1e3
    bare_rate, jailed_rate = statistics.median(rates["bare"]), statistics.median(rates["jailed"])
    return {
        "bare_cpu_ms": bare_ms,
        "jailed_cpu_ms": jailed_ms,
        "cpu_ratio": jailed_ms / bare_ms,
        "bare_per_s": bare_rate,
        "jailed_per_s": jailed_rate,
        "rate_ratio": jailed_rate / bare_rate,
        "new_jail_each_time_wall_ms": used_once,
        "session_step_wall_ms": step,
    }


async def session_ms(sandbox: Sandbox) -> float:
    async with sandbox.python_session() as session:
        await session.execute("x = 0", Limits())
        started = time.perf_counter()
        for _ in range(100):
            await session.execute("x += 1\nx", Limits())
        return (time.perf_counter() - started) * 10


async def cold_ms(count: int) -> float:
    """With jails that are used once: what the warm pool saves."""
    async with open_sandbox(SandboxSettings(pool_size=1, recycle_after=1)) as sandbox:
        started = time.perf_counter()
        for _ in range(count):
            await jailed(sandbox)
        return (time.perf_counter() - started) / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(measured(given.programs))
    if given.json:
        print(json.dumps(found))
        return
    print(f"{'':24} {'bare':>9} {'sandbox':>9} {'ratio':>7}")
    for name, unit, ratio in (
        ("CPU ms, p50", "cpu_ms", "cpu_ratio"),
        ("programs/s in parallel", "per_s", "rate_ratio"),
    ):
        print(f"{name:24} {found[f'bare_{unit}']:>9.1f} {found[f'jailed_{unit}']:>9.1f} {found[ratio]:>7.2f}")
    print(f"a new jail for each program: {found['new_jail_each_time_wall_ms']:.0f} ms of wall-clock time")
    print(f"a step of a session: {found['session_step_wall_ms']:.1f} ms of wall-clock time")


if __name__ == "__main__":
    main()
