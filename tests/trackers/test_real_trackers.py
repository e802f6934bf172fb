"""The real libraries: what `gymnast collect --track` reports is read back with each tracker's own means."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_functions import invoke_command
from tests.helpers.commands import SCRIPTED, Outcome
from tests.helpers.jsonl import example_rows, write_jsonl
from tests.helpers.otlp_collector import collecting

Run = Callable[..., Outcome]
MODEL = "++policy_model.responses_api_models.scripted_model"
AGENT = "mcqa_simple_agent"


@pytest.fixture
def collect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Collects six rollouts with the options of the test."""
    write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa")[:3])
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": "\\boxed{A}", "usage": {"input_tokens": 100, "output_tokens": 10}}]))
    monkeypatch.setattr("gymnast.tracking.run_tracking.DEFAULT_WAIT_S", 300.0)
    options = ("-e", "mcqa", "-c", SCRIPTED, "-i", "tasks.jsonl", "-o", "x.jsonl", f"{MODEL}.script={script}")

    def collect(*more: str, **env: str) -> Outcome:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        outcome = invoke_command(tmp_path, "gymnast", "collect", *options, *more)
        assert outcome.code == 0, outcome.err
        assert "warning" not in outcome.err, outcome.err
        return outcome

    return collect


def test_tensorboard_reads_the_event_files(tmp_path: Path, collect: Run) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    collect("--track", "tensorboard")
    collect("--track", "tensorboard", "--resume", "--extend", "-n", "2")
    folder = json.loads((tmp_path / "x_tracking.json").read_text())["trackers"]["tensorboard"]["id"]
    events = accumulator.EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    scored = events.Scalars("progress/scored")
    assert (scored[-1].step, scored[-1].value) == (6, 6.0)
    assert events.Scalars(f"reward_n/{AGENT}")[-1].value == 6.0
    assert events.Scalars("tokens/output")[-1].value == 60.0
    texts = [
        event.tensor_proto.string_val[0].decode() for tag in events.Tags()["tensors"] for event in events.Tensors(tag)
    ]
    assert any("| run_id |" in text for text in texts)
    assert any("| state | complete |" in text for text in texts)


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_holds_history_summary_and_artifact(tmp_path: Path, collect: Run) -> None:
    pytest.importorskip("wandb")
    home = str(tmp_path)
    offline = {
        "WANDB_MODE": "offline",
        "WANDB_DIR": home,
        "HOME": home,
        "WANDB_DATA_DIR": home,
        "WANDB_CACHE_DIR": home,
    }
    collect("--track", "wandb:my-project", **offline)
    first = json.loads((tmp_path / "x_tracking.json").read_text())["trackers"]["wandb:my-project"]
    collect("--track", "wandb:my-project", "--resume", "--extend", "-n", "2", **offline)
    runs = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert len(runs) == 2
    assert all(first["id"] in run.name for run in runs)
    records = [record for run in runs for record in _wandb_records(next(run.glob("*.wandb")))]
    project = next(record.run.project for record in records if record.WhichOneof("record_type") == "run")
    assert project == "my-project"
    history = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert history[-1]["progress/scored"] == history[-1]["step"] == 6
    assert history[-1][f"reward_n/{AGENT}"] == 6
    assert any(record.WhichOneof("record_type") == "exit" for record in records)
    artifacts = [
        record.request.log_artifact.artifact if record.HasField("request") else record.artifact
        for record in records
        if record.WhichOneof("record_type") == "artifact"
    ]
    names = {entry.path for artifact in artifacts for entry in artifact.manifest.contents}
    assert {"report.html", "x_run.json"} <= names


def _wandb_records(path: Path) -> list[Any]:
    """The records of a `.wandb` file: a log of LevelDB, blocks of 32 kB with fragments of records."""
    pb2 = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    data, at, record, records = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in {1, 4}:  # whole, or the last fragment
            records.append(pb2.Record.FromString(record))
            record = b""
    return records


@pytest.mark.filterwarnings("ignore")  # of its own libraries
def test_mlflow_on_sqlite_holds_metrics_params_and_artifacts(
    tmp_path: Path, collect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.chdir(tmp_path)
    server = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "HOME": str(tmp_path)}
    collect("--track", "mlflow:my-experiment", **server)
    collect("--track", "mlflow:my-experiment", "--resume", "--extend", "-n", "2", **server)
    client = mlflow.MlflowClient(tracking_uri=server["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name("my-experiment")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["progress/scored"] == 6
    assert run.data.metrics[f"reward_n/{AGENT}"] == 6
    assert run.data.metrics["summary/scored"] == 6
    assert run.data.params["run_id"]
    assert any(name.startswith("code.") for name in run.data.params)
    assert {file.path for file in client.list_artifacts(run.info.run_id)} >= {
        "config.json",
        "x_run.json",
        "report.html",
    }


def test_trackio_stores_the_run(tmp_path: Path, collect: Run) -> None:
    pytest.importorskip("trackio")
    folder = {"TRACKIO_DIR": str(tmp_path / "trackio"), "HOME": str(tmp_path)}
    collect("--track", "trackio:my-project", **folder)
    collect("--track", "trackio:my-project", "--resume", "--extend", "-n", "2", **folder)
    (database,) = (tmp_path / "trackio").glob("my-project*.db")
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("select run_name, metrics from metrics order by id").fetchall()
    assert len({name for name, _ in rows}) == 1
    figures = [json.loads(metrics) for _, metrics in rows]
    scored = [point["progress/scored"] for point in figures if "progress/scored" in point]
    assert scored[-1] == 6
    assert figures[-1]["summary/scored"] == 6


def test_the_protobuf_of_opentelemetry_reads_a_trace(tmp_path: Path, collect: Run) -> None:
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    with collecting() as collector:
        collect("--trace", collector.url, "--trace-sample", "1")
    spans = []
    for _, _, body in collector.requests:
        request = service.ExportTraceServiceRequest.FromString(body)
        assert request.SerializeToString() == body  # nothing unknown, nothing out of order
        assert request.resource_spans[0].scope_spans[0].scope.name == "gymnast"
        spans += request.resource_spans[0].scope_spans[0].spans
    assert len({span.trace_id for span in spans}) == 3
    assert {span.name.split()[0] for span in spans} >= {"invoke_agent", "chat", "verify"}
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano > 1.7e18 for span in spans)
    assert {span.name for span in spans if not span.parent_span_id} == {f"invoke_agent {AGENT}"}


def test_each_worker_of_a_submitted_run_reports(tmp_path: Path, run: Run) -> None:
    write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa")[:3])
    policy = f"{MODEL}.replies=[{{text: b}}]"
    with collecting() as collector:
        options = (
            "-e",
            "mcqa",
            "-c",
            SCRIPTED,
            policy,
            "-i",
            "tasks.jsonl",
            "-o",
            "x.jsonl",
            "--workers",
            "1",
            "--wait",
        )
        telemetry = ("--track", "tensorboard", "--trace", collector.url, "--trace-sample", "1")
        outcome = run("gymnast", "submit", *options, *telemetry)
        assert outcome.code == 0, outcome.err
    files = [*(tmp_path / "x_tensorboard").glob("*/*/events.*")]
    assert len(files) == 1
    assert b"progress/scored" in files[0].read_bytes()
    assert len({span.trace_id for span in collector.spans()}) == 3
