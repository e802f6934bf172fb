"""Metrics that an environment adds to the statistics of all numbers: pass@k and majority@k, or means by a field.

Rows are added one at a time and not kept: a rollout leaves its scores and a digest of its answer.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from gymnast.kit.pass_majority import (
    NO_ANSWER,
    ScoreFn,
    Scores,
    pass_majority,
    present_scores,
    sample_spreads,
    score_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gymnast.types.json import JsonObject


Index = int | float | str | None
"""The index of a task or a rollout: an integer, unless other programs wrote the rows."""


def sort_indices(indices: Iterable[Index]) -> list[Index]:
    """In ascending order; those that do not compare, by their text."""
    values = list(indices)
    try:
        return sorted(values)  # type: ignore[type-var]
    except TypeError:
        return sorted(values, key=str)


def group_rollouts(tasks: Sequence[Index], rollouts: Sequence[Index]) -> dict[Index, list[int]]:
    """The numbers of the rows of each task, in the order of its rollouts."""
    members: dict[Index, list[int]] = defaultdict(list)
    for number, task in enumerate(tasks):
        members[task].append(number)
    ranks = {rollout: rank for rank, rollout in enumerate(sort_indices(set(rollouts)))}
    return {task: sorted(numbers, key=lambda number: ranks[rollouts[number]]) for task, numbers in members.items()}


class Collector:
    """Takes rows and computes metrics of them. This one computes none."""

    def add(self, task: Index, rollout: Index, row: JsonObject) -> None:
        """Add the verify row of a rollout."""

    def result(self) -> dict[str, Any]:
        """The metrics of all rows."""
        return {}


class CustomMetrics:
    """What an environment adds: by default nothing, and the means are its key metrics."""

    def collect(self) -> Collector:
        """A new collector."""
        return Collector()

    def key_metrics(self, agent_metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Select the key metrics from all of them."""
        return {name: value for name, value in agent_metrics.items() if name.startswith("mean/")}


def _accuracy(row: JsonObject) -> dict[str, float]:
    return {"accuracy": row["reward"]}


@dataclass(frozen=True)
class PassMajority(CustomMetrics):
    """pass@k and pass@1[avg-of-k] of each score, with an answer field also majority@k."""

    scores: ScoreFn = _accuracy
    """The scores of a verify row by name; by default its reward as `accuracy`."""
    answer_field: str | None = None
    """The field with the answer that votes; rollouts in which it is null count as `no_answer`."""
    subset_field: str | None = None
    """The field by whose values all metrics are computed once more, as `value/metric`."""
    sample_spread: bool = False
    """Whether to add the mean standard deviation within tasks."""
    select: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    """Selects the key metrics; by default the means."""

    def collect(self) -> Collector:
        return _PassMajorityCollector(self)

    def key_metrics(self, agent_metrics: Mapping[str, Any]) -> dict[str, Any]:
        return self.select(agent_metrics) if self.select is not None else super().key_metrics(agent_metrics)


class _PassMajorityCollector(Collector):
    """Keeps for each rollout its task, its number, its scores and a digest of its answer."""

    def __init__(self, metrics: PassMajority) -> None:
        self._metrics = metrics
        self._tasks: list[Index] = []
        self._rollouts: list[Index] = []
        self._scores: list[dict[str, float]] = []
        self._answers: list[Any] = []
        self._distinct: dict[tuple[Any, ...], dict[str, float]] = {}
        self._subsets: dict[Index, Any] = {}

    def add(self, task: Index, rollout: Index, row: JsonObject) -> None:
        scores = present_scores(self._metrics.scores(row))
        answer_field, subset_field = self._metrics.answer_field, self._metrics.subset_field
        if answer_field is not None:
            answer = row.get(answer_field)
            scores[NO_ANSWER] = int(answer is None)
            self._answers.append(_digest(answer))
        self._tasks.append(task)
        self._rollouts.append(rollout)
        self._scores.append(self._distinct.setdefault(tuple(scores.items()), scores))
        if subset_field is not None:
            self._subsets.setdefault(task, row.get(subset_field))

    def result(self) -> dict[str, Any]:
        members = self._members()
        scored, metrics = self._compute(list(members.values()))
        if self._metrics.sample_spread:
            metrics |= sample_spreads(scored, score_names(scored), max(map(len, scored), default=0))
        subsets: dict[Any, list[Sequence[int]]] = defaultdict(list)
        for task, numbers in members.items():
            if self._subsets.get(task):
                subsets[self._subsets[task]].append(numbers)
        for subset, groups in subsets.items():
            own = self._compute(groups)[1]
            metrics |= {f"{subset}/{name}": value for name, value in own.items() if name != "per_sample_aggregate"}
        return metrics

    def _members(self) -> dict[Index, list[int]]:
        members = group_rollouts(self._tasks, self._rollouts)
        return {task: members[task] for task in sort_indices(members)}

    def _compute(self, groups: Sequence[Sequence[int]]) -> tuple[list[Scores], dict[str, Any]]:
        if not groups:
            return [], {}
        scored = [[self._scores[number] for number in group] for group in groups]
        answers = [[self._answers[number] for number in group] for group in groups] if self._answers else None
        return scored, pass_majority(scored, answers)


def _text_label(value: Any) -> str | None:
    return str(value) if value else None


@dataclass(frozen=True, slots=True)
class GroupField:
    """A field whose values group rollouts."""

    name: str
    prefix: str = ""
    """What comes before the value in the metric's name."""
    label: Callable[[Any], str | None] = _text_label
    """The group of a value; None for rollouts that are in no group."""
    missing: Any = None
    """The value of rollouts without the field."""


@dataclass(frozen=True)
class MeanRewards(CustomMetrics):
    """The mean reward of all rollouts that have the same value in a field, as `mean/reward_PREFIXvalue`."""

    fields: Sequence[GroupField]

    def collect(self) -> Collector:
        return _MeanRewardsCollector(self.fields)


class _MeanRewardsCollector(Collector):
    def __init__(self, fields: Sequence[GroupField]) -> None:
        self._fields = fields
        self._rewards: list[dict[str, array[float]]] = [{} for _ in fields]

    def add(self, task: Index, rollout: Index, row: JsonObject) -> None:
        for group, rewards in zip(self._fields, self._rewards, strict=True):
            label = group.label(row.get(group.name, group.missing))
            if label is not None:
                rewards.setdefault(label, array("d")).append(row.get("reward", 0.0))

    def result(self) -> dict[str, Any]:
        return {
            f"mean/reward_{group.prefix}{label}": math.fsum(values) / len(values)
            for group, rewards in zip(self._fields, self._rewards, strict=True)
            for label, values in rewards.items()
        }


def _digest(answer: Any) -> Any:
    """Eight bytes that stand for an answer; None for none."""
    if not isinstance(answer, str):
        return answer if answer is None or isinstance(answer, (int, float)) else repr(answer)
    return blake2b(answer.encode(errors="surrogatepass"), digest_size=8).digest()
