"""Atomic writes: files are written under a temporary name and moved, so readers see the old or the new content.

Also the clock of a shared file system (`file_clock`).
"""

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

_READ_BYTES: Final = 1 << 16
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EISDIR})
"""What file systems answer that cannot sync folders, or need not."""
_STALE_PAUSES_S: Final = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)
"""NFS finds the new file at the next try; clients that cache names (GlusterFS: for a second) need longer."""


def sync_folder(folder: Path) -> None:
    """Make the names in a folder safe: a file that is synced may still lose its name in a power failure."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # a folder that may be used, but not listed
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


def make_folders(folder: Path) -> None:
    """Create a folder and those above it, unless they exist, and make their names safe.

    Also for a folder that exists: the process that created it may have died before it could.
    """
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    sync_folder(folder.parent)
    for created in reversed(missing):
        created.mkdir(exist_ok=True)
        sync_folder(created.parent)


@contextmanager
def atomic_writer(path: Path, *, mark: str = "") -> Iterator[IO[bytes]]:
    """A file to write that takes its name only once it is complete and synced.

    Several writers need a unique `mark` each for their temporary files; the last one wins.
    """
    with _temporary_for(path, mark) as temporary, temporary.open("wb", buffering=1 << 20) as out:
        yield out
        out.flush()
        os.fsync(out.fileno())
    sync_folder(path.parent)


@contextmanager
def _temporary_for(path: Path, mark: str = "") -> Iterator[Path]:
    temporary = path.with_name(f"{path.name}{mark}.new")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # half a file on a full disk is useless
        raise


@contextmanager
def atomic_output(path: Path) -> Iterator[IO[bytes]]:
    """The same for the output of a command: creates the folder, and raises UserError if writing fails."""
    try:
        make_folders(path.parent)
        with atomic_writer(path) as out:
            yield out
    except OSError as error:
        raise UserError(f"cannot write {path.name}: {error.strerror or error}", where=str(path)) from error


def atomic_write(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a small file atomically.

    Without `sync` it may be missing or torn after a power failure: for what is rewritten soon anyway.
    """
    with _temporary_for(path) as temporary:
        _write(temporary, data, sync=sync)
    if sync:
        sync_folder(path.parent)


def _write(path: Path, data: bytes, *, sync: bool) -> None:
    """Write with few system calls: each is a round trip on a network file system."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


def create_exclusive(path: Path, data: bytes, unique: str) -> bool:
    """Create a small file, complete, unless it exists; False if another process was first.

    Uses a hard link from a temporary name that `unique` makes ours: even on network file systems only one of many
    processes succeeds, and the link count tells a lost reply from a lost race.
    """
    own = path.with_name(f".{path.name}.{unique}")
    try:
        _write(own, data, sync=True)
        try:
            os.link(own, path)
        except FileExistsError:
            if own.stat().st_nlink != 2:
                return False
        sync_folder(path.parent)
        return True
    finally:
        with suppress(OSError):
            own.unlink(missing_ok=True)


def read_fresh(path: Path) -> bytes:
    """A file's content. Retries if it is replaced (stale) while it is opened or read."""
    for pause_s in _STALE_PAUSES_S:
        try:
            return _read_whole(path)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
        time.sleep(pause_s)
    return _read_whole(path)


def _read_whole(path: Path) -> bytes:
    """Read with few system calls: thousands of these files are read."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(file, _READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def file_clock(folder: Path) -> float:
    """The time by the clock of a folder's file system, the only one that file times may be compared with.

    Without write access (another user's run), this host's clock.
    """
    probe = folder / ".now"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()
