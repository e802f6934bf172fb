"""A file of records that one holder of a lease writes. Lines wait in memory until they are on disk, however long.

A file system that refuses writes loses nothing: the same bytes are written again to the same place, so that what others
have read of them stays true. The file never shrinks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Shard:
    """Lines on their way to a file. `append`, `waiting` and `confirm` belong to one thread, `write` to any."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.committed = 0
        """Bytes that are on disk."""
        self._pending = bytearray()  # not the lines themselves: those from an encoder may hold ten times their size
        self._going = bytearray()
        """What was handed out to be written."""
        self._fd = -1

    @property
    def pending_bytes(self) -> int:
        return len(self._going) + len(self._pending)

    def append(self, line: bytes) -> None:
        """Take a line without its newline."""
        self._pending += line
        self._pending += b"\n"

    def waiting(self) -> bytearray:
        """What is not on disk yet. It does not change any more."""
        self._going, self._pending = (self._going + self._pending if self._going else self._pending), bytearray()
        return self._going

    def write(self, data: bytes | bytearray, place: int) -> None:
        """Put what was waiting on disk; made for a thread. Raises OSError if that cannot be: then write it again.

        `place`: what was committed when it waited. A thread that hangs and is given up may do this late: it changes
        nothing then.
        """
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            view = memoryview(data)
            while view:
                written = os.pwrite(self._fd, view, place)
                view, place = view[written:], place + written
            os.fsync(self._fd)
        except OSError:
            self.close()  # a handle may be stale for good
            raise

    def confirm(self, data: bytearray) -> None:
        """What was waiting then was written."""
        assert data is self._going, "it was asked for once more before this was said"
        self.committed += len(data)
        self._going = bytearray()

    def close(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1
