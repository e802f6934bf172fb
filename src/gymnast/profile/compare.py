"""Two runs of the same tasks: is one better? Paired by task, because tasks differ more than runs do. Pure.

Definition: over the tasks that both runs have results for, a task's difference is the mean reward of its rollouts in B
less that in A, however many each has; the runs' difference is the mean of those. Tasks that only one run has are
counted and left out.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import orjson

from gymnast.errors import DataError
from gymnast.profile.intervals import Estimate, bootstrap, mean_of_tasks, t_tail
from gymnast.types.task import AGENT_REF, PARAMS, SKILLS_REF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.profile.run_profile import LoadedRun
    from gymnast.types.json import JsonObject

Verdict = Literal["better", "worse", "no difference shown"]
_ENUMERATED: Final = 14
"""Up to this many tasks that differ, every assignment of signs is tried; beyond, many are drawn."""
_DRAWN: Final = 20_000
_SAME: Final = 1e-12


@dataclass(frozen=True, slots=True)
class TaskChange:
    """One task in both runs."""

    task_a: int
    task_b: int
    mean_a: float
    mean_b: float
    rollouts_a: int
    rollouts_b: int

    @property
    def difference(self) -> float:
        return self.mean_b - self.mean_a


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A."""

    tasks: int
    only_a: int
    only_b: int
    mean_a: Estimate
    mean_b: Estimate
    difference: Estimate
    difference_bootstrap: Estimate
    p_value: float
    """Of a sign-flip test: how often chance alone makes the mean difference as large."""
    p_value_t: float
    wins: int
    losses: int
    ties: int
    verdict: Verdict
    matched_by: Literal["content", "index"]
    most_moved: list[TaskChange]


def compare(changes: Sequence[TaskChange], *, only: tuple[int, int], matched_by: Any, seed: int = 0) -> Comparison:
    """Compare matched tasks."""
    if not changes:
        raise DataError("the two runs have no task in common", next="compare runs of the same dataset")
    differences = [change.difference for change in changes]
    found = mean_of_tasks(differences)
    p_value = sign_flip_p(differences, seed=seed)
    moved = sorted(changes, key=lambda change: (-abs(change.difference), change.task_a))
    return Comparison(
        tasks=len(changes),
        only_a=only[0],
        only_b=only[1],
        mean_a=mean_of_tasks([change.mean_a for change in changes]),
        mean_b=mean_of_tasks([change.mean_b for change in changes]),
        difference=found,
        difference_bootstrap=bootstrap(differences, seed=seed),
        p_value=p_value,
        p_value_t=_t_p(differences),
        wins=sum(value > _SAME for value in differences),
        losses=sum(value < -_SAME for value in differences),
        ties=sum(abs(value) <= _SAME for value in differences),
        verdict=_verdict(found, p_value),
        matched_by=matched_by,
        most_moved=[change for change in moved[:20] if abs(change.difference) > _SAME],
    )


def _verdict(difference: Estimate, p_value: float) -> Verdict:
    if p_value >= 0.05:
        return "no difference shown"
    return "better" if difference.value > 0 else "worse"


def sign_flip_p(differences: Sequence[float], *, seed: int = 0) -> float:
    """The two-sided p-value of the mean difference if each task's sign were a coin toss. Exact for few tasks."""
    moved = np.array([value for value in differences if abs(value) > _SAME])
    if len(moved) == 0:
        return 1.0
    observed = abs(math.fsum(moved)) * (1 - 1e-9)
    if len(moved) <= _ENUMERATED:
        sums = np.array(list(product((-1.0, 1.0), repeat=len(moved)))) @ moved
        return float((np.abs(sums) >= observed).mean())
    generator = np.random.default_rng(seed)
    hits = drawn = 0
    chunk = max(1, 4_000_000 // len(moved))
    while drawn < _DRAWN:
        count = min(chunk, _DRAWN - drawn)
        signs = generator.integers(0, 2, (count, len(moved))) * 2.0 - 1.0
        hits += int((np.abs(signs @ moved) >= observed).sum())
        drawn += count
    return (hits + 1) / (drawn + 1)


def _t_p(differences: Sequence[float]) -> float:
    n = len(differences)
    if n < 2:
        return 1.0
    spread = float(np.std(differences, ddof=1))
    if spread == 0:
        return 1.0 if abs(differences[0]) <= _SAME else 0.0
    return t_tail(math.fsum(differences) / n / (spread / math.sqrt(n)), n - 1)


# --- which tasks are the same ----------------------------------------------------------------------------------------


def match(
    run_a: LoadedRun, run_b: LoadedRun, *, by_index: bool = False
) -> tuple[list[TaskChange], tuple[int, int], Literal["content", "index"]]:
    """Pair the tasks of two runs: by what their rows say, or by their indexes if that is asked for."""
    keys_a, keys_b = (_keys(run, by_index=by_index) for run in (run_a, run_b))
    numbers_a, numbers_b = _means(run_a), _means(run_b)
    both = [key for key in keys_a if key in keys_b]
    changes = [
        TaskChange(
            keys_a[key],
            keys_b[key],
            numbers_a[keys_a[key]][0],
            numbers_b[keys_b[key]][0],
            numbers_a[keys_a[key]][1],
            numbers_b[keys_b[key]][1],
        )
        for key in both
    ]
    only = (len(keys_a) - len(both), len(keys_b) - len(both))
    return changes, only, "index" if by_index else "content"


def _keys(run: LoadedRun, *, by_index: bool) -> dict[Any, int]:
    """What identifies each task that has results, and its index. Equal rows are told apart by their order."""
    tasks = run.groups.tasks.tolist()
    if by_index:
        return {task: task for task in tasks}
    found: dict[Any, int] = {}
    seen: dict[bytes, int] = {}
    with run.plan.samples() as samples:
        for task in tasks:
            content = task_content(samples.row(task))
            number = seen[content] = seen.get(content, 0) + 1
            found[content, number] = task
    return found


def task_content(row: JsonObject) -> bytes:
    """What makes a task the same task in another run: its row without agent, skills and sampling parameters."""
    params = row.get(PARAMS) or {}
    kept = {key: value for key, value in row.items() if key not in {AGENT_REF, SKILLS_REF, PARAMS}}
    kept[PARAMS] = {key: params[key] for key in ("input", "tools", "instructions") if key in params}
    return hashlib.blake2b(orjson.dumps(kept, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _means(run: LoadedRun) -> dict[int, tuple[float, int]]:
    rewards = run.groups.table.rewards
    return {
        task: (math.fsum(rewards[rows].tolist()) / (rows.stop - rows.start), rows.stop - rows.start)
        for task, rows in run.groups
    }
