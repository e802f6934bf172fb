"""Schedules training tasks: batches are drawn around a pass rate that moves from easy to hard. Pure and seeded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gymnast.errors import UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Schedule:
    """A target pass rate that moves over steps, and the width of the distribution around it."""

    steps: int
    batch: int
    start: float = 0.8
    end: float = 0.3
    width: float = 0.15

    def target(self, step: int) -> float:
        """The target pass rate of a step."""
        share = step / (self.steps - 1) if self.steps > 1 else 0.0
        return self.start + (self.end - self.start) * share


def draw_schedule(
    rates: Sequence[float], agents: Sequence[str], schedule: Schedule, blend: Mapping[str, float] | None, seed: int
) -> list[list[int]]:
    """The indices of each step's tasks. A task repeats only after all others (of its agent) were drawn."""
    generator = np.random.default_rng(seed)
    owners = agents if blend is not None else ["" for _ in agents]
    shares = batch_shares(owners, schedule.batch, blend)
    pools = {name: _Pool([index for index, owner in enumerate(owners) if owner == name], rates) for name in shares}
    steps: list[list[int]] = []
    for step in range(schedule.steps):
        target = schedule.target(step)
        tasks = [
            index
            for name, count in shares.items()
            for index in pools[name].draw(count, target, schedule.width, generator)
        ]
        generator.shuffle(tasks)
        steps.append(tasks)
    return steps


class _Pool:
    """The tasks of one agent."""

    def __init__(self, tasks: list[int], rates: Sequence[float]) -> None:
        self._tasks = np.array(tasks)
        self._rates = np.array([rates[index] for index in tasks])
        self._is_left = np.ones(len(tasks), dtype=bool)

    def draw(self, count: int, target: float, width: float, generator: np.random.Generator) -> list[int]:
        tasks: list[int] = []
        while len(tasks) < count:
            if not self._is_left.any():
                self._is_left[:] = True
            candidates = np.flatnonzero(self._is_left)
            selected = candidates[self._order(candidates, target, width, generator)[: count - len(tasks)]]
            self._is_left[selected] = False
            tasks += self._tasks[selected].tolist()
        return tasks

    def _order(
        self, candidates: NDArray[np.int64], target: float, width: float, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Candidates in random order, weighted by their distance to the target (Gumbel trick)."""
        weights = -0.5 * ((self._rates[candidates] - target) / width) ** 2
        order: NDArray[np.int64] = np.argsort(-(weights + generator.gumbel(size=len(candidates))), kind="stable")
        return order


def batch_shares(agents: Sequence[str], batch: int, blend: Mapping[str, float] | None) -> dict[str, int]:
    """The number of tasks per agent in a batch, by the blend or else by frequency, with largest remainders."""
    known = sorted(set(agents))
    if blend is None:
        weights = {name: float(sum(agent == name for agent in agents)) for name in known}
    else:
        unknown = [name for name in blend if name not in known]
        if unknown:
            raise UserError(f"the blend names '{unknown[0]}', which has no tasks", next=suggest(unknown[0], known))
        weights = {name: share for name, share in blend.items() if share > 0}
    total = sum(weights.values())
    exact = {name: batch * weight / total for name, weight in weights.items()}
    counts = {name: int(value) for name, value in exact.items()}
    for name in sorted(exact, key=lambda name: counts[name] - exact[name])[: batch - sum(counts.values())]:
        counts[name] += 1
    return {name: count for name, count in counts.items() if count}
