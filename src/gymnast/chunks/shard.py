"""A file of records that one holder of a lease writes. Lines wait in memory until they are on disk.

A file system that refuses writes loses nothing: the same bytes are written again at the same offset, so what others
have read stays true. The file never shrinks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from gymnast.store.atomic import sync_folder

if TYPE_CHECKING:
    from pathlib import Path


class Shard:
    """Lines on their way to a file. `write` may run in any thread, everything else in one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.committed = 0
        """Bytes that are on disk."""
        self._pending = bytearray()  # not the lines themselves: an encoder's lines may hold ten times their size
        self._in_progress = bytearray()
        """Handed out by `take_pending` and not confirmed yet."""
        self._fd = -1

    @property
    def pending_bytes(self) -> int:
        return len(self._in_progress) + len(self._pending)

    def append(self, line: bytes) -> None:
        """Add a line, given without its newline."""
        self._pending += line
        self._pending += b"\n"

    def take_pending(self) -> bytearray:
        """Everything that is not on disk yet. The returned bytes do not change any more."""
        self._in_progress = self._in_progress + self._pending if self._in_progress else self._pending
        self._pending = bytearray()
        return self._in_progress

    def write(self, data: bytes | bytearray, offset: int) -> None:
        """Write and sync pending bytes; blocking. After an OSError, call it again.

        `offset`: what was committed when the bytes were taken. A thread that hangs and was given up on may do this
        late: it then changes nothing.
        """
        is_new = self._fd < 0
        try:
            if is_new:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            view = memoryview(data)
            while view:
                written = os.pwrite(self._fd, view, offset)
                view, offset = view[written:], offset + written
            os.fsync(self._fd)
            if is_new:
                sync_folder(self.path.parent)
        except OSError:
            self.close()  # the handle may be stale permanently
            raise

    def confirm(self, data: bytearray) -> None:
        """Count bytes from `take_pending` as committed."""
        assert data is self._in_progress, "pending bytes were taken again before these were confirmed"
        self.committed += len(data)
        self._in_progress = bytearray()

    def close(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1
