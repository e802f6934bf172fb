"""Which commit of a dataset earlier evaluations on this machine used.

A branch such as `main` moves. A file in the state folder remembers the last commit of each, so that a run that gets
another one can say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.errors import UserError
from gymnast.store.atomic import atomic_output

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.benchmarks.source import DataFile

_FILE: Final = "benchmark_data.json"


class SeenData(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a revision had when it was last used."""

    commit: str
    sha256: str


class DataHistory:
    """The last data of each repository, revision and file. Without a folder it remembers nothing."""

    def __init__(self, folder: Path | None = None) -> None:
        self._path = folder / _FILE if folder is not None else None

    def update(self, name: str, data: DataFile) -> Iterator[str]:
        """Remember the data of a benchmark; yields what changed since the last time, for people."""
        if self._path is None or data.commit is None or data.revision in {None, data.commit}:
            return
        entries = self._read()
        key = f"{data.repo}@{data.revision}:{data.name}"
        earlier, now = entries.get(key), SeenData(commit=data.commit, sha256=data.sha256)
        if earlier == now:
            return
        self._write({**entries, key: now})
        if earlier is not None:
            yield from _describe_change(name, data, earlier)

    def _read(self) -> dict[str, SeenData]:
        assert self._path is not None
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, SeenData])
        except (OSError, msgspec.DecodeError):
            return {}

    def _write(self, entries: dict[str, SeenData]) -> None:
        """Not worth failing for: without the file, a later change goes unnoticed."""
        assert self._path is not None
        try:
            with atomic_output(self._path) as out:
                out.write(msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n")
        except (OSError, UserError):
            return


def _describe_change(name: str, data: DataFile, earlier: SeenData) -> Iterator[str]:
    moved = f"{name}: '{data.revision}' of {data.repo} is now commit {data.commit}; it was {earlier.commit}"
    if earlier.sha256 == data.sha256:
        yield f"note: {moved}. The file '{data.name}' is the same"
        return
    yield (
        f"warning: {moved}, and the file '{data.name}' differs: scores may not be comparable with earlier ones "
        f"(--revision {earlier.commit} uses the earlier data)"
    )
