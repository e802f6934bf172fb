"""Files that appear together, whole, or not at all: written under temporary names and moved at the end."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Self

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class PendingFiles:
    """Files under way. Leaving without `commit` removes what was written."""

    def __init__(self) -> None:
        self._streams: dict[Path, BinaryIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for path, stream in self._streams.items():
            with suppress(OSError):  # what could not be written may fail once more on closing
                stream.close()
            with suppress(OSError):
                _partial(path).unlink(missing_ok=True)

    def open(self, path: Path) -> BinaryIO:
        """A stream for what will be `path`; asked for again, the same stream."""
        if path not in self._streams:
            with _explaining(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._streams[path] = _partial(path).open("wb", buffering=1 << 20)
        return self._streams[path]

    def commit(self) -> list[Path]:
        """Move every file to its name. All are on disk before the first is moved."""
        for path, stream in self._streams.items():
            with _explaining(path):
                stream.flush()
                os.fsync(stream.fileno())
                stream.close()
        for path in self._streams:
            with _explaining(path):
                _partial(path).replace(path)
        done = list(self._streams)
        self._streams.clear()
        return done


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path.name}: {error.strerror or error}", where=str(path)) from error


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")
