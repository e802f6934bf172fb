"""The registry of this user's running serves on this host, one file each, in which `status` and `collect` find them.

An entry is valid while its process runs: pid and start time must both match, since pids are reused. Entries of dead
processes are removed when they are read, so a killed serve leaves nothing behind. Files appear whole, by renaming.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from gymnast.errors import NotFoundError, UserError

if TYPE_CHECKING:
    from pathlib import Path


NO_SERVE = NotFoundError(
    "no gymnast serve is running on this host", next="start one: gymnast serve --config CONFIG, or give --head URL"
)


class ServeEntry(msgspec.Struct, frozen=True):
    """A running `gymnast serve`."""

    pid: int
    process_started: int
    """The kernel's start time of the process, to detect a reused pid."""
    head_url: str
    cwd: str
    started_at: float
    token: str | None = None
    log_dir: str | None = None
    schema_version: int = 1


class Registry:
    """A private directory with one file per running serve."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, entry: ServeEntry) -> None:
        """Register a serve. The file may contain a token, so only its owner can read it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._path(entry.pid)
            temporary = path.with_suffix(".new")
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                out.write(msgspec.json.encode(entry))
            temporary.replace(path)
        except OSError as error:
            next_step = "set GYMNAST_RUNTIME_DIR to a writable directory"
            raise UserError(f"cannot register this serve: {error}", where=str(self._folder), next=next_step) from error

    def remove(self, pid: int) -> None:
        """Unregister a serve."""
        self._path(pid).unlink(missing_ok=True)

    def entries(self) -> list[ServeEntry]:
        """The running serves, oldest first. Removes the files of dead ones."""
        alive: list[ServeEntry] = []
        for path in sorted(self._folder.glob("serve-*.json")):
            try:
                entry = msgspec.json.decode(path.read_bytes(), type=ServeEntry)
            except (OSError, msgspec.MsgspecError):
                continue
            if process_start(entry.pid) == entry.process_started:
                alive.append(entry)
            else:
                path.unlink(missing_ok=True)
        return sorted(alive, key=lambda entry: entry.started_at)

    def nearby(self, cwd: str) -> list[ServeEntry]:
        """The serves started in this directory, or all of them if there are none."""
        entries = self.entries()
        return [entry for entry in entries if entry.cwd == cwd] or entries

    def find(self, *, cwd: str, default_head: str) -> ServeEntry:
        """The default serve: the only one, the only one of this directory, or the one on the default port."""
        entries = self.nearby(cwd)
        if not entries:
            raise NO_SERVE
        if len(entries) > 1:
            entries = [entry for entry in entries if entry.head_url == default_head] or entries
        if len(entries) == 1:
            return entries[0]
        listed = "\n".join(f"  {entry.head_url}  pid {entry.pid}  in {entry.cwd}" for entry in entries)
        raise NotFoundError(f"{len(entries)} serves are running\n{listed}", next="choose one: --head URL")

    def _path(self, pid: int) -> Path:
        return self._folder / f"serve-{pid}.json"


def process_start(pid: int) -> int | None:
    """The start time of a process in clock ticks since boot, or None if it is not running."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123 - /proc
            fields = stream.read().rsplit(b")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[19])
