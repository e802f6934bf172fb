"""Reads rows from the files that people have, as numbered JSON lines: JSONL, JSON, CSV and TSV, also gzipped, Parquet,
Arrow, and folders of them, such as a dataset that Hugging Face's `save_to_disk` wrote.

All but a JSON array are streamed. Values of CSV files stay texts: an answer `007` is not the number 7.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import zlib
from contextlib import contextmanager
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final, cast

import orjson

from gymnast.errors import DataError, UserError
from gymnast.store.lines import numbered_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BOM: Final = b"\xef\xbb\xbf"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_TABLES: Final = {".csv": None, ".tsv": "\t"}
_ARROW: Final = (".parquet", ".arrow")
_SUFFIXES: Final = (".jsonl", ".json", *_TABLES, *_ARROW)
_MAGIC: Final = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\xd0\xcf\x11\xe0": "a spreadsheet",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x1f\x8b": "a gzip file",
    b"SQLite format 3": "an SQLite database",
}
_OTHER_NAMES: Final = {
    "a zip archive or a spreadsheet": "unpack it, or save the sheet as .csv",
    "a spreadsheet": "save the sheet as .csv",
    "a Parquet file": "call it .parquet",
    "an Arrow file": "call it .arrow",
    "a gzip file": "call it .jsonl.gz or .csv.gz",
}
_SHARD: Final = re.compile(r"[-_]\d{5}-of-\d{5}$")
_BATCH: Final = 1024
_MAX_CELL: Final = 1 << 28
_MAX_NAMED: Final = 8


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Every row as a JSON line, with the number of its line (or row) in the file. Raises DataError."""
    if path.is_dir():
        files = _files_in(path)
        lines = itertools.chain.from_iterable(read_lines(file) for file in files)
        return ((number, line) for number, (_, line) in enumerate(lines, 1)) if len(files) > 1 else lines
    suffix = row_suffix(path)
    if suffix in _TABLES:
        return _table_lines(path, _TABLES[suffix])
    if suffix == ".json":
        return _json_lines(path)
    if suffix in _ARROW:
        return _arrow_lines(path, suffix)
    return _text_lines(path)


def describe_bad_json(line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError:
        return "not UTF-8; convert the file: iconv -f ENCODING -t UTF-8 (Excel and old files: WINDOWS-1252)"
    return f"not JSON: {error.msg} at column {error.colno}"


def row_suffix(path: Path) -> str:
    """The suffix that says how rows are written, without `.gz`."""
    name = path.name.lower()
    name = name.removesuffix(".gz")
    return "." + name.rpartition(".")[2] if "." in name else ""


# --- texts -----------------------------------------------------------------------------------------------------------


def _text_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """JSONL, or whatever has no known suffix: lines are checked where they are parsed."""
    lines = _gzip_lines(path) if path.name.lower().endswith(".gz") else numbered_lines(path)
    for number, line in lines:
        if number == 1:
            _refuse_binary(path, line)
        yield number, line.removeprefix(_BOM) if number == 1 else line


def _refuse_binary(path: Path, line: bytes) -> None:
    """Whatever else has no known suffix is text, or the error of each line would be that it is not JSON."""
    if line.startswith(_UTF16):
        raise _not_utf8(path, "UTF-16")
    kind = next((kind for magic, kind in _MAGIC.items() if line.startswith(magic)), None)
    if kind is None and b"\0" in line:
        kind = "a binary file"
    if kind is not None:
        hint = _OTHER_NAMES.get(kind, f"save it as one of {', '.join(_SUFFIXES)}")
        raise DataError(f"expected rows as text, but this is {kind}", where=str(path), next=hint)


def _gzip_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with _open(path) as stream:
        for number, line in enumerate(stream, 1):
            yield number, line.rstrip(b"\r\n")


def _json_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """A JSON array of rows; a file of JSON lines that is called .json is read as one, too."""
    with _open(path) as stream:
        text = stream.read().removeprefix(_BOM)
    try:
        rows: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if text.lstrip()[:1] == b"{":
            yield from _text_lines(path)
            return
        raise DataError(
            f"not JSON: {error.msg} at line {error.lineno} column {error.colno}", where=str(path)
        ) from error
    if isinstance(rows, dict):
        lists = [name for name, value in rows.items() if isinstance(value, list)]
        hint = f"pass the rows alone; '{lists[0]}' is a list" if lists else None
        if lists or b"\n" in text.strip():
            raise DataError("a JSON file of rows is an array of objects", where=str(path), next=hint)
        rows = [rows]
    if not isinstance(rows, list):
        raise DataError("a JSON file of rows is an array of objects", where=str(path))
    yield from ((number, orjson.dumps(row)) for number, row in enumerate(rows, 1))


def _table_lines(path: Path, delimiter: str | None) -> Iterator[tuple[int, bytes]]:
    """The rows of a CSV file with a header, numbered by the line they start at."""
    csv.field_size_limit(_MAX_CELL)
    with _open(path) as raw:
        if raw.peek(2)[:2] in _UTF16:
            raise _not_utf8(path, "UTF-16")
        stream = io.TextIOWrapper(cast("IO[bytes]", raw), encoding="utf-8-sig", newline="")
        try:
            first = stream.readline()
            reader = csv.reader(itertools.chain([first], stream), delimiter=delimiter or _guess_delimiter(first))
            header = next(reader, [])
            _check_header(header, path)
            start = reader.line_num + 1
            for cells in reader:
                if cells:
                    yield start, _table_row(header, cells, start, path)
                start = reader.line_num + 1
        except UnicodeDecodeError as error:
            raise _not_utf8(path, "another encoding") from error
        except csv.Error as error:
            raise DataError(f"not a CSV file: {error}", where=str(path)) from error


def _guess_delimiter(header: str) -> str:
    return max(",;\t|", key=header.count) if header else ","


def _check_header(header: Sequence[str], path: Path) -> None:
    if not any(name.strip() for name in header):
        raise DataError("the file has no header line", where=str(path), next="the first line names the columns")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(f"two columns are called '{twice[0]}'", where=str(path), next="rename one of them")


def _table_row(header: Sequence[str], cells: Sequence[str], number: int, path: Path) -> bytes:
    if len(cells) != len(header):
        raise DataError(
            f"the row has {len(cells)} cells, the header {len(header)}: {', '.join(header[:_MAX_NAMED])}",
            where=f"{path} line {number}",
            next="correct the row; a cell with the delimiter in it needs quotes",
        )
    return orjson.dumps(dict(zip(header, cells, strict=True)))


@contextmanager
def _open(path: Path) -> Iterator[io.BufferedReader]:
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as stream:
            yield cast("io.BufferedReader", stream)
    except FileNotFoundError as error:
        raise DataError("the file does not exist", where=str(path)) from error
    except gzip.BadGzipFile as error:
        raise DataError(
            "the file is called .gz, but is not a gzip file", where=str(path), next=f"call it {path.stem}"
        ) from error
    except (EOFError, zlib.error) as error:
        raise DataError(
            f"the gzip file is cut off or damaged ({error})", where=str(path), next="copy or download it again"
        ) from error
    except OSError as error:
        raise DataError(f"cannot read the file: {error.strerror or error}", where=str(path)) from error


def _not_utf8(path: Path, encoding: str) -> DataError:
    source = encoding if encoding == "UTF-16" else "ENCODING"
    hint = f"convert it: iconv -f {source} -t UTF-8 {path.name} > utf8{path.suffix}"
    return DataError(f"the file is not UTF-8 but {encoding}", where=str(path), next=hint)


# --- Parquet, Arrow and folders --------------------------------------------------------------------------------------


def _arrow_lines(path: Path, suffix: str) -> Iterator[tuple[int, bytes]]:
    arrow = _pyarrow(path)
    number = 0
    try:
        for batch in _batches(arrow, path, suffix):
            for row in batch.to_pylist():
                number += 1
                yield number, _dump(row, number, path)
    except (OSError, arrow.ArrowException) as error:
        raise DataError(f"cannot read the file: {error}", where=str(path)) from error


def _batches(arrow: Any, path: Path, suffix: str) -> Iterator[Any]:
    if suffix == ".parquet":
        with arrow.parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_BATCH)
        return
    with arrow.memory_map(str(path)) as source:  # `datasets` writes streams
        try:
            yield from arrow.ipc.open_stream(source)
        except arrow.ArrowInvalid:
            source.seek(0)
            reader = arrow.ipc.open_file(source)
            yield from (reader.get_batch(index) for index in range(reader.num_record_batches))


def _dump(row: Any, number: int, path: Path) -> bytes:
    try:
        return orjson.dumps(row, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        text = f"a value of row {number} cannot be JSON: {error}"
        raise DataError(text, where=str(path), next="leave images and other binary columns out") from error


def _plain(value: Any) -> Any:
    """Decimals as texts, which keep their digits; bytes are refused."""
    if isinstance(value, (bytes, bytearray)):
        raise TypeError("bytes")
    return str(value)


def _pyarrow(path: Path) -> Any:
    try:
        import_module("pyarrow.parquet")
        import_module("pyarrow.ipc")
        return import_module("pyarrow")
    except ImportError as error:
        raise UserError(
            f"reading {row_suffix(path)} files needs pyarrow",
            where=str(path),
            next="pip install 'gymnast[parquet]', or export the data as JSONL or CSV",
        ) from error


def _files_in(folder: Path) -> list[Path]:
    """The data files of a folder, which must belong to one split."""
    if (folder / "dataset_dict.json").exists():
        splits = sorted(path.parent.name for path in folder.glob("*/dataset_info.json"))
        raise DataError(
            f"the folder has several splits: {', '.join(splits)}",
            where=str(folder),
            next=f"pass one: {folder / 'SPLIT'}",
        )
    for place in (folder, folder / "data"):
        files = sorted(path for path in place.glob("*") if path.is_file() and row_suffix(path) in _SUFFIXES)
        files = [path for path in files if path.name not in {"dataset_info.json", "state.json"}]
        if files:
            return _one_split(files, folder)
    raise DataError(
        "the folder has no data files",
        where=str(folder),
        next=f"pass a file, or a folder of {', '.join(_SUFFIXES)} files",
    )


def _one_split(files: list[Path], folder: Path) -> list[Path]:
    splits = {_SHARD.sub("", path.name.lower().removesuffix(".gz").rpartition(".")[0]) for path in files}
    if len(splits) == 1:
        return files
    names = ", ".join(path.name for path in files[:_MAX_NAMED]) + (", …" if len(files) > _MAX_NAMED else "")
    raise DataError(f"the folder has several files: {names}", where=str(folder), next=f"pass one: {files[0]}")
