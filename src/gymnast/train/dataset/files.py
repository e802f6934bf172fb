"""Writes rows to the files of a dataset folder: JSONL, Parquet, or Parquet in shards as the `datasets` library does.

Rows are collected in blocks, so that scrubbing, hashing and writing cost little per row. Files get their names once
all of them are complete.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from gymnast.errors import UserError
from gymnast.store.atomic import make_folders, sync_folder
from gymnast.train.dataset.schema import arrow_schema, library_features, parquet_encoding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from pathlib import Path
    from typing import BinaryIO

    from gymnast.store.scrub_rows import RowScrubber
    from gymnast.train.dataset.schema import Kind

_BLOCK_BYTES: Final = 256 << 10
"""Blocks of a quarter cost a tenth more CPU, larger ones no less."""
_PARQUET_BLOCK_BYTES: Final = 4 << 20
SHARD_BYTES: Final = 400 << 20
"""Of JSON: about 100 MB of Parquet."""
_STAGING: Final = ".partial"
MANIFEST: Final = "export.json"
CARD: Final = "README.md"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of rows."""

    path: str
    """Within the folder."""
    split: str
    rows: int
    size_bytes: int
    sha256: str


class DatasetFolder:
    """The folder that a dataset is written to. Files are written in a staging folder and moved by `commit`."""

    def __init__(
        self, folder: Path, container: str, scrubber: RowScrubber, columns: Mapping[str, Kind], shard_bytes: int
    ) -> None:
        self.folder = folder
        self._container = container
        self._scrubber = scrubber
        self._columns = columns
        self._shard_bytes = shard_bytes
        self._writers: dict[str, _SplitWriter] = {}
        self._staging = folder / _STAGING

    def __enter__(self) -> Self:
        with _translate_errors(self.folder):
            if self._staging.exists():  # of an export that was interrupted
                shutil.rmtree(self._staging)
            make_folders(self.folder)
            self._staging.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.abandon()
        shutil.rmtree(self._staging, ignore_errors=True)
        with suppress(OSError):  # only if nothing was exported
            self.folder.rmdir()

    def write(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Add rows, JSON objects without their newlines, each with its split."""
        writers = self._writers
        for split, row in rows:
            writer = writers.get(split)
            if writer is None:
                writer = writers[split] = self._open(split)
            writer.write(row)

    def finish(self, splits: list[str]) -> list[DataFile]:
        """Complete all files; `splits` without rows get an empty one, if the container can hold it."""
        with _translate_errors(self.folder):
            for split in splits:
                if split not in self._writers:
                    self._writers[split] = self._open(split)
            return [file for split in splits for file in self._writers[split].finish()]

    def commit(self, files: list[DataFile], texts: Mapping[str, bytes], *, replace: list[str]) -> None:
        """Move the files to their names, after removing those of an earlier export; the manifest comes last."""
        with _translate_errors(self.folder):
            for name, text in texts.items():
                target = self._staging / name
                target.write_bytes(text)
            for name in replace:
                (self.folder / name).unlink(missing_ok=True)
            for name in [*(file.path for file in files), *texts]:
                target = self.folder / name
                target.parent.mkdir(exist_ok=True)
                (self._staging / name).replace(target)
            sync_folder(self.folder)

    def _open(self, split: str) -> _SplitWriter:
        if self._container == "jsonl":
            return _JsonlWriter(self._staging, split, self._scrubber)
        shard_bytes = self._shard_bytes if self._container == "datasets" else None
        return _ParquetWriter(self._staging, split, self._scrubber, self._columns, shard_bytes)


class _SplitWriter(ABC):
    """Collects rows in blocks."""

    def __init__(self, staging: Path, split: str, scrubber: RowScrubber, block_bytes: int) -> None:
        self._staging = staging
        self.split = split
        self._scrubber = scrubber
        self._block_bytes = block_bytes
        self._rows: list[bytes] = []
        self._pending = 0

    def write(self, row: bytes) -> None:
        self._rows.append(row)
        self._pending += len(row)
        if self._pending >= self._block_bytes:
            self._flush()

    @abstractmethod
    def finish(self) -> list[DataFile]: ...

    @abstractmethod
    def abandon(self) -> None:
        """Close what is open, without completing it."""

    def _flush(self) -> None:
        if self._rows:
            rows, count = self._rows, len(self._rows)
            self._rows, self._pending = [], 0
            rows.append(b"")
            with _translate_errors(self._staging.parent):
                self._write_block(self._scrubber.scrub(b"\n".join(rows)), count)

    @abstractmethod
    def _write_block(self, block: bytes, count: int) -> None: ...


class _JsonlWriter(_SplitWriter):
    def __init__(self, staging: Path, split: str, scrubber: RowScrubber) -> None:
        super().__init__(staging, split, scrubber, _BLOCK_BYTES)
        self._name = f"{split}.jsonl"
        with _translate_errors(staging.parent):
            self._stream: BinaryIO = (staging / self._name).open("wb", buffering=0)
        self._digest = hashlib.sha256()
        self._count = self._size = 0

    def _write_block(self, block: bytes, count: int) -> None:
        self._digest.update(block)
        rest = memoryview(block)
        while rest:
            rest = rest[self._stream.write(rest) :]
        self._count += count
        self._size += len(block)

    def finish(self) -> list[DataFile]:
        self._flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        return [DataFile(self._name, self.split, self._count, self._size, self._digest.hexdigest())]

    def abandon(self) -> None:
        self._stream.close()


class _ParquetWriter(_SplitWriter):
    """Arrow parses the rows: no Python objects are made. Writers are always closed here, never by a finalizer."""

    def __init__(
        self,
        staging: Path,
        split: str,
        scrubber: RowScrubber,
        columns: Mapping[str, Kind],
        shard_bytes: int | None,
    ) -> None:
        super().__init__(staging, split, scrubber, _PARQUET_BLOCK_BYTES)
        self._arrow = require_arrow()
        features = orjson.dumps({"info": {"features": library_features(columns)}})
        self._schema = arrow_schema(self._arrow, columns)
        self._stored = self._schema.with_metadata({"huggingface": features})
        self._encoding = parquet_encoding(columns)
        self._shard_bytes = shard_bytes
        self._shards: list[tuple[Path, int]] = []
        self._writer: Any = None
        self._count = self._size = 0
        self._thread = ThreadPoolExecutor(1, "parquet")
        self._conversion: Future[None] | None = None

    def _write_block(self, block: bytes, count: int) -> None:
        """Start to convert a block; the rows of the next one are made meanwhile."""
        self._wait()
        self._conversion = self._thread.submit(self._convert, block, count)

    def _wait(self) -> None:
        conversion, self._conversion = self._conversion, None
        if conversion is not None:
            conversion.result()

    def _convert(self, block: bytes, count: int) -> None:
        table = self._parse(block)
        if self._writer is not None and self._shard_bytes is not None and self._size >= self._shard_bytes:
            self._close()
        self._open()
        self._writer.write_table(table)
        self._count += count
        self._size += len(block)

    def _parse(self, block: bytes) -> Any:
        json = self._arrow.json
        read = json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        parse = json.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="error")
        try:
            table = json.read_json(io.BytesIO(block), read_options=read, parse_options=parse)
        except self._arrow.ArrowInvalid as error:
            raise UserError(f"cannot write these rows as Parquet: {error}", next="export as JSONL instead") from error
        return table.select(self._schema.names).cast(self._stored)

    def _open(self) -> None:
        if self._writer is None:
            path = self._staging / f"{self.split}.{len(self._shards)}"
            self._writer = self._arrow.parquet.ParquetWriter(path, self._stored, compression="zstd", **self._encoding)
            self._shards.append((path, 0))

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        writer.close()
        self._shards[-1] = (self._shards[-1][0], self._count)
        self._count = self._size = 0

    def finish(self) -> list[DataFile]:
        self._flush()
        self._wait()
        self._thread.shutdown()
        self._open()
        self._close()
        return [self._place_shard(number, path, rows) for number, (path, rows) in enumerate(self._shards)]

    def _place_shard(self, number: int, path: Path, rows: int) -> DataFile:
        name = f"{self.split}.parquet"
        if self._shard_bytes is not None:
            name = f"data/{self.split}-{number:05d}-of-{len(self._shards):05d}.parquet"
        target = self._staging / name
        target.parent.mkdir(exist_ok=True)
        path.replace(target)
        with target.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            os.fsync(stream.fileno())
        return DataFile(name, self.split, rows, target.stat().st_size, digest)

    def abandon(self) -> None:
        self._thread.shutdown()
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def require_arrow() -> Any:
    """The package pyarrow. Raises UserError with the extra that has it."""
    try:
        for name in ("pyarrow.parquet", "pyarrow.json"):
            import_module(name)
        return import_module("pyarrow")
    except ImportError as error:
        raise UserError("Parquet files need pyarrow", next="pip install 'gymnast[parquet]', or write JSONL") from error


@contextmanager
def _translate_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"cannot write the dataset: {error.strerror or error}"
        raise UserError(
            what, where=str(error.filename or folder), next="free space, or choose another folder"
        ) from error
