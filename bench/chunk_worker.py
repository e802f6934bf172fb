"""What a worker of a run in chunks costs beyond plain collect, as a ratio of CPU time measured in the same run.

    python bench/chunk_worker.py [--rollouts 16000] [--chunk-rows 178] [--rounds 3] [--json]

The same rows of mcqa with the same mock policy on the other core, with `collect` and, planned in chunks, with a worker
that claims, beats, commits and ends them. Both run at the same time on one core, so that whatever slows it slows both.
Bar: at most 5% more CPU, from the first rollout to the end. Also printed: how long after its last rollout each ends.

What the rounds wrote is deleted after the last of them: some file systems (ext4 without a journal) look for room for a
new file among all those that were deleted lately, and that is time which neither way has to answer for.
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
    """CPU time between the first and the last event, and how long the last one came after the last rollout."""

    def __init__(self) -> None:
        self._start = self._last = 0.0
        self.cpu_s = self.tail_s = 0.0

    def listen(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "RunStarted":
            print("ready", flush=True)
            sys.stdin.readline()  # until the other is ready too
            self._start = time.process_time()
        elif kind == "RolloutScored":
            self._last = time.perf_counter()
        elif kind == "RunFinished":
            self.cpu_s = time.process_time() - self._start
            self.tail_s = time.perf_counter() - self._last


def measured(kind: str, port: int, source: Path, chunk_rows: int) -> tuple[float, float]:
    """Seconds of CPU and of the tail of one way, in this process."""
    import uvloop

    from gymnast.chunks.planning import ChunkingOptions, plan_run
    from gymnast.chunks.worker import run_worker
    from gymnast.chunks.worker_context import compose_config, open_worker_context
    from gymnast.chunks.worker_spec import ConfigArguments
    from gymnast.config import read_environ
    from gymnast.rollouts.engine import EngineOptions
    from gymnast.rollouts.observer import RunObserver
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.plan import PlanOptions
    from gymnast.rollouts.run import collect_run

    names = ConfigArguments(
        environments=("mcqa",),
        overrides=("+model_endpoint_readiness_timeout_seconds=0",),
        model="mock",
        model_url=f"http://127.0.0.1:{port}/v1",
    )
    environ, clock = read_environ(), Clock()
    observer = RunObserver(clock.listen)
    output = Path(tempfile.mkdtemp(dir=source.parent)) / "x.jsonl"
    options = RunOptions(
        source=source,
        output=output,
        plan=PlanOptions(agent="mcqa_simple_agent"),
        engine=EngineOptions(CONCURRENCY),
        aggregate=False,
    )
    config = _composed(names)
    if kind == "collect":
        uvloop.run(collect_run(options, config, environ, observer))
    else:
        planned = plan_run(options, config, names, ChunkingOptions(chunk_rows=chunk_rows))
        context = open_worker_context(planned.paths, planned.spec)
        uvloop.run(run_worker(context, compose_config(planned.spec, environ), environ, observer))
    return clock.cpu_s, clock.tail_s


def _composed(names: Any) -> Any:
    from gymnast.config import compose, read_environ

    return compose(
        read_environ(),
        environments=names.environments,
        overrides=names.overrides,
        model=names.model,
        model_url=names.model_url,
    ).require_valid()


def side_by_side(port: int, source: Path, chunk_rows: int) -> list[tuple[float, float]]:
    """Both ways at once, each in a process of its own."""
    command = [sys.executable, __file__, "--child"]
    ways = [
        subprocess.Popen(
            [*command, kind, str(port), str(source), str(chunk_rows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for kind in ("collect", "worker")
    ]
    for way in ways:
        assert way.stdout is not None
        assert way.stdout.readline() == "ready\n"
    for way in ways:
        assert way.stdin is not None
        way.stdin.write("\n")
        way.stdin.flush()
    found = []
    for way in ways:
        cpu_s, tail_s = way.communicate()[0].split()
        found.append((float(cpu_s), float(tail_s)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rollouts", type=int, default=16000)
    parser.add_argument("--chunk-rows", type=int, default=178)
    parser.add_argument("--rounds", type=int, default=3)
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
        rounds = [side_by_side(port, source, given.chunk_rows) for _ in range(given.rounds)]
    found = {
        "rollouts": given.rollouts,
        "collect_s": sum(collect[0] for collect, _ in rounds),
        "worker_s": sum(worker[0] for _, worker in rounds),
        "ratios": [round(worker[0] / collect[0], 3) for collect, worker in rounds],
        "collect_tail_s": max(collect[1] for collect, _ in rounds),
        "worker_tail_s": max(worker[1] for _, worker in rounds),
    }
    found["ratio"] = found["worker_s"] / found["collect_s"]
    if given.json:
        print(json.dumps(found))
        return
    print(
        f"{given.rounds} x {given.rollouts} rollouts in chunks of {given.chunk_rows}: "
        f"collect {found['collect_s']:.2f} s of CPU, worker {found['worker_s']:.2f} s, "
        f"ratio {found['ratio']:.3f} (bar 1.05); rounds {found['ratios']}\n"
        f"after the last rollout collect ends within {found['collect_tail_s']:.2f} s, "
        f"the worker within {found['worker_tail_s']:.2f} s"
    )


if __name__ == "__main__":
    main()
