"""Combines runs of the same tasks with different seeds: pass@1, majority@k and pass@k, with k up to their number.

A task's rollouts are those of all seeds, in the order of the seeds. Majorities are over the answers that environments
extract, or else over rewards. Missing rollouts are counted, never taken for 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from gymnast.errors import DataError, NotFoundError
from gymnast.profile.intervals import Estimate
from gymnast.profile.pass_at_k import are_shares, curve, majority_values, pass_majority_metrics, pass_values
from gymnast.profile.run_profile import load_run
from gymnast.store.atomic import atomic_output
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from gymnast.profile.pass_at_k import Answer, Scores
    from gymnast.profile.run_profile import LoadedRun

ANSWER_KEY: Final = "extracted_answer"
METRICS: Final = "rollouts_metrics.json"
_Task = tuple[list[float], list["str | None"]]


class SeedRun(msgspec.Struct, frozen=True, kw_only=True):
    seed: int | None
    output: str
    is_done: bool
    requested: int
    scored: int
    mean_reward: float | None


class CombinedSeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The results over all seeds."""

    schema_version: int = 1
    seeds: list[SeedRun]
    tasks: int
    rollouts: int
    missing: int
    """Requested rollouts without a score: failed, or not done yet."""
    voted_by: str
    """The field that majorities are over, or `reward`."""
    pass_at: list[tuple[int, Estimate]]
    majority_at: list[tuple[int, Estimate]]
    metrics: dict[str, object]
    """Metrics in percent, under the names that other tools use."""

    @property
    def k(self) -> int:
        return self.pass_at[-1][0] if self.pass_at else 0


def combine_seeds(outputs: Mapping[int | None, Path], *, answer_key: str = ANSWER_KEY) -> CombinedSeeds:
    """Combine the runs of all seeds that have started."""
    started = {seed: path for seed, path in outputs.items() if RunPaths(path).materialized_inputs.exists()}
    if not started:
        folder = next(iter(outputs.values())).parent if outputs else None
        raise NotFoundError(
            "no seed has started yet",
            where=str(folder) if folder is not None else None,
            next=f"if the jobs have ended, see their logs in {folder / 'jobs'}" if folder is not None else None,
        )
    runs = {seed: _load(path, answer_key) for seed, path in started.items()}
    _check_same_tasks(runs, started)
    tasks = _merge_tasks(runs.values(), answer_key)
    scores = [scores for scores, _ in tasks]
    extracted = [answers for _, answers in tasks]
    has_answers = any(answer is not None for answers in extracted for answer in answers)
    answers = extracted if has_answers else [[f"{score:g}" for score in task] for task in scores]
    ks = list(range(1, max(map(len, scores), default=0) + 1))
    is_share = are_shares(scores)
    requested = sum(run.completeness.requested for run in runs.values())
    return CombinedSeeds(
        seeds=[_seed_run(seed, started[seed], run) for seed, run in runs.items()],
        tasks=len(tasks),
        rollouts=sum(map(len, scores)),
        missing=requested - sum(map(len, scores)),
        voted_by=answer_key if has_answers else "reward",
        pass_at=curve(pass_values(scores, ks), is_share=is_share),
        majority_at=curve(majority_values(answers, scores, ks), is_share=is_share),
        metrics=pass_majority_metrics({"accuracy": scores}, answers) if ks else {},
    )


def write_metrics(results: CombinedSeeds, folder: Path) -> Path:
    """Write the results to the folder of the rollouts. Returns the file's path."""
    path = folder / METRICS
    with atomic_output(path) as out:
        out.write(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    return path


def _load(path: Path, answer_key: str) -> LoadedRun:
    rollouts = (path,) if path.exists() else ()
    return load_run((RunPaths(path).materialized_inputs,), rollouts, allow_partial=True, texts=(answer_key,))


def _check_same_tasks(runs: Mapping[int | None, LoadedRun], outputs: Mapping[int | None, Path]) -> None:
    first = next(iter(runs.values())).plan
    for seed, run in runs.items():
        if not np.array_equal(np.sort(run.plan.packed), np.sort(first.packed)):
            raise DataError(
                f"seed {seed} has different rollouts from the first seed",
                where=str(RunPaths(outputs[seed]).materialized_inputs),
                next="only seeds of the same tasks can be combined; collect it again with --rerun-done",
            )


def _merge_tasks(runs: Iterable[LoadedRun], answer_key: str) -> list[_Task]:
    """Each task's scores and answers, in the order of the seeds."""
    tasks: dict[int, _Task] = {}
    for run in runs:
        rewards = run.groups.table.rewards.tolist()
        texts: Sequence[Answer] = run.groups.table.texts.get(answer_key) or [None] * len(rewards)
        for task, rows in run.groups:
            scores, answers = tasks.setdefault(task, ([], []))
            scores += rewards[rows]
            answers += texts[rows]
    return [tasks[task] for task in sorted(tasks)]


def _seed_run(seed: int | None, path: Path, run: LoadedRun) -> SeedRun:
    rewards: Scores = run.groups.table.rewards.tolist()
    return SeedRun(
        seed=seed,
        output=str(path),
        is_done=RunPaths(path).done.exists(),
        requested=run.completeness.requested,
        scored=len(rewards),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
    )
