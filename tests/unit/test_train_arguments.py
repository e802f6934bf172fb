"""Bad arguments of trainers: one sentence, before a server or a rollout starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gymnast.train
from gymnast.errors import UserError
from gymnast.train import Select, Share, WhenStale
from gymnast.train.export import export_samples
from gymnast.train.offsets import JsonlRows
from gymnast.train.verl_settings import read_settings as read_verl_settings
from gymnast.wire.http_client import HttpClient

if TYPE_CHECKING:
    from collections.abc import Callable

train: Any = gymnast.train
read_settings: Any = read_verl_settings
ROW: Any = {"responses_create_params": {"input": "x"}}


class NotStarted:
    """Rollouts that must not run."""

    def run(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the rollouts were started")


def batch(tasks: Any, **given: Any) -> Any:
    return asyncio.run(train.collect_batch(NotStarted(), tasks, generations=2, **given))


def group(**given: Any) -> Any:
    return asyncio.run(train.collect_group(NotStarted(), ROW, generations=2, **given))


def streamed(tasks: Any = (ROW,), **given: Any) -> Any:
    return train.stream(NotStarted(), tasks, generations=2, **given)


def weights(*addresses: Any, **given: Any) -> Any:
    return train.VllmWeights(HttpClient(), *addresses, **given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: train.BatchOptions(max_attempts=True), "max_attempts must be a whole number of at least 1, got True"),
        (lambda: train.BatchOptions(stop_early="no"), "stop_early must be true or false, got 'no'"),
        (lambda: train.BatchOptions(row_timeout_s=True), "row_timeout_s must be a number of seconds above 0, got True"),
        (lambda: train.BatchOptions(row_timeout_s="1h"), "row_timeout_s must be a number of seconds above 0, got '1h'"),
        (lambda: train.BatchOptions(sample={"share": "equal"}), r"sample must be SampleOptions\(…\), got {'share'"),
        (lambda: train.SampleOptions(share="token"), "(?s)invalid value 'token' for share.*did you mean 'tokens'"),
        (lambda: train.SampleOptions(mask_truncated=1), "mask_truncated must be true or false, got 1"),
        (lambda: train.StreamOptions(select="sprad", oversample=2), "(?s)'sprad' for select.*did you mean 'spread'"),
        (lambda: train.StreamOptions(select="spread"), "select chooses among further rollouts, and oversample is 0"),
        (lambda: train.StreamOptions(when_stale="drop"), "(?s)invalid value 'drop' for when_stale.*ask_again, mask"),
        (lambda: train.StreamOptions(keep=True), "keep must be a function, got True"),
        (lambda: train.StreamOptions(autosave="yes"), "autosave must be true or false, got 'yes'"),
        (lambda: train.StreamOptions(batch=8), r"batch must be BatchOptions\(…\), got 8"),
        (
            lambda: streamed(options=train.BatchOptions()),
            r"StreamOptions\(…\), got Batch",
        ),
        (lambda: streamed(versions="v1"), "versions must be PolicyVersions"),
        (
            lambda: streamed(versions={"m": 1}),
            "versions must be PolicyVersions",
        ),
        (lambda: streamed(None), "tasks must be rows of a dataset, got None"),
        (lambda: streamed("t.jsonl"), r"(?s)got 't.jsonl'.*JsonlRows\(path\)"),
        (lambda: batch(ROW), "tasks is a single row"),
        (lambda: batch(Path("t.jsonl")), "tasks must be rows of a dataset"),
        (lambda: batch([ROW], options=train.StreamOptions()), r"options must be BatchOptions\(…\), got StreamOptions"),
        (lambda: group(extra=-1), "extra must be a whole number of at least 0, got -1"),
        (lambda: group(extra=1, select="best"), "(?s)invalid value 'best' for select.*first, spread"),
        (lambda: train.Curriculum(task for task in [ROW]), "(?s)from a list, got generator.*list"),
        (lambda: train.Curriculum([]), "the curriculum has no tasks"),
        (lambda: train.Curriculum("t.jsonl"), "tasks must be rows of a dataset"),
        (lambda: train.Curriculum(ROW), "tasks is a single row"),
        (lambda: train.Curriculum([ROW], rate="0.5"), "rate must be a number above 0 and at most 1, got '0.5'"),
        (lambda: train.Curriculum([ROW], score="signal"), "score must be a function, got 'signal'"),
        (lambda: train.TaskMixture([[ROW], 1.0]), "a mixture needs environments by name"),
        (lambda: train.TaskMixture({}), "a mixture needs environments by name"),
        (lambda: train.TaskMixture({"a": ([ROW], True)}), "the weight of 'a' must be above 0 and finite, got True"),
        (lambda: train.TaskMixture({1: ([ROW], 1.0)}), "the name of an environment must be a string, got 1"),
        (lambda: train.advantages([1.0, 0.0], estimator="ppo"), "(?s)'ppo' for estimator.*grpo"),
        (lambda: train.advantages([1.0, 0.0], [True]), "2 rewards and 1 values in trainable"),
        (lambda: train.PolicyVersions("step-1"), "labels must be a list of strings, got 'step-1'"),
        (lambda: weights("http://engine:8000"), "base_urls must be a list of addresses"),
        (lambda: weights([]), "base_urls is empty"),
        (lambda: weights(["engine:8000"]), "(?s)base_urls: not an http.*engine:8000"),
        (lambda: weights(["http://engine:8000"], mode="stop"), "(?s)'stop' is not supported.*keep, abort, wait"),
        (lambda: weights(["http://engine:8000"], timeout_s=0), "timeout_s must be a number of seconds above 0"),
        (lambda: read_settings(["mcqa"]), "(?s)section 'gymnast' must have settings by name, got .'mcqa'"),
        (lambda: read_settings({"environments": ["mcqa"], "log_dir": 3}), "'log_dir' .* must be a string, got 3"),
        (lambda: read_settings({"environments": ["mcqa"], "workers": True}), "workers must be a whole number"),
    ],
)
def test_bad_arguments_are_reported_before_anything_starts(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_choices_may_be_given_by_name() -> None:
    options = train.StreamOptions(when_stale="mask", select="spread", oversample=1)
    assert options.when_stale is WhenStale.MASK
    assert options.select is Select.SPREAD
    assert train.SampleOptions(share="last").share is Share.LAST
    assert train.advantages([1.0, 0.0], estimator="dr_grpo") == [0.5, -0.5]


def test_rows_of_a_file_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"responses_create_params": {"input": "x"}}\n')
    with JsonlRows(path) as rows:
        assert train.Curriculum(rows).next() is not None
        assert streamed(rows, state=str(tmp_path / "state.json"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("samples.csv", "(?s)cannot write samples as 'samples.csv'.*parquet"),
        ("samples", "(?s)cannot write samples as 'samples'.*jsonl"),
        ("", "(?s)the output is a folder.*samples.jsonl"),
        ("run_materialized_inputs.jsonl", "the export would overwrite the run"),
        ("run_failures.jsonl", "the export would overwrite the run"),
    ],
)
def test_samples_are_not_written_where_they_cannot_be(tmp_path: Path, name: str, message: str) -> None:
    run = tmp_path / "run.jsonl"
    run.write_text("")
    with pytest.raises(UserError, match=message):
        export_samples(run, tmp_path / name)
