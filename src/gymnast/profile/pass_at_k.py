"""pass@k, pass^k and majority@k over repeated rollouts. Pure.

If all scores are 0 or 1, the estimators do not depend on the order of rollouts. Otherwise the contract's definitions
use the first k; an estimate over all subsets of k is added to each, with `/unordered` in its name.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.kit.pass_majority import pass_at_k
from gymnast.profile.intervals import Estimate, mean_of_tasks, share_of_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gymnast.profile.groups import Groups

Scores = list[float]
Answer = str | None
Pattern = tuple[tuple[tuple[int, float], ...], int]
_MAX_PATTERNS: Final = 3000
"""Of votes; each takes about a millisecond."""
_MAX_EXACT: Final = 500
"""Scores for which binomials are computed: those of thousands have hundreds of digits each, and exceed floats."""


def best_of_k(scores: Sequence[float], k: int) -> float:
    """The expected best of k scores drawn from these; for scores of 0 and 1 that is pass@k."""
    ranked = sorted(scores)
    if len(ranked) <= _MAX_EXACT:
        ways = math.comb(len(ranked), k)
        return math.fsum(score * math.comb(rank, k - 1) / ways for rank, score in enumerate(ranked))
    return math.fsum(score * weight for score, weight in zip(reversed(ranked), _weights(len(ranked), k), strict=False))


def _weights(n: int, k: int) -> Iterator[float]:
    """The probabilities that the best of k drawn from n is the best, the second best, …: each from the one before."""
    weight = k / n
    for rank in range(n - 1, k - 2, -1):
        yield weight
        weight *= (rank - k + 1) / rank if rank else 0.0


def majority_of_first(answers: Sequence[Answer], scores: Sequence[float], k: int) -> float:
    """The mean score of the most frequent (answer, score) pairs among those of the first k with an answer, or 0."""
    pairs = Counter(
        (answer, score) for answer, score in zip(answers[:k], scores[:k], strict=True) if answer is not None
    )
    if not pairs:
        return 0.0
    largest = max(pairs.values())
    return fmean(score for (_, score), count in pairs.items() if count == largest)


def majority_of_any(answers: Sequence[Answer], scores: Sequence[float], k: int) -> float:
    """The expected majority score over all subsets of k, exactly."""
    return _expected_majority(*_vote_pattern(answers, scores), k)


def _vote_pattern(answers: Sequence[Answer], scores: Sequence[float]) -> Pattern:
    """What the expectation depends on: the counts of each (answer, score), and the number without an answer."""
    pairs = Counter(zip(answers, scores, strict=True))
    counts = tuple(sorted((count, score) for (answer, score), count in pairs.items() if answer is not None))
    return counts, len(answers) - sum(count for count, _ in counts)


def _pattern_size(pattern: Pattern) -> int:
    return pattern[1] + sum(count for count, _ in pattern[0])


@lru_cache(maxsize=65536)
def _expected_majority(groups: tuple[tuple[int, float], ...], without: int, k: int) -> float:
    """A sum over majority sizes: the subsets in which a group has that size and no group is larger, ties shared."""
    total = without + sum(count for count, _ in groups)
    ways = math.comb(total, k)
    expected = 0.0
    for size in range(1, k + 1):
        for index, (count, score) in enumerate(groups):
            if score and count >= size:
                others = groups[:index] + groups[index + 1 :]
                for ties, number in _completions(others, without, k - size, size).items():
                    expected += score * math.comb(count, size) * number / ((ties + 1) * ways)
    return expected


def _completions(groups: Sequence[tuple[int, float]], without: int, rest: int, limit: int) -> dict[int, int]:
    """The number of ways to draw the rest with no group above the limit, by the number of groups that reach it."""
    ways: Counter[tuple[int, int]] = Counter(
        {(total, 0): math.comb(without, total) for total in range(min(without, rest) + 1)}
    )
    for count, _ in groups:
        extended: Counter[tuple[int, int]] = Counter()
        for (total, ties), number in ways.items():
            for more in range(min(count, limit, rest - total) + 1):
                extended[total + more, ties + (more == limit)] += number * math.comb(count, more)
        ways = extended
    by_ties: Counter[int] = Counter()
    for (total, ties), number in ways.items():
        if total == rest:
            by_ties[ties] += number
    return by_ties


# --- metrics by name -------------------------------------------------------------------------------------------------


def pass_majority_metrics(
    scores: Mapping[str, Sequence[Scores]], answers: Sequence[Sequence[Answer]] | None = None
) -> dict[str, object]:
    """The contract's metrics in percent. `scores`: by name, the scores of each task's rollouts in order.

    With `answers`, also `majority@k` and the score `no_answer`.
    """
    matrices = {name: _ScoreMatrix(tasks) for name, tasks in scores.items()}
    votes = {name: _Votes(answers, tasks) for name, tasks in scores.items()} if answers is not None else {}
    if answers is not None:
        matrices["no_answer"] = _ScoreMatrix([[float(answer is None) for answer in task] for task in answers])
    metrics: dict[str, object] = {}
    for k in range(1, max((matrix.max_k for matrix in matrices.values()), default=0) + 1):
        for name, matrix in matrices.items():
            metrics |= {f"{metric}/{name}{suffix}": value for metric, suffix, value in matrix.metrics_at(k)}
        for name, vote in votes.items():
            metrics |= {f"majority@{k}/{name}{suffix}": value for suffix, value in vote.metrics_at(k)}
    metrics["per_sample_aggregate"] = {name: matrix.across_runs() for name, matrix in matrices.items()}
    for name, matrix in matrices.items():
        metrics |= _spread_across_runs(name, matrix.across_runs())
    return metrics


class _ScoreMatrix:
    """The scores of many tasks, as a matrix with gaps at the end of shorter rows."""

    def __init__(self, tasks: Sequence[Scores]) -> None:
        self.sizes = np.array([len(task) for task in tasks], dtype=np.int64)
        self.max_k = int(self.sizes.max(initial=0))
        self._scores = np.full((len(tasks), self.max_k), np.nan)
        for row, task in enumerate(tasks):
            self._scores[row, : len(task)] = task
        self._sums = np.nancumsum(self._scores, axis=1)
        self._best = np.fmax.accumulate(self._scores, axis=1) if self.max_k else self._scores
        self._is_binary = (np.isnan(self._scores) | (self._scores == 0) | (self._scores == 1)).all(axis=1)
        self._patterns = Counter(tuple(sorted(task)) for task in tasks)

    def metrics_at(self, k: int) -> Iterator[tuple[str, str, float]]:
        """Metrics at k, over the tasks with at least k rollouts."""
        has_k = self.sizes >= k
        yield f"pass@{k}", "", 100 * self._pass_at(k, has_k)
        yield f"pass@1[avg-of-{k}]", "", 100 * float((self._sums[has_k, k - 1] / k).mean())
        if not self._is_binary[has_k].all():
            yield f"pass@{k}", "/unordered", 100 * self._over_patterns(lambda task: best_of_k(task, k), k)
        yield f"pass@1[avg-of-{k}]", "/unordered", 100 * self._over_patterns(fmean, k)

    def _pass_at(self, k: int, has_k: NDArray[np.bool_]) -> float:
        """The contract's definition: the estimator for binary scores, else the best of the first k."""
        values = self._best[:, k - 1].copy()
        for size, solved in set(zip(self.sizes[self._is_binary].tolist(), self._count_solved().tolist(), strict=True)):
            if size >= k:
                same = self._is_binary & (self.sizes == size)
                same[self._is_binary] &= self._count_solved() == solved
                values[same] = pass_at_k(size, int(solved), k)
        return float(values[has_k].mean())

    def _count_solved(self) -> NDArray[np.float64]:
        solved: NDArray[np.float64] = self._sums[self._is_binary, -1]
        return solved

    def _over_patterns(self, value: Callable[[Scores], float], k: int) -> float:
        """The mean over tasks of a value that does not depend on the order of rollouts."""
        patterns = {task: count for task, count in self._patterns.items() if len(task) >= k}
        return math.fsum(count * value(list(task)) for task, count in patterns.items()) / sum(patterns.values())

    def across_runs(self) -> list[float]:
        """The percentage over the tasks' first rollouts, over their second ones, and so on."""
        return [100 * float(np.nanmean(column)) for column in self._scores.T]


class _Votes:
    """The answers of many tasks with their scores."""

    def __init__(self, answers: Sequence[Sequence[Answer]], tasks: Sequence[Scores]) -> None:
        pairs = list(zip(answers, tasks, strict=True))
        self._running = [running_majority(own, scores) for own, scores in pairs]
        self._patterns = Counter(_vote_pattern(own, scores) for own, scores in pairs if own)

    def metrics_at(self, k: int) -> Iterator[tuple[str, float]]:
        """The majority among the first k; for powers of two also over all subsets, if there are not too many."""
        majorities = [scores[k - 1] for scores in self._running if len(scores) >= k]
        yield "", 100 * math.fsum(majorities) / len(majorities)
        if k & (k - 1) == 0 and len(self._patterns) <= _MAX_PATTERNS:
            patterns = {pattern: count for pattern, count in self._patterns.items() if _pattern_size(pattern) >= k}
            total = math.fsum(count * _expected_majority(*pattern, k) for pattern, count in patterns.items())
            yield "/unordered", 100 * total / sum(patterns.values())


def running_majority(answers: Sequence[Answer], scores: Sequence[float]) -> list[float]:
    """`majority_of_first` for every k, in one pass."""
    counts: dict[tuple[str, float], int] = {}
    largest = ties = 0
    total = 0.0
    majorities: list[float] = []
    for answer, score in zip(answers, scores, strict=True):
        if answer is not None:
            count = counts[answer, score] = counts.get((answer, score), 0) + 1
            if count > largest:
                largest, ties, total = count, 1, score
            elif count == largest:
                ties, total = ties + 1, total + score
        majorities.append(total / ties if ties else 0.0)
    return majorities


def _running_spread(values: Sequence[float]) -> Iterator[float]:
    """The standard deviation of the first two values, of the first three, and so on: as `statistics.stdev` of each."""
    total = squares = Fraction(0)
    for k, value in enumerate(values, start=1):
        if not math.isfinite(value):
            yield from [math.nan] * (len(values) - max(k, 2) + 1)
            return
        exact = Fraction(value)
        total += exact
        squares += exact * exact
        if k > 1:
            yield _root((squares - total * total / k) / (k - 1))


def _root(value: Fraction) -> float:
    """The square root, correctly rounded: twice the digits that a float has, and whether there are more."""
    shift = max(0, 110 - value.numerator.bit_length() + value.denominator.bit_length())
    shift += shift % 2
    scaled = value.numerator << shift
    digits = math.isqrt(scaled // value.denominator)
    digits = digits << 1 | (digits * digits * value.denominator != scaled)
    return digits / (1 << (shift // 2 + 1))


def _spread_across_runs(name: str, runs: Sequence[float]) -> dict[str, object]:
    metrics: dict[str, object] = {}
    for k, spread in enumerate(_running_spread(runs), start=2):
        metrics[f"pass@1[avg-of-{k}]/{name}/std_dev_across_runs"] = spread
        metrics[f"pass@1[avg-of-{k}]/{name}/std_err_across_runs"] = spread / math.sqrt(k)
    return metrics


def subset_metrics(
    subsets: Sequence[str], scores: Mapping[str, Sequence[Scores]], answers: Sequence[Sequence[Answer]] | None = None
) -> dict[str, object]:
    """The metrics of each subset of the tasks, as `subset/metric`."""
    all_metrics: dict[str, object] = {}
    for subset in sorted(set(subsets)):
        indices = [index for index, name in enumerate(subsets) if name == subset]
        subset_scores = {name: [tasks[index] for index in indices] for name, tasks in scores.items()}
        subset_answers = [answers[index] for index in indices] if answers is not None else None
        metrics = pass_majority_metrics(subset_scores, subset_answers)
        all_metrics |= {f"{subset}/{name}": value for name, value in metrics.items() if name != "per_sample_aggregate"}
    return all_metrics


# --- with intervals --------------------------------------------------------------------------------------------------


def pass_curve(groups: Groups) -> list[tuple[int, Estimate]]:
    """pass@k (the expected best of k for fractional rewards) with intervals, for the ks of `usable_ks`."""
    tasks = task_scores(groups)
    return curve(pass_values(tasks, usable_ks(tasks)), is_share=are_shares(tasks))


def curve(values: Mapping[int, Sequence[float]], *, is_share: bool) -> list[tuple[int, Estimate]]:
    """The mean over tasks for each k, without NaN: tasks with fewer rollouts."""
    interval = share_of_tasks if is_share else mean_of_tasks
    return [(k, interval([value for value in own if not math.isnan(value)])) for k, own in values.items()]


def pass_values(tasks: Sequence[Scores], ks: Sequence[int]) -> dict[int, list[float]]:
    """For each k, each task's expected best of k; NaN for tasks with fewer rollouts."""
    patterns = [tuple(sorted(task)) for task in tasks]
    values: dict[int, list[float]] = {}
    for k in ks:
        best = {task: best_of_k(task, k) if len(task) >= k else math.nan for task in set(patterns)}
        values[k] = [best[task] for task in patterns]
    return values


def worst_values(tasks: Sequence[Scores], ks: Sequence[int]) -> dict[int, list[float]]:
    """For each k, each task's expected worst of k, which is pass^k for scores of 0 and 1; NaN with fewer rollouts."""
    mirrored = [[-score for score in task] for task in tasks]
    return {k: [0.0 - value for value in values] for k, values in pass_values(mirrored, ks).items()}


def majority_values(
    answers: Sequence[Sequence[Answer]], tasks: Sequence[Scores], ks: Sequence[int]
) -> dict[int, list[float]]:
    """For each k, each task's majority score among the first k; NaN for tasks with fewer rollouts."""
    running = [running_majority(own, scores) for own, scores in zip(answers, tasks, strict=True)]
    return {k: [scores[k - 1] if len(scores) >= k else math.nan for scores in running] for k in ks}


def usable_ks(tasks: Sequence[Scores]) -> list[int]:
    """The ks that half of the tasks have rollouts for: all up to 16, then powers of two, and the largest."""
    sizes = sorted(map(len, tasks))
    max_k = sizes[len(sizes) // 2] if sizes else 0
    powers = (2**power for power in range(5, 20) if 2**power < max_k)
    return sorted({*range(1, min(max_k, 16) + 1), *powers, max_k} - {0})


def are_shares(tasks: Iterable[Scores]) -> bool:
    """Whether all scores are from 0 to 1."""
    return all(0 <= score <= 1 for task in tasks for score in task)


def task_scores(groups: Groups) -> list[Scores]:
    """Each task's rewards in the order of its rollouts."""
    rewards = groups.table.rewards.tolist()
    return [rewards[rows] for _, rows in groups]
