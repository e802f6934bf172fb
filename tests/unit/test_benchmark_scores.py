"""The figures of a benchmark against brute force: every subset of rollouts, every tie, every gap."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from scipy import stats

from gymnast.benchmarks.scores import BenchmarkScores, ScoreTable, default_ks, score_run, score_tasks
from gymnast.profile.intervals import share_of_tasks
from gymnast.profile.run_profile import load_run
from gymnast.store.paths import RunPaths
from tests.helpers.jsonl import write_jsonl

Task = list[tuple[str | None, float]]


def brute_majority(pairs: Task) -> float:
    """The score of the most frequent answer, ties averaged over (answer, score) pairs; 0 without any answer."""
    votes = Counter(pair for pair in pairs if pair[0] is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    return fmean(score for (_, score), count in votes.items() if count == most)


def brute(tasks: list[Task], k: int, value: Any) -> float:
    """The mean over tasks of the mean over all subsets of k."""
    return fmean(fmean(value(subset) for subset in combinations(task, k)) for task in tasks if len(task) >= k)


def figures(table: ScoreTable) -> dict[str, float]:
    return {metric.name: metric.estimate.value for metric in table.metrics}


@pytest.mark.parametrize("seed", range(20))
def test_every_figure_is_the_mean_over_all_subsets(seed: int) -> None:
    rng = random.Random(seed)
    truth = rng.choice("abc")
    sizes = [rng.randrange(1, 7) for _ in range(rng.randrange(1, 9))]
    tasks: list[Task] = [
        [(answer, float(answer == truth)) for answer in rng.choices(["a", "b", "c", None], k=size)] for size in sizes
    ]
    repeats = max(sizes)
    table = score_tasks(
        [[score for _, score in task] for task in tasks],
        [[answer for answer, _ in task] for task in tasks],
        repeats=repeats,
        ks=range(1, repeats + 1),
    )
    values = figures(table)
    assert values[f"pass@1[avg-of-{repeats}]"] == pytest.approx(fmean(fmean(s for _, s in task) for task in tasks))
    for k in range(2, repeats + 1):
        assert values[f"pass@{k}"] == pytest.approx(brute(tasks, k, lambda subset: max(s for _, s in subset)))
        assert values[f"maj@{k}"] == pytest.approx(brute(tasks, k, brute_majority))
    behind = {metric.name: metric.estimate.n for metric in table.metrics}
    assert behind[f"pass@{repeats}" if repeats > 1 else "pass@1[avg-of-1]"] == sizes.count(repeats)


def test_intervals_have_tasks_as_their_unit() -> None:
    """Eight times the same rollouts of each task are no more evidence than one; the coverage is that of Student's t."""
    few = score_tasks([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], None, repeats=2, ks=[1])
    many = score_tasks([[1.0, 0.0] * 8, [1.0] * 16, [0.0] * 16], None, repeats=16, ks=[1])
    assert few.metrics[0].estimate == many.metrics[0].estimate
    means = [0.25, 0.5, 0.75, 0.5, 0.25]
    estimate = score_tasks([[mean] for mean in means], None, repeats=1, ks=[1]).metrics[0].estimate
    low, high = stats.t.interval(0.95, len(means) - 1, loc=np.mean(means), scale=stats.sem(means))
    assert [estimate.low, estimate.high] == pytest.approx([low, high])


def test_equal_tasks_do_not_make_a_figure_certain() -> None:
    estimate = share_of_tasks([0.5] * 4)
    assert estimate.value == 0.5
    assert estimate.low == pytest.approx(stats.beta.ppf(0.025, 2, 3))
    assert estimate.high == pytest.approx(stats.beta.ppf(0.975, 3, 2))


def test_coverage_of_the_interval_of_pass_at_1() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        rates = rng.beta(1, 1, 40)
        scores = [list(map(float, rng.random(4) < rate)) for rate in rates]
        estimate = score_tasks(scores, None, repeats=4, ks=[1]).metrics[0].estimate
        hits += estimate.low <= 0.5 <= estimate.high
    assert 0.92 <= hits / 400 <= 0.98


def test_powers_of_two_and_the_repeats() -> None:
    assert [default_ks(repeats) for repeats in (0, 1, 4, 6)] == [[], [1], [1, 2, 4], [1, 2, 4, 6]]


# --- whole runs ------------------------------------------------------------------------------------------------------


def score(
    folder: Path, records: list[tuple[int, int, float, Any]], requested: dict[int, int], **keys: Any
) -> BenchmarkScores:
    """Score a run of (task, rollout, reward, answer), with subsets of even and odd tasks."""
    output = folder / "x.jsonl"
    rows = [
        {
            "kind": "odd" if task % 2 else "even",
            "agent_ref": {"name": "a"},
            "_ng_task_index": task,
            "_ng_rollout_index": n,
        }
        for task, count in requested.items()
        for n in range(count)
    ]
    write_jsonl(RunPaths(output).materialized_inputs, rows)
    lines = [
        {"reward": reward, "answer": answer, "_ng_task_index": task, "_ng_rollout_index": n, "agent_ref": {"name": "a"}}
        for task, n, reward, answer in records
    ]
    write_jsonl(output, lines)
    run = load_run((RunPaths(output).materialized_inputs,), (output,), allow_partial=True, texts=("answer",))
    return score_run(run, **{"answer_key": "answer", **keys})


def test_rollouts_without_a_score_are_counted_and_never_zero(tmp_path: Path) -> None:
    scores = score(tmp_path, [(0, 0, 1.0, "a"), (0, 1, 1.0, "a"), (1, 0, 0.0, "b")], {0: 2, 1: 2, 2: 2})
    assert (scores.requested, scores.scored, scores.missing) == (6, 3, 3)
    assert figures(scores.tables[0])["pass@1[avg-of-2]"] == 0.5
    assert scores.with_failures_as_zero.value == pytest.approx(2 / 6)
    assert [metric.estimate.n for metric in scores.tables[0].metrics] == [2, 1, 1]
    assert "1 of 2 tasks have fewer than 2 scored rollouts" in scores.notes[0]


def test_each_subset_has_its_table(tmp_path: Path) -> None:
    records = [(task, 0, float(task % 2), "a") for task in range(4)]
    scores = score(tmp_path, records, dict.fromkeys(range(4), 1), subset_key="kind")
    assert {table.subset: figures(table)["pass@1[avg-of-1]"] for table in scores.tables} == {
        None: 0.5,
        "even": 0,
        "odd": 1,
    }
    scores = score(tmp_path, records, dict.fromkeys(range(4), 1), subset_key="colour")
    assert len(scores.tables) == 1
    assert scores.notes == ["no task has the field `colour`"]


def test_answers_may_be_numbers_lists_and_null(tmp_path: Path) -> None:
    answers = [42, [1, 2], None, 42, [1, 2], {"x": 1}]
    records = [(0, n, float(answer == 42), answer) for n, answer in enumerate(answers)]
    table = score(tmp_path, records, {0: 6}, ks=[6]).tables[0]
    assert figures(table)["maj@6"] == 0.5
    assert table.no_answer == pytest.approx(1 / 6)


def test_k_above_the_repeats_and_fractional_rewards_are_noted(tmp_path: Path) -> None:
    scores = score(tmp_path, [(0, 0, 0.5, "a"), (0, 1, -1.0, "b")], {0: 2}, ks=[2, 8])
    assert figures(scores.tables[0])["pass@2"] == 0.5
    assert [note.split(":")[0] for note in scores.notes] == [
        "k = 8 needs more rollouts per task than 2; raise --num-repeats",
        "rewards are not only 0 and 1",
    ]


def test_a_run_without_any_score_has_no_figures(tmp_path: Path) -> None:
    scores = score(tmp_path, [], {0: 2})
    assert scores.notes == ["no rollout has a score, so there are no figures"]
    assert all(math.isnan(metric.estimate.value) for metric in scores.tables[0].metrics)


def test_records_without_a_reward_or_masked_by_their_agent_are_excluded(tmp_path: Path) -> None:
    output = tmp_path / "x.jsonl"
    rows = [{"_ng_task_index": 0, "_ng_rollout_index": n} for n in range(2)]
    write_jsonl(RunPaths(output).materialized_inputs, rows)
    write_jsonl(output, [{"reward": 1.0, **rows[0]}, {"reward": 0.0, "mask_sample": True, **rows[1]}])
    scores = score_run(load_run((RunPaths(output).materialized_inputs,), (output,), allow_partial=True))
    assert scores.excluded == 1
    assert figures(scores.tables[0])["pass@1[avg-of-2]"] == 1.0
