"""Compares two runs of the same tasks, paired by task because tasks differ more than runs. Pure.

A task's difference is the mean reward of its rollouts in B minus that in A, whatever their numbers; the runs'
difference is the mean over the tasks that both have results for. Tasks that only one run has are counted and left out.
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
from gymnast.profile.intervals import Estimate, bootstrap, mean_of_tasks, share_of_tasks, t_tail
from gymnast.types.task import AGENT_REF, PARAMS, SKILLS_REF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.profile.run_profile import LoadedRun
    from gymnast.types.json import JsonObject

Verdict = Literal["better", "worse", "no difference shown"]
_MAX_ENUMERATED: Final = 14
"""Up to this many differing tasks, every assignment of signs is tried; beyond, a sample."""
_SAMPLES: Final = 20_000
_EPSILON: Final = 1e-12


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
    """B compared with A."""

    tasks: int
    only_a: int
    only_b: int
    mean_a: Estimate
    mean_b: Estimate
    difference: Estimate
    difference_bootstrap: Estimate
    p_value: float
    """Of a sign-flip test: the chance of a mean difference this large without a real one."""
    p_value_t: float
    wins: int
    losses: int
    ties: int
    verdict: Verdict
    matched_by: Literal["content", "index"]
    most_moved: list[TaskChange]
    truncated_a: float = 0.0
    """The share of truncated rollouts in A, of all its tasks,"""
    truncated_b: float = 0.0
    """and in B."""


def compare(changes: Sequence[TaskChange], *, unmatched: tuple[int, int], matched_by: Any, seed: int = 0) -> Comparison:
    if not changes:
        raise DataError("the two runs have no task in common", next="compare runs of the same dataset")
    differences = [change.difference for change in changes]
    difference = mean_of_tasks(differences)
    means_a, means_b = [change.mean_a for change in changes], [change.mean_b for change in changes]
    interval = share_of_tasks if all(0 <= mean <= 1 for mean in means_a + means_b) else mean_of_tasks
    p_value = sign_flip_p(differences, seed=seed)
    largest = sorted(changes, key=lambda change: (-abs(change.difference), change.task_a))[:20]
    return Comparison(
        tasks=len(changes),
        only_a=unmatched[0],
        only_b=unmatched[1],
        mean_a=interval(means_a),
        mean_b=interval(means_b),
        difference=difference,
        difference_bootstrap=bootstrap(differences, seed=seed),
        p_value=p_value,
        p_value_t=_t_test_p(differences),
        wins=sum(value > _EPSILON for value in differences),
        losses=sum(value < -_EPSILON for value in differences),
        ties=sum(abs(value) <= _EPSILON for value in differences),
        verdict=_verdict(difference, p_value),
        matched_by=matched_by,
        most_moved=[change for change in largest if abs(change.difference) > _EPSILON],
    )


def _verdict(difference: Estimate, p_value: float) -> Verdict:
    if p_value >= 0.05:
        return "no difference shown"
    return "better" if difference.value > 0 else "worse"


def verdict_sentence(comparison: Comparison) -> str:
    """The conclusion, for people."""
    if comparison.ties == comparison.tasks:
        return f"No task differs among {comparison.tasks}."
    if comparison.verdict == "no difference shown":
        reach = max(abs(comparison.difference.low), abs(comparison.difference.high))
        return f"No difference shown: {comparison.tasks} tasks cannot rule out one of up to {reach:.3f}."
    size = abs(comparison.difference.value)
    return f"B is {comparison.verdict} than A by {size:.3f} on these tasks; chance alone does not explain it."


def sign_flip_p(differences: Sequence[float], *, seed: int = 0) -> float:
    """The two-sided p-value of the mean difference if each task's sign were a coin toss. Exact for few tasks."""
    nonzero = np.array([value for value in differences if abs(value) > _EPSILON])
    if len(nonzero) == 0:
        return 1.0
    observed = abs(math.fsum(nonzero)) * (1 - 1e-9)
    if len(nonzero) <= _MAX_ENUMERATED:
        sums = np.array(list(product((-1.0, 1.0), repeat=len(nonzero)))) @ nonzero
        return float((np.abs(sums) >= observed).mean())
    generator = np.random.default_rng(seed)
    hits = sampled = 0
    batch = max(1, 4_000_000 // len(nonzero))
    while sampled < _SAMPLES:
        count = min(batch, _SAMPLES - sampled)
        signs = generator.integers(0, 2, (count, len(nonzero))) * 2.0 - 1.0
        hits += int((np.abs(signs @ nonzero) >= observed).sum())
        sampled += count
    return (hits + 1) / (sampled + 1)


def _t_test_p(differences: Sequence[float]) -> float:
    n = len(differences)
    if n < 2:
        return 1.0
    spread = float(np.std(differences, ddof=1))
    if spread == 0:
        return 1.0 if abs(differences[0]) <= _EPSILON else 0.0
    return t_tail(math.fsum(differences) / n / (spread / math.sqrt(n)), n - 1)


def truncated_share(run: LoadedRun) -> float:
    """The share of a run's rollouts that a length or step limit cut off."""
    truncated = run.groups.table.truncated
    return float(truncated.mean()) if len(truncated) else 0.0


# --- matching tasks --------------------------------------------------------------------------------------------------


def match_tasks(
    run_a: LoadedRun, run_b: LoadedRun, *, by_index: bool = False
) -> tuple[list[TaskChange], tuple[int, int], Literal["content", "index"]]:
    """Pair the tasks of two runs by the content of their rows, or by their indexes."""
    keys_a, keys_b = (_keys(run, by_index=by_index) for run in (run_a, run_b))
    means_a, means_b = _means(run_a), _means(run_b)
    changes = []
    for key, task_a in keys_a.items():
        if key not in keys_b:
            continue
        task_b = keys_b[key]
        (mean_a, rollouts_a), (mean_b, rollouts_b) = means_a[task_a], means_b[task_b]
        changes.append(TaskChange(task_a, task_b, mean_a, mean_b, rollouts_a, rollouts_b))
    unmatched = (len(keys_a) - len(changes), len(keys_b) - len(changes))
    return changes, unmatched, "index" if by_index else "content"


def _keys(run: LoadedRun, *, by_index: bool) -> dict[Any, int]:
    """The tasks with results by their identity. Equal rows are distinguished by their order."""
    tasks = run.groups.tasks.tolist()
    if by_index:
        return {task: task for task in tasks}
    keys: dict[Any, int] = {}
    counts: dict[bytes, int] = {}
    with run.plan.samples() as samples:
        for task in tasks:
            content = task_content(samples.row(task))
            number = counts[content] = counts.get(content, 0) + 1
            keys[content, number] = task
    return keys


def task_content(row: JsonObject) -> bytes:
    """The identity of a task across runs: a digest of its row without agent, skills and sampling parameters."""
    params = row.get(PARAMS) or {}
    content = {key: value for key, value in row.items() if key not in {AGENT_REF, SKILLS_REF, PARAMS}}
    content[PARAMS] = {key: params[key] for key in ("input", "tools", "instructions") if key in params}
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _means(run: LoadedRun) -> dict[int, tuple[float, int]]:
    rewards = run.groups.table.rewards
    return {
        task: (math.fsum(rewards[rows].tolist()) / (rows.stop - rows.start), rows.stop - rows.start)
        for task, rows in run.groups
    }
