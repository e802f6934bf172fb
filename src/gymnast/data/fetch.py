"""`data download`: one file of a Hub dataset verbatim, or its splits as JSONL. Writes complete files or none."""

from __future__ import annotations

import gzip
import shutil
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import orjson

from gymnast.data.hub_layout import LINES, split_files, suffix_of
from gymnast.data.pending_files import PendingFiles
from gymnast.errors import DataError, NotFoundError, UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

    from gymnast.data.hub import Hub, Listing


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What to download, and where to write it."""

    repo_id: str
    artifact: str | None = None
    """A file in the repository, copied verbatim."""
    split: str | None = None
    """One split. Without artifact and split: all splits."""
    output: Path | None = None
    output_dir: Path | None = None
    revision: str | None = None

    def __str__(self) -> str:
        part = self.artifact or (f"split {self.split}" if self.split else "all splits")
        return f"{self.repo_id} ({part})"


@dataclass(frozen=True, slots=True)
class FetchedFile:
    path: Path
    size_bytes: int
    rows: int | None = None
    """None for a file copied verbatim."""


def fetch(request: FetchRequest, hub: Hub) -> list[FetchedFile]:
    """Download. On a UserError, nothing has been written."""
    validate_request(request)
    with PendingFiles() as files:
        rows = _fetch_file(request, hub, files) if request.artifact else _fetch_splits(request, hub, files)
        files.commit()
    return [FetchedFile(path, path.stat().st_size, count) for path, count in rows.items()]


def validate_request(request: FetchRequest) -> None:
    """Reject options that exclude each other."""
    if (request.output is None) == (request.output_dir is None):
        raise UserError("give one of --output FILE (output_fpath) and --output-dir FOLDER (output_dirpath)")
    if request.artifact and request.split:
        raise UserError("an artifact and a split are mutually exclusive")
    if request.output is not None and not (request.artifact or request.split):
        raise UserError(
            "one output file holds one artifact or one split", next="name it, or give --output-dir (output_dirpath)"
        )


def _target(request: FetchRequest, name: str) -> Path:
    if request.output is not None:
        return request.output
    assert request.output_dir is not None
    return request.output_dir / name


def _fetch_file(request: FetchRequest, hub: Hub, files: PendingFiles) -> dict[Path, int | None]:
    assert request.artifact is not None
    cached = hub.download_file(request.repo_id, request.artifact, request.revision)
    target = _target(request, request.artifact)
    with cached.open("rb") as stream:
        shutil.copyfileobj(stream, files.open(target), 1 << 20)
    return {target: None}


def _fetch_splits(request: FetchRequest, hub: Hub, files: PendingFiles) -> dict[Path, int | None]:
    """Reads all files at one commit, even if someone pushes meanwhile."""
    listing = hub.list_files(request.repo_id, request.revision)
    counts: dict[Path, int | None] = {}
    for split, names in _choose_splits(request, listing).items():
        target, rows = _target(request, f"{split}.jsonl"), 0
        out = files.open(target)
        for name in names:
            for line in json_rows(hub.download_file(request.repo_id, name, listing.commit), request.repo_id, name):
                out.write(line + b"\n")
                rows += 1
        counts[target] = rows
    return counts


def _choose_splits(request: FetchRequest, listing: Listing) -> dict[str, list[str]]:
    splits = split_files(listing.files, listing.card)
    if request.split is not None and request.split not in splits:
        hint = suggest(request.split, splits) or "name one of its files instead"
        raise NotFoundError(f"'{request.repo_id}' has no split '{request.split}'", next=hint)
    if not splits:
        raise NotFoundError(f"'{request.repo_id}' has no data files", next=suggest("", listing.files))
    chosen = {request.split: splits[request.split]} if request.split else splits
    other = sorted({suffix_of(name) for names in chosen.values() for name in names} - set(LINES))
    if other:
        raise DataError(
            f"'{request.repo_id}' stores its rows as {', '.join(other)}; only JSON lines are supported",
            next="download the file itself (artifact_fpath) and convert it",
        )
    return chosen


def json_rows(path: Path, repo_id: str, name: str) -> Iterator[bytes]:
    """The rows of a file as JSON lines, unchanged. Skips blank lines."""
    where = f"{repo_id} {name}" if repo_id != name else name
    try:
        with _open(path, compressed=name.endswith(".gz")) as stream:
            if stream.peek(64).lstrip()[:1] == b"[":
                yield from _array_rows(stream, where)
                return
            for number, line in enumerate(stream, 1):
                if text := line.strip():
                    yield _validate_line(text, f"{where} line {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read the file: {error}", where=where) from error


def _open(path: Path, *, compressed: bool) -> BufferedReader:
    return cast("BufferedReader", gzip.open(path)) if compressed else path.open("rb")


def _validate_line(text: bytes, where: str) -> bytes:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} at column {error.colno}", where=where) from error
    if not isinstance(row, dict):
        raise DataError("the row is not a JSON object", where=where)
    return text


def _array_rows(stream: BufferedReader, where: str) -> Iterator[bytes]:
    """Reads the whole file, since it is one JSON list."""
    try:
        rows = orjson.loads(stream.read())
    except orjson.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} at line {error.lineno}", where=where) from error
    for number, row in enumerate(rows, 1):
        yield _validate_line(orjson.dumps(row), f"{where} row {number}")
