"""Files that others read: written under another name and moved, so that readers see the old or the new, never half."""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Final

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_AT_ONCE: Final = 1 << 16
_STALE_PAUSES_S: Final = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)
"""NFS finds the new file at the next try; clients that keep names for a while (GlusterFS: a second) need that while."""


@contextmanager
def replacing(path: Path, *, mark: str = "") -> Iterator[IO[bytes]]:
    """A file to write that takes its name only when it is whole and on disk.

    With a `mark` of its own each of several writers writes a file of its own, and the last one's stays.
    """
    with _moved_to(path, mark) as temporary, temporary.open("wb", buffering=1 << 20) as out:
        yield out
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def _moved_to(path: Path, mark: str = "") -> Iterator[Path]:
    temporary = path.with_name(f"{path.name}{mark}.new")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # half a file on a full disk is worth nothing
        raise


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """The same for a result of a command: its folder is made, and what goes wrong is said in words."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as out:
            yield out
    except OSError as error:
        raise UserError(f"cannot write {path.name}: {error.strerror or error}", where=str(path)) from error


def write_replacing(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a small file in one step.

    Without `sync` it may be missing or torn after a power failure: for what is written again soon anyway.
    """
    with _moved_to(path) as temporary:
        _write(temporary, data, sync=sync)


def _write(path: Path, data: bytes, *, sync: bool) -> None:
    """In as few calls as can be: each is a journey where the file system is a network's."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


def create_once(path: Path, data: bytes, unique: str) -> bool:
    """Create a small file that nobody has created before, whole; False if somebody was first.

    A hard link from a name of our own: also on network file systems only one of many succeeds, and a reply that got
    lost there is told from a lost race by the number of names that our file has. `unique` makes that name ours.
    """
    own = path.with_name(f".{path.name}.{unique}")
    try:
        _write(own, data, sync=True)
        try:
            os.link(own, path)
        except FileExistsError:
            return own.stat().st_nlink == 2
        return True
    finally:
        with suppress(OSError):
            own.unlink(missing_ok=True)


def read_fresh(path: Path) -> bytes:
    """A file's content. One that is replaced elsewhere while we open or read it is stale: then the new one is read."""
    for pause_s in _STALE_PAUSES_S:
        try:
            return _read_whole(path)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
        time.sleep(pause_s)
    return _read_whole(path)


def _read_whole(path: Path) -> bytes:
    """In as few calls as can be: these files are read by the thousand."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(file, _AT_ONCE):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)
