"""Files that appear together or not at all: written under temporary names and renamed at the end."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Self

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class PendingFiles:
    """Files being written. Leaving the context without `commit` deletes them."""

    def __init__(self) -> None:
        self._streams: dict[Path, BinaryIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for path, stream in self._streams.items():
            with suppress(OSError):  # a failed write may fail again on close
                stream.close()
            with suppress(OSError):
                _partial(path).unlink(missing_ok=True)

    def open(self, path: Path) -> BinaryIO:
        """The stream for the future content of `path`; the same stream on every call."""
        if path not in self._streams:
            with _translate_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._streams[path] = _partial(path).open("wb", buffering=1 << 20)
        return self._streams[path]

    def commit(self) -> list[Path]:
        """Rename every file to its final name, after all of them are synced to disk."""
        for path, stream in self._streams.items():
            with _translate_errors(path):
                stream.flush()
                os.fsync(stream.fileno())
                stream.close()
        for path in self._streams:
            with _translate_errors(path):
                _partial(path).replace(path)
        paths = list(self._streams)
        self._streams.clear()
        return paths


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path.name}: {error.strerror or error}", where=str(path)) from error


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")
