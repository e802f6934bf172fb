"""What the companions of one job tell each other, as files in the job's folder; each is written whole and then moved.

addresses/COMPONENT/TASK.json   it answers here, now; gone while it is down
places/COMPONENT/TASK.json      where a task of a program over several nodes is, before it answers
notes/COMPONENT.TASK.json       how it died, for good
logs/COMPONENT.TASK.log         what it said
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_TAIL_BYTES = 65536
LOG_LINES = 40
_ERROR_LINES = 12
_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b(?:: |$)|out of memory|No space left")


class Board:
    """The folder of one job, as one task of one component uses it."""

    def __init__(self, folder: Path, component: str, task: int) -> None:
        self.folder = folder
        self.component = component
        self.task = task
        self.log = folder / "logs" / f"{component}.{task}.log"
        self._address = folder / "addresses" / component / f"{task}.json"
        self._place = folder / "places" / component / f"{task}.json"
        self._note = folder / "notes" / f"{component}.{task}.json"

    def clear(self) -> None:
        """Forget what an earlier try of this job left."""
        for path in (self._address, self._place, self._note):
            _remove(path)
        self.log.parent.mkdir(parents=True, exist_ok=True)

    def publish(self, address: dict[str, Any]) -> None:
        write(self._address, address)

    def withdraw(self) -> None:
        _remove(self._address)
        _remove(self._place)

    def take_place(self, place: dict[str, Any]) -> None:
        write(self._place, place)

    def note_death(self, note: dict[str, Any]) -> None:
        write(self._note, note)

    def addresses_of(self, component: str) -> list[dict[str, Any]]:
        return published(self.folder, component)

    def place_of(self, component: str, task: int) -> dict[str, Any] | None:
        return _read(self.folder / "places" / component / f"{task}.json")

    def deaths(self) -> list[dict[str, Any]]:
        return deaths(self.folder)

    def log_end(self, begin: int = 0) -> str:
        return log_end(self.log, begin)


def published(folder: Path, component: str) -> list[dict[str, Any]]:
    """The addresses at which a component answers now, by task."""
    try:
        files = sorted((folder / "addresses" / component).glob("[0-9]*.json"), key=lambda path: int(path.stem))
    except (OSError, ValueError):
        return []
    return [found for found in map(_read, files) if found is not None]


def deaths(folder: Path) -> list[dict[str, Any]]:
    """The death notes of a job, the earliest first."""
    found = [note for note in map(_read, (folder / "notes").glob("*.json")) if note is not None]
    return sorted(found, key=lambda note: float(note["at"]))


def log_end(log: Path, begin: int = 0) -> str:
    """The last lines of a log, of what was written after `begin`, and earlier ones that name an error.

    Engines say much after what killed them: shutdowns of their parts, leaks of their libraries.
    """
    try:
        with log.open("rb") as stream:
            stream.seek(max(begin, log.stat().st_size - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError as error:
        return f"{log} cannot be read: {error}"
    errors = [line for line in lines[:-LOG_LINES] if _ERROR.search(line)][-_ERROR_LINES:]
    earlier = [f"errors in {log}:", *(f"  | {line}" for line in errors)] if errors else []
    return "\n".join([*earlier, f"last lines of {log}:", *(f"  | {line}" for line in lines[-LOG_LINES:])])


def write(path: Path, value: dict[str, Any]) -> None:
    """A small JSON file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    new.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # gone again, or a network filesystem that shows it too early: looked at once more
        return None
    return found if isinstance(found, dict) else None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
