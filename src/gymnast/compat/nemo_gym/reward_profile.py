"""`nemo_gym.reward_profile`: metrics over verify rows, computed by `gymnast.profile` and `gymnast.kit.metrics`."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Final

from gymnast.compat.nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.kit.metrics import aggregate
from gymnast.profile.pass_at_k import pass_majority_metrics, subset_metrics
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

__all__ = [
    "AggregateMetricsMixin",
    "Rows",
    "ScoreFn",
    "add_avg_sample_std_dev",
    "by_task",
    "compute_pass_majority_metrics",
    "compute_subset_metrics",
    "highest_k_metrics",
]

Rows = list[list[dict[str, Any]]]
ScoreFn = Callable[[dict[str, Any]], Mapping[str, float | bool]]
_STATISTICS: Final = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev", "unordered")


class AggregateMetricsMixin:
    """Hooks for a server's custom metrics."""

    def compute_metrics(self, tasks: Rows) -> dict[str, Any]:
        """Custom metrics; `tasks` has the rows of each task's rollouts, in order."""
        return {}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The key metrics: by default the means."""
        return {name: value for name, value in agent_metrics.items() if name.startswith("mean/")}

    def compute_aggregate(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Compute statistics of all numbers, and the metrics of the hooks."""
        rows = body.verify_responses
        if not rows:
            return AggregateMetrics()
        statistics = aggregate(rows)
        custom = dict(self.compute_metrics(by_task(rows)))
        per_task = {entry[TASK_INDEX]: entry for entry in custom.pop("per_task_metrics", None) or ()}
        groups = [{**group, **per_task.get(group[TASK_INDEX], {})} for group in statistics["group_level_metrics"]]
        metrics = {**statistics["agent_metrics"], **custom}
        return AggregateMetrics(
            group_level_metrics=groups, agent_metrics=metrics, key_metrics=self.get_key_metrics(metrics)
        )


def by_task(rows: Sequence[dict[str, Any]]) -> Rows:
    """Group rows by task, with tasks and rollouts in order."""
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row.get(TASK_INDEX, 0)].append(row)
    return [sorted(groups[task], key=lambda row: row.get(ROLLOUT_INDEX, 0)) for task in sorted(groups)]


def _default_score(row: dict[str, Any]) -> dict[str, float]:
    return {"accuracy": row["reward"]}


def _scored(tasks: Rows, score_fn: ScoreFn | None) -> list[list[dict[str, float]]]:
    score = score_fn or _default_score
    return [[{name: float(value) for name, value in score(row).items()} for row in task] for task in tasks]


def _by_name(scores: list[list[dict[str, float]]]) -> dict[str, list[list[float]]]:
    names = dict.fromkeys(name for task in scores for row in task for name in row)
    return {name: [[row[name] for row in task if name in row] for task in scores] for name in names}


def _answers(tasks: Rows, answer_key: str | None) -> list[list[Any]] | None:
    return None if answer_key is None else [[row.get(answer_key) for row in task] for task in tasks]


def compute_pass_majority_metrics(
    tasks: Rows, score_fn: Any | None = None, answer_key: str | None = None
) -> tuple[dict[str, Any], list[list[dict[str, float]]], list[str], int]:
    """pass@k, pass@1[avg-of-k] and, with an answer field, majority@k, in percent, and the scores behind them."""
    scores = _scored(tasks, score_fn)
    if not any(scores):
        return {}, scores, [], 0
    by_name = _by_name(scores)
    metrics = _contract(pass_majority_metrics(by_name, _answers(tasks, answer_key)))
    if answer_key is not None:
        scores = [
            [
                {**score, "no_answer": float(row.get(answer_key) is None)}
                for row, score in zip(task, task_scores, strict=True)
            ]
            for task, task_scores in zip(tasks, scores, strict=True)
        ]
    names = list(dict.fromkeys(name for task in scores for row in task for name in row))
    return metrics, scores, names, max(len(task) for task in tasks)


def compute_subset_metrics(
    tasks: Rows, subset_key: str, score_fn: Any | None = None, answer_key: str | None = None
) -> dict[str, Any]:
    """The metrics of `compute_pass_majority_metrics` for each value of a field, as `value/metric`."""
    tasks = [task for task in tasks if task and task[0].get(subset_key) is not None]
    if not tasks:
        return {}
    subsets = [str(task[0][subset_key]) for task in tasks]
    return _contract(subset_metrics(subsets, _by_name(_scored(tasks, score_fn)), _answers(tasks, answer_key)))


def _contract(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the estimates that NeMo Gym does not have."""
    return {name: value for name, value in metrics.items() if not name.endswith("/unordered")}


def add_avg_sample_std_dev(
    metrics: dict[str, Any], all_score_dicts: list[list[dict[str, float]]], score_names: list[str], max_k: int
) -> None:
    """Add, for each score and k, the mean standard deviation over the first k rollouts of a task."""
    for name in score_names:
        for k in range(2, max_k + 1):
            spreads = [stdev(row[name] for row in task[:k]) for task in all_score_dicts if len(task) >= k]
            if spreads:
                metrics[f"pass@1[avg-of-{k}]/{name}/avg_sample_std_dev"] = fmean(spreads)


def highest_k_metrics(
    agent_metrics: dict[str, Any],
    pattern: str,
    score_names: list[str] | None = None,
    exclude_names: list[str] | None = None,
) -> dict[str, Any]:
    """The metrics of a pattern such as `pass@{k}` with the largest k, without their statistics."""
    before, _, after = pattern.partition("{k}")
    shape = re.compile(f"{re.escape(before)}(\\d+){re.escape(after)}/(.+)")
    matches = [(match, name) for name in agent_metrics if (match := shape.fullmatch(name)) is not None]
    selected = [
        (int(match[1]), name)
        for match, name in matches
        if not match[2].endswith(_STATISTICS)
        and (score_names is None or match[2] in score_names)
        and match[2] not in (exclude_names or ())
    ]
    max_k = max((k for k, _ in selected), default=math.inf)
    return {name: agent_metrics[name] for k, name in selected if k == max_k}


__getattr__ = missing_from("nemo_gym.reward_profile")
