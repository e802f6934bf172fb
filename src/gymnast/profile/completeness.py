"""Checks that rollouts and inputs belong to one run: no unrequested, missing or duplicate results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.errors import DataError
from gymnast.types.task import RolloutKey

if TYPE_CHECKING:
    from gymnast.profile.plan_index import PlanIndex
    from gymnast.profile.table import Ints, RolloutTable

_MAX_LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class Completeness:
    """How much of a run has results."""

    requested: int
    scored: int
    tasks: int
    complete_tasks: int
    partial_tasks: int
    dropped_tasks: int
    """Tasks without any result."""
    missing: Ints
    """Packed keys of requested rollouts without a result."""

    @property
    def percent(self) -> float:
        return 100.0 * self.scored / self.requested if self.requested else 0.0


def check_completeness(plan: PlanIndex, table: RolloutTable, *, allow_partial: bool) -> Completeness:
    """Check a run. A mismatch is an error with counts and the first keys."""
    requested, scored = plan.packed, table.packed
    _check_unique(requested, "the materialized inputs", plan.paths[0])
    _check_unique(scored, "the rollouts", None)
    extra = np.setdiff1d(scored, requested, assume_unique=True)
    if len(extra):
        raise DataError(
            f"{len(extra)} rollouts were never requested: {_list_keys(extra)}",
            next="the files belong to different runs; pass the materialized inputs of these rollouts",
        )
    missing = np.setdiff1d(requested, scored, assume_unique=True)
    if len(missing) and not allow_partial:
        raise DataError(
            f"{len(missing)} of {len(requested)} rollouts have no result: {_list_keys(missing)}",
            next="finish the run with --resume, or profile the existing results with --allow-partial "
            "(ng_reward_profile: ++allow_partial_rollouts=True)",
        )
    return _completeness(requested, scored, missing)


def _completeness(requested: Ints, scored: Ints, missing: Ints) -> Completeness:
    tasks = np.unique(requested >> 32)
    incomplete = np.unique(missing >> 32)
    dropped = len(tasks) - len(np.unique(scored >> 32))
    return Completeness(
        requested=len(requested),
        scored=len(scored),
        tasks=len(tasks),
        complete_tasks=len(tasks) - len(incomplete),
        partial_tasks=len(incomplete) - dropped,
        dropped_tasks=dropped,
        missing=missing,
    )


def _check_unique(packed: Ints, source: str, where: object) -> None:
    keys, counts = np.unique(packed, return_counts=True)
    duplicates = keys[counts > 1]
    if len(duplicates):
        raise DataError(
            f"{len(duplicates)} keys occur in {source} more than once: {_list_keys(duplicates)}",
            where=str(where) if where is not None else None,
        )


def _list_keys(packed: Ints) -> str:
    keys = ", ".join(str(RolloutKey(key >> 32, key & 0xFFFFFFFF)) for key in map(int, packed[:_MAX_LISTED]))
    return keys + (", …" if len(packed) > _MAX_LISTED else "")
