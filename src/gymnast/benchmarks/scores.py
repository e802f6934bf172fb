"""The figures of a benchmark's run: pass@1[avg-of-k], maj@k, pass@k and pass^k, each with an interval over tasks. Pure.

pass@1 is the mean over tasks of the mean reward of a task's scored rollouts. pass@k is unbiased: the expected best of k
drawn from a task's rollouts; pass^k is the expected worst of k, for rewards of 0 and 1 that all of them succeed.
maj@k is the expected score of the most frequent answer among k, ties averaged, an answer missing counting for none.
Tasks with fewer than k scored rollouts do not count for pass@k, pass^k and maj@k; the number of tasks behind each
figure is part of it. Rollouts without a score are counted, never taken for 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.profile.groups import by_task
from gymnast.profile.headline import countable_rows, failure_effect
from gymnast.profile.intervals import Estimate, mean_of_tasks, share_of_tasks
from gymnast.profile.pass_at_k import (
    are_shares,
    majority_of_any,
    majority_of_first,
    pass_majority_metrics,
    pass_values,
    task_scores,
    worst_values,
)
from gymnast.types.task import agent_name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gymnast.profile.groups import Groups
    from gymnast.profile.pass_at_k import Answer, Scores
    from gymnast.profile.run_profile import LoadedRun

NO_SUBSET: Final = "none"
_MAX_EXACT_MAJORITY: Final = 20_000
"""Up to this many tasks times rollouts, maj@k is exact over all subsets; beyond, it is that of the first k."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One figure."""

    name: str
    k: int
    estimate: Estimate


class ScoreTable(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of all tasks, or of a subset."""

    subset: str | None
    tasks: int
    """With at least one scored rollout."""
    rollouts: int
    no_answer: float | None
    """The share of rollouts without an extracted answer; None without an answer field."""
    metrics: list[Metric]


class BenchmarkScores(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a benchmark's run."""

    requested: int
    scored: int
    failed: dict[str, int]
    """Rollouts without a score, by the kind of their last failure."""
    missing: int
    """Rollouts without a score and without a failure."""
    excluded: int
    """Records without a reward, or masked by their agent."""
    num_repeats: int
    """The requested rollouts per task."""
    tables: list[ScoreTable]
    """All tasks first, then each subset."""
    with_failures_as_zero: Estimate
    """The mean reward if rollouts without a score counted as 0."""
    metrics: dict[str, object]
    """In percent, under the names that other tools use."""
    notes: list[str]
    """What a reader should know about these figures."""


def score_run(
    run: LoadedRun,
    *,
    answer_key: str | None = None,
    subset_key: str | None = None,
    ks: Sequence[int] = (),
    pass_hat: bool = False,
) -> BenchmarkScores:
    """Compute the figures of a run, with `pass_hat` also pass^k.

    `ks`: for maj@k, pass@k and pass^k; by default powers of two and the number of repeats.
    """
    rows = countable_rows(run.groups.table)
    groups = by_task(run.groups.table.select(rows))
    tasks = task_scores(groups)
    repeats = max(run.plan.count_requested().values(), default=0)
    answers = _answers(groups, answer_key)
    usable = _usable_ks(ks, repeats)
    subsets = _subsets(run, groups, subset_key)
    missing = set(run.completeness.missing.tolist())
    failed = [kind for packed, kind in run.failures.last_kind.items() if packed in missing]
    return BenchmarkScores(
        requested=run.completeness.requested,
        scored=run.completeness.scored,
        failed={kind: failed.count(kind) for kind in sorted(set(failed))},
        missing=len(missing) - len(failed),
        excluded=len(run.groups.table) - len(rows),
        num_repeats=repeats,
        tables=[
            score_tasks(
                [tasks[index] for index in members],
                [answers[index] for index in members] if answers is not None else None,
                repeats=repeats,
                ks=usable,
                subset=subset,
                pass_hat=pass_hat,
            )
            for subset, members in subsets.items()
        ],
        with_failures_as_zero=failure_effect(groups, run.completeness).zero,
        metrics=pass_majority_metrics({"accuracy": tasks}, answers) if tasks else {},
        notes=[
            *_notes(tasks, answers, answer_key, repeats=repeats, ks=ks),
            *([f"no task has the field `{subset_key}`"] if subset_key is not None and len(subsets) == 1 else []),
        ],
    )


def score_tasks(
    tasks: Sequence[Scores],
    answers: Sequence[Sequence[Answer]] | None,
    *,
    repeats: int,
    ks: Sequence[int],
    subset: str | None = None,
    pass_hat: bool = False,
) -> ScoreTable:
    """The figures of some tasks, from the rewards and answers of their rollouts in order."""
    interval = share_of_tasks if are_shares(tasks) else mean_of_tasks
    means = [math.fsum(task) / len(task) for task in tasks]
    metrics = [Metric(name=f"pass@1[avg-of-{repeats}]", k=1, estimate=interval(means))]
    larger = [k for k in ks if k > 1]
    if answers is not None:
        metrics += [
            Metric(name=f"maj@{k}", k=k, estimate=interval(_drop_nan(values)))
            for k, values in _majority_values(answers, tasks, larger).items()
        ]
    metrics += [
        Metric(name=f"pass@{k}", k=k, estimate=interval(_drop_nan(values)))
        for k, values in pass_values(tasks, larger).items()
    ]
    if pass_hat:
        metrics += [
            Metric(name=f"pass^{k}", k=k, estimate=interval(_drop_nan(values)))
            for k, values in worst_values(tasks, larger).items()
        ]
    flat = [answer for own in answers for answer in own] if answers is not None else []
    return ScoreTable(
        subset=subset,
        tasks=len(tasks),
        rollouts=sum(map(len, tasks)),
        no_answer=flat.count(None) / len(flat) if flat else None,
        metrics=metrics,
    )


def default_ks(repeats: int) -> list[int]:
    """Powers of two, and the number of repeats."""
    return sorted({*(2**power for power in range(20) if 2**power <= repeats), repeats} - {0})


def _usable_ks(ks: Sequence[int], repeats: int) -> list[int]:
    return sorted({k for k in ks if k <= repeats}) if ks else default_ks(repeats)


def _drop_nan(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _majority_values(
    answers: Sequence[Sequence[Answer]], tasks: Sequence[Scores], ks: Sequence[int]
) -> dict[int, list[float]]:
    """For each k, each task's expected majority score; NaN for tasks with fewer rollouts."""
    is_exact = sum(map(len, tasks)) <= _MAX_EXACT_MAJORITY

    def majority(own: Sequence[Answer], scores: Scores, k: int) -> float:
        if len(scores) < k:
            return math.nan
        choose: Callable[..., float] = majority_of_any if is_exact and k < len(scores) else majority_of_first
        return choose(own, scores, k)

    return {k: [majority(own, scores, k) for own, scores in zip(answers, tasks, strict=True)] for k in ks}


def _answers(groups: Groups, answer_key: str | None) -> list[list[Answer]] | None:
    texts = groups.table.texts.get(answer_key) if answer_key is not None else None
    if texts is None:
        return None
    return [texts[rows] for _, rows in groups]


def _subsets(run: LoadedRun, groups: Groups, subset_key: str | None) -> dict[str | None, list[int]]:
    """The positions of each subset's tasks; None is all of them. Without a key, several agents are the subsets."""
    members: dict[str | None, list[int]] = {}
    with run.plan.samples() as samples:
        for index, task in enumerate(groups.tasks.tolist()):
            row = samples.row(task)
            name = row.get(subset_key) if subset_key is not None else agent_name_of(row)
            members.setdefault(NO_SUBSET if name is None else str(name), []).append(index)
    named = sorted(members, key=str) if members.keys() - {NO_SUBSET} and (subset_key or len(members) > 1) else []
    return {None: list(range(len(groups))), **{name: members[name] for name in named}}


def _notes(
    tasks: Sequence[Scores], answers: object, answer_key: str | None, *, repeats: int, ks: Sequence[int]
) -> Iterable[str]:
    if not tasks:
        yield "no rollout has a score, so there are no figures"
        return
    if answer_key is not None and answers is None:
        yield f"no record has the field `{answer_key}`, so there is no maj@k"
    too_large = [str(k) for k in sorted(set(ks)) if k > repeats]
    if too_large:
        yield f"k = {', '.join(too_large)} needs more rollouts per task than {repeats}; raise --num-repeats"
    if min(map(len, tasks)) < repeats:
        fewer = sum(len(task) < repeats for task in tasks)
        yield f"{fewer} of {len(tasks)} tasks have fewer than {repeats} scored rollouts; see the column `tasks`"
    if not all(score in {0, 1} for task in tasks for score in task):
        yield "rewards are not only 0 and 1: pass@k is the expected best reward of k rollouts"
