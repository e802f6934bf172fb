"""Finds the data files of a benchmark in a local copy: a repository, its file, a mirror of several, or a Hub cache."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from gymnast.errors import DataError, NotFoundError, UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.benchmarks.definition import DataSource

_HINT: Final = "--from names a local copy of the dataset's repository, a mirror of several, or the file itself"
_MAX_LISTED: Final = 2000
_LFS: Final = b"version https://git-lfs.github.com/spec/"


def find_local(given: Path, data: DataSource) -> dict[str, Path]:
    """The files by their names in the repository. Raises NotFoundError that names the files there are."""
    patterns = data.patterns
    if given.is_file():
        if len(patterns) > 1:
            raise UserError(f"the benchmark has {len(patterns)} files: --from needs a folder", where=str(given))
        files = {(given.name if is_pattern(patterns[0]) else patterns[0]): given}
    elif given.is_dir():
        folder = _repository_in(given, data)
        files = {}
        for pattern in patterns:
            files |= _find_in(folder, pattern, data.repo)
    else:
        raise NotFoundError("there is no such file or folder", where=str(given), next=_suggest_sibling(given) or _HINT)
    for path in files.values():
        _require_content(path)
    return files


def is_pattern(name: str) -> bool:
    """Whether a name of files has wildcards."""
    return any(character in name for character in "*?[")


def _repository_in(folder: Path, data: DataSource) -> Path:
    """The folder of the repository: `org/name` or `name` in a mirror, a snapshot in a cache, or the folder itself."""
    if data.repo is None:
        return folder
    organization, _, name = data.repo.rpartition("/")
    for mirrored in (folder / data.repo, folder / "datasets" / data.repo, folder / f"{organization}__{name}"):
        if mirrored.is_dir():
            return mirrored
    for cache in (folder, folder / "hub"):
        cached = cache / ("datasets--" + data.repo.replace("/", "--"))
        if cached.is_dir():
            return _snapshot_in(cached, data.revision)
    return folder / name if (folder / name).is_dir() else folder


def _snapshot_in(cached: Path, revision: str) -> Path:
    """The files of a revision in a cache of the Hub's library; without it, of the newest download."""
    reference = cached / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshots = cached / "snapshots"
    if (snapshots / commit).is_dir():
        return snapshots / commit
    folders = [folder for folder in snapshots.glob("*") if folder.is_dir()]
    return max(folders, key=lambda folder: folder.stat().st_mtime, default=cached)


def _find_in(folder: Path, name: str, repo: str | None) -> dict[str, Path]:
    if is_pattern(name):
        matches = sorted(path for path in folder.glob(name) if path.is_file())
        matches = matches or sorted(path for path in folder.glob(PurePosixPath(name).name) if path.is_file())
        if matches:
            return {path.relative_to(folder).as_posix(): path for path in matches}
    for candidate in (folder / name, folder / PurePosixPath(name).name):
        if candidate.is_file():
            return {name: candidate}
    base = PurePosixPath(name).name
    missing = f"the folder has no '{name}'" if base == name else f"the folder has neither '{name}' nor '{base}'"
    raise NotFoundError(missing, where=str(folder), next=_describe(folder, name, repo))


def _describe(folder: Path, name: str, repo: str | None) -> str:
    """What to do: the files of the folder that are meant, or that are there."""
    names = list(_names_in(folder))
    if not names:
        return f"the folder is empty; {_HINT}"
    by_base: dict[str, str] = {}
    for found in names:
        by_base.setdefault(PurePosixPath(found).name, found)
    base = PurePosixPath(name).name
    if base in by_base:
        below = folder / PurePosixPath(by_base[base]).parent
        if repo is None or PurePosixPath(repo).name in below.parts:
            return f"a file of that name is in a folder below: --from '{below}'"
        return (
            f"a mirror of several datasets has it in '{folder / repo}'; if the file in '{below}' is this dataset's:"
            f" --from '{below}'"
        )
    close = suggest(name, names) or ""
    return f"{close if close.startswith('did you mean') else _list(names)}; {_HINT}"


def _list(names: list[str]) -> str:
    return f"it has {', '.join(names[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _names_in(folder: Path) -> Iterator[str]:
    """The files below a folder, at most some thousands."""
    count = 0
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                yield (Path(root) / name).relative_to(folder).as_posix()
                count += 1
        if count >= _MAX_LISTED:
            return


def _suggest_sibling(path: Path) -> str | None:
    """A did-you-mean text with a similar name in the same folder."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return None
    close = suggest(path.name, names) or ""
    return close if close.startswith("did you mean") else None


def _require_content(path: Path) -> None:
    """Raise DataError for a file that only stands for the data: empty, or a pointer of Git LFS."""
    try:
        with path.open("rb") as stream:
            start = stream.read(len(_LFS))
    except OSError as error:
        raise DataError(f"cannot read the data: {error.strerror or error}", where=str(path)) from error
    if not start:
        raise DataError("the file is empty", where=str(path), next="copy it again")
    if start == _LFS:
        raise DataError(
            "the file is a pointer of Git LFS, not the data", where=str(path), next="run `git lfs pull` there"
        )
