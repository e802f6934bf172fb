"""`data download`: a file of a Hub dataset as it is, or its splits as JSONL. Files appear whole or not at all."""

from __future__ import annotations

import gzip
import shutil
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import orjson

from gymnast.data.hub_layout import LINES, split_files, suffix_of
from gymnast.data.pending import PendingFiles
from gymnast.errors import DataError, NotFoundError, UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

    from gymnast.data.hub import Hub, Listing


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What to fetch, and where to put it."""

    repo_id: str
    artifact: str | None = None
    """A file of the repository, taken as it is."""
    split: str | None = None
    """Only this split; with neither, all of them."""
    output: Path | None = None
    output_dir: Path | None = None
    revision: str | None = None

    def __str__(self) -> str:
        part = self.artifact or (f"split {self.split}" if self.split else "all splits")
        return f"{self.repo_id} ({part})"


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that was written."""

    path: Path
    size_bytes: int
    rows: int | None = None
    """None for a file that was taken as it is."""


def fetch(request: FetchRequest, hub: Hub) -> list[Fetched]:
    """Fetch what is asked for. Raises a UserError, and then nothing was written."""
    check_request(request)
    with PendingFiles() as files:
        rows = _fetch_file(request, hub, files) if request.artifact else _fetch_splits(request, hub, files)
        files.commit()
    return [Fetched(path, path.stat().st_size, count) for path, count in rows.items()]


def check_request(request: FetchRequest) -> None:
    """Refuse what does not go together."""
    if (request.output is None) == (request.output_dir is None):
        raise UserError("give one of --output FILE (output_fpath) and --output-dir FOLDER (output_dirpath)")
    if request.artifact and request.split:
        raise UserError("an artifact and a split exclude each other")
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
    cached = hub.file(request.repo_id, request.artifact, request.revision)
    target = _target(request, request.artifact)
    with cached.open("rb") as stream:
        shutil.copyfileobj(stream, files.open(target), 1 << 20)
    return {target: None}


def _fetch_splits(request: FetchRequest, hub: Hub, files: PendingFiles) -> dict[Path, int | None]:
    """All files come from one commit, whatever is pushed meanwhile."""
    listing = hub.listing(request.repo_id, request.revision)
    counts: dict[Path, int | None] = {}
    for split, names in _chosen(request, listing).items():
        target, rows = _target(request, f"{split}.jsonl"), 0
        out = files.open(target)
        for name in names:
            for line in _rows(hub.file(request.repo_id, name, listing.commit), request.repo_id, name):
                out.write(line + b"\n")
                rows += 1
        counts[target] = rows
    return counts


def _chosen(request: FetchRequest, listing: Listing) -> dict[str, list[str]]:
    splits = split_files(listing.files, listing.card)
    if request.split is not None and request.split not in splits:
        hint = suggest(request.split, splits) or "name a file of it instead"
        raise NotFoundError(f"'{request.repo_id}' has no split '{request.split}'", next=hint)
    if not splits:
        raise NotFoundError(f"'{request.repo_id}' has no data files", next=suggest("", listing.files))
    chosen = {request.split: splits[request.split]} if request.split else splits
    other = sorted({suffix_of(name) for names in chosen.values() for name in names} - set(LINES))
    if other:
        raise DataError(
            f"'{request.repo_id}' keeps its rows as {', '.join(other)}; only JSON lines are read here",
            next="fetch the file as it is (artifact_fpath) and convert it",
        )
    return chosen


def _rows(path: Path, repo_id: str, name: str) -> Iterator[bytes]:
    """The rows of a file as JSON lines, as they stand there. Blank lines are no rows."""
    where = f"{repo_id} {name}"
    try:
        with _opened(path, compressed=name.endswith(".gz")) as stream:
            if stream.peek(64).lstrip()[:1] == b"[":
                yield from _array_rows(stream, where)
                return
            for number, line in enumerate(stream, 1):
                if text := line.strip():
                    yield _checked(text, f"{where} line {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"the file cannot be read: {error}", where=where) from error


def _opened(path: Path, *, compressed: bool) -> BufferedReader:
    return cast("BufferedReader", gzip.open(path)) if compressed else path.open("rb")


def _checked(text: bytes, where: str) -> bytes:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} at column {error.colno}", where=where) from error
    if not isinstance(row, dict):
        raise DataError("the row is not a JSON object", where=where)
    return text


def _array_rows(stream: BufferedReader, where: str) -> Iterator[bytes]:
    """A file that is one JSON list has to be read whole."""
    try:
        found = orjson.loads(stream.read())
    except orjson.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} at line {error.lineno}", where=where) from error
    for number, row in enumerate(found, 1):
        yield _checked(orjson.dumps(row), f"{where} row {number}")
