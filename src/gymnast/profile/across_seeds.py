"""Several runs of the same tasks, one for each seed, as one: pass@1, majority@k and pass@k with k up to their number.

A task's rollouts are those of all seeds, in the order of the seeds. Majorities are over the answers that environments
extract; where there are none, over rewards. What is missing is counted, never taken for 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from gymnast.errors import DataError, NotFoundError
from gymnast.profile.intervals import Estimate
from gymnast.profile.pass_at_k import curve, majority_values, pass_majority_metrics, pass_values
from gymnast.profile.run_profile import load_run
from gymnast.store.paths import RunPaths
from gymnast.store.replacing import replaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from gymnast.profile.pass_at_k import Answer, Scores
    from gymnast.profile.run_profile import LoadedRun

ANSWER_KEY: Final = "extracted_answer"
METRICS: Final = "rollouts_metrics.json"
_Task = tuple[list[float], list["str | None"]]


class SeedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One seed's share."""

    seed: int | None
    output: str
    is_done: bool
    requested: int
    scored: int
    mean_reward: float | None


class AcrossSeeds(msgspec.Struct, frozen=True, kw_only=True):
    """All seeds together."""

    schema_version: int = 1
    seeds: list[SeedRun]
    tasks: int
    rollouts: int
    missing: int
    """Rollouts that were asked for and have no score: failed, or not there yet."""
    voted_by: str
    """What majorities are over: a field of the records, or `reward`."""
    pass_at: list[tuple[int, Estimate]]
    majority_at: list[tuple[int, Estimate]]
    metrics: dict[str, object]
    """By the names that other tools use, in percent."""

    @property
    def k(self) -> int:
        return self.pass_at[-1][0] if self.pass_at else 0


def across_seeds(outputs: Mapping[int | None, Path], *, answer_key: str = ANSWER_KEY) -> AcrossSeeds:
    """Read the runs of all seeds that have begun."""
    there = {seed: path for seed, path in outputs.items() if RunPaths(path).materialized_inputs.exists()}
    if not there:
        folder = next(iter(outputs.values())).parent if outputs else None
        raise NotFoundError(
            "no seed has begun yet",
            where=str(folder) if folder is not None else None,
            next=f"if its jobs are over, their logs in {folder / 'jobs'} say why" if folder is not None else None,
        )
    runs = {seed: _loaded(path, answer_key) for seed, path in there.items()}
    _refuse_other_tasks(runs, there)
    tasks = _together(runs.values(), answer_key)
    scores = [scores for scores, _ in tasks]
    said = [said for _, said in tasks]
    has_answers = any(answer is not None for one in said for answer in one)
    answers = said if has_answers else [[f"{score:g}" for score in one] for one in scores]
    ks = list(range(1, max((len(one) for one in scores), default=0) + 1))
    is_share = all(0 <= score <= 1 for one in scores for score in one)
    requested = sum(run.completeness.requested for run in runs.values())
    return AcrossSeeds(
        seeds=[_seed_run(seed, there[seed], run) for seed, run in runs.items()],
        tasks=len(tasks),
        rollouts=sum(map(len, scores)),
        missing=requested - sum(map(len, scores)),
        voted_by=answer_key if has_answers else "reward",
        pass_at=curve(pass_values(scores, ks), is_share=is_share),
        majority_at=curve(majority_values(answers, scores, ks), is_share=is_share),
        metrics=pass_majority_metrics({"accuracy": scores}, answers) if ks else {},
    )


def write_metrics(found: AcrossSeeds, folder: Path) -> Path:
    """Write them beside the rollouts; the file's name."""
    path = folder / METRICS
    with replaced(path) as out:
        out.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    return path


def _loaded(path: Path, answer_key: str) -> LoadedRun:
    rollouts = (path,) if path.exists() else ()
    return load_run((RunPaths(path).materialized_inputs,), rollouts, allow_partial=True, texts=(answer_key,))


def _refuse_other_tasks(runs: Mapping[int | None, LoadedRun], outputs: Mapping[int | None, Path]) -> None:
    first = next(iter(runs.values())).plan
    for seed, run in runs.items():
        if not np.array_equal(np.sort(run.plan.packed), np.sort(first.packed)):
            raise DataError(
                f"seed {seed} was asked for other rollouts than the first one",
                where=str(RunPaths(outputs[seed]).materialized_inputs),
                next="seeds are put together only over the same tasks; collect it again with --rerun-done",
            )


def _together(runs: Iterable[LoadedRun], answer_key: str) -> list[_Task]:
    """Each task's scores and answers, seed after seed."""
    found: dict[int, _Task] = {}
    for run in runs:
        rewards = run.groups.table.rewards.tolist()
        texts: Sequence[Answer] = run.groups.table.texts.get(answer_key) or [None] * len(rewards)
        for task, rows in run.groups:
            scores, answers = found.setdefault(task, ([], []))
            scores += rewards[rows]
            answers += texts[rows]
    return [found[task] for task in sorted(found)]


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
