"""A batch of 4,096 × 16 rollouts for a trainer: how fast it comes together, and what memory that takes.

    python bench/train_batch.py [--tasks 4096] [--generations 16] [--stream] [--servers [--workers 2]] [--json]

Records of real rollouts come again and again, so that the figures are those of the batch alone. With --servers the
rollouts are run: agents, tools, verification and the token ledger are real, and the policy computes each prompt once.
With --workers they are run in processes of their own; their CPU is added, and their memory as if all had the most.
Bars: memory beyond a batch of a sixteenth of the size grows by less than three times what the samples themselves hold;
with --stream it hardly grows with the number of groups.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnast
from gymnast.config import compose, read_environ
from gymnast.config.roots import BUILTIN
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.train import BatchOptions, Metrics, Sample, StreamOptions, collect_batch, stream
from gymnast.types.task import RolloutKey

MODEL = '''
import asyncio

from gymnast.builtin.responses_api_models.embedded_model.app import EmbeddedModel, EmbeddedModelSettings


class Remembering:
    """Gives the same answer to the same prompt."""

    def __init__(self, backend):
        self._backend, self._known = backend, {}

    async def generate(self, prompt_ids, sampling, caller):
        key = tuple(prompt_ids)
        if key not in self._known:
            self._known[key] = asyncio.ensure_future(self._backend.generate(prompt_ids, sampling, caller))
        return await asyncio.shield(self._known[key])


class RememberingModel(EmbeddedModel):
    settings: EmbeddedModelSettings

    def __init__(self, name, settings, context):
        super().__init__(name, settings, context)
        self._tokens._backend = Remembering(self._tokens._backend)
'''
CONFIG = {
    "policy_model": {
        "responses_api_models": {
            "remembering_model": {"entrypoint": "app.py", "return_token_id_information": True, "temperature": 0.0}
        }
    }
}


def main() -> None:
    """Measure and print. Each size is measured in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=4096)
    parser.add_argument("--generations", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--servers", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--once", action="store_true", help="measure this size only, here")
    given = parser.parse_args()
    if given.once:
        print(json.dumps(asyncio.run(measured(given))))
        return
    small, large = (asyncio.run(in_a_process(given, tasks)) for tasks in (max(given.tasks // 16, 1), given.tasks))
    grown_mb = large["peak_mb"] - small["peak_mb"]
    held_mb = large["samples_mb"] - small["samples_mb"]
    found = {"small": small, "large": large, "grown_mb": grown_mb, "held_mb": held_mb}
    if given.servers:  # the yardstick: records of rollouts that cost nothing
        given.servers = False
        assembled = asyncio.run(in_a_process(given, max(given.tasks // 16, 1)))
        found["ratio"] = large["cpu_ms"] / assembled["cpu_ms"]
    if given.json:
        print(json.dumps(found))
        return
    for one in (small, large):
        print(
            f"{one['rollouts']} rollouts in {one['seconds']:.1f} s: {one['rate']:.0f}/s, {one['cpu_ms']:.2f} ms CPU "
            f"each, {one['tokens']} tokens, "
            f"peak {one['peak_mb']:.0f} MB, samples {one['samples_mb']:.0f} MB"
        )
    print(f"  memory grew by {grown_mb:.0f} MB, samples by {held_mb:.0f} MB")
    if "ratio" in found:
        print(f"  a rollout costs {found['ratio']:.1f} times the CPU of its place in the batch")


async def in_a_process(given: argparse.Namespace, tasks: int) -> dict[str, Any]:
    """The figures of one size."""
    command = [sys.executable, __file__, "--once", "--tasks", str(tasks), "--generations", str(given.generations)]
    command += ["--concurrency", str(given.concurrency), "--workers", str(given.workers if given.servers else 0)]
    command += [f"--{name}" for name in ("stream", "servers") if getattr(given, name)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """Collect once."""
    rows = [json.loads(line) for line in (BUILTIN / "resources_servers/shop_lookup/data/example.jsonl").open()]
    tasks = ({**rows[number % len(rows)], "_ng_task_index": number} for number in range(given.tasks))
    metrics = Metrics()
    with tempfile.TemporaryDirectory() as folder, rare_garbage_collection():
        async with gymnast.Collector(config=config_in(Path(folder)), workers=given.workers) as collector:
            rollouts: Any = collector if given.servers else await replayed(collector, rows)
            began, cpu_began = time.perf_counter(), time.process_time()
            held = await collected(rollouts, tasks, given, metrics)
            seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
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


def config_in(folder: Path) -> Any:
    """A policy of our own beside the shipped environment."""
    home = folder / "responses_api_models" / "remembering_model"
    home.mkdir(parents=True)
    (home / "app.py").write_text(MODEL)
    (folder / "policy.yaml").write_text(json.dumps(CONFIG))
    return compose(
        read_environ(), environments=["shop_lookup"], config_paths=[str(folder / "policy.yaml")], search_dirs=[folder]
    )


def size_of(sample: Sample) -> int:
    """Bytes of a sample, its objects included."""
    arrays = [array for segment in sample.segments for array in (segment.ids, segment.mask, segment.logprobs)]
    parts = [sample, sample.segments, sample.numbers, sample.components, *sample.segments]
    parts += [part for segment in sample.segments for part in (segment.turns, segment.versions, *segment.turns)]
    return sum(map(sys.getsizeof, [*arrays, *parts]))


if __name__ == "__main__":
    main()
