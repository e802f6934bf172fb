"""pass@k, pass@1[avg-of-k] and majority@k as NeMo Gym defines them, over scores that some rollouts may lack.

A rollout without a score, or with None or NaN, is left out of that score's metrics and of nothing else. Pure.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import fmean, stdev
from typing import Any, Final

Rows = list[list[dict[str, Any]]]
ScoreFn = Callable[[dict[str, Any]], Mapping[str, float | bool | None]]
Scores = list[dict[str, float]]
NO_ANSWER: Final = "no_answer"
_ABSENT: Final = float("nan")
_STATISTICS: Final = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev", "unordered")


@lru_cache(maxsize=65536)
def pass_at_k(n: int, correct: int, k: int) -> float:
    """The probability that at least one of k rollouts, drawn from n, is correct."""
    wrong = n - correct
    return 1.0 if wrong < k else 1.0 - math.comb(wrong, k) / math.comb(n, k)


def score_rows(tasks: Rows, score_fn: ScoreFn, answer_key: str | None) -> list[Scores]:
    """The scores of every rollout by name; with an answer field, also whether the rollout lacks an answer."""
    scored = []
    for task in tasks:
        scores = [present_scores(score_fn(row)) for row in task]
        if answer_key is not None:
            scores = [
                {**score, NO_ANSWER: int(row.get(answer_key) is None)} for row, score in zip(task, scores, strict=True)
            ]
        scored.append(scores)
    return scored


def present_scores(scores: Mapping[str, float | bool | None]) -> dict[str, float]:
    """The scores that a rollout has, as numbers; NaN is none."""
    present = {name: value for name, value in scores.items() if value is not None and value == value}  # noqa: PLR0124
    return {name: int(value) if isinstance(value, bool) else value for name, value in present.items()}


def pass_majority(scored: list[Scores], answers: Sequence[Sequence[Any]] | None) -> dict[str, Any]:
    """All metrics of these scores, in percent; `answers`, one for each rollout, adds those of majority votes."""
    names = score_names(scored)
    max_k = max((len(task) for task in scored), default=0)
    metrics: dict[str, Any] = {}
    table = {name: [[score.get(name, _ABSENT) for score in task] for task in scored] for name in names}
    passes = {name: [_Passes(_without_gaps(column)) for column in columns] for name, columns in table.items()}
    for k in range(1, max_k + 1):
        for name, columns in table.items():
            metrics |= _percentages(f"pass@{k}/{name}", (task.best_of(k) for task in passes[name] if len(task) >= k))
            metrics |= _percentages(f"pass@1[avg-of-{k}]/{name}", _mean_values(columns, k))
            if answers is not None:
                metrics |= _percentages(f"majority@{k}/{name}", _majority_values(columns, answers, k))
    runs = {name: values for name in names if (values := _across_runs(scored, name, max_k))}
    metrics["per_sample_aggregate"] = runs
    for k in range(2, max_k + 1):
        for name in names:
            metrics |= _spread(f"pass@1[avg-of-{k}]/{name}", runs.get(name, [])[:k])
    return metrics


def sample_spreads(scored: list[Scores], names: Sequence[str], max_k: int) -> dict[str, float]:
    """For each score and k, the mean standard deviation over the first k rollouts of a task."""
    spreads = {
        f"pass@1[avg-of-{k}]/{name}/avg_sample_std_dev": sample_spread(scored, name, k)
        for k in range(2, max_k + 1)
        for name in names
    }
    return {name: value for name, value in spreads.items() if value is not None}


def highest_k(
    metrics: Mapping[str, Any], pattern: str, only: Collection[str] | None = None, without: Collection[str] = ()
) -> dict[str, Any]:
    """The metrics of a pattern such as `pass@{k}` with the largest k, without their statistics."""
    before, _, after = pattern.partition("{k}")
    shape = re.compile(f"{re.escape(before)}(\\d+){re.escape(after)}/(.+)")
    matches = [(match, name) for name in metrics if (match := shape.fullmatch(name)) is not None]
    selected = [
        (int(match[1]), name)
        for match, name in matches
        if not match[2].endswith(_STATISTICS) and (only is None or match[2] in only) and match[2] not in without
    ]
    max_k = max((k for k, _ in selected), default=math.inf)
    return {name: metrics[name] for k, name in selected if k == max_k}


def score_names(scored: list[Scores]) -> list[str]:
    """The names of all scores."""
    return sorted({name for task in scored for score in task for name in score})


def sample_spread(scored: list[Scores], name: str, k: int) -> float | None:
    """The mean over tasks of the standard deviation of a score over its first k rollouts; None if no task has two."""
    columns = ([score[name] for score in task[:k] if name in score] for task in scored)
    spreads = [stdev(column) for column in columns if len(column) > 1]
    return fmean(spreads) if spreads else None


def _percentages(name: str, values: Iterator[float]) -> dict[str, float]:
    values_ = list(values)
    return {name: 100 * math.fsum(values_) / len(values_)} if values_ else {}


def _without_gaps(column: Sequence[float]) -> list[float]:
    return [value for value in column if not math.isnan(value)]


class _Passes:
    """The scores of a task for pass@k; how many are correct if all are 0 or 1."""

    __slots__ = ("_correct", "_scores")

    def __init__(self, scores: list[float]) -> None:
        self._scores = scores
        self._correct = int(sum(scores)) if all(score in (0, 1) for score in scores) else None

    def __len__(self) -> int:
        return len(self._scores)

    def best_of(self, k: int) -> float:
        if self._correct is None:
            return max(self._scores[:k])
        return pass_at_k(len(self._scores), self._correct, k)


def _mean_values(columns: list[list[float]], k: int) -> Iterator[float]:
    for column in columns:
        values = _without_gaps(column[:k])
        if values:
            yield fmean(values)


def _majority_values(columns: list[list[float]], answers: Sequence[Sequence[Any]], k: int) -> Iterator[float]:
    for column, own in zip(columns, answers, strict=True):
        pairs = zip(own[:k], column[:k], strict=True)
        votes = Counter((answer, score) for answer, score in pairs if answer is not None and not math.isnan(score))
        most = max(votes.values(), default=0)
        yield fmean(score for (_, score), count in votes.items() if count == most) if votes else 0.0


def _across_runs(scored: list[Scores], name: str, max_k: int) -> list[float]:
    """The mean in percent over the tasks' first rollouts, their second ones, and so on, where any has the score."""
    columns = ([task[run][name] for task in scored if run < len(task) and name in task[run]] for run in range(max_k))
    return [100 * fmean(column) for column in columns if column]


def _spread(metric: str, runs: Sequence[float]) -> dict[str, float]:
    if len(runs) < 2:
        return {}
    spread = stdev(runs)
    return {f"{metric}/std_dev_across_runs": spread, f"{metric}/std_err_across_runs": spread / math.sqrt(len(runs))}
