"""Reward profiles: the contract's files to the digit, and statistics against independent implementations."""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gymnast.errors import DataError, NotFoundError, UserError
from gymnast.kit.metrics import aggregate
from gymnast.kit.pass_majority import pass_at_k
from gymnast.profile.compare import TaskChange, compare, match_tasks, sign_flip_p
from gymnast.profile.curriculum import CurriculumRequest, write_curriculum
from gymnast.profile.difficulty import Thresholds, difficulty, usable_signal
from gymnast.profile.headline import Headline
from gymnast.profile.intervals import beta_cdf, bootstrap, clustered_mean, exact, mean_of_tasks, t_quantile, t_tail
from gymnast.profile.pass_at_k import (
    best_of_k,
    majority_of_any,
    majority_of_first,
    pass_majority_metrics,
    running_majority,
    subset_metrics,
    worst_values,
)
from gymnast.profile.reading import read_rollouts
from gymnast.profile.rollout_table import reward_by
from gymnast.profile.run_profile import ProfileRequest, load_run, profile, rollout_files
from gymnast.profile.schedule import Schedule, batch_shares, draw_schedule
from gymnast.store.annotations import Annotation, annotations_path, append_annotation
from gymnast.store.labels import LabelFilter
from tests.helpers.commands import Outcome
from tests.helpers.jsonl import read_jsonl, write_jsonl

TAU_BENCH = {0: 14, 1: 12, 2: 10, 3: 4, 4: 10}
"""How many of 50 airline tasks were solved how often in 4 rollouts."""


def result(task: int, rollout: int, reward: float, usage: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    response = {"id": "r", "output": [{"type": "message"}], "usage": usage}
    params = {"input": f"q{task}"}
    identity = {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "a"}}
    return {"responses_create_params": params, "response": response, "reward": reward, **more, **identity}


class Files:
    """A run's two files, made of results; every task has as many inputs as `repeats` says."""

    def __init__(
        self, folder: Path, results: Sequence[dict[str, Any]], repeats: dict[int, int], name: str = "x"
    ) -> None:
        self.rollouts = write_jsonl(folder / f"{name}.jsonl", results)
        inputs = [
            {
                "responses_create_params": {"input": f"q{task}"},
                "agent_ref": {"name": "a"},
                "_ng_task_index": task,
                "_ng_rollout_index": rollout,
            }
            for task, count in repeats.items()
            for rollout in range(count)
        ]
        self.inputs = write_jsonl(folder / f"{name}_materialized_inputs.jsonl", inputs)

    def profile(self, **options: Any) -> Headline:
        return profile(ProfileRequest((self.inputs,), (self.rollouts,), self.rollouts, **options))

    def lines(self) -> list[Any]:
        return read_jsonl(self.rollouts.with_name(f"{self.rollouts.stem}_reward_profiling.jsonl"))

    def agents(self) -> Any:
        return json.loads(self.rollouts.with_name(f"{self.rollouts.stem}_agent_metrics.json").read_bytes())


# --- the files -------------------------------------------------------------------------------------------------------


def test_a_line_has_the_contracts_keys_in_their_order(tmp_path: Path) -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    results = [result(0, 1, 0.0, usage, correct=False, note="x"), result(0, 0, 1.0, usage, correct=True, note=None)]
    files = Files(tmp_path, results, {0: 2})
    files.profile()
    (line,) = files.lines()
    columns = ["reward", "correct", "input_tokens", "output_tokens", "total_tokens"]
    wanted = [f"{stat}/{column}" for stat in ("mean", "max", "min", "median", "std") for column in columns]
    tail = ["num_rollouts", "expected_num_rollouts", "missing_num_rollouts", "reward_profile_completion_pct"]
    assert list(line) == ["_ng_task_index", *wanted, "sample", *tail, "rollout_infos"]
    assert line["mean/reward"] == line["mean/correct"] == 0.5
    assert line["std/reward"] == math.sqrt(0.5)
    assert line["sample"] == {"responses_create_params": {"input": "q0"}, "agent_ref": {"name": "a"}}
    assert (line["num_rollouts"], line["expected_num_rollouts"], line["missing_num_rollouts"]) == (2, 2, 0)
    assert line["reward_profile_completion_pct"] == 100.0
    first = line["rollout_infos"][0]
    assert list(first) == [
        *("rollout_id", "_ng_task_index", "_ng_rollout_index", "reward"),
        *("input_tokens", "output_tokens", "total_tokens", "correct"),
    ]
    assert (first["rollout_id"], first["reward"], first["correct"], first["input_tokens"]) == ("0:0", 1.0, 1, 10)


def test_extremes_are_whole_numbers_only_if_everything_is(tmp_path: Path) -> None:
    whole = Files(tmp_path, [result(0, 0, 1, correct=True), result(0, 1, 0, correct=False)], {0: 2}, "whole")
    whole.profile()
    line = whole.lines()[0]
    assert [type(line[key]) for key in ("max/reward", "min/correct", "mean/reward", "median/reward", "std/reward")] == [
        *(int, int, float, float, float),
    ]
    gap = Files(tmp_path, [result(0, 0, 1, correct=True), result(0, 1, 0)], {0: 2}, "gap")
    gap.profile()
    assert type(gap.lines()[0]["max/reward"]) is float
    assert type(gap.agents()[0]["max/correct"]) is float


def test_undefined_statistics_are_left_out(tmp_path: Path) -> None:
    results = [result(0, 0, 1.0, score=2.0), result(0, 1, 0.0), result(1, 0, 1.0), result(1, 1, 0.5)]
    files = Files(tmp_path, results, {0: 2, 1: 2})
    files.profile()
    first, second = files.lines()
    assert first["mean/score"] == 2.0
    assert "std/score" not in first  # one value
    assert not any(key.endswith("/score") for key in second)
    single = Files(tmp_path, [result(0, 0, 0.25, score=1.0)], {0: 1}, "single")
    single.profile()
    assert (single.lines()[0]["std/reward"], single.lines()[0]["std/score"]) == (0.0, 0.0)


def test_agents_have_statistics_of_their_own(tmp_path: Path) -> None:
    other = {**result(1, 0, 0.5), "agent_ref": {"name": "b"}}
    files = Files(tmp_path, [result(0, 0, 1.0), result(0, 1, 0.0), other], {0: 2, 1: 1})
    files.profile()
    found = files.agents()
    assert [entry["agent_ref"]["name"] for entry in found] == ["a", "b"]
    assert list(found[0])[-1] == "agent_ref"
    assert (found[0]["mean/reward"], found[1]["mean/reward"]) == (0.5, 0.5)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.one_of(st.floats(-5, 5), st.integers(-3, 3)), min_size=1, max_size=6), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_statistics_equal_those_of_the_standard_library(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[list[float]], chance: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("run")
    results = [
        result(task, place, reward) for task, rewards in enumerate(tasks) for place, reward in enumerate(rewards)
    ]
    chance.shuffle(results)  # the order of completion is not that of the plan
    files = Files(folder, results, {task: len(rewards) for task, rewards in enumerate(tasks)})
    files.profile()
    for line, rewards in zip(files.lines(), tasks, strict=True):
        assert line["mean/reward"] == pytest.approx(statistics.fmean(rewards), abs=1e-12)
        assert line["median/reward"] == pytest.approx(statistics.median(rewards))
        assert (line["max/reward"], line["min/reward"]) == (max(rewards), min(rewards))
        if len(rewards) > 1:
            assert line["std/reward"] == pytest.approx(statistics.stdev(rewards), abs=1e-9)
        assert [info["reward"] for info in line["rollout_infos"]] == rewards


# --- strictness ------------------------------------------------------------------------------------------------------


def test_missing_results_are_an_error_that_names_them(tmp_path: Path) -> None:
    files = Files(tmp_path, [result(0, 0, 1.0), result(1, 0, 0.0)], {0: 2, 1: 1, 2: 3})
    with pytest.raises(DataError, match=r"4 of 6 rollouts have no result: 0:1, 2:0, 2:1, 2:2"):
        files.profile()
    assert not files.rollouts.with_name("x_reward_profiling.jsonl").exists()


def test_a_partial_run_is_profiled_if_that_is_asked_for(tmp_path: Path) -> None:
    files = Files(tmp_path, [result(0, 0, 1.0), result(1, 0, 0.0)], {0: 2, 1: 1, 2: 3})
    write_jsonl(
        tmp_path / "x_failures.jsonl",
        [
            {"_ng_task_index": 2, "_ng_rollout_index": 0, "failure": {"kind": "model_timeout"}},
            {"_ng_task_index": 2, "_ng_rollout_index": 0, "failure": {"kind": "verifier_error"}},
            {"_ng_task_index": 1, "_ng_rollout_index": 0, "failure": {"kind": "model_timeout"}},
        ],
    )
    found = files.profile(allow_partial=True)
    assert [line["_ng_task_index"] for line in files.lines()] == [0, 1]
    assert files.lines()[0]["missing_num_rollouts"] == 1
    assert files.lines()[0]["reward_profile_completion_pct"] == 50.0
    assert (found.tasks, found.complete_tasks, found.partial_tasks, found.dropped_tasks) == (3, 1, 1, 1)
    assert (found.requested, found.scored, found.failed, found.missing) == (6, 2, {"verifier_error": 1}, 3)
    effect = found.failure_effect
    assert effect.excluded.value == 0.5
    assert effect.zero.value == pytest.approx(1 / 6)
    assert [effect.lowest, effect.highest] == pytest.approx([1 / 6, 5 / 6])


def test_rollouts_that_nobody_asked_for_and_second_ones_are_errors(tmp_path: Path) -> None:
    extra = Files(tmp_path, [result(0, 0, 1.0), result(0, 1, 1.0)], {0: 1}, "extra")
    with pytest.raises(DataError, match="1 rollouts were never requested: 0:1"):
        extra.profile(allow_partial=True)
    twice = Files(tmp_path, [result(0, 0, 1.0), result(0, 0, 0.0)], {0: 1}, "twice")
    with pytest.raises(DataError, match="1 keys occur in the rollouts more than once: 0:0"):
        twice.profile()


@pytest.mark.parametrize("text", ["{", '{"reward": 1}', "[]", '{"_ng_task_index": "a", "_ng_rollout_index": 0}'])
def test_a_damaged_record_is_named_by_its_line(tmp_path: Path, text: str) -> None:
    files = Files(tmp_path, [result(0, 0, 1.0)], {0: 1})
    with files.rollouts.open("a") as stream:
        stream.write(text + "\n")
    with pytest.raises(DataError) as caught:
        files.profile()
    assert "line 2" in str(caught.value)


def test_fields_that_come_late_change_or_have_odd_names_are_read(tmp_path: Path) -> None:
    results = [
        result(0, 0, 1.0, odd={"a": 1}),
        result(0, 1, 0.0) | {"odd": 3, "a name": 2.5, "class": True},
        result(0, 2, 0.0, odd="text", late=[1, 2]),
        result(0, 3, 0.0, late=7),
        result(0, 4, 0.0, usage={"input_tokens": 3, "cached": None}),
    ]
    table = read_rollouts([Files(tmp_path, results, {0: 5}).rollouts])
    values = {name: [column.at(row) for row in range(5)] for name, column in table.columns.items()}
    assert values["odd"] == [None, 3, None, None, None]
    assert values["a name"] == [None, 2.5, None, None, None]
    assert values["class"] == [None, 1, None, None, None]
    assert values["late"] == [None, None, None, 7, None]
    assert values["input_tokens"] == [None, None, None, None, 3]
    assert "cached" not in values


def test_a_field_named_like_usage_is_told_per_rollout_and_the_usage_is_aggregated(tmp_path: Path) -> None:
    results = [
        result(0, 0, 1.0, {"input_tokens": 10}, input_tokens=90_000),
        result(0, 1, 0.0, {"input_tokens": 20}, input_tokens=80_000),
        result(1, 0, 0.0, {"input_tokens": 30}),
        result(1, 1, 0.0, input_tokens=70_000),
    ]
    files = Files(tmp_path, results, {0: 2, 1: 2})
    files.profile()
    first, second = files.lines()
    assert (first["mean/input_tokens"], second["mean/input_tokens"]) == (15.0, 35_015.0)
    for line, wanted in ((first, [90_000, 80_000]), (second, [30, 70_000])):
        assert [info["input_tokens"] for info in line["rollout_infos"]] == wanted
    for group, line in zip(aggregate(results)["group_level_metrics"], (first, second), strict=True):
        assert group["mean/input_tokens"] == line["mean/input_tokens"]
        assert group["rollout_infos"] == line["rollout_infos"]


def test_shards_are_read_in_place(tmp_path: Path) -> None:
    for shard in range(3):
        Files(tmp_path, [result(shard, 0, 1.0)], {shard: 1}, f"part_{shard}")
    files = rollout_files([str(tmp_path / "part_*.jsonl")])
    assert [path.name for path in files] == [f"part_{shard}.jsonl" for shard in range(3)]
    inputs = tuple(path.with_name(f"{path.stem}_materialized_inputs.jsonl") for path in files)
    assert load_run(inputs, files, allow_partial=False).completeness.scored == 3
    with pytest.raises(NotFoundError):
        rollout_files([str(tmp_path / "nothing_*.jsonl")])


# --- pass@k and majority@k -------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=8), st.data())
def test_pass_at_k_equals_enumeration(scores: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(scores)))
    subsets = list(itertools.combinations(scores, k))
    n, solved = len(scores), int(sum(scores))
    assert pass_at_k(n, solved, k) == pytest.approx(statistics.fmean(max(subset) for subset in subsets))
    assert worst_values([scores], [k])[k] == [pytest.approx(statistics.fmean(min(subset) for subset in subsets))]
    assert best_of_k(scores, k) == pytest.approx(pass_at_k(n, solved, k))


@given(
    st.lists(
        st.tuples(st.sampled_from(["x", "y", "z", None]), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=7
    ),
    st.data(),
)
def test_majority_over_all_subsets_equals_enumeration(rollouts: list[tuple[str | None, float]], data: Any) -> None:
    k = data.draw(st.integers(1, len(rollouts)))
    answers, scores = [answer for answer, _ in rollouts], [score for _, score in rollouts]
    subsets = [
        majority_of_first([answers[place] for place in places], [scores[place] for place in places], k)
        for places in itertools.combinations(range(len(rollouts)), k)
    ]
    assert majority_of_any(answers, scores, k) == pytest.approx(statistics.fmean(subsets))
    assert running_majority(answers, scores)[k - 1] == pytest.approx(majority_of_first(answers, scores, k))
    assert best_of_k(scores, k) == pytest.approx(
        statistics.fmean(max(subset) for subset in itertools.combinations(scores, k))
    )
    order = data.draw(st.permutations(rollouts))
    assert majority_of_any([answer for answer, _ in order], [score for _, score in order], k) == pytest.approx(
        majority_of_any(answers, scores, k)
    )


def test_the_published_tau_bench_figures() -> None:
    tasks = [[1.0] * solved + [0.0] * (4 - solved) for solved, count in TAU_BENCH.items() for _ in range(count)]
    metrics = pass_majority_metrics({"accuracy": tasks})
    assert [round(float(str(metrics[f"pass@{k}/accuracy"])), 2) for k in (1, 2, 3, 4)] == [42.0, 56.67, 66.0, 72.0]
    hats = [statistics.fmean(values) for values in worst_values(tasks, (1, 2, 3, 4)).values()]
    assert hats == pytest.approx([0.42, 0.2733, 0.22, 0.20], abs=5e-5)


def test_the_estimator_of_the_human_eval_paper() -> None:
    def reference(n: int, c: int, k: int) -> float:  # the numerically stable form that the paper prints
        return 1.0 if n - c < k else 1.0 - float(np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))

    for n, c, k in ((200, 3, 100), (200, 13, 10), (200, 199, 1), (10, 0, 5), (10, 10, 10)):
        assert pass_at_k(n, c, k) == pytest.approx(reference(n, c, k))


def test_the_spread_of_the_first_runs_is_the_one_of_each_number_of_runs_to_the_last_digit() -> None:
    chance = random.Random(8)
    for size in (2, 3, 17, 64):
        tasks = [[chance.choice((chance.random(), 0.0, 1.0)) for _ in range(size)] for _ in range(3)]
        metrics = pass_majority_metrics({"accuracy": tasks})
        aggregate: Any = metrics["per_sample_aggregate"]
        for k in range(2, size + 1):
            spread = statistics.stdev(aggregate["accuracy"][:k])
            assert metrics[f"pass@1[avg-of-{k}]/accuracy/std_dev_across_runs"] == spread


def test_metrics_have_the_contracts_names_and_definitions() -> None:
    tasks = [[0.5, 1.0, 0.0], [0.25, 0.0]]
    answers: list[list[str | None]] = [["x", None, "y"], ["z", "z"]]
    metrics = pass_majority_metrics({"accuracy": tasks}, answers)
    assert metrics["pass@1/accuracy"] == 100 * (0.5 + 0.25) / 2  # fractional: the best of the first k
    assert metrics["pass@2/accuracy"] == 100 * (1.0 + 0.25) / 2
    assert metrics["pass@3/accuracy"] == 100.0  # a task with fewer rollouts is skipped
    assert metrics["pass@1/accuracy/unordered"] == pytest.approx(100 * (0.5 + 0.125) / 2)
    assert metrics["pass@1[avg-of-2]/accuracy"] == 100 * (0.75 + 0.125) / 2
    assert metrics["majority@1/accuracy"] == 100 * (0.5 + 0.25) / 2
    assert metrics["majority@3/accuracy"] == 100 * 0.25  # x and y tie: (0.5 + 0) / 2
    assert metrics["pass@1/no_answer"] == pytest.approx(100 * (1 / 3) / 2)
    aggregate: Any = metrics["per_sample_aggregate"]
    assert aggregate["accuracy"] == [37.5, 50.0, 0.0]
    runs = [37.5, 50.0]
    assert metrics["pass@1[avg-of-2]/accuracy/std_dev_across_runs"] == pytest.approx(statistics.stdev(runs))
    error = statistics.stdev(runs) / math.sqrt(2)
    assert metrics["pass@1[avg-of-2]/accuracy/std_err_across_runs"] == pytest.approx(error)
    subsets = subset_metrics(["easy", "hard"], {"accuracy": tasks})
    assert subsets["easy/pass@3/accuracy"] == 100.0
    assert "hard/pass@3/accuracy" not in subsets


# --- intervals -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.data())
def test_exact_intervals_are_scipys(n: int, data: st.DataObject) -> None:
    solved = data.draw(st.integers(0, n))
    found = exact(solved, n)
    wanted = stats.binomtest(solved, n).proportion_ci(method="exact")
    assert [found.low, found.high] == pytest.approx([wanted.low, wanted.high], abs=1e-9)


@given(st.floats(0.001, 0.999), st.floats(0.1, 500), st.floats(0.1, 500))
def test_the_incomplete_beta_function_is_scipys(x: float, a: float, b: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), abs=1e-10)


@pytest.mark.parametrize("df", [1, 2, 5, 30, 1000])
def test_students_distribution_is_scipys(df: int) -> None:
    assert t_quantile(0.975, df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-8)
    assert t_tail(2.1, df) == pytest.approx(2 * stats.t.sf(2.1, df), rel=1e-8)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=30))
def test_the_interval_of_a_mean_is_scipys(values: list[float]) -> None:
    found = mean_of_tasks(values)
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    low, high = (
        stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=spread)
        if spread > 1e-9
        else (found.low,) * 2
    )
    assert found.low == pytest.approx(low, abs=1e-6)
    assert found.high == pytest.approx(high, abs=1e-6)


def test_errors_are_clustered_by_task() -> None:
    chance = np.random.default_rng(1)
    rates = chance.random(200)
    sums = np.array([chance.binomial(16, rate) for rate in rates], dtype=np.float64)
    found = clustered_mean(sums, np.full(200, 16.0))
    per_task = mean_of_tasks((sums / 16).tolist())
    assert [found.low, found.high] == pytest.approx([per_task.low, per_task.high])
    naive = 1.96 * math.sqrt(found.value * (1 - found.value) / 3200)
    assert (found.high - found.low) / 2 > 2 * naive  # rollouts of one task are alike: 3200 are not 3200


def test_intervals_cover_what_they_promise() -> None:
    chance = np.random.default_rng(3)
    hits = {"t": 0, "bootstrap": 0}
    for trial in range(300):
        values = chance.beta(0.5, 0.5, 60).tolist()
        for name, found in (("t", mean_of_tasks(values)), ("bootstrap", bootstrap(values, seed=trial, resamples=400))):
            hits[name] += found.low <= 0.5 <= found.high
    assert 0.91 <= hits["t"] / 300 <= 0.98
    assert 0.89 <= hits["bootstrap"] / 300 <= 0.98


def test_few_solved_tasks_do_not_look_certain(tmp_path: Path) -> None:
    results = [result(task, rollout, 1.0) for task in range(5) for rollout in range(2)]
    found = Files(tmp_path, results, dict.fromkeys(range(5), 2)).profile()
    agent = found.agents[0]
    assert agent.mean_reward.low == pytest.approx(stats.binomtest(5, 5).proportion_ci().low)
    assert agent.pass_at[-1][1].low < 0.5


def test_bootstraps_are_reproducible() -> None:
    values = [0.0, 1.0, 0.5, 0.25]
    assert bootstrap(values, seed=7) == bootstrap(values, seed=7)


# --- comparison ------------------------------------------------------------------------------------------------------


def runs(folder: Path, rates_a: Sequence[float], rates_b: Sequence[float], repeats: int = 8) -> list[Any]:
    loaded = []
    for name, rates in (("a", rates_a), ("b", rates_b)):
        results = [
            result(task, place, float(place < round(rate * repeats)))
            for task, rate in enumerate(rates)
            for place in range(repeats)
        ]
        files = Files(folder, results, dict.fromkeys(range(len(rates)), repeats), name)
        loaded.append(load_run((files.inputs,), (files.rollouts,), allow_partial=False))
    return loaded


def test_a_real_difference_is_found_and_named(tmp_path: Path) -> None:
    rates = [task / 20 for task in range(20)]
    better = [min(1.0, rate + 0.25) for rate in rates]
    changes, unmatched, how = match_tasks(*runs(tmp_path, rates, better))
    comparison = compare(changes, unmatched=unmatched, matched_by=how)
    assert comparison.verdict == "better"
    assert comparison.difference.low > 0
    assert (comparison.wins + comparison.ties, comparison.losses) == (20, 0)
    assert comparison.p_value < 0.001
    paired = stats.ttest_rel([change.mean_b for change in changes], [change.mean_a for change in changes])
    assert comparison.p_value_t == pytest.approx(paired.pvalue)
    back = compare(match_tasks(*runs(tmp_path, better, rates))[0], unmatched=unmatched, matched_by=how)
    assert back.verdict == "worse"


def test_noise_is_not_a_difference(tmp_path: Path) -> None:
    chance = random.Random(1)
    a, b = ([chance.choice([0.25, 0.5, 0.75]) for _ in range(30)] for _ in range(2))
    changes, unmatched, how = match_tasks(*runs(tmp_path, a, b))
    assert compare(changes, unmatched=unmatched, matched_by=how).verdict == "no difference shown"


@given(st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=8))
def test_sign_flips_equal_enumeration(differences: list[float]) -> None:
    signs = list(itertools.product((-1, 1), repeat=len(differences)))
    observed = abs(sum(differences)) - 1e-9
    wanted = sum(
        abs(sum(sign * value for sign, value in zip(flip, differences, strict=True))) >= observed for flip in signs
    )
    assert sign_flip_p(differences) == pytest.approx(wanted / len(signs))


def test_tasks_are_paired_by_what_they_say_not_by_where_they_stand(tmp_path: Path) -> None:
    loaded = []
    for name, order in (("a", ["p", "q", "r"]), ("b", ["r", "p", "s"])):
        inputs = [
            {"responses_create_params": {"input": text, "temperature": float(name == "a")}, "_ng_task_index": n,
             "_ng_rollout_index": 0}
            for n, text in enumerate(order)
        ]  # fmt: skip
        results = [result(n, 0, float(text == "p")) for n, text in enumerate(order)]
        paths = write_jsonl(tmp_path / f"{name}_in.jsonl", inputs), write_jsonl(tmp_path / f"{name}.jsonl", results)
        loaded.append(load_run((paths[0],), (paths[1],), allow_partial=False))
    changes, unmatched, how = match_tasks(*loaded)
    assert [(change.task_a, change.task_b) for change in changes] == [(0, 1), (2, 0)]
    assert (unmatched, how) == ((1, 1), "content")
    assert len(match_tasks(*loaded, by_index=True)[0]) == 3
    with pytest.raises(DataError, match="no task in common"):
        compare([], unmatched=(1, 1), matched_by=how)


# --- curriculum ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10), st.data())
def test_usable_signal_equals_enumeration(rollouts: int, data: st.DataObject) -> None:
    passed, size = data.draw(st.integers(0, rollouts)), data.draw(st.integers(2, 12))
    found = usable_signal(passed, rollouts, size)
    assert -1e-9 <= found <= 1
    if size <= rollouts:
        groups = list(itertools.combinations([1] * passed + [0] * (rollouts - passed), size))
        assert found == pytest.approx(sum(0 < sum(group) < size for group in groups) / len(groups))
    else:
        belief = stats.betabinom(size, passed + 0.5, rollouts - passed + 0.5)
        assert found == pytest.approx(1 - belief.pmf(0) - belief.pmf(size))


def test_few_lucky_rollouts_do_not_make_a_task_saturated() -> None:
    assert difficulty(2, 2, 8, Thresholds(confidence=0.8)).bucket == "easy"
    assert difficulty(64, 64, 8, Thresholds(confidence=0.8)).bucket == "saturated"
    assert difficulty(0, 64, 8, Thresholds(confidence=0.8)).bucket == "hopeless"
    assert difficulty(4, 16, 8, Thresholds()).bucket == "hard"
    assert difficulty(8, 16, 8, Thresholds()).bucket == "medium"
    found = difficulty(8, 16, 8, Thresholds())
    assert [found.low, found.high] == pytest.approx(stats.beta(8.5, 8.5).ppf([0.1, 0.9]).tolist())


def profiled(folder: Path, rates: Sequence[float], repeats: int = 16) -> Path:
    results = [
        result(task, place, float(place < round(rate * repeats)))
        for task, rate in enumerate(rates)
        for place in range(repeats)
    ]
    Files(folder, results, dict.fromkeys(range(len(rates)), repeats)).profile()
    return folder / "x_reward_profiling.jsonl"


def test_tasks_that_teach_nothing_are_dropped_and_the_rest_carries_its_profile(tmp_path: Path) -> None:
    path = profiled(tmp_path, [0.0, 0.25, 0.5, 0.875, 1.0])
    curriculum = write_curriculum(CurriculumRequest((path,), tmp_path / "train.jsonl", group_size=8))
    assert curriculum.buckets == {"hopeless": 1, "hard": 1, "medium": 1, "easy": 1, "saturated": 1}
    assert (curriculum.tasks, curriculum.kept, curriculum.rows) == (5, 3, 3)
    assert curriculum.usable_signal_after > curriculum.usable_signal_before
    rows = read_jsonl(tmp_path / "train.jsonl")
    assert [row["reward_profile"]["task_index"] for row in rows] == [1, 2, 3]
    assert rows[1]["reward_profile"]["pass_rate"] == 0.5
    assert rows[1]["responses_create_params"] == {"input": "q2"}
    assert "_ng_task_index" not in rows[1]
    everything = "none of 5 tasks is left: they are 1 hopeless, 1 hard, 1 medium, 1 easy, 1 saturated"
    with pytest.raises(DataError, match=f"{everything}, and the buckets to keep are none"):
        write_curriculum(CurriculumRequest((path,), tmp_path / "none.jsonl", keep=frozenset()))


def test_labels_choose_the_rollouts_that_a_curriculum_counts(tmp_path: Path) -> None:
    path = profiled(tmp_path, [0.25, 0.5, 0.875])
    for task, rollout, label in ((0, None, "bad task"), (1, 0, "reward hack"), (1, 1, "reward hack")):
        append_annotation(annotations_path(tmp_path / "x.jsonl"), Annotation(task=task, rollout=rollout, label=label))
    excluded = LabelFilter(excluded=("bad task", "reward hack"))
    curriculum = write_curriculum(CurriculumRequest((path,), tmp_path / "train.jsonl", by_label=excluded))
    rows = [row["reward_profile"] for row in read_jsonl(tmp_path / "train.jsonl")]
    assert [(row["task_index"], row["num_rollouts"], row["pass_rate"]) for row in rows] == [
        (1, 14, pytest.approx(6 / 14)),
        (2, 16, 0.875),
    ]
    assert (curriculum.tasks, curriculum.dropped_labels) == (2, 1)
    only = LabelFilter(wanted=("bad task",))
    write_curriculum(CurriculumRequest((path,), tmp_path / "only.jsonl", by_label=only))
    assert [row["reward_profile"]["task_index"] for row in read_jsonl(tmp_path / "only.jsonl")] == [0]
    misspelt = LabelFilter(excluded=("bad tusk",))
    with pytest.raises(UserError, match="no rollout or task has the label 'bad tusk'"):
        write_curriculum(CurriculumRequest((path,), tmp_path / "none.jsonl", by_label=misspelt))


def test_thousands_of_rollouts_of_a_task_have_a_pass_at_k() -> None:
    assert best_of_k([0.0] * 1500 + [1.0] * 1500, 700) == pytest.approx(1.0)
    assert best_of_k([0.5] * 3000, 1500) == pytest.approx(0.5)
    scores = [number / 7 % 1 for number in range(601)]
    ranked, ways = sorted(scores), math.comb(601, 30)
    exact = sum(Fraction(score) * math.comb(rank, 29) for rank, score in enumerate(ranked)) / ways
    assert best_of_k(scores, 30) == pytest.approx(float(exact), rel=1e-12)
    assert best_of_k(scores, 601) == max(scores)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--confidence", "0"),  # every task would count as hopeless
        ("--confidence", "1.1"),
        ("--hopeless-below", "-0.1"),
        ("--saturated-above", "2"),
        ("--hopeless-below", "0.95"),
        ("--start-pass-rate", "nan"),
        ("--width", "0"),
        ("--seed", "-1"),
        ("--blend", "a=nan"),
        ("--blend", "a=0"),
        ("--max-truncated", "-1"),
    ],
)
def test_a_curriculum_with_numbers_out_of_range_is_an_error_of_one_sentence(
    tmp_path: Path, invoke: Callable[..., Outcome], arguments: tuple[str, str]
) -> None:
    path = profiled(tmp_path, [0.0, 0.5, 1.0])
    outcome = invoke("gymnast", "curriculum", str(path), "-o", "t.jsonl", "--steps", "2", *arguments)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert "{'" not in outcome.err
    assert arguments[0] in outcome.err
    assert not (tmp_path / "t.jsonl").exists()


def test_a_schedule_moves_from_easy_to_hard_and_is_reproducible(tmp_path: Path) -> None:
    path = profiled(tmp_path, [place / 16 for place in range(1, 16)] * 8)
    schedule = Schedule(steps=10, batch=6, start=0.8, end=0.2, width=0.1)
    keep: Any = frozenset({"hard", "medium", "easy"})
    request = CurriculumRequest((path,), tmp_path / "a.jsonl", schedule=schedule, keep=keep, seed=3)
    curriculum = write_curriculum(request)
    rates = [step["pass_rate"] for step in curriculum.steps]
    assert rates[0] > 0.65
    assert rates[-1] < 0.4
    again = CurriculumRequest((path,), tmp_path / "b.jsonl", schedule=schedule, keep=keep, seed=3)
    write_curriculum(again)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    rows = read_jsonl(tmp_path / "a.jsonl")
    assert [row["reward_profile"]["step"] for row in rows] == [step for step in range(10) for _ in range(6)]
    tasks = [row["reward_profile"]["task_index"] for row in rows]
    assert len(set(tasks)) == len(tasks)  # none twice before all have come


def test_blends_share_a_batch(tmp_path: Path) -> None:
    agents = ["a"] * 30 + ["b"] * 10
    steps = draw_schedule([0.5] * 40, agents, Schedule(4, 10), {"a": 0.25, "b": 0.75}, 0)
    for step in steps:
        assert sum(agents[place] == "b" for place in step) in {7, 8}
    assert batch_shares(agents, 7, {"a": 1, "b": 1}) in ({"a": 4, "b": 3}, {"a": 3, "b": 4})
    with pytest.raises(UserError, match="did you mean"):
        batch_shares(["math_agent"], 4, {"math_agnt": 1.0})


def test_masked_rollouts_are_excluded_from_the_headline_and_counted(tmp_path: Path) -> None:
    results = [
        result(0, 0, 1.0, mask_sample=False),
        result(0, 1, 0.0, mask_sample=True),
        result(1, 0, 1.0),
        result(1, 1, 1.0),
    ]
    found = Files(tmp_path, results, {0: 2, 1: 2}).profile()
    assert (found.scored, found.excluded) == (4, 1)
    assert found.agents[0].mean_reward.value == 1.0


# --- tables ----------------------------------------------------------------------------------------------------------


def test_rewards_by_tokens_and_length_are_keyed_by_both_indexes(tmp_path: Path) -> None:
    results = [
        result(task, place, float(place), {"output_tokens": 10 * place + task})
        for task in range(4)
        for place in range(2)
    ]
    files = Files(tmp_path, results, dict.fromkeys(range(4), 2))
    files.profile(table=tmp_path / "t.csv")
    with (tmp_path / "t.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows[:3]] == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
    ]
    assert rows[1]["output_tokens"] == "10"
    assert int(rows[0]["output_bytes"]) == len('[{"type": "message"}]')
    table = load_run((files.inputs,), (files.rollouts,), allow_partial=False).groups.table
    low, high = reward_by(table, "output_tokens", ranges=2)
    assert (low.mean_reward, high.mean_reward, low.rollouts) == (0.0, 1.0, 4)
    assert reward_by(table, "nothing") == []


def test_the_interval_of_a_compared_mean_stays_between_0_and_1_if_rewards_do() -> None:
    changes = [TaskChange(task, task, 1.0 if task else 0.5, 0.75, 4, 4) for task in range(5)]
    comparison = compare(changes, unmatched=(0, 0), matched_by="content")
    assert comparison.mean_a.high <= 1
    assert comparison.mean_a.low < comparison.mean_a.value
    wider = compare([*changes, TaskChange(5, 5, 1.5, 0.0, 4, 4)], unmatched=(0, 0), matched_by="content")
    assert wider.mean_a.high > 1
