"""Reads and writes samples as Parquet, in row groups to bound memory. Needs the extra `parquet` (pyarrow)."""

from __future__ import annotations

from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final, Self

from gymnast.errors import UserError
from gymnast.train.sample_rows import sample_from_row, sample_to_row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from gymnast.train.samples import Sample

_ROW_GROUP: Final = 512


class ParquetSamples:
    """Writes samples: `with ParquetSamples(stream) as out: out.write(sample)`."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._arrow = _pyarrow()
        self._schema = _schema(self._arrow)
        self._writer = self._arrow.parquet.ParquetWriter(stream, self._schema, compression="zstd")
        self._rows: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._flush()
        self._writer.close()

    def write(self, sample: Sample) -> None:
        self._rows.append(sample_to_row(sample))
        if len(self._rows) >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


def read_parquet(path: Path) -> Iterator[Sample]:
    """The samples of a file."""
    with _pyarrow().parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROW_GROUP):
            yield from map(sample_from_row, batch.to_pylist())


def _pyarrow() -> Any:
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError as error:
        raise UserError("Parquet files need pyarrow", next="pip install 'gymnast[parquet]', or write .jsonl") from error


def _schema(arrow: Any) -> Any:
    """The columns of `sample_rows.sample_to_row`."""
    text, whole, number = arrow.string(), arrow.int64(), arrow.float64()
    named = arrow.list_(arrow.struct([("name", text), ("value", number)]))
    span = arrow.struct([("version", text), ("start", arrow.int32()), ("end", arrow.int32())])
    segment = arrow.struct([
        ("ids", arrow.list_(arrow.int32())),
        ("mask", arrow.list_(arrow.uint8())),
        ("logprobs", arrow.list_(arrow.float32())),
        ("logprob_mode", text),
        ("temperature", number),
        ("turns", arrow.list_(arrow.list_(arrow.int32()))),
        ("versions", arrow.list_(span)),
        ("reason", text),
        ("parent", arrow.int32()),
        ("shared", arrow.int32()),
        ("share", number),
        ("media", arrow.list_(arrow.list_(arrow.struct([("kind", text), ("url", text)])))),
    ])  # fmt: skip
    return arrow.schema([
        ("schema_version", arrow.int32()),
        ("task", whole),
        ("rollout", whole),
        ("agent", text),
        ("model", text),
        ("reward", number),
        ("reward_components", named),
        ("is_trainable", arrow.bool_()),
        ("mask_reason", text),
        ("mask_detail", text),
        ("failure_kind", text),
        ("failure_message", text),
        ("termination", text),
        ("drifted_calls", whole),
        ("numbers", named),
        ("segments", arrow.list_(segment)),
    ])  # fmt: skip
