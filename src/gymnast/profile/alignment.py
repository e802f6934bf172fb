"""Whether rollouts and inputs are of one run: every result was asked for, every one asked for is there, none twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.errors import DataError
from gymnast.types.task import RolloutKey

if TYPE_CHECKING:
    from gymnast.profile.plan_index import PlanIndex
    from gymnast.profile.table import Ints, RolloutTable

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Completeness:
    """How much of what was asked for is there."""

    requested: int
    scored: int
    tasks: int
    complete_tasks: int
    partial_tasks: int
    dropped_tasks: int
    """Tasks without any result."""
    missing: Ints
    """Packed keys that were asked for and have no result."""

    @property
    def percent(self) -> float:
        return 100.0 * self.scored / self.requested if self.requested else 0.0


def align(plan: PlanIndex, table: RolloutTable, *, allow_partial: bool) -> Completeness:
    """Check a run. Anything but an exact match is an error with counts and the first keys."""
    asked, found = plan.packed, table.packed
    _refuse_duplicates(asked, "the materialized inputs", plan.paths[0])
    _refuse_duplicates(found, "the rollouts", None)
    extra = np.setdiff1d(found, asked, assume_unique=True)
    if len(extra):
        raise DataError(
            f"{len(extra)} rollouts were never asked for: {_listed(extra)}",
            next="the two files are not of one run; give the materialized inputs that these rollouts belong to",
        )
    missing = np.setdiff1d(asked, found, assume_unique=True)
    if len(missing) and not allow_partial:
        raise DataError(
            f"{len(missing)} of {len(asked)} rollouts have no result: {_listed(missing)}",
            next="finish the run with --resume, or profile what is there with --allow-partial",
        )
    return _completeness(asked, found, missing)


def _completeness(asked: Ints, found: Ints, missing: Ints) -> Completeness:
    tasks = np.unique(asked >> 32)
    incomplete = np.unique(missing >> 32)
    with_results = np.unique(found >> 32)
    dropped = len(tasks) - len(with_results)
    return Completeness(
        requested=len(asked),
        scored=len(found),
        tasks=len(tasks),
        complete_tasks=len(tasks) - len(incomplete),
        partial_tasks=len(incomplete) - dropped,
        dropped_tasks=dropped,
        missing=missing,
    )


def _refuse_duplicates(packed: Ints, what: str, where: object) -> None:
    keys, counts = np.unique(packed, return_counts=True)
    twice = keys[counts > 1]
    if len(twice):
        raise DataError(
            f"{len(twice)} keys stand in {what} more than once: {_listed(twice)}",
            where=str(where) if where is not None else None,
        )


def _listed(packed: Ints) -> str:
    shown = ", ".join(str(unpacked(int(one))) for one in packed[:_SHOWN])
    return shown + (", …" if len(packed) > _SHOWN else "")


def unpacked(packed: int) -> RolloutKey:
    """A key from its single number."""
    return RolloutKey(packed >> 32, packed & 0xFFFFFFFF)
