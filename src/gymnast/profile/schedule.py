"""Which tasks are trained on when: batches drawn around a pass rate that moves from easy to hard. Pure and seeded."""

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
    """A target pass rate that moves over steps, and how wide tasks are drawn around it."""

    steps: int
    batch: int
    start: float = 0.8
    end: float = 0.3
    width: float = 0.15

    def target(self, step: int) -> float:
        """The pass rate that a step aims at."""
        share = step / (self.steps - 1) if self.steps > 1 else 0.0
        return self.start + (self.end - self.start) * share


def drawn(
    rates: Sequence[float], agents: Sequence[str], schedule: Schedule, blend: Mapping[str, float] | None, seed: int
) -> list[list[int]]:
    """For each step, the places of its tasks. A task comes again only when the others (of its agent) have come, too."""
    generator = np.random.default_rng(seed)
    owners = agents if blend is not None else ["" for _ in agents]
    shares = batch_shares(owners, schedule.batch, blend)
    pools = {name: _Pool([place for place, owner in enumerate(owners) if owner == name], rates) for name in shares}
    steps: list[list[int]] = []
    for step in range(schedule.steps):
        target = schedule.target(step)
        chosen = [
            place
            for name, count in shares.items()
            for place in pools[name].draw(count, target, schedule.width, generator)
        ]
        generator.shuffle(chosen)
        steps.append(chosen)
    return steps


class _Pool:
    """The tasks of one agent."""

    def __init__(self, places: list[int], rates: Sequence[float]) -> None:
        self._places = np.array(places)
        self._rates = np.array([rates[place] for place in places])
        self._left = np.ones(len(places), dtype=bool)

    def draw(self, count: int, target: float, width: float, generator: np.random.Generator) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            if not self._left.any():
                self._left[:] = True
            candidates = np.flatnonzero(self._left)
            chosen = candidates[self._order(candidates, target, width, generator)[: count - len(found)]]
            self._left[chosen] = False
            found += self._places[chosen].tolist()
        return found

    def _order(
        self, candidates: NDArray[np.int64], target: float, width: float, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Candidates in random order, the likelier the nearer to the target (weights as Gumbel keys)."""
        weights = -0.5 * ((self._rates[candidates] - target) / width) ** 2
        order: NDArray[np.int64] = np.argsort(-(weights + generator.gumbel(size=len(candidates))), kind="stable")
        return order


def batch_shares(agents: Sequence[str], batch: int, blend: Mapping[str, float] | None) -> dict[str, int]:
    """How many tasks of a batch each agent has: as blended, else as they occur. Largest remainders get the rest."""
    known = sorted(set(agents))
    if blend is None:
        weights = {name: float(sum(agent == name for agent in agents)) for name in known}
    else:
        unknown = [name for name in blend if name not in known]
        if unknown:
            raise UserError(
                f"the blend names '{unknown[0]}', of which there are no tasks", next=suggest(unknown[0], known)
            )
        weights = {name: share for name, share in blend.items() if share > 0}
    total = sum(weights.values())
    exact = {name: batch * weight / total for name, weight in weights.items()}
    found = {name: int(value) for name, value in exact.items()}
    for name in sorted(exact, key=lambda name: found[name] - exact[name])[: batch - sum(found.values())]:
        found[name] += 1
    return {name: count for name, count in found.items() if count}
