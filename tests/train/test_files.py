"""Real rollouts in a Parquet file, read by pyarrow itself as another program would."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from gymnast.train import Batch
from gymnast.train.export import export_samples, read_samples
from gymnast.train.sample_rows import SCHEMA_VERSION, sample_to_row


def test_pyarrow_reads_what_was_exported(real_batch: Batch, tmp_path: Path) -> None:
    run, output = tmp_path / "x.jsonl", tmp_path / "samples.parquet"
    samples = list(real_batch.samples)
    run.write_bytes(b"".join((sample.line or b"") + b"\n" for sample in samples))
    summary = export_samples(run, output)
    assert (summary.samples, summary.trained_samples) == (len(samples), len(samples))
    table = import_module("pyarrow.parquet").read_table(output)
    assert table["schema_version"].unique().to_pylist() == [SCHEMA_VERSION]
    assert table["reward"].to_pylist() == [sample.reward for sample in samples]
    for sample, (segment,) in zip(samples, table["segments"].to_pylist(), strict=True):
        (ours,) = sample.segments
        assert (segment["ids"], segment["mask"]) == (ours.ids.tolist(), ours.mask.tolist())
        assert segment["logprobs"] == ours.logprobs.tolist()
        assert [(span["start"], span["end"]) for span in segment["versions"]] == [span[1:] for span in ours.versions]
    assert [sample_to_row(sample) for sample in read_samples(output)] == [sample_to_row(sample) for sample in samples]
