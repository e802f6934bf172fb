"""pass@k, pass^k and majority@k over repeated rollouts. Pure.

Where all scores are 0 or 1 the estimators do not depend on the order of rollouts. Elsewhere the contract's definitions
look at the first k; beside each of those stands an estimate over all subsets of k, with `/unordered` in its name.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.profile.intervals import Estimate, mean_of_tasks, share_of_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gymnast.profile.groups import Groups

Scores = list[float]
Answer = str | None
Pattern = tuple[tuple[tuple[int, float], ...], int]
_MOST_PATTERNS: Final = 3000
"""Of votes; each costs about a millisecond."""


@lru_cache(maxsize=65536)
def pass_at_k(n: int, correct: int, k: int) -> float:
    """The chance that at least one of k rollouts, drawn from n of which some are correct, is."""
    wrong = n - correct
    return 1.0 if wrong < k else 1.0 - math.comb(wrong, k) / math.comb(n, k)


@lru_cache(maxsize=65536)
def pass_hat_k(n: int, correct: int, k: int) -> float:
    """The chance that all of k rollouts, drawn from n of which some are correct, are: pass^k."""
    return math.comb(correct, k) / math.comb(n, k)


def best_of_k(scores: Sequence[float], k: int) -> float:
    """The expected best of k scores drawn from these. For scores of 0 and 1 that is pass@k."""
    n = len(scores)
    ways = math.comb(n, k)
    return math.fsum(score * math.comb(place, k - 1) / ways for place, score in enumerate(sorted(scores)))


def is_binary(scores: Iterable[float]) -> bool:
    """Whether every score is 0 or 1."""
    return all(score in {0, 1} for score in scores)


def majority_of_first(answers: Sequence[Answer], scores: Sequence[float], k: int) -> float:
    """The mean score of the most frequent (answer, score) pairs among those of the first k with an answer, or 0."""
    pairs = Counter(
        (answer, score) for answer, score in zip(answers[:k], scores[:k], strict=True) if answer is not None
    )
    if not pairs:
        return 0.0
    most = max(pairs.values())
    return fmean(score for (_, score), count in pairs.items() if count == most)


def majority_of_any(answers: Sequence[Answer], scores: Sequence[float], k: int) -> float:
    """The expected majority score over all subsets of k, exactly."""
    return _expected_majority(*_vote_pattern(answers, scores), k)


def _vote_pattern(answers: Sequence[Answer], scores: Sequence[float]) -> Pattern:
    """How often each (answer, score) was given, and how many gave no answer: all that the expectation depends on."""
    pairs = Counter(zip(answers, scores, strict=True))
    counts = tuple(sorted((count, score) for (answer, score), count in pairs.items() if answer is not None))
    return counts, len(answers) - sum(count for count, _ in counts)


def _pattern_size(pattern: Pattern) -> int:
    return pattern[1] + sum(count for count, _ in pattern[0])


@lru_cache(maxsize=65536)
def _expected_majority(groups: tuple[tuple[int, float], ...], without: int, k: int) -> float:
    """By the largest count m: the subsets in which a group has m, others at most m, and how many share first place."""
    total = without + sum(count for count, _ in groups)
    ways = math.comb(total, k)
    found = 0.0
    for most in range(1, k + 1):
        for place, (count, score) in enumerate(groups):
            if score and count >= most:
                others = groups[:place] + groups[place + 1 :]
                for shared, number in _completions(others, without, k - most, most).items():
                    found += score * math.comb(count, most) * number / ((shared + 1) * ways)
    return found


def _completions(groups: Sequence[tuple[int, float]], without: int, size: int, most: int) -> dict[int, int]:
    """In how many ways `size` more can be drawn with no group above `most`, by how many groups reach it."""
    ways: Counter[tuple[int, int]] = Counter(
        {(drawn, 0): math.comb(without, drawn) for drawn in range(min(without, size) + 1)}
    )
    for count, _ in groups:
        longer: Counter[tuple[int, int]] = Counter()
        for (drawn, shared), number in ways.items():
            for more in range(min(count, most, size - drawn) + 1):
                longer[drawn + more, shared + (more == most)] += number * math.comb(count, more)
        ways = longer
    found: dict[int, int] = {}
    for (drawn, shared), number in ways.items():
        if drawn == size:
            found[shared] = found.get(shared, 0) + number
    return found


# --- metrics by name -------------------------------------------------------------------------------------------------


def pass_majority_metrics(
    scores: Mapping[str, Sequence[Scores]], answers: Sequence[Sequence[Answer]] | None = None
) -> dict[str, object]:
    """The contract's metrics, in percent. `scores`: by name, for each task its rollouts' scores in order.

    With `answers`, `majority@k` and the score `no_answer` come on top.
    """
    named = {name: _Scored(tasks) for name, tasks in scores.items()}
    votes = {name: _Votes(answers, tasks) for name, tasks in scores.items()} if answers is not None else {}
    if answers is not None:
        named["no_answer"] = _Scored([[float(answer is None) for answer in task] for task in answers])
    found: dict[str, object] = {}
    for k in range(1, max((one.most for one in named.values()), default=0) + 1):
        for name, one in named.items():
            found |= {f"{metric}/{name}{more}": value for metric, more, value in one.at(k)}
        for name, vote in votes.items():
            found |= {f"majority@{k}/{name}{more}": value for more, value in vote.at(k)}
    found["per_sample_aggregate"] = {name: one.across_runs() for name, one in named.items()}
    for name, one in named.items():
        found |= _spread_across_runs(name, one.across_runs())
    return found


class _Scored:
    """The scores of many tasks, as a matrix with gaps at the end of shorter rows."""

    def __init__(self, tasks: Sequence[Scores]) -> None:
        self.sizes = np.array([len(task) for task in tasks], dtype=np.int64)
        self.most = int(self.sizes.max(initial=0))
        self._scores = np.full((len(tasks), self.most), np.nan)
        for place, task in enumerate(tasks):
            self._scores[place, : len(task)] = task
        self._sums = np.nancumsum(self._scores, axis=1)
        self._best = np.fmax.accumulate(self._scores, axis=1) if self.most else self._scores
        self._is_binary = (np.isnan(self._scores) | (self._scores == 0) | (self._scores == 1)).all(axis=1)
        self._patterns = Counter(tuple(sorted(task)) for task in tasks)

    def at(self, k: int) -> Iterator[tuple[str, str, float]]:
        """Metrics at k, over the tasks that have as many rollouts."""
        enough = self.sizes >= k
        yield f"pass@{k}", "", 100 * self._pass_at(k, enough)
        yield f"pass@1[avg-of-{k}]", "", 100 * float((self._sums[enough, k - 1] / k).mean())
        if not self._is_binary[enough].all():
            yield f"pass@{k}", "/unordered", 100 * self._over_patterns(lambda task: best_of_k(task, k), k)
        yield f"pass@1[avg-of-{k}]", "/unordered", 100 * self._over_patterns(fmean, k)

    def _pass_at(self, k: int, enough: NDArray[np.bool_]) -> float:
        """The contract's definition: the estimator where scores are 0 and 1, else the best of the first k."""
        values = self._best[:, k - 1].copy()
        for size, solved in set(zip(self.sizes[self._is_binary].tolist(), self._solved().tolist(), strict=True)):
            if size >= k:
                alike = self._is_binary & (self.sizes == size)
                alike[self._is_binary] &= self._solved() == solved
                values[alike] = pass_at_k(size, int(solved), k)
        return float(values[enough].mean())

    def _solved(self) -> NDArray[np.float64]:
        solved: NDArray[np.float64] = self._sums[self._is_binary, -1]
        return solved

    def _over_patterns(self, value: Callable[[Scores], float], k: int) -> float:
        """A mean over tasks of something that does not depend on the order of rollouts."""
        chosen = {task: count for task, count in self._patterns.items() if len(task) >= k}
        return math.fsum(count * value(list(task)) for task, count in chosen.items()) / sum(chosen.values())

    def across_runs(self) -> list[float]:
        """Percent over tasks of the first rollouts, of the second ones, and so on."""
        return [100 * float(np.nanmean(column)) for column in self._scores.T]


class _Votes:
    """The answers of many tasks and what each answer scored."""

    def __init__(self, answers: Sequence[Sequence[Answer]], tasks: Sequence[Scores]) -> None:
        self._running = [running_majority(said, scores) for said, scores in zip(answers, tasks, strict=True)]
        self._patterns = Counter(
            _vote_pattern(said, scores) for said, scores in zip(answers, tasks, strict=True) if said
        )

    def at(self, k: int) -> Iterator[tuple[str, float]]:
        """The majority among the first k; for powers of two also over all subsets, if patterns are not too many."""
        enough = [scores[k - 1] for scores in self._running if len(scores) >= k]
        yield "", 100 * math.fsum(enough) / len(enough)
        if k & (k - 1) == 0 and len(self._patterns) <= _MOST_PATTERNS:
            chosen = {pattern: count for pattern, count in self._patterns.items() if _pattern_size(pattern) >= k}
            total = math.fsum(count * _expected_majority(*pattern, k) for pattern, count in chosen.items())
            yield "/unordered", 100 * total / sum(chosen.values())


def running_majority(answers: Sequence[Answer], scores: Sequence[float]) -> list[float]:
    """`majority_of_first` for every k, in one pass."""
    counts: dict[tuple[str, float], int] = {}
    most = shared = 0
    total = 0.0
    found: list[float] = []
    for answer, score in zip(answers, scores, strict=True):
        if answer is not None:
            count = counts[answer, score] = counts.get((answer, score), 0) + 1
            if count > most:
                most, shared, total = count, 1, score
            elif count == most:
                shared, total = shared + 1, total + score
        found.append(total / shared if shared else 0.0)
    return found


def _spread_across_runs(name: str, runs: Sequence[float]) -> dict[str, object]:
    found: dict[str, object] = {}
    for k in range(2, len(runs) + 1):
        spread = stdev(runs[:k])
        found[f"pass@1[avg-of-{k}]/{name}/std_dev_across_runs"] = spread
        found[f"pass@1[avg-of-{k}]/{name}/std_err_across_runs"] = spread / math.sqrt(k)
    return found


def subset_metrics(
    subsets: Sequence[str], scores: Mapping[str, Sequence[Scores]], answers: Sequence[Sequence[Answer]] | None = None
) -> dict[str, object]:
    """The same for each subset of the tasks, as `subset/metric`."""
    found: dict[str, object] = {}
    for subset in sorted(set(subsets)):
        places = [place for place, name in enumerate(subsets) if name == subset]
        chosen = {name: [tasks[place] for place in places] for name, tasks in scores.items()}
        said = [answers[place] for place in places] if answers is not None else None
        metrics = pass_majority_metrics(chosen, said)
        found |= {f"{subset}/{name}": value for name, value in metrics.items() if name != "per_sample_aggregate"}
    return found


# --- with intervals --------------------------------------------------------------------------------------------------


def pass_curve(groups: Groups) -> list[tuple[int, Estimate]]:
    """pass@k (for fractional rewards the expected best of k) with intervals, as far as half of the tasks go."""
    tasks = task_scores(groups)
    return curve(pass_values(tasks, shown_ks(tasks)), is_share=_are_shares(tasks))


def curve(values: Mapping[int, Sequence[float]], *, is_share: bool) -> list[tuple[int, Estimate]]:
    """A mean over tasks for each k; tasks with fewer rollouts have NaN there."""
    interval = share_of_tasks if is_share else mean_of_tasks
    return [(k, interval([value for value in found if not math.isnan(value)])) for k, found in values.items()]


def pass_values(tasks: Sequence[Scores], ks: Sequence[int]) -> dict[int, list[float]]:
    """For each k, each task's expected best of k; NaN where it has fewer rollouts."""
    patterns = [tuple(sorted(task)) for task in tasks]
    found: dict[int, list[float]] = {}
    for k in ks:
        best = {task: best_of_k(task, k) if len(task) >= k else math.nan for task in set(patterns)}
        found[k] = [best[task] for task in patterns]
    return found


def majority_values(
    answers: Sequence[Sequence[Answer]], tasks: Sequence[Scores], ks: Sequence[int]
) -> dict[int, list[float]]:
    """For each k, each task's majority score among the first k; NaN where it has fewer rollouts."""
    running = [running_majority(said, scores) for said, scores in zip(answers, tasks, strict=True)]
    return {k: [scores[k - 1] if len(scores) >= k else math.nan for scores in running] for k in ks}


def shown_ks(tasks: Sequence[Scores]) -> list[int]:
    """The ks that half of the tasks have rollouts for."""
    sizes = sorted(map(len, tasks))
    return _shown(sizes[len(sizes) // 2] if sizes else 0)


def _are_shares(tasks: Iterable[Scores]) -> bool:
    return all(0 <= score <= 1 for task in tasks for score in task)


def _shown(most: int) -> list[int]:
    """Every k up to 16, then powers of two, and the largest."""
    return sorted({*range(1, min(most, 16) + 1), *(2**power for power in range(5, 20) if 2**power < most), most} - {0})


def task_scores(groups: Groups) -> list[Scores]:
    """Each task's rewards in the order of its rollouts."""
    rewards = groups.table.rewards.tolist()
    return [rewards[rows] for _, rows in groups]
