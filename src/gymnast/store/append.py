"""Appends lines to a file: one writer, group commit, fsync. A crash loses little, and `repair` fixes what it tears.

Invariants: a line that `append` accepted is either on disk after `commit` or `commit` raises. After a failed write
nothing more is accepted. A failed write leaves no partial line. The file is this writer's alone: a second writer, or a
program that replaces, shortens or extends the file, is an error before anything more is written.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from gymnast.errors import UserError
from gymnast.store.atomic import make_folders, sync_folder
from gymnast.store.lock import run_locked_error

if TYPE_CHECKING:
    from pathlib import Path

COMMIT_INTERVAL_S: Final = 0.5
"""A power failure loses at most this much time, plus that of the commit itself."""


class AppendLog:
    """Appends lines to a file. `append` only buffers; a background task writes and syncs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending = bytearray()  # not a list of lines: those from an encoder may hold ten times their size
        self._fd = -1
        self._committer: asyncio.Task[None] | None = None
        self._committing = asyncio.Lock()
        self.error: OSError | UserError | None = None
        self._reported = False
        self._size = 0
        """What the file must contain, in bytes."""

    async def __aenter__(self) -> Self:
        make_folders(self.path.parent)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._lock()
            self._sync_earlier_lines()
        except BaseException:
            os.close(self._fd)
            raise
        self._size = os.fstat(self._fd).st_size
        self._committer = asyncio.create_task(self._commit_forever())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._committer is not None:
            self._committer.cancel()
            await asyncio.gather(self._committer, return_exceptions=True)
        try:
            if not self._reported:  # a failure is reported only once
                await self.commit()
        finally:
            os.close(self._fd)

    def append(self, line: bytes) -> None:
        """Add a line (without its newline). Raises if an earlier write failed."""
        if self.error is not None:
            raise self._failure(self.error)
        self._pending += line
        self._pending += b"\n"

    async def commit(self) -> None:
        """Write and sync everything added so far. Raises if that failed, now or earlier: then lines are missing."""
        await self._commit_shielded()
        if self.error is not None:
            raise self._failure(self.error)

    async def check(self) -> None:
        """Raise if the file is not what was written to it."""
        async with self._committing:
            self.error = self.error or await asyncio.to_thread(self._find_interference)
        if self.error is not None:
            raise self._failure(self.error)

    async def _commit_shielded(self) -> None:
        """The caller may be cancelled; lines on their way to the file are written anyway."""
        await asyncio.shield(asyncio.create_task(self._commit()))

    async def _commit(self) -> None:
        async with self._committing:
            if self.error is not None or not self._pending:
                return
            data, self._pending = self._pending, bytearray()
            try:
                await asyncio.to_thread(self._write, data)
            except (OSError, UserError) as error:
                self.error = error

    def _lock(self) -> None:
        """One writer per file, by whatever name it is reached. Where files cannot be locked, the run's lock must do."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise run_locked_error("it has this file open, perhaps by another name", self.path) from error
        except OSError:
            return

    def _sync_earlier_lines(self) -> None:
        """Lines that an earlier writer did not live to sync are counted from now on: they must not be lost any more."""
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            return
        try:
            os.fsync(self._fd)
            sync_folder(self.path.parent)
        except OSError as error:
            raise self._failure(error) from error

    def _find_interference(self, pending: bytes | bytearray = b"") -> UserError | None:
        own = os.fstat(self._fd)
        if not stat.S_ISREG(own.st_mode):
            return None
        try:
            there = self.path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino):
            return self._save_orphaned(pending, is_removed=there is None)
        if own.st_size != self._size:
            what = "shortened" if own.st_size < self._size else "extended"
            return UserError(
                f"another program {what} {self.path.name} while this run was writing it: it has {own.st_size} bytes "
                f"instead of {self._size}",
                where=str(self.path),
                next="let the run alone write this file; --resume repairs it and repeats the rollouts that were lost",
            )
        return None

    def _save_orphaned(self, pending: bytes | bytearray, *, is_removed: bool) -> UserError:
        """The file of this name is another one. What was written so far is only reachable here: save it."""
        saved = self._unused_name()
        with saved.open("xb") as target:
            offset = 0
            while data := os.pread(self._fd, 1 << 20, offset):
                target.write(data)
                offset += len(data)
            target.write(pending)
            target.flush()
            os.fsync(target.fileno())
        return UserError(
            f"another program {'removed' if is_removed else 'replaced'} {self.path.name} while this run was writing it",
            where=str(self.path),
            next=f"the records so far are in {saved.name}: rename it to {self.path.name}, then continue with --resume",
        )

    def _unused_name(self) -> Path:
        """What an earlier invocation saved may not have been looked at yet."""
        saved, number = self.path.with_name(self.path.name + ".saved"), 1
        while saved.exists():
            number += 1
            saved = self.path.with_name(f"{self.path.name}.saved.{number}")
        return saved

    def _write(self, data: bytearray) -> None:
        problem = self._find_interference(data)
        if problem is not None:
            raise problem
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
            os.fsync(self._fd)
            self._size += len(data)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)  # half a line on a full disk is useless
            raise

    async def _commit_forever(self) -> None:
        while self.error is None:
            await asyncio.sleep(COMMIT_INTERVAL_S)
            await self._commit_shielded()  # a failure is stored in self.error; the next append or commit reports it

    def _failure(self, error: OSError | UserError) -> UserError:
        self._reported = True
        if isinstance(error, UserError):
            return error
        return UserError(
            f"cannot write {self.path.name}: {error.strerror or error}",
            where=str(self.path),
            next="free some space or fix the folder, then run again",
        )
