"""The rollouts of a run that its labels leave: everything else of the run is as if it had not been requested."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gymnast.report.scales import format_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gymnast.profile.plan_index import PlanIndex
    from gymnast.profile.table import Ints, RolloutTable
    from gymnast.store.labels import LabelFilter, Labels


@dataclass(slots=True)
class Selection:
    """A filter with the labels of one run."""

    by_label: LabelFilter
    labels: Labels
    left_out: int = 0
    """Records that labels left out."""

    def accepts(self, packed: int) -> bool:
        return not self.by_label or self.by_label.accepts(self.labels, packed >> 32, packed & 0xFFFFFFFF)

    def of_table(self, table: RolloutTable) -> RolloutTable:
        if not self.by_label:
            return table
        rows = self._rows(table.packed)
        self.left_out = len(table) - len(rows)
        return table.select(rows)

    def of_plan(self, plan: PlanIndex) -> PlanIndex:
        return replace(plan, packed=plan.packed[self._rows(plan.packed)]) if self.by_label else plan

    def note(self) -> str | None:
        """What the numbers leave out, for readers."""
        if not self.by_label:
            return None
        return f"Labels choose {self.by_label.describe()}; {format_count(self.left_out)} records are left out."

    def _rows(self, packed: Ints) -> NDArray[np.int64]:
        return np.flatnonzero(np.fromiter(map(self.accepts, packed.tolist()), np.bool_, len(packed)))
