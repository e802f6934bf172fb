"""Samples of a run in files: all of it with reasons, or an error; figures for a trainer's log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnast.errors import DataError, UserError
from gymnast.train import FewerRolloutsError, MaskReason, SampleOptions, batch_metrics, sample_of
from gymnast.train import parquet as parquet_module
from gymnast.train.export import export_samples, read_samples
from gymnast.train.sample_rows import sample_to_row
from gymnast.types.task import RolloutKey
from gymnast.types.tokens import ForkReason
from tests.helpers.commands import Outcome
from tests.helpers.jsonl import read_jsonl
from tests.helpers.train_records import AGENT, call, failure, good, record

KEYS = [RolloutKey(task, rollout) for task in range(2) for rollout in range(3)]


def a_run(folder: Path, *, owed: bool = False) -> Path:
    """Four scored rollouts, one of them without tokens, one that failed, and one that is owed or failed as well."""
    run = folder / "x.jsonl"
    plan = [{"_ng_task_index": key.task, "_ng_rollout_index": key.rollout} for key in KEYS]
    (folder / "x_materialized_inputs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plan))
    scored = [good(key) for key in KEYS[:3]] + [record(None, task=1, rollout=0)]
    run.write_bytes(b"".join(line + b"\n" for line in scored))
    failed = [failure("agent_error", task=0, rollout=0), failure("worker_died", task=1, rollout=1)]
    failed += [] if owed else [failure("agent_error", task=1, rollout=2)] * 2
    (folder / "x_failures.jsonl").write_bytes(b"".join(line + b"\n" for line in failed))
    return run


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_every_rollout_of_a_run_is_exported_and_read_back(tmp_path: Path, suffix: str) -> None:
    output = tmp_path / f"samples{suffix}"
    found = export_samples(a_run(tmp_path), output)
    assert (found.requested, found.samples, found.scored, found.missing) == (6, 6, 4, 0)
    assert (found.trained_samples, found.segments, found.trained_tokens) == (3, 3, 18)
    assert dict(found.failed) == {"worker_died": 1, "agent_error": 1}
    assert dict(found.masked) == {"no_tokens": 1, "failed": 2}
    samples = list(read_samples(output))
    assert {sample.key for sample in samples} == set(KEYS)
    assert [sample_to_row(sample) for sample in samples[:3]] == [
        sample_to_row(sample_of(good(key))) for key in KEYS[:3]
    ]
    assert [sample.mask_reason for sample in samples[3:]] == [
        MaskReason.NO_TOKENS,
        MaskReason.FAILED,
        MaskReason.FAILED,
    ]


def test_a_run_with_owed_rollouts_is_not_exported_unless_that_is_said(tmp_path: Path) -> None:
    run, output = a_run(tmp_path, owed=True), tmp_path / "samples.jsonl"
    with pytest.raises(FewerRolloutsError, match="with --resume") as caught:
        export_samples(run, output)
    assert (caught.value.missing, caught.value.owed) == (("1:1", "1:2"), 1)
    assert not output.exists()
    found = export_samples(run, output, partial=True)
    assert (found.requested, found.samples, found.missing) == (6, 5, 1)
    assert all(row["schema_version"] == 1 for row in read_jsonl(output))


def test_what_cannot_be_read_or_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path)
    with pytest.raises(UserError, match="overwrite the run"):
        export_samples(run, run)
    run.write_text("{}\n")
    with pytest.raises(DataError, match="not a rollout record"):
        export_samples(run, tmp_path / "y.jsonl")
    (tmp_path / "y.jsonl").write_text('{"schema_version": 1}\n')
    with pytest.raises(DataError, match="not a sample"):
        list(read_samples(tmp_path / "y.jsonl"))
    (tmp_path / "y.jsonl").write_text(
        json.dumps(sample_to_row(sample_of(good(KEYS[0]))) | {"mask_reason": "odd"}) + "\n"
    )
    with pytest.raises(DataError, match="not a sample"):
        list(read_samples(tmp_path / "y.jsonl"))

    def no_such_module(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(parquet_module, "import_module", no_such_module)
    with pytest.raises(UserError, match="pyarrow"):
        export_samples(a_run(tmp_path), tmp_path / "y.parquet")


def test_a_rollout_that_is_to_be_tried_again_is_owed_and_has_not_failed(tmp_path: Path) -> None:
    """Of a run that was killed between two attempts."""
    run, output = a_run(tmp_path), tmp_path / "samples.jsonl"
    with (tmp_path / "x_failures.jsonl").open("ab") as out:
        out.write(failure("worker_died", task=1, rollout=2, final=False) + b"\n")
    with pytest.raises(FewerRolloutsError) as caught:
        export_samples(run, output)
    assert (caught.value.missing, caught.value.owed) == (("1:1", "1:2"), 1)
    (tmp_path / "x_materialized_inputs.jsonl").unlink()
    with pytest.raises(FewerRolloutsError):
        export_samples(run, output)
    found = export_samples(run, output, partial=True)
    assert (found.requested, found.samples, found.missing) == (6, 5, 1)


def test_a_failure_keeps_its_agent_and_what_was_said(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    with (tmp_path / "x_failures.jsonl").open("ab") as out:
        out.write(failure("instance_died", "killed by SIGKILL", task=1, rollout=1) + b"\n")
    export_samples(run, tmp_path / "samples.jsonl")
    (sample,) = [one for one in read_samples(tmp_path / "samples.jsonl") if one.key == (1, 1)]
    assert sample.failure is not None
    assert (sample.agent, sample.failure.kind, sample.failure.message) == (AGENT, "instance_died", "killed by SIGKILL")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_rollout_that_stands_in_a_run_twice_is_not_trained_on_twice(tmp_path: Path, suffix: str) -> None:
    run, output = a_run(tmp_path), tmp_path / f"samples{suffix}"
    run.write_bytes(run.read_bytes() + good(KEYS[0]) + b"\n")
    with pytest.raises(DataError, match=f"rollout {KEYS[0]} has more than one record") as caught:
        export_samples(run, output)
    assert caught.value.where == f"{run} line 5"
    assert not output.exists()


def test_a_run_of_nothing_is_not_exported_as_an_empty_file(tmp_path: Path) -> None:
    run, output = tmp_path / "x.jsonl", tmp_path / "samples.jsonl"
    run.write_bytes(b"")
    with pytest.raises(UserError, match="no rollouts to export"):
        export_samples(run, output)
    assert not output.exists()


def test_a_run_without_tokens_is_said_to_be_of_no_use_to_a_trainer(
    tmp_path: Path, invoke: Callable[..., Outcome]
) -> None:
    (tmp_path / "x.jsonl").write_bytes(record(None) + b"\n")
    done = invoke("gymnast", "train", "export", "x.jsonl", "-o", "s.jsonl")
    assert done.code == 0
    assert "no sample has trainable tokens: collect with return_token_id_information" in done.err


def test_the_command(tmp_path: Path, invoke: Callable[..., Outcome]) -> None:
    a_run(tmp_path)
    done = invoke("gymnast", "train", "export", "x.jsonl", "-o", "s.jsonl", "--json")
    assert done.code == 0, done.err
    data = done.json()
    assert (data["samples"], data["trained_tokens"], data["schema_version"]) == (6, 18, 1)
    assert "masked    failed 2, no_tokens 1" in done.err
    a_run(tmp_path, owed=True)
    done = invoke("gymnast", "train", "export", "x.jsonl", "-o", "t.jsonl")
    assert (done.code, done.out) == (1, "")
    assert "4 of 6 rollouts were scored" in done.err
    assert invoke("gymnast", "train", "export", "x.jsonl", "-o", "t.jsonl", "--share", "no").code == 2


def test_figures_for_a_log() -> None:
    forked = [
        call([1, 2], [7, 8, 9]),
        call([5], [6], before=2, parent=0, reason=ForkReason.ENGINE_RETOKENISED, drift=2, version="v1"),
    ]
    samples = [
        sample_of(record(forked, 0.5, lookups=3, reward_components={"format": 0.25})),
        sample_of(good(RolloutKey(0, 1), turns=3)),
        sample_of(record([call([1], [2], finish="length")], 0.0), SampleOptions(mask_truncated=True)),
        sample_of(failure("worker_died")),
    ]
    figures = batch_metrics(samples)
    wanted = {
        "samples": 4,
        "trained_samples": 2,
        "trained_tokens": 13,
        "turns_per_sample/max": 3,
        "segments_per_sample/max": 2,
        "total_tokens_per_sample/max": 21,
        "gen_tokens_per_sample/min": 1,
        "max_gen_tokens_per_turn/median": 3,
        "total_reward/mean": 0.5,
        "versions_per_rollout/max": 2,
        "natural_termination_rate": 2 / 3,
        "truncation_rate": 1 / 3,
        "drift_rate": 1 / 3,
        "masked": 2,
        "masked/truncated": 1,
        "masked/failed": 1,
        "failed/worker_died": 1,
        "reward/format/mean": 0.25,
        f"{AGENT}/reward/mean": 0.5,
        f"{AGENT}/lookups/mean": 3,
    }
    assert {name: figures[name] for name in wanted} == pytest.approx(wanted)
    assert batch_metrics([])["natural_termination_rate"] == 0.0
