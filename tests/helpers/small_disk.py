"""A file system of a few kilobytes that tests can fill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.helpers.parts import skip_without


class Disk:
    """A small file system and something that takes its room away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def leave(self, room_kib: int) -> None:
        """Fill it until only so much is free."""
        with suppress(OSError), self._ballast.open("wb", buffering=0) as stream:
            while stream.write(bytes(4096)):
                pass
        with self._ballast.open("r+b") as stream:
            stream.truncate(self._ballast.stat().st_size - room_kib * 1024)

    def make_room(self) -> None:
        self._ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=8m", str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[Disk]:
    """One, mounted at `folder`. Skips the test where that is not permitted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        skip_without("mounting")
    if done.returncode:
        skip_without("mounting", done.stderr.strip())
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
