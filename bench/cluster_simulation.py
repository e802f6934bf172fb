"""20,000 × 16 rollouts over 300 jobs on a virtual clock: makespan against the ideal, lost work, file operations.

    python bench/cluster_simulation.py [--seeds 1,2,3] [--chunk-rows N] [--lease-s S] [--heartbeat-s S] [--json] …

Planner, leases, heartbeats, cessions and merge are the package's own, on real files in a temporary folder (below
/dev/shm where there is one). Jobs wait for their place, load weights for minutes, are preempted (5% per hour) and run
out of time; rollouts take lognormal times. The ideal: one queue for the same rollouts on the same places, which are
never taken away, with nothing to agree on. Bars: makespan at most 1.08 of the ideal, lost work under 2%.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from running import row
from simulated_cluster import Clock, Ground, Job, Operations, durations, ideal_makespan
from simulated_worker import Losses, Worker, World, here_and_now

from gymnast.chunks.lease import DEFAULT_HEARTBEAT_S, DEFAULT_LEASE_S
from gymnast.chunks.merge import merge
from gymnast.chunks.planning import ChunkingOptions, PlannedRun, plan_run
from gymnast.chunks.worker_spec import ConfigArguments
from gymnast.config import compose, read_environ
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.plan import PlanOptions

MOST_MAKESPAN, MOST_LOST = 1.08, 0.02
DEMO = "responses_api_models/scripted_model/configs/demo.yaml"


def main() -> None:
    """Simulate every seed and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--chunk-rows", type=int)
    parser.add_argument("--lease-s", type=float, default=DEFAULT_LEASE_S)
    parser.add_argument("--heartbeat-s", type=float, default=DEFAULT_HEARTBEAT_S)
    parser.add_argument("--no-speculate", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="Exit with 1 above the bars.")
    for one in fields(Ground):
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    given = parser.parse_args()
    ground = Ground(**{one.name: getattr(given, one.name) for one in fields(Ground)})
    how = ChunkingOptions(
        workers=ground.jobs,
        chunk_rows=given.chunk_rows,
        lease_s=given.lease_s,
        heartbeat_s=given.heartbeat_s,
        speculates=not given.no_speculate,
    )
    here_and_now()
    found = []
    for seed in map(int, given.seeds.split(",")):
        found.append(simulated(ground, how, given.tasks, given.repeats, seed))
        show(found[-1], as_json=given.json)
    if given.check and any(one["of_ideal"] > MOST_MAKESPAN or one["lost_share"] > MOST_LOST for one in found):
        sys.exit(1)


def simulated(ground: Ground, how: ChunkingOptions, tasks: int, repeats: int, seed: int) -> dict[str, Any]:
    """One run, from its plan to its merge."""
    began = time.monotonic()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        planned = plan(Path(folder), how, tasks, repeats)
        clock, losses = Clock(), Losses()
        lengths = durations(ground, tasks * repeats, seed)
        world = World(clock, planned, lengths, repeats, ground.slots, planned.spec.options, losses)
        operations = Operations(clock, folder)

        def start(name: str, job: Job) -> Worker:
            return Worker(name, job, world)

        jobs = [Job(number, ground, clock, seed, start) for number in range(ground.jobs)]
        with operations.counting():
            clock.run(until=lambda: all(job.is_over for job in jobs))
        merged = merge(planned.paths)
        assert (merged.scored, merged.owed) == (len(lengths), 0), merged
        losses.useful_s = sum(lengths)
        ideal = ideal_makespan(ground, lengths, seed)
        return {
            "seed": seed,
            "chunks": len(planned.plan.chunks),
            "chunk_rows": planned.plan.chunks[0].rows,
            "makespan_s": world.last_kept,
            "ideal_s": ideal,
            "of_ideal": world.last_kept / ideal,
            "of_full_slots": world.last_kept / (losses.useful_s / (ground.jobs * ground.slots)),
            "lost_share": losses.share,
            "losses": asdict(losses),
            "preemptions": sum(job.preemptions for job in jobs),
            "time_limits": sum(job.time_limits for job in jobs),
            "operations_per_s": sum(operations.kinds.values()) / world.last_kept,
            "busiest_minute_per_s": max(operations.minutes.values()) / 60,
            "operations": dict(operations.kinds.most_common()),
            "simulated_in_s": time.monotonic() - began,
        }


def plan(folder: Path, how: ChunkingOptions, tasks: int, repeats: int) -> PlannedRun:
    """The run, planned as `gymnast submit` does."""
    source = folder / "tasks.jsonl"
    source.write_text("".join(json.dumps(row(number)) + "\n" for number in range(tasks)))
    config = compose(read_environ(), environments=["mcqa"], config_paths=[DEMO])
    names = ConfigArguments(environments=("mcqa",), config_paths=(DEMO,), folder=str(folder))
    plan_options = PlanOptions(agent="mcqa_simple_agent", repeats=repeats)
    return plan_run(RunOptions(source=source, output=folder / "x.jsonl", plan=plan_options), config, names, how)


def show(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    print(
        f"seed {found['seed']}: {found['chunks']} chunks of {found['chunk_rows']},"
        f" {found['preemptions']} preemptions, {found['time_limits']} time limits"
        f"  (simulated in {found['simulated_in_s']:.0f} s)"
    )
    print(
        f"  makespan {found['makespan_s'] / 3600:.2f} h, {found['of_ideal']:.3f} of {found['ideal_s'] / 3600:.2f} h"
        f" ideally (bar {MOST_MAKESPAN}); {found['of_full_slots']:.3f} of work / slots"
    )
    losses, span_s = found["losses"], found["makespan_s"]
    print(
        f"  lost work {found['lost_share']:.2%} (bar {MOST_LOST:.0%}):"
        f" killed {losses['killed_s'] / 3600:.0f} h, unsaved {losses['unsaved_s'] / 3600:.1f} h,"
        f" abandoned {losses['abandoned_s'] / 3600:.1f} h, copied {losses['copied_s'] / 3600:.0f} h"
        f" of {losses['useful_s'] / 3600:.0f} h"
    )
    kinds = ", ".join(f"{kind} {number / span_s:.0f}" for kind, number in found["operations"].items())
    busiest = found["busiest_minute_per_s"]
    print(
        f"  file operations {found['operations_per_s']:.0f}/s, {busiest:.0f}/s in the busiest minute: {kinds}",
        flush=True,
    )


if __name__ == "__main__":
    main()
