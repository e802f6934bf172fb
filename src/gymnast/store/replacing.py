"""Files that others read: written under another name and moved, so that readers see the old or the new, never half."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes its name only when it is whole and on disk."""
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb", buffering=1 << 20) as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # half a file on a full disk is worth nothing


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """The same for a result of a command: its folder is made, and what goes wrong is said in words."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as out:
            yield out
    except OSError as error:
        raise UserError(f"cannot write {path.name}: {error.strerror or error}", where=str(path)) from error


def write_replacing(path: Path, data: bytes) -> None:
    """Replace a small file in one step."""
    with replacing(path) as out:
        out.write(data)
