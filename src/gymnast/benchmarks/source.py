"""Gets the data file of a benchmark: from a local copy, next to the benchmark's file, or from the Hub.

The Hub's library caches, resumes broken downloads and reads HF_ENDPOINT, HF_HOME and HF_TOKEN.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NoReturn

from gymnast.errors import DataError, NotFoundError, UserError

if TYPE_CHECKING:
    from gymnast.benchmarks.definition import Benchmark, DataSource
    from gymnast.data.hub import Hub


@dataclass(frozen=True, slots=True)
class DataFile:
    """A benchmark's data file on this machine."""

    path: Path
    name: str
    """Its name in the repository."""
    sha256: str
    origin: str
    """Where it came from, for people."""
    commit: str | None = None
    repo: str | None = None
    revision: str | None = None
    """What was asked for: a branch, tag or commit."""


def get_data(benchmark: Benchmark, hub: Hub, folder: Path | None = None, revision: str | None = None) -> DataFile:
    """The data file, with the right checksum.

    `folder` is a local copy of the repository or of the file; `revision` replaces that of the benchmark's file.
    """
    data = benchmark.definition.data
    if revision is not None and (folder is not None or data.repo is None):
        raise UserError(
            f"the data of benchmark '{benchmark.name}' is local, so it has no revision '{revision}'",
            next="leave --revision out" if data.repo is None else "use either --from or --revision",
        )
    if folder is not None:
        file = _local(_find_in(folder, data.file or data.path or ""), f"{folder}")
    elif data.path is not None:
        file = _local(_require(benchmark.path.parent / data.path, benchmark), str(benchmark.path.parent))
    else:
        file = _download(data, hub, revision or data.revision)
    if data.sha256 is not None and file.sha256 != data.sha256:
        _reject(benchmark, file, data.sha256)
    return file


def _reject(benchmark: Benchmark, file: DataFile, expected: str) -> NoReturn:
    """A file with the wrong checksum. A downloaded one is removed from the cache, to be downloaded again."""
    removed = ""
    if file.commit is not None:
        for path in (file.path.resolve(), file.path):
            path.unlink(missing_ok=True)
        removed = "it was removed from the cache; try again, or "
    raise DataError(
        f"the data of benchmark '{benchmark.name}' has the wrong checksum: SHA-256 {file.sha256}, expected {expected}",
        where=str(file.path),
        next=f"{removed}correct `data` in the benchmark's file",
    )


def _download(data: DataSource, hub: Hub, revision: str) -> DataFile:
    """One file at one commit, so that the commit can be recorded even if `revision` is a branch."""
    assert data.repo is not None
    assert data.file is not None
    try:
        commit = hub.list_files(data.repo, revision).commit
        path = hub.download_file(data.repo, data.file, commit)
    except NotFoundError:
        raise
    except UserError as error:
        hint = "use a copy of the dataset: --from FOLDER"
        raise UserError(
            error.what, where=error.where, next=f"{error.next}; or {hint}" if error.next else hint
        ) from error
    return DataFile(path, data.file, _sha256(path), f"{data.repo} at {commit}", commit, data.repo, revision)


def _find_in(folder: Path, name: str) -> Path:
    if folder.is_file():
        return folder
    for candidate in (folder / name, folder / PurePosixPath(name).name):
        if candidate.is_file():
            return candidate
    raise NotFoundError(
        f"the folder has neither '{name}' nor '{PurePosixPath(name).name}'",
        where=str(folder),
        next="--from names a local copy of the dataset's repository, or the file itself",
    )


def _require(path: Path, benchmark: Benchmark) -> Path:
    if not path.is_file():
        raise NotFoundError(f"the data of benchmark '{benchmark.name}' does not exist", where=str(path))
    return path


def _local(path: Path, origin: str) -> DataFile:
    try:
        return DataFile(path, path.name, _sha256(path), origin)
    except OSError as error:
        raise DataError(f"cannot read the data: {error.strerror or error}", where=str(path)) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
