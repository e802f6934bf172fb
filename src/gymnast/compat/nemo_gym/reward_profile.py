"""`nemo_gym.reward_profile`: what servers compute over verify rows, by `gymnast.profile` and `gymnast.kit.metrics`."""

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
    """Hooks for metrics of a server's own."""

    def compute_metrics(self, tasks: Rows) -> dict[str, Any]:
        """Further metrics; `tasks` has for each task the rows of its rollouts, in order."""
        return {}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Those to look at first: by default the means."""
        return {name: value for name, value in agent_metrics.items() if name.startswith("mean/")}

    def aggregated(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Statistics of all numbers, and what the hooks say."""
        rows = body.verify_responses
        if not rows:
            return AggregateMetrics()
        found = aggregate(rows)
        own = dict(self.compute_metrics(by_task(rows)))
        per_task = {entry[TASK_INDEX]: entry for entry in own.pop("per_task_metrics", None) or ()}
        groups = [{**group, **per_task.get(group[TASK_INDEX], {})} for group in found["group_level_metrics"]]
        metrics = {**found["agent_metrics"], **own}
        return AggregateMetrics(
            group_level_metrics=groups, agent_metrics=metrics, key_metrics=self.get_key_metrics(metrics)
        )


def by_task(rows: Sequence[dict[str, Any]]) -> Rows:
    """Rows in groups of one task, tasks and rollouts in order."""
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
    """pass@k, pass@1[avg-of-k] and, with an answer field, majority@k, in percent; with the scores they are made of."""
    scores = _scored(tasks, score_fn)
    if not any(scores):
        return {}, scores, [], 0
    named = _by_name(scores)
    metrics = _contract(pass_majority_metrics(named, _answers(tasks, answer_key)))
    if answer_key is not None:
        scores = [
            [{**found, "no_answer": float(row.get(answer_key) is None)} for row, found in zip(task, own, strict=True)]
            for task, own in zip(tasks, scores, strict=True)
        ]
    names = list(dict.fromkeys(name for task in scores for row in task for name in row))
    return metrics, scores, names, max(len(task) for task in tasks)


def compute_subset_metrics(
    tasks: Rows, subset_key: str, score_fn: Any | None = None, answer_key: str | None = None
) -> dict[str, Any]:
    """The same for each value of a field, as `value/metric`."""
    kept = [task for task in tasks if task and task[0].get(subset_key) is not None]
    if not kept:
        return {}
    subsets = [str(task[0][subset_key]) for task in kept]
    return _contract(subset_metrics(subsets, _by_name(_scored(kept, score_fn)), _answers(kept, answer_key)))


def _contract(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Without the estimates that only Gymnast has."""
    return {name: value for name, value in metrics.items() if not name.endswith("/unordered")}


def add_avg_sample_std_dev(
    metrics: dict[str, Any], all_score_dicts: list[list[dict[str, float]]], score_names: list[str], max_k: int
) -> None:
    """Add, for each score and k, how much the first k rollouts of a task differ on average."""
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
    """Of metrics such as `pass@{k}`, those with the largest k; statistics of them are left out."""
    before, _, after = pattern.partition("{k}")
    shape = re.compile(f"{re.escape(before)}(\\d+){re.escape(after)}/(.+)")
    found = [(match, name) for name in agent_metrics if (match := shape.fullmatch(name)) is not None]
    chosen = [
        (int(match[1]), name)
        for match, name in found
        if not match[2].endswith(_STATISTICS)
        and (score_names is None or match[2] in score_names)
        and match[2] not in (exclude_names or ())
    ]
    most = max((k for k, _ in chosen), default=math.inf)
    return {name: agent_metrics[name] for k, name in chosen if k == most}


__getattr__ = missing_from("nemo_gym.reward_profile")
