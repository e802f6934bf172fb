"""Metrics of the groups that a stream delivered: all of them, by environment and by policy."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gymnast.train.metrics import Metrics

if TYPE_CHECKING:
    from gymnast.train.samples import Group


class StreamMetrics:
    """Metrics since the last `take`."""

    def __init__(self) -> None:
        self._all = Metrics()
        self._parts: dict[str, Metrics] = defaultdict(Metrics)

    def add(self, group: Group) -> None:
        self._all.add(group.samples)
        for kind, name in (("environment", group.environment), ("policy", group.policy)):
            if name:
                self._parts[f"{kind}/{name}"].add(group.samples)

    def take(self) -> dict[str, float]:
        """The figures so far; those of an environment or policy start with its name. Counting starts over."""
        figures = self._all.figures()
        for name, metrics in self._parts.items():
            figures |= {f"{name}/{key}": value for key, value in metrics.figures().items()}
        self._all, self._parts = Metrics(), defaultdict(Metrics)
        return figures
