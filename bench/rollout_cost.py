"""What the engine costs beyond the policy calls themselves, as ratios to a bare client loop measured in the same run.

    python bench/rollout_cost.py [--rollouts 4000] [--rounds 3] [--json]

For a single-step environment (mcqa) and a three-turn tool environment, at several concurrencies, on one core:
(a) a bare aiohttp loop that makes the same policy calls and nothing else, (b) `collect` with everything in one
process, (c) `collect` through `gymnast serve`. The mock policy runs on the other core. (b) and (c) each run at the same
time as an (a) on the same core, so that whatever slows that core slows both; rates are what their CPU time allows.
Bars: b >= 0.5 a, c >= 0.2 a in model calls per second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from running import OUR_CORE, policy

if TYPE_CHECKING:
    from gymnast.types.events import RunFinished

HERE = Path(__file__).parent
CONCURRENCIES = (64, 256, 1024)
BARS = {"b": 0.5, "c": 0.2}
NAMES = {"a": "(a) bare client loop", "b": "(b) collect in-process", "c": "(c) collect via serve"}


@dataclass(frozen=True)
class Workload:
    """An environment and how the mock policy plays it."""

    name: str
    environment: str
    agent: str
    tool_calls: int

    @property
    def model_calls(self) -> int:
        return self.tool_calls + 1


WORKLOADS = (
    Workload("single-step mcqa", "mcqa", "mcqa_simple_agent", 0),
    Workload("three-turn tools", "example_session_state_mgmt", "example_session_state_mgmt_simple_agent", 2),
)


@dataclass(frozen=True)
class Measured:
    """CPU seconds of a number of rollouts."""

    rollouts: int
    cpu_s: float


# --- the measured programs, each in a process of its own ----------------------------------------------------------


def bare(port: int, workload: Workload, rollouts: int, concurrency: int) -> Measured:
    """(a): only the policy calls, with the bodies the engine sends."""
    import aiohttp
    import orjson
    import uvloop

    bodies = _bodies(workload)
    headers = {"content-type": "application/json", "authorization": "Bearer key"}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"

    async def one(session: aiohttp.ClientSession) -> None:
        for body in bodies:
            async with session.post(url, data=orjson.dumps(body), headers=headers) as answer:
                orjson.loads(await answer.read())

    async def run() -> Measured:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            left = iter(range(rollouts))

            async def worker() -> None:
                for _ in left:
                    await one(session)

            cpu = time.process_time()
            await asyncio.gather(*(worker() for _ in range(concurrency)))
            return Measured(rollouts, time.process_time() - cpu)

    result: Measured = uvloop.run(run())
    return result


def in_process(port: int, workload: Workload, tasks: Path, rollouts: int, concurrency: int) -> Measured:
    """(b): collect with agent, environment and model server in one process."""
    import uvloop

    from gymnast.config import load_config, read_environ
    from gymnast.rollouts.observer import RunObserver
    from gymnast.rollouts.run import collect_run

    config = load_config(_overrides(workload, port), environ=read_environ()).require_valid()
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder:
        options = _options(tasks, Path(folder) / "x.jsonl", workload, rollouts, concurrency)
        finished = uvloop.run(collect_run(options, config, read_environ(), RunObserver(clock.listen)))
    assert finished.scored == rollouts, finished
    return Measured(rollouts, clock.cpu_s)


def served(head_url: str, pid: int, workload: Workload, tasks: Path, rollouts: int, concurrency: int) -> Measured:
    """(c): collect through a running serve; the CPU of both processes counts."""
    import uvloop

    from gymnast.rollouts.observer import RunObserver
    from gymnast.rollouts.run import collect_with
    from gymnast.rollouts.servers import connect_servers
    from gymnast.runtime.find_head import Head

    clock = _Clock()
    before = _cpu_of(pid)
    with tempfile.TemporaryDirectory() as folder:
        options = replace(
            _options(tasks, Path(folder) / "x.jsonl", workload, rollouts, concurrency), serve=Head(head_url)
        )

        async def collect() -> RunFinished:
            async with connect_servers(options) as servers:
                return await collect_with(servers, options, RunObserver(clock.listen))

        finished = uvloop.run(collect())
    assert finished.scored == rollouts, finished
    return Measured(rollouts, clock.cpu_s + _cpu_of(pid) - before)


class _Clock:
    """CPU time between the first and the last event of a collection."""

    def __init__(self) -> None:
        self._start = self.cpu_s = 0.0

    def listen(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "RunStarted":
            self._start = time.process_time()
        elif kind == "RunFinished":
            self.cpu_s = time.process_time() - self._start


def _options(tasks: Path, output: Path, workload: Workload, rollouts: int, concurrency: int) -> Any:
    from gymnast.rollouts.engine import EngineOptions
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.plan import PlanOptions

    lines = sum(1 for _ in tasks.open("rb"))
    assert rollouts % lines == 0
    plan = PlanOptions(agent=workload.agent, repeats=rollouts // lines)
    engine = EngineOptions(concurrency, preflight=True)
    return RunOptions(source=tasks, output=output, plan=plan, engine=engine, aggregate=False)


def _overrides(workload: Workload, port: int) -> list[str]:
    env = workload.environment
    return [
        f"+config_paths=[resources_servers/{env}/configs/{env}.yaml,responses_api_models/vllm_model/configs/vllm_model.yaml]",
        f"+policy_base_url=http://127.0.0.1:{port}/v1",
        "+policy_api_key=key",
        "+policy_model_name=mock",
        "+model_endpoint_readiness_timeout_seconds=0",
    ]


def _bodies(workload: Workload) -> list[dict[str, Any]]:
    """The chat bodies of one rollout, as the engine makes them."""
    from gymnast.wire.dialects.chat_requests import params_to_chat

    row = json.loads(_example(workload).read_text().splitlines()[0])
    params: Any = row["responses_create_params"]
    call = {"type": "function_call", "call_id": "call_1", "name": "increment_counter", "arguments": '{"count": 3}'}
    result = {"type": "function_call_output", "call_id": "call_1", "output": '{"success":true}'}
    return [
        {
            **params_to_chat(cast("Any", {**params, "input": params["input"] + [call, result] * turn}))[0],
            "model": "mock",
        }
        for turn in range(workload.model_calls)
    ]


def _example(workload: Workload) -> Path:
    from gymnast.config.roots import BUILTIN

    return BUILTIN / "resources_servers" / workload.environment / "data" / "example.jsonl"


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the driver ----------------------------------------------------------------------------------------------------


def measure(*specs: dict[str, Any]) -> list[Measured]:
    """Run measurements at the same time, each in a fresh process on our core."""
    command = [sys.executable, __file__, "--child"]
    processes = [
        subprocess.Popen([*command, json.dumps(spec, default=str)], stdout=subprocess.PIPE, text=True) for spec in specs
    ]
    found = [process.communicate()[0].splitlines()[-1] for process in processes]
    return [Measured(**json.loads(line)) for line in found]


def child(spec: dict[str, Any]) -> None:
    """One measurement."""
    os.sched_setaffinity(0, {OUR_CORE})
    workload = WORKLOADS[spec["workload"]]
    rollouts, concurrency = spec["rollouts"], spec["concurrency"]
    if spec["kind"] == "a":
        result = bare(spec["port"], workload, rollouts, concurrency)
    elif spec["kind"] == "b":
        result = in_process(spec["port"], workload, Path(spec["tasks"]), rollouts, concurrency)
    else:
        result = served(spec["head"], spec["pid"], workload, Path(spec["tasks"]), rollouts, concurrency)
    print(json.dumps(result.__dict__))


@contextlib.contextmanager
def serve(workload: Workload, port: int) -> Iterator[tuple[str, int]]:
    """`gymnast serve` on our core; yields its head URL and pid."""
    command = [
        sys.executable,
        "-m",
        "gymnast.cli.main",
        "serve",
        "--json",
        "--head-port",
        "auto",
        *_overrides(workload, port),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    os.sched_setaffinity(process.pid, {OUR_CORE})
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["head"], process.pid
    finally:
        process.terminate()
        process.wait()


def tasks_file(workload: Workload, folder: Path) -> Path:
    """The environment's example rows as the input."""
    target = folder / f"{workload.environment}.jsonl"
    target.write_bytes(_example(workload).read_bytes())
    return target


def main() -> None:
    """Measure everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child))
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for index, workload in enumerate(WORKLOADS):
            rows += measure_workload(
                index, workload, tasks_file(workload, Path(folder)), options.rollouts, options.rounds
            )
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(
        f"{'workload':<18} {'conc.':>5} {'':<22} {'rollouts/s':>10} {'calls/s':>9} {'CPU ms/rollout':>15} "
        f"{'ratio to (a)':>13}  bar"
    )
    for row in rows:
        bar = f">= {BARS[row['kind']]}" if row["kind"] in BARS else ""
        met = "" if not bar else (" met" if row["ratio"] >= BARS[row["kind"]] else " MISSED")
        print(
            f"{row['workload']:<18} {row['concurrency']:>5} {row['what']:<22} {row['rollouts_per_s']:>10.0f} "
            f"{row['calls_per_s']:>9.0f} {row['cpu_ms']:>15.3f} {row['ratio']:>13.2f}  {bar}{met}"
        )


def measure_workload(index: int, workload: Workload, tasks: Path, rollouts: int, rounds: int) -> list[dict[str, Any]]:
    """All three programs at every concurrency, (b) and (c) beside an (a) that lasts about as long."""
    rows: list[dict[str, Any]] = []
    with policy("--tool-calls", str(workload.tool_calls)) as port, serve(workload, port) as (head, pid):
        extra: dict[str, dict[str, Any]] = {
            "b": {"port": port, "tasks": tasks},
            "c": {"head": head, "pid": pid, "tasks": tasks},
        }
        for concurrency in CONCURRENCIES:
            common = {"workload": index, "concurrency": concurrency}
            cpu_ms: dict[str, float] = {}
            ratios: dict[str, float] = {"a": 1.0}
            for kind, times in (("b", 2), ("c", 4)):
                beside = {"kind": "a", "port": port, **common, "rollouts": times * rollouts}
                own = {"kind": kind, **extra[kind], **common, "rollouts": rollouts}
                pairs = [measure(beside, own) for _ in range(rounds)]
                bare_ms, cpu_ms[kind] = (_cpu_ms([pair[position] for pair in pairs]) for position in (0, 1))
                cpu_ms.setdefault("a", bare_ms)
                ratios[kind] = bare_ms / cpu_ms[kind]
            rows += [_row(workload, concurrency, kind, cpu_ms[kind], ratios[kind]) for kind in NAMES]
    return rows


def _cpu_ms(runs: list[Measured]) -> float:
    """CPU of a rollout over all rounds."""
    return 1000 * sum(run.cpu_s for run in runs) / sum(run.rollouts for run in runs)


def _row(workload: Workload, concurrency: int, kind: str, cpu_ms: float, ratio: float) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "concurrency": concurrency,
        "kind": kind,
        "what": NAMES[kind],
        "rollouts_per_s": 1000 / cpu_ms,
        "calls_per_s": 1000 / cpu_ms * workload.model_calls,
        "cpu_ms": cpu_ms,
        "ratio": ratio,
    }


if __name__ == "__main__":
    main()
