"""Gets the data files of a benchmark: from a local copy, next to the benchmark's file, or from the Hub.

The Hub's library caches, resumes broken downloads and reads HF_ENDPOINT, HF_HOME and HF_TOKEN.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NoReturn

from gymnast.benchmarks.local_copy import find_local, is_pattern
from gymnast.errors import DataError, NotFoundError, UserError, suggest

if TYPE_CHECKING:
    from gymnast.benchmarks.definition import Benchmark, DataSource
    from gymnast.data.hub import Hub


@dataclass(frozen=True, slots=True)
class DataFile:
    """The data of a benchmark on this machine: one file, or several."""

    files: dict[str, Path]
    """By name in the repository."""
    name: str
    """The name of the file, or the number of files."""
    sha256: str
    """Of the file; of several, of the list of their checksums and names, as sha256sum prints it."""
    origin: str
    """Where it came from, for people."""
    commit: str | None = None
    repo: str | None = None
    revision: str | None = None
    """What was asked for: a branch, tag or commit."""


def get_data(benchmark: Benchmark, hub: Hub, folder: Path | None = None, revision: str | None = None) -> DataFile:
    """The data, with the right checksums.

    `folder` is a local copy of the repository or of the file; `revision` replaces that of the benchmark's file.
    """
    data = benchmark.definition.data
    if revision is not None and (folder is not None or data.repo is None):
        raise UserError(
            f"the data of benchmark '{benchmark.name}' is local, so it has no revision '{revision}'",
            next="leave --revision out" if data.repo is None else "use either --from or --revision",
        )
    if folder is not None:
        files, commit = find_local(folder, data), None
        origin = str(folder)
    elif data.path is not None:
        path = _require(benchmark.path.parent / data.path, benchmark)
        files, origin, commit = {path.name: path}, str(benchmark.path.parent), None
    else:
        files, commit = _download(data, hub, revision or data.revision)
        origin = f"{data.repo} at {commit}"
    checksums = {name: _sha256(path) for name, path in files.items()}
    for name, checksum in checksums.items():
        expected = data.checksum_of(name)
        if expected is not None and expected != checksum:
            _reject(benchmark, files[name], checksum, expected, is_download=commit is not None)
    name, sha256 = _identify(checksums)
    is_hub = commit is not None
    return DataFile(
        files,
        name,
        sha256,
        origin,
        commit,
        data.repo if is_hub else None,
        (revision or data.revision) if is_hub else None,
    )


def _identify(checksums: dict[str, str]) -> tuple[str, str]:
    """The name and checksum of one file, or of several together."""
    if len(checksums) == 1:
        return next(iter(checksums.items()))
    listing = "".join(f"{checksum}  {name}\n" for name, checksum in checksums.items())
    return f"{len(checksums)} files", hashlib.sha256(listing.encode()).hexdigest()


def _reject(benchmark: Benchmark, path: Path, actual: str, expected: str, *, is_download: bool) -> NoReturn:
    """A file with the wrong checksum. A downloaded one is removed from the cache, to be downloaded again."""
    removed = ""
    if is_download:
        for copy in (path.resolve(), path):
            copy.unlink(missing_ok=True)
        removed = "it was removed from the cache; try again, or "
    raise DataError(
        f"the data of benchmark '{benchmark.name}' has the wrong checksum: SHA-256 {actual}, expected {expected}",
        where=str(path),
        next=f"{removed}correct `data` in the benchmark's file",
    )


def _download(data: DataSource, hub: Hub, revision: str) -> tuple[dict[str, Path], str]:
    """The files at one commit, so that the commit can be recorded even if `revision` is a branch."""
    assert data.repo is not None
    try:
        listing = hub.list_files(data.repo, revision)
        names = [name for pattern in data.patterns for name in _match(pattern, listing.files)]
        files = {name: hub.download_file(data.repo, name, listing.commit) for name in dict.fromkeys(names)}
    except NotFoundError:
        raise
    except UserError as error:
        hint = "use a copy of the dataset: --from FOLDER"
        raise UserError(
            error.what, where=error.where, next=f"{error.next}; or {hint}" if error.next else hint
        ) from error
    return files, listing.commit


def _match(pattern: str, names: tuple[str, ...]) -> list[str]:
    """The files of a pattern. A name without wildcards is asked for even if it is not listed: the Hub explains."""
    if not is_pattern(pattern):
        return [pattern]
    matches = sorted(name for name in names if PurePosixPath(name).match(pattern))
    if not matches:
        raise NotFoundError(f"the repository has no file '{pattern}'", next=suggest(pattern, names))
    return matches


def _require(path: Path, benchmark: Benchmark) -> Path:
    if not path.is_file():
        raise NotFoundError(f"the data of benchmark '{benchmark.name}' does not exist", where=str(path))
    return path


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read the data: {error.strerror or error}", where=str(path)) from error
