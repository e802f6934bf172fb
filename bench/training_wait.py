"""How long a trainer waits for us beyond the slowest rollout, in a simulated asynchronous training.

    python bench/training_wait.py [--steps 12] [--groups 8] [--generations 8] [--in-flight 16] [--step-s 3] [--json]

Agents, tools, verification, the token ledger and the stream are real. The inference server is simulated: each call
takes a time drawn from a distribution with a long tail, and a training step takes `--step-s`. The same times give an
ideal schedule, in which everything else takes no time. Bars: the trainer waits less than 2% of a step longer than in
that schedule, and has the groups of a step less than 2% of a step after their slowest rollout sampled its last token.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnast
from gymnast.config import compose, read_environ
from gymnast.config.roots import BUILTIN
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.train import PolicyVersions, StreamOptions, stream

MODEL = '''
import asyncio
import collections
import json
import math
import random
import time

from gymnast.builtin.responses_api_models.embedded_model.app import EmbeddedModel, EmbeddedModelSettings


class Slow:
    """Computes each answer once, gives it as late as a real engine would, and writes down what that took.

    One call in a hundred takes 6.4 times as long as the median.
    """

    def __init__(self, backend):
        self._backend, self._known, self._calls = backend, {}, collections.Counter()
        self._log = open(LOG, "a", buffering=1)

    async def generate(self, prompt_ids, sampling, caller):
        group, _, rollout = caller.rollout_id.split("-")[-3:]
        call = self._calls[caller.rollout_id]
        self._calls[caller.rollout_id] += 1
        seconds = random.Random(f"{group}/{rollout}/{call}").lognormvariate(math.log(0.8), 0.8)
        end = time.monotonic() + seconds
        key = tuple(prompt_ids)
        if key not in self._known:
            self._known[key] = asyncio.ensure_future(self._backend.generate(prompt_ids, sampling, caller))
        generated = await asyncio.shield(self._known[key])
        await asyncio.sleep(end - time.monotonic())
        self._log.write(json.dumps([int(group), int(rollout), seconds, end]) + chr(10))
        return generated


class SlowModel(EmbeddedModel):
    settings: EmbeddedModelSettings

    def __init__(self, name, settings, context):
        super().__init__(name, settings, context)
        self._tokens._backend = Slow(self._tokens._backend)
'''
CONFIG = {
    "policy_model": {
        "responses_api_models": {
            "slow_model": {"entrypoint": "app.py", "return_token_id_information": True, "temperature": 0.0}
        }
    }
}


@dataclass(frozen=True)
class Step:
    """When the trainer asked for the groups of a step, when it had them, and which they were."""

    asked: float
    got: float
    groups: list[int]


@dataclass
class Engine:
    """What the simulated inference server did for each group."""

    seconds: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    ended: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def slowest_s(self, group: int) -> float:
        """How long the slowest rollout of a group sampled."""
        return max(self.seconds[group].values())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--groups", type=int, default=8, help="groups of a training step")
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--in-flight", type=int, default=16, help="groups in flight")
    parser.add_argument("--step-s", type=float, default=3.0, help="how long a training step computes")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(measured(given))
    if given.json:
        print(json.dumps(found))
        return
    print(
        f"{given.steps} steps of {given.groups} x {given.generations} rollouts, {found['cpu']:.0%} of a core: "
        f"a step takes {found['step_s']:.2f} s, and the trainer waits "
        f"{found['wait_s']:.2f} s of it (ideal schedule {found['ideal_wait_s']:.2f} s)"
    )
    print(
        f"  the trainer's wait beyond the ideal schedule: {found['beyond_ideal']:.2%} of a step; "
        f"after the slowest rollout: {found['after_slowest']:.2%}, at most {found['after_slowest_max']:.2%} (bars 2%)"
    )


async def measured(given: argparse.Namespace) -> dict[str, float]:
    """Train once."""
    with tempfile.TemporaryDirectory() as folder, rare_garbage_collection():
        log = Path(folder) / "calls.jsonl"
        async with gymnast.Collector(config=config_in(Path(folder), log)) as collector:
            await train(collector, given, given.groups)  # imports, and answers to be known
            log.write_text("")
            cpu_began, began = time.process_time(), time.monotonic()
            steps = await train(collector, given, given.groups * given.steps + given.in_flight)
            cpu = (time.process_time() - cpu_began) / (time.monotonic() - began)
        engine = read_engine(log)
    return figures(steps[: given.steps], list(ideal_schedule(engine, given)), engine) | {"cpu": cpu}


def figures(steps: list[Step], ideal: list[Step], engine: Engine) -> dict[str, float]:
    """Seconds of a step, and shares of it. The first step only fills the pipeline, and is left out."""
    step_s = (steps[-1].got - steps[0].got) / (len(steps) - 1)
    wait_s, ideal_wait_s = (statistics.mean(step.got - step.asked for step in each[1:]) for each in (steps, ideal))
    late = [step.got - max(step.asked, *(engine.ended[group] for group in step.groups)) for step in steps[1:]]
    return {
        "step_s": step_s,
        "wait_s": wait_s,
        "ideal_wait_s": ideal_wait_s,
        "beyond_ideal": (wait_s - ideal_wait_s) / step_s,
        "after_slowest": statistics.mean(late) / step_s,
        "after_slowest_max": max(late) / step_s,
    }


async def train(collector: gymnast.Collector, given: argparse.Namespace, number: int) -> list[Step]:
    """Take the groups of each step, compute elsewhere, update the weights, until all groups are trained on."""
    rows = [json.loads(line) for line in (BUILTIN / "resources_servers/shop_lookup/data/example.jsonl").open()]
    tasks = (rows[index % len(rows)] for index in range(number))
    versions, steps = PolicyVersions(["step-0"]), list[Step]()
    options = StreamOptions(groups_in_flight=given.in_flight, groups_ready=given.groups)
    async with stream(collector, tasks, generations=given.generations, options=options, versions=versions) as groups:
        asked, taken = time.monotonic(), list[int]()
        async for group in groups:
            taken.append(group.task)
            if len(taken) == given.groups:
                steps.append(Step(asked, time.monotonic(), taken))
                await asyncio.sleep(given.step_s)
                versions.advance(f"step-{len(steps)}")
                asked, taken = time.monotonic(), []
    return steps


def ideal_schedule(engine: Engine, given: argparse.Namespace) -> Iterator[Step]:
    """The same groups, requested by the same rules, where only sampling and training take time."""
    now, requested = 0.0, 0
    running: list[tuple[float, int]] = []
    ready: list[int] = []

    def fill(at: float) -> None:
        nonlocal requested
        while len(running) < given.in_flight and len(running) + len(ready) < given.in_flight + given.groups:
            if requested == len(engine.seconds):
                return
            heapq.heappush(running, (at + engine.slowest_s(requested), requested))
            requested += 1

    def run_until(end: float) -> None:
        while running and running[0][0] <= end:
            at, group = heapq.heappop(running)
            ready.append(group)
            fill(at)

    fill(now)
    for _ in range(given.steps):
        asked, taken = now, list[int]()
        while len(taken) < given.groups:
            if not ready:
                now = max(now, running[0][0])
                run_until(now)
            taken.append(ready.pop(0))
            fill(now)
        yield Step(asked, now, taken)
        run_until(now + given.step_s)
        now += given.step_s


def read_engine(log: Path) -> Engine:
    engine = Engine()
    for group, rollout, seconds, ended in map(json.loads, log.read_text().splitlines()):
        engine.seconds[group][rollout] += seconds
        engine.ended[group] = max(engine.ended[group], ended)
    return engine


def config_in(folder: Path, log: Path) -> Any:
    """The simulated inference server beside the shipped environment."""
    home = folder / "responses_api_models" / "slow_model"
    home.mkdir(parents=True)
    (home / "app.py").write_text(f"LOG = {str(log)!r}\n{MODEL}")
    (folder / "policy.yaml").write_text(json.dumps(CONFIG))
    return compose(
        read_environ(), environments=["shop_lookup"], config_paths=[str(folder / "policy.yaml")], search_dirs=[folder]
    )


if __name__ == "__main__":
    main()
