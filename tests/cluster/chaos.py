"""Chaos: workers of a run are killed at random moments and replaced, until everything is settled. Any executor."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gymnast.executors.executor import Executor, Submission
from gymnast.runtime.registry import process_start
from tests.cluster.runs import SharedRun, kill, wait_for_all

Blow = Callable[[random.Random], None]
"""Something that happens at a random moment."""
_PATIENCE_S: Final = 600.0


@dataclass
class Chaos:
    """Keeps so many workers at work while one after the other is killed."""

    run: SharedRun
    executor: Executor
    workers: int
    every_s: float
    """A kill every so many seconds, on average."""
    seed: int = 0
    more: tuple[Blow, ...] = ()
    """What else may happen, as likely as a kill."""
    submissions: list[Submission] = field(default_factory=list)
    kills: int = 0

    def until_settled(self) -> None:
        """Until every rollout is settled, whatever happens to the workers."""
        chance = random.Random(self.seed)
        deadline = time.monotonic() + _PATIENCE_S
        next_blow = time.monotonic() + self.every_s
        while not self.is_settled():
            assert time.monotonic() < deadline, self.run.account()
            self._replace_the_dead()
            if time.monotonic() >= next_blow:
                chance.choice((self._kill, *self.more))(chance)
                next_blow = time.monotonic() + chance.expovariate(1 / self.every_s)
            time.sleep(0.5)
        self.end()

    def end(self) -> None:
        """Wait for the workers' end; they find nothing more to do."""
        for submission in self.submissions:
            wait_for_all(self.executor, submission)

    def is_settled(self) -> bool:
        return self.run.account().unsettled == 0

    def _replace_the_dead(self) -> None:
        alive = sum(
            not view.state.is_over for submission in self.submissions for view in self.executor.states(submission)
        )
        if alive < self.workers:
            number = len(self.submissions) + 1
            self.submissions.append(self.executor.submit(self.run.wanted(self.workers - alive), number))

    def _kill(self, chance: random.Random) -> None:
        holders = self.run.holders().values()
        # Who was killed before may still be named, and its number may be that of some other program by now.
        pids = sorted({holder.pid for holder in holders if process_start(holder.pid) == holder.started})
        if pids:
            kill(chance.choice(pids), chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
            self.kills += 1
