"""`nemo_gym.reward_profile`: metrics over verify rows, computed by `gymnast.profile` and `gymnast.kit.metrics`."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from gymnast.compat.nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.kit.metrics import aggregate
from gymnast.kit.pass_majority import Rows as Rows
from gymnast.kit.pass_majority import ScoreFn as ScoreFn
from gymnast.kit.pass_majority import highest_k, pass_majority, sample_spreads, score_names, score_rows
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX


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
        return compute_aggregate_metrics(rows, self.compute_metrics, self.get_key_metrics)


def compute_aggregate_metrics(
    verify_responses: list[dict[str, Any]],
    compute_metrics_fn: Callable[[Rows], dict[str, Any]] | None = None,
    get_key_metrics_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> AggregateMetrics:
    """Statistics of all numbers of verify rows, with the metrics of these hooks."""
    if not verify_responses:
        return AggregateMetrics()
    statistics = aggregate(verify_responses)
    tasks = by_task(verify_responses)
    custom = dict(compute_metrics_fn(tasks)) if compute_metrics_fn is not None else {}
    per_task = {entry[TASK_INDEX]: entry for entry in custom.pop("per_task_metrics", None) or ()}
    groups = [{**group, **per_task.get(group[TASK_INDEX], {})} for group in statistics["group_level_metrics"]]
    metrics = {**statistics["agent_metrics"], **custom}
    select = get_key_metrics_fn or AggregateMetricsMixin().get_key_metrics
    return AggregateMetrics(group_level_metrics=groups, agent_metrics=metrics, key_metrics=select(metrics))


def by_task(rows: Sequence[dict[str, Any]]) -> Rows:
    """Group rows by task, with tasks and rollouts in order."""
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row.get(TASK_INDEX, 0)].append(row)
    return [sorted(groups[task], key=lambda row: row.get(ROLLOUT_INDEX, 0)) for task in sorted(groups)]


def _default_score(row: dict[str, Any]) -> dict[str, float]:
    return {"accuracy": row["reward"]}


def compute_pass_majority_metrics(
    tasks: Rows, score_fn: Any | None = None, answer_key: str | None = None
) -> tuple[dict[str, Any], list[list[dict[str, float]]], list[str], int]:
    """pass@k, pass@1[avg-of-k] and, with an answer field, majority@k, in percent, and the scores behind them."""
    if not tasks:
        return {}, [], [], 0
    scored = score_rows(tasks, score_fn or _default_score, answer_key)
    answers = None if answer_key is None else [[row.get(answer_key) for row in task] for task in tasks]
    return pass_majority(scored, answers), scored, score_names(scored), max(len(task) for task in tasks)


def compute_subset_metrics(
    tasks: Rows, subset_key: str, score_fn: Any | None = None, answer_key: str | None = None
) -> dict[str, Any]:
    """The metrics of `compute_pass_majority_metrics` for each value of a field, as `value/metric`."""
    subsets: dict[Any, Rows] = defaultdict(list)
    for task in tasks:
        subset = task[0].get(subset_key) if task else None
        if subset:
            subsets[subset].append(task)
    return {
        f"{subset}/{name}": value
        for subset, members in subsets.items()
        for name, value in compute_pass_majority_metrics(members, score_fn, answer_key)[0].items()
        if name != "per_sample_aggregate"
    }


def add_avg_sample_std_dev(
    metrics: dict[str, Any], all_score_dicts: list[list[dict[str, float]]], score_names: list[str], max_k: int
) -> None:
    """Add, for each score and k, the mean standard deviation over the first k rollouts of a task."""
    metrics |= sample_spreads(all_score_dicts, score_names, max_k)


def highest_k_metrics(
    agent_metrics: dict[str, Any],
    pattern: str,
    score_names: list[str] | None = None,
    exclude_names: list[str] | None = None,
) -> dict[str, Any]:
    """The metrics of a pattern such as `pass@{k}` with the largest k, without their statistics."""
    return highest_k(agent_metrics, pattern, score_names, exclude_names or ())


__getattr__ = missing_from("nemo_gym.reward_profile")
