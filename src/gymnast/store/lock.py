"""One writer per run: a lock that the kernel releases when its holder exits, however it exits."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from gymnast.errors import UserError
from gymnast.store.atomic import make_folders

if TYPE_CHECKING:
    from pathlib import Path

LOCK_TIMEOUT_S: Final = 0.1
_PAUSE_S: Final = 0.02
_NO_LOCKS: Final = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})


class NoLocksError(UserError):
    """The file system cannot lock files."""


def run_locked_error(holder: str, where: Path) -> UserError:
    """The error for a second writer."""
    return UserError(
        f"another process is writing this run: {holder or 'unknown'}",
        where=str(where),
        next="wait for it, watch it with gymnast status RUN, or choose another --output",
    )


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock now. False where files cannot be locked."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(fd)
    return False


class RunLock:
    """Held while a process writes a run's files. Waits up to `timeout_s` for another holder."""

    def __init__(self, path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._fd = -1

    def __enter__(self) -> Self:
        self._make_folder()
        deadline = time.monotonic() + self._timeout_s
        while not self._try_lock(is_last_try=time.monotonic() >= deadline):
            time.sleep(_PAUSE_S)
        with suppress(OSError):  # the holder's name is a convenience: a full disk is reported by others
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return self

    def _make_folder(self) -> None:
        try:
            make_folders(self._path.parent)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(f"cannot write into {self._path.parent}: {error.strerror or error}", where=str(self._path))

    def _try_lock(self, *, is_last_try: bool) -> bool:
        """Lock the file. False if it is worth another try.

        Its last holder may have removed it after we opened it, and `is_locked` elsewhere holds it for a moment.
        """
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._fd, 200, 0).decode(errors="replace").strip()
            os.close(self._fd)
            if not is_last_try:
                return False
            raise run_locked_error(holder, self._path) from error
        except OSError as error:
            os.close(self._fd)
            if error.errno not in _NO_LOCKS:
                raise
            raise NoLocksError(
                f"files cannot be locked here: {error.strerror}",
                where=str(self._path),
                next="mount the file system with locks (Lustre: the option `flock`), choose another folder, or use "
                "gymnast submit, which does not need them",
            ) from error
        if os.fstat(self._fd).st_nlink:
            return True
        os.close(self._fd)
        return False

    def __exit__(self, *_: object) -> None:
        # Remove the file first: a process that opens the name from now on creates and locks a new one.
        self._path.unlink(missing_ok=True)
        os.close(self._fd)
