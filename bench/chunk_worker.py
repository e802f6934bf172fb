"""What a worker of a run in chunks costs beyond plain collect, as a ratio of CPU time measured in the same run.

    python bench/chunk_worker.py [--rollouts 16000] [--chunk-rows 178] [--rounds 5] [--json]

The same rows of mcqa with the same mock policy on the other core, once with `collect`, once planned in chunks and done
by one worker that claims, beats, commits and ends them. Bar: at most 5% more CPU, from the first rollout to the last.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from running import OUR_CORE, policy, row

CONCURRENCY = 128


class Clock:
    """CPU and wall time between the first and the last event."""

    def __init__(self) -> None:
        self._start = self._wall = 0.0
        self.cpu_s = self.wall_s = 0.0

    def listen(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "RunStarted":
            self._start, self._wall = time.process_time(), time.perf_counter()
        elif kind == "RunFinished":
            self.cpu_s = time.process_time() - self._start
            self.wall_s = time.perf_counter() - self._wall


def measured(kind: str, port: int, source: Path, chunk_rows: int) -> tuple[float, float]:
    """CPU and wall seconds of one way, in this process."""
    import uvloop

    from gymnast.cluster.order import ConfigNames
    from gymnast.cluster.planning import InChunks, plan_run
    from gymnast.cluster.work import work
    from gymnast.cluster.workplace import compose_for, open_workplace
    from gymnast.config import read_environ
    from gymnast.rollouts.conduct import Audience
    from gymnast.rollouts.engine import EngineOptions
    from gymnast.rollouts.plan import PlanOptions
    from gymnast.rollouts.run import CollectRequest, collect_here

    names = ConfigNames(
        environments=("mcqa",),
        overrides=("+model_endpoint_readiness_timeout_seconds=0",),
        model="mock",
        model_url=f"http://127.0.0.1:{port}/v1",
    )
    environ, clock = read_environ(), Clock()
    audience = Audience(clock.listen, lambda _: None)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "x.jsonl"
        request = CollectRequest(
            source, output, PlanOptions(agent="mcqa_simple_agent"), EngineOptions(CONCURRENCY), aggregate=False
        )
        config = _composed(names)
        if kind == "collect":
            uvloop.run(collect_here(request, config, environ, audience))
        else:
            planned = plan_run(request, config, names, InChunks(chunk_rows=chunk_rows))
            place = open_workplace(planned.paths, planned.order)
            uvloop.run(work(place, compose_for(planned.order, environ), environ, audience))
    return clock.cpu_s, clock.wall_s


def _composed(names: Any) -> Any:
    from gymnast.config import compose, read_environ

    return compose(
        read_environ(),
        environments=names.environments,
        overrides=names.overrides,
        model=names.model,
        model_url=names.model_url,
    ).checked()


def in_own_process(kind: str, port: int, source: Path, chunk_rows: int) -> tuple[float, float]:
    command = [sys.executable, __file__, "--child", kind, str(port), str(source), str(chunk_rows)]
    cpu_s, wall_s = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-2:]
    return float(cpu_s), float(wall_s)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rollouts", type=int, default=16000)
    parser.add_argument("--chunk-rows", type=int, default=178)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=4)
    given = parser.parse_args()
    if given.child:
        os.sched_setaffinity(0, {OUR_CORE})
        kind, port, source, chunk_rows = given.child
        print(*measured(kind, int(port), Path(source), int(chunk_rows)))
        return
    with tempfile.TemporaryDirectory() as folder, policy() as port:
        source = Path(folder) / "tasks.jsonl"
        source.write_text("".join(json.dumps(row(number, 1000)) + "\n" for number in range(given.rollouts)))
        plain, chunked = [], []
        for _ in range(given.rounds):
            plain.append(in_own_process("collect", port, source, given.chunk_rows))
            chunked.append(in_own_process("worker", port, source, given.chunk_rows))
    collect_s, worker_s = min(cpu for cpu, _ in plain), min(cpu for cpu, _ in chunked)
    found = {
        "rollouts": given.rollouts,
        "collect_s": collect_s,
        "worker_s": worker_s,
        "ratio": worker_s / collect_s,
        "wall_ratio": min(wall for _, wall in chunked) / min(wall for _, wall in plain),
    }
    if given.json:
        print(json.dumps(found))
        return
    print(
        f"{given.rollouts} rollouts in chunks of {given.chunk_rows}: collect {collect_s:.2f} s of CPU, worker "
        f"{worker_s:.2f} s, ratio {found['ratio']:.3f} (bar 1.05); of wall time {found['wall_ratio']:.2f}"
    )


if __name__ == "__main__":
    main()
