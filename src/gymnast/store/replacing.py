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
def replacing(path: Path, *, sync: bool = True, mark: str = "") -> Iterator[IO[bytes]]:
    """A file to write that takes its name only when it is whole and on disk.

    Without `sync` it may be missing after a power failure: for what is written again soon anyway. With a `mark` of its
    own each of several writers writes a file of its own, and the last one's stays.
    """
    temporary = path.with_name(f"{path.name}{mark}.new")
    try:
        with temporary.open("wb", buffering=1 << 20) as out:
            yield out
            out.flush()
            if sync:
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


def create_once(path: Path, data: bytes, unique: str) -> bool:
    """Create a small file that nobody has created before, whole; False if somebody was first.

    A hard link from a name of our own: also on network file systems only one of many succeeds, and a reply that got
    lost there is told from a lost race by the number of names that our file has. `unique` makes that name ours.
    """
    own = path.with_name(f".{path.name}.{unique}")
    try:
        with own.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(own, path)
        except FileExistsError:
            return own.stat().st_nlink == 2
        return True
    finally:
        with suppress(OSError):
            own.unlink(missing_ok=True)
