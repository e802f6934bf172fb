"""Appends lines to a file: one writer, group commit, fsync. A crash loses little, and `repair` fixes what it tears.

Invariants: a line that `append` accepted is either on disk after `commit` or `commit` raises. After a failed write
nothing more is accepted. A failed write leaves no partial line.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from gymnast.errors import UserError

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
        self.error: OSError | None = None
        self._reported = False

    async def __aenter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
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
            raise self._failure(self.error) from self.error

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
            except OSError as error:
                self.error = error

    def _write(self, data: bytearray) -> None:
        size = os.fstat(self._fd).st_size
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
            os.fsync(self._fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, size)  # half a line on a full disk is useless
            raise

    async def _commit_forever(self) -> None:
        while self.error is None:
            await asyncio.sleep(COMMIT_INTERVAL_S)
            await self._commit_shielded()  # a failure is stored in self.error; the next append or commit reports it

    def _failure(self, error: OSError) -> UserError:
        self._reported = True
        return UserError(
            f"cannot write {self.path.name}: {error.strerror or error}",
            where=str(self.path),
            next="free some space or fix the folder, then run again",
        )
