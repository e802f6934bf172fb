"""A batch of 4,096 × 16 rollouts for a trainer: how fast it comes together, and what memory that takes.

    python bench/train_batch.py [--tasks 4096] [--generations 16] [--stream] [--servers [--workers 2]] [--json]
                                [--environment shop_lookup]

Without --servers, records of real rollouts come again and again, so that the figures are those of the batch alone.

With --servers the rollouts are run, once with each environment: arithmetic (one turn) and shop_lookup (tools, three
turns). Only sampling is left out: the policy looks its ids and logprobs up (`instant_policy`). Real are the engine,
agents, sessions, tools, verification, the model server with rendering, parsing and the token ledger, records, and
samples. All prompts differ between tasks. With --workers the rollouts are run in processes of their own; their
CPU is added, and their memory as if all had the most. A machine with idle cores runs as many rollouts per second as its
cores divided by the CPU of a rollout: that rate is printed for two cores beside the one that was measured.
Bars: memory beyond a batch of a sixteenth of the size grows by less than three times what the samples themselves hold;
with --stream it hardly grows with the number of groups. With --servers under 600 MB, and 1,500 rollouts per second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from instant_policy import config_in, make_task, prepare, read_rows

import gymnast
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.train import BatchOptions, Metrics, Sample, StreamOptions, collect_batch, stream
from gymnast.types.task import RolloutKey

ENVIRONMENTS = ("arithmetic", "shop_lookup")
CORES = 2


def main() -> None:
    """Measure and print. Each size is measured in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=4096)
    parser.add_argument("--generations", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--environment", choices=ENVIRONMENTS)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--servers", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--policy", type=Path, help="measure this size only, here, with the policy of this folder")
    given = parser.parse_args()
    if given.policy:
        print(json.dumps(measure(given, given.policy)))
        return
    default = ENVIRONMENTS if given.servers else ENVIRONMENTS[-1:]
    environments = [given.environment] if given.environment else default
    found = {environment: measure_sizes(given, environment) for environment in environments}
    if given.json:
        print(json.dumps(found))
        return
    for environment, sizes in found.items():
        show(environment, sizes)


def measure_sizes(given: argparse.Namespace, environment: str) -> dict[str, Any]:
    """The figures of the batch and of one of a sixteenth of its size."""
    given.environment = environment
    with tempfile.TemporaryDirectory() as folder:
        prepare(environment, Path(folder))
        sizes = max(given.tasks // 16, 1), given.tasks
        small, large = (measure_in_a_process(given, tasks, folder) for tasks in sizes)
    grown_mb, held_mb = (large[name] - small[name] for name in ("peak_mb", "samples_mb"))
    return {"small": small, "large": large, "grown_mb": grown_mb, "held_mb": held_mb}


def show(environment: str, sizes: dict[str, Any]) -> None:
    """Print the figures of one environment."""
    for size in ("small", "large"):
        one = sizes[size]
        print(
            f"{environment}: {one['rollouts']} rollouts in {one['seconds']:.1f} s: {one['rate']:.0f}/s, "
            f"{one['cpu_ms']:.2f} ms CPU each ({CORES * 1000 / one['cpu_ms']:.0f}/s on {CORES} idle cores), "
            f"{one['tokens']} tokens, peak {one['peak_mb']:.0f} MB, samples {one['samples_mb']:.0f} MB"
        )
    print(f"  memory grew by {sizes['grown_mb']:.0f} MB, samples by {sizes['held_mb']:.0f} MB")


def measure_in_a_process(given: argparse.Namespace, tasks: int, folder: str) -> dict[str, Any]:
    """The figures of one size."""
    command = [
        sys.executable,
        __file__,
        "--policy",
        folder,
        "--tasks",
        str(tasks),
        "--generations",
        str(given.generations),
    ]
    command += ["--concurrency", str(given.concurrency), "--workers", str(given.workers if given.servers else 0)]
    command += ["--environment", given.environment]
    command += [f"--{name}" for name in ("stream", "servers") if getattr(given, name)]
    data: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return data


def measure(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Collect once."""
    metrics = Metrics()
    with rare_garbage_collection():
        config = config_in(given.environment, folder)
        seconds, cpu_s, held = asyncio.run(collect(config, given, metrics))
    children = resource.getrusage(resource.RUSAGE_CHILDREN)  # all have ended; includes their start
    cpu_s += children.ru_utime + children.ru_stime
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + given.workers * children.ru_maxrss
    figures = metrics.figures()
    number = int(figures["samples"])
    assert number == figures["trained_samples"] == given.tasks * given.generations
    return {
        "rollouts": number,
        "seconds": seconds,
        "rate": number / seconds,
        "cpu_ms": cpu_s / number * 1000,
        "tokens": int(figures["total_tokens_per_sample/mean"] * number),
        "peak_mb": peak_kb / 1024,
        "samples_mb": held / 1e6,
    }


async def collect(config: Any, given: argparse.Namespace, metrics: Metrics) -> tuple[float, float, int]:
    """Seconds, CPU seconds of this process, and the bytes that the samples hold."""
    rows = read_rows(given.environment)
    tasks = (make_task(rows, number) for number in range(given.tasks))
    async with gymnast.Collector(config=config, workers=given.workers) as collector:
        first = [make_task(rows, number) for number in range(len(rows))]
        rollouts: Any = collector if given.servers else await replayed(collector, first)
        began, cpu_began = time.perf_counter(), time.process_time()
        held = await collected(rollouts, tasks, given, metrics)
        return time.perf_counter() - began, time.process_time() - cpu_began, held


async def collected(rollouts: Any, tasks: Any, given: argparse.Namespace, metrics: Metrics) -> int:
    """Collect all tasks. Bytes that their samples hold in the end."""
    if given.stream:
        ahead = StreamOptions(BatchOptions(), given.concurrency // given.generations, 8)
        async with stream(rollouts, tasks, generations=given.generations, options=ahead) as groups:
            async for group in groups:
                metrics.add(group.samples)
        return 0
    options = BatchOptions(concurrency=given.concurrency)
    batch = await collect_batch(rollouts, tasks, generations=given.generations, options=options)
    metrics.add(batch.samples)
    return sum(map(size_of, batch.samples))


class Replayed:
    """Gives records of real rollouts for any rows."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    async def run(self, rows: Any, **_: Any) -> Any:
        for position, row in enumerate(rows):
            if position % 64 == 0:
                await asyncio.sleep(0)
            key = RolloutKey(row["_ng_task_index"], row["_ng_rollout_index"])
            yield row, gymnast.Record(key, self._lines[position % len(self._lines)])


async def replayed(collector: gymnast.Collector, rows: list[Any]) -> Replayed:
    return Replayed([record.line async for _, record in collector.run(rows)])


def size_of(sample: Sample) -> int:
    """Bytes of a sample, its objects included."""
    arrays = [array for segment in sample.segments for array in (segment.ids, segment.mask, segment.logprobs)]
    parts = [sample, sample.segments, sample.numbers, sample.components, *sample.segments]
    parts += [part for segment in sample.segments for part in (segment.turns, segment.versions, *segment.turns)]
    return sum(map(sys.getsizeof, [*arrays, *parts]))


if __name__ == "__main__":
    main()
