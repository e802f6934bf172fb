"""Reads the rows of a benchmark's data file: JSON lines, a JSON list, CSV, TSV or Parquet, also gzip-compressed."""

from __future__ import annotations

import csv
import gzip
import io
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.data.fetch import json_rows
from gymnast.data.hub_layout import LINES, suffix_of
from gymnast.errors import DataError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.types.json import JsonObject

_TABLES: Final = {".csv": ",", ".tsv": "\t"}
_BATCH: Final = 1024
_COPY_AGAIN: Final = "the file may be incomplete: copy or download it again"


def read_rows(path: Path, name: str) -> Iterator[JsonObject]:
    """The rows of a file. `name` is its name in the repository, which says the format."""
    suffix = suffix_of(name)
    if suffix in LINES:
        for line in json_rows(path, name, name):
            yield orjson.loads(line)
    elif suffix in _TABLES:
        yield from _table_rows(path, name, _TABLES[suffix])
    elif suffix == ".parquet":
        yield from _parquet_rows(path)
    else:
        known = ", ".join([*LINES, *_TABLES, ".parquet"])
        raise DataError(f"cannot read rows from '{suffix or name}' files", where=name, next=f"supported: {known}")


def _table_rows(path: Path, name: str, delimiter: str) -> Iterator[JsonObject]:
    try:
        with gzip.open(path) if name.endswith(".gz") else path.open("rb") as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
            yield from csv.DictReader(text, delimiter=delimiter, strict=True)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read the file: {error}", where=str(path), next=_COPY_AGAIN) from error


def _parquet_rows(path: Path) -> Iterator[JsonObject]:
    parquet, errors = _parquet()
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                yield from batch.to_pylist()
    except (OSError, errors) as error:
        raise DataError(f"cannot read the file: {error}", where=str(path), next=_COPY_AGAIN) from error


def _parquet() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow.parquet"), import_module("pyarrow").ArrowException
    except ImportError as error:
        raise UserError("Parquet files need pyarrow", next="pip install 'gymnast[parquet]'") from error
