"""Schedules: a seed decides what is collected, what is killed and when. Each is carried out to the end and audited."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from tests.crash.audit import (
    Files,
    assert_complete,
    assert_kept,
    assert_only_owed,
    assert_tidy,
    assert_true_so_far,
    beside,
    complete_lines,
    read_files,
)
from tests.crash.harness import PATIENCE_S, Collection, Policy, Tasks, Victim, collecting, policy_running


@dataclass(frozen=True)
class Kill:
    """Something that is killed, and when: some seconds after the collector or a new line is there, or at a new file."""

    victim: Victim
    after_s: float = 0.0
    lines: int = 0
    file: str | None = None
    pause_s: float = 0.0
    """How long a killed endpoint stays away."""


@dataclass(frozen=True)
class Schedule:
    """A collection and what happens to it, all decided by a seed."""

    seed: int
    tasks: Tasks
    workers: int
    in_child: bool
    concurrency: int
    policy: tuple[str, ...]
    kills: tuple[Kill, ...]
    max_attempts: int = 4

    def arguments(self) -> tuple[str, ...]:
        child = ("++mcqa.resources_servers.mcqa.runs_in=child",) if self.in_child else ()
        return (
            *("--workers", str(self.workers), "--concurrency", str(self.concurrency)),
            *("--max-attempts", str(self.max_attempts), "--rollout-timeout", "2"),
            "++policy_model.responses_api_models.vllm_model.max_attempts=2",
            *child,
        )


_FILES: Final = (
    *("_materialized_inputs.jsonl.partial", "_materialized_inputs.jsonl", "_run.json.new", "_run.json"),
    *(".sock", ".jsonl", ".jsonl.done", "_aggregate_metrics.json"),
)


def schedule(seed: int) -> Schedule:
    """The schedule of a seed."""
    chance = random.Random(seed)
    tasks = Tasks(chance.randint(10, 25), chance.randint(4, 6), seed)
    workers = chance.choice((0, 0, 0, 1, 2))
    in_child = chance.random() < (0.5 if not workers else 0.2)
    concurrency = chance.choice((4, 8, 16, 32))
    slow_s = chance.uniform(0.6, 1.2) * concurrency / len(tasks.keys())  # all rollouts together take about a second
    faults: list[str] = []
    if chance.random() < 0.25:
        named = chance.sample(("drop", "429", "503", "500", "half_json", "long_length", "html", "wrong_types"), 2)
        faults = [part for name in named for part in ("--fault", f"{name}=0.02")]
    victims: list[Victim] = ["collector", "collector", "policy"]
    victims += ["worker", "worker"] if workers else []
    victims += ["child", "child"] if in_child else []
    kills = tuple(_kill(chance, chance.choice(victims)) for _ in range(chance.randint(1, 3)))
    policy = ("--seed", str(seed), "--slow-s", f"{slow_s:.4f}", *faults)
    return Schedule(seed, tasks, workers, in_child, concurrency, policy, kills)


def _kill(chance: random.Random, victim: Victim) -> Kill:
    pause_s = chance.uniform(0.05, 0.5)
    if victim == "collector" and chance.random() < 0.25:
        return Kill(victim, file=chance.choice(_FILES))
    if chance.random() < 0.75:
        return Kill(victim, after_s=chance.uniform(0.0, 0.4), lines=chance.randint(1, 15), pause_s=pause_s)
    return Kill(victim, after_s=chance.uniform(0.1, 1.8), pause_s=pause_s)


@dataclass
class Report:
    """What became of a schedule."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    """Kills for which there was nothing to kill any more (or yet)."""
    invocations: int = 0
    resumed_with_lines: int = 0
    """Crashes that left scored lines behind and rollouts owed."""
    requested: int = 0
    failed_for_good: int = 0
    failed_attempts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Run:
    """A schedule being carried out."""

    def __init__(self, plan: Schedule, policy: Policy, collection: Collection) -> None:
        self._plan = plan
        self._policy = policy
        self._collection = collection
        self._before = self._files()
        self.report = Report(plan.seed, requested=len(plan.tasks.keys()))

    def carry_out(self) -> Report:
        began = time.monotonic()
        for kill in self._plan.kills:
            self._begin()
            if not self._strike(kill):
                self.report.missed[kill.victim] += 1
        self._end()
        while not self._files().is_done:
            assert self._collection.invocations < 10, "it does not get done"
            self._begin()
            self._end()
        files = self._files()
        assert_complete(files, self._plan.tasks)
        self.report.invocations = self._collection.invocations
        self.report.failed_for_good = len(files.failed)
        self.report.failed_attempts = Counter(row["failure"]["kind"] for row in files.failures)
        self.report.seconds = time.monotonic() - began
        return self.report

    def _files(self) -> Files:
        return read_files(self._collection.output, self._plan.max_attempts)

    def _begin(self) -> None:
        """See to it that a collector runs, unless all is done."""
        process = self._collection.process
        if process is not None and process.poll() is not None:
            self._end()
        if self._collection.process is None:
            self._before = self._files()
            self._collection.start()

    def _end(self) -> None:
        """Let the collector end by itself and look at what it left."""
        if self._collection.process is not None:
            done = self._collection.finish()
            # What is killed before it ever served is an error to be told; later it is started again.
            assert done.code in {0, 1} or (done.code == 2 and "ended while starting" in done.err), done.err
            self._audit()
            if done.code != 2:
                assert_tidy(self._collection.output)

    def _audit(self) -> None:
        said = self._collection.said()
        assert "Traceback" not in said, said
        after = self._files()
        assert_true_so_far(after, self._plan.tasks)
        assert_kept(self._before.scored_lines, after)
        assert_only_owed(self._collection.events(), self._before)

    def _strike(self, kill: Kill) -> bool:
        if not self._wait(kill):
            return False
        if kill.victim == "collector":
            self._collection.kill()
            self._audit_crash()
        elif kill.victim == "policy":
            self._policy.kill()
            time.sleep(kill.pause_s)
            self._policy.start()
        else:
            found = self._collection.processes(kill.victim)
            if not found:
                return False
            with suppress(psutil.NoSuchProcess):
                found[self._plan.seed % len(found)].send_signal(signal.SIGKILL)
        self.report.kills[kill.victim] += 1
        return True

    def _audit_crash(self) -> None:
        self._audit()
        after = self._files()
        self.report.resumed_with_lines += bool(after.scored and after.owed)

    def _wait(self, kill: Kill) -> bool:
        """Wait for the moment. False if the collector ended before it."""
        process, output = self._collection.process, self._collection.output
        assert process is not None
        began = time.monotonic()
        lines = len(complete_lines(output)) + kill.lines
        since: float | None = None
        while process.poll() is None:
            now = time.monotonic()
            if kill.file is not None:
                if beside(output, kill.file).exists():
                    return True
            elif since is not None and now - since >= kill.after_s:
                return True
            elif since is None and len(complete_lines(output)) >= lines:
                since = now
            assert now - began < PATIENCE_S, f"{kill}: it hangs\n{self._collection.said()}"
            time.sleep(0.001 if kill.file else 0.005)
        return False


def carry_out(seed: int, folder: Path) -> Report:
    """Run the schedule of a seed to its end."""
    plan = schedule(seed)
    with (
        policy_running(*plan.policy) as policy,
        collecting(folder, plan.tasks, policy.url, *plan.arguments()) as collection,
    ):
        return Run(plan, policy, collection).carry_out()
