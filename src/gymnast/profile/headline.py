"""The headline numbers of a run, with the tasks, rollouts, failures and missing results behind them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from gymnast.profile.groups import by_task
from gymnast.profile.intervals import Estimate, bootstrap_all, clustered_mean, mean_reward
from gymnast.profile.pass_at_k import (
    are_shares,
    curve,
    majority_values,
    pass_majority_metrics,
    pass_values,
    subset_metrics,
    task_scores,
    usable_ks,
)
from gymnast.profile.rollout_table import LENGTH, Range, reward_by
from gymnast.types.task import MASK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gymnast.profile.completeness import Completeness
    from gymnast.profile.failures import FailureSummary
    from gymnast.profile.groups import Groups
    from gymnast.profile.table import RolloutTable

FailureTreatment = Literal["excluded", "zero", "bounds"]


@dataclass(frozen=True, slots=True)
class AgentHeadline:
    """One agent's result."""

    agent: str
    tasks: int
    rollouts: int
    mean_reward: Estimate
    mean_reward_bootstrap: Estimate
    pass_at: list[tuple[int, Estimate]]
    """With exact intervals if every task's value is 0 or 1, else Student's t."""
    pass_at_bootstrap: list[tuple[int, Estimate]]
    majority_at: list[tuple[int, Estimate]]
    majority_at_bootstrap: list[tuple[int, Estimate]]
    truncated: int
    """Rollouts that a length or step limit cut off, including masked ones."""
    mixed_tasks: int
    """Tasks with different rewards among their rollouts, which a group-relative trainer learns from."""
    reward_by: dict[str, list[Range]]
    """Mean reward by output tokens and by trajectory length."""
    metrics: dict[str, object] = field(default_factory=dict)
    """pass@k, majority@k and others in percent, under the contract's names."""


@dataclass(frozen=True, slots=True)
class FailureEffect:
    """The mean without the rollouts that have no score, and with assumed rewards for them."""

    excluded: Estimate
    zero: Estimate
    """With a reward of 0 for each."""
    lowest: float
    """With the lowest possible reward for each."""
    highest: float


@dataclass(frozen=True, slots=True)
class Headline:
    """A run's result."""

    requested: int
    scored: int
    failed: dict[str, int]
    """Rollouts without a score, by the kind of their last failure."""
    missing: int
    """Rollouts without a score and without a failure."""
    excluded: int
    """Records without a reward, or masked (`mask_sample`); the means below do not count them."""
    truncated: int
    """Records of rollouts that a length or step limit cut off, including masked ones."""
    tasks: int
    complete_tasks: int
    partial_tasks: int
    dropped_tasks: int
    agents: list[AgentHeadline]
    failure_effect: FailureEffect


def headline(
    groups: Groups,
    completeness: Completeness,
    failures: FailureSummary,
    *,
    answer_key: str | None = None,
    subset_key: str | None = None,
) -> Headline:
    """Summarise a run."""
    rows = countable_rows(groups.table)
    truncated = truncated_by_agent(groups.table)
    excluded = len(groups.table) - len(rows)
    if excluded:
        groups = by_task(groups.table.select(rows))
    missing = set(completeness.missing.tolist())
    failed = [kind for packed, kind in failures.last_kind.items() if packed in missing]
    return Headline(
        requested=completeness.requested,
        scored=completeness.scored,
        failed=dict(Counter(failed).most_common()),
        missing=len(missing) - len(failed),
        excluded=excluded,
        truncated=truncated.total(),
        tasks=completeness.tasks,
        complete_tasks=completeness.complete_tasks,
        partial_tasks=completeness.partial_tasks,
        dropped_tasks=completeness.dropped_tasks,
        agents=agent_headlines(groups, truncated, answer_key=answer_key, subset_key=subset_key),
        failure_effect=failure_effect(groups, completeness),
    )


def countable_rows(table: RolloutTable) -> NDArray[np.int64]:
    """The rows that a headline counts: with a reward, and not masked."""
    counts = ~np.isnan(table.rewards) if len(table.rewards) else np.zeros(len(table), dtype=np.bool_)
    masked = table.columns.get(MASK)
    if masked is not None:
        counts &= masked.values != 1
    return np.flatnonzero(counts)


def truncated_by_agent(table: RolloutTable) -> Counter[str]:
    numbers = np.bincount(table.agents[table.truncated], minlength=len(table.agent_names))
    return Counter(dict(zip(table.agent_names, numbers.tolist(), strict=True)))


def agent_headlines(
    groups: Groups, truncated: Mapping[str, int], *, answer_key: str | None = None, subset_key: str | None = None
) -> list[AgentHeadline]:
    table = groups.table
    headlines = []
    for number, name in enumerate(table.agent_names):
        rows = np.flatnonzero(table.agents == number)
        if len(rows):
            own = by_task(table.select(rows))
            headlines.append(_agent_headline(name, own, truncated[name], answer_key, subset_key))
    return headlines


def _agent_headline(
    name: str, groups: Groups, truncated: int, answer_key: str | None, subset_key: str | None
) -> AgentHeadline:
    tasks = task_scores(groups)
    answers = _answers(groups, answer_key)
    ks = usable_ks(tasks)
    passes = pass_values(tasks, ks)
    majorities = majority_values(answers, tasks, ks) if answers is not None else {}
    bootstrapped = _bootstrap(tasks, [*passes.values(), *majorities.values()])
    is_share = are_shares(tasks)
    return AgentHeadline(
        agent=name,
        tasks=len(groups),
        rollouts=len(groups.table),
        mean_reward=mean_reward(groups),
        mean_reward_bootstrap=bootstrapped[0],
        pass_at=curve(passes, is_share=is_share),
        pass_at_bootstrap=list(zip(passes, bootstrapped[1:], strict=False)),
        majority_at=curve(majorities, is_share=is_share),
        majority_at_bootstrap=list(zip(majorities, bootstrapped[1 + len(passes) :], strict=True)),
        truncated=truncated,
        mixed_tasks=sum(len(set(task)) > 1 for task in tasks),
        reward_by={column: reward_by(groups.table, column) for column in ("output_tokens", LENGTH)},
        metrics=_metrics(groups, tasks, answers, subset_key),
    )


def _answers(groups: Groups, answer_key: str | None) -> list[list[str | None]] | None:
    answers = groups.table.texts.get(answer_key) if answer_key is not None else None
    return [answers[rows] for _, rows in groups] if answers is not None and any(answers) else None


def _bootstrap(tasks: Sequence[list[float]], quantities: Sequence[Sequence[float]]) -> list[Estimate]:
    """The mean reward, weighted by each task's number of rollouts, then the other quantities."""
    means = [sum(task) / len(task) for task in tasks]
    values = np.array([means, *quantities], dtype=np.float64).T
    weights = (~np.isnan(values)).astype(np.float64)
    weights[:, 0] = [len(task) for task in tasks]
    return bootstrap_all(values, weights)


def _metrics(
    groups: Groups,
    tasks: Sequence[list[float]],
    answers: Sequence[Sequence[str | None]] | None,
    subset_key: str | None,
) -> dict[str, object]:
    metrics = pass_majority_metrics({"accuracy": tasks}, answers)
    if subset_key is not None:
        names = groups.table.texts[subset_key]
        subsets = [names[rows.start] or "none" for _, rows in groups]
        metrics |= subset_metrics(subsets, {"accuracy": tasks}, answers)
    return metrics


def failure_effect(groups: Groups, completeness: Completeness) -> FailureEffect:
    """The mean with unscored rollouts left out, counted as 0, and at the two extremes.

    The extremes are those of the observed rewards, but at most 0 and at least 1.
    """
    excluded = mean_reward(groups)
    rewards = groups.table.rewards
    missing = len(completeness.missing)
    low, high = min(0.0, float(rewards.min(initial=0.0))), max(1.0, float(rewards.max(initial=1.0)))
    total, count = float(rewards.sum()), len(rewards) + missing
    return FailureEffect(
        excluded,
        _with_zeros(groups, completeness) if count else excluded,
        (total + missing * low) / count if count else 0.0,
        (total + missing * high) / count if count else 0.0,
    )


def _with_zeros(groups: Groups, completeness: Completeness) -> Estimate:
    tasks = np.concatenate([groups.table.tasks, completeness.missing >> 32])
    rewards = np.concatenate([groups.table.rewards, np.zeros(len(completeness.missing))])
    _, numbers = np.unique(tasks, return_inverse=True)
    sums = np.bincount(numbers, weights=rewards).astype(np.float64)
    return clustered_mean(sums, np.bincount(numbers).astype(np.float64))
