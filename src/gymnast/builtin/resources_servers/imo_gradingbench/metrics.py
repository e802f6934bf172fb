"""The metrics of a run: pass@k and majority@k of both accuracies, and the mean distance of the grades in points."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from gymnast.kit import Collector, JsonObject, PassMajority, highest_k

_ACCURACIES: Final = ("exact_accuracy", "binarized_accuracy")


class GradeCollector(Collector):
    """Adds the distances of each task's rollouts to what another collector computes."""

    def __init__(self, accuracies: Collector) -> None:
        self._accuracies = accuracies
        self._rollouts: dict[Any, list[Any]] = defaultdict(list)
        self._distances: dict[Any, array[float]] = defaultdict(lambda: array("d"))

    def add(self, task: Any, rollout: Any, row: JsonObject) -> None:
        """Add the verify row of a rollout. Without a grade it has no distance."""
        self._accuracies.add(task, rollout, row)
        self._rollouts[task].append(rollout)
        distance = row.get("score_diff")
        self._distances[task].append(float("nan") if distance is None else float(distance))

    def result(self) -> dict[str, Any]:
        """The accuracies, and the mean distances over all rollouts and over the best of each task."""
        metrics = self._accuracies.result()
        tasks = [list(self._sort_distances(task)) for task in sorted(self._rollouts)]
        max_k = max(map(len, tasks), default=0)
        for k in range(1, max_k + 1):
            known = [[distance for distance in task[:k] if distance == distance] for task in tasks]  # noqa: PLR0124 - NaN
            metrics |= _mean(f"pass@1[avg-of-{k}]/", [distance for task in known for distance in task])
            metrics |= _mean(f"pass@{k}/", [min(task) for task in known if task])
        pooled = f"pass@1[avg-of-{max_k}]/"
        metrics |= {name: metrics[pooled + name] for name in ("mae", "mae_count") if pooled + name in metrics}
        return metrics

    def _sort_distances(self, task: int) -> Iterator[float]:
        rollouts = self._rollouts[task]
        return (self._distances[task][at] for at in sorted(range(len(rollouts)), key=rollouts.__getitem__))


@dataclass(frozen=True)
class GradeMetrics(PassMajority):
    """Those of NeMo Gym's imo_gradingbench."""

    def collect(self) -> Collector:
        """A new collector."""
        return GradeCollector(super().collect())


def _mean(prefix: str, values: list[float]) -> dict[str, float]:
    return {f"{prefix}mae": fmean(values), f"{prefix}mae_count": float(len(values))} if values else {}


def _scores(row: JsonObject) -> dict[str, float]:
    return {
        "exact_accuracy": float(row.get("reward", 0.0)),
        "binarized_accuracy": float(bool(row.get("binary_match", False))),
    }


def _select(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: metrics[name] for name in ("mean/reward", "mae", "mae_count") if name in metrics},
        **highest_k(metrics, "pass@1[avg-of-{k}]", [*_ACCURACIES, "mae", "no_answer"]),
        **highest_k(metrics, "pass@{k}", [*_ACCURACIES, "mae"]),
        **highest_k(metrics, "majority@{k}", _ACCURACIES),
    }


METRICS: Final = GradeMetrics(scores=_scores, answer_field="extracted_grade", select=_select)
