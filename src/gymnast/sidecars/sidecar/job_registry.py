"""What the sidecars of one job share, as files in the job's folder. Each file is written whole and then moved.

addresses/COMPONENT/TASK.json   it serves requests here, now; removed while it is down
places/COMPONENT/TASK.json      the host and port of a multi-node program's head, before it serves requests
notes/COMPONENT.TASK.json       how it died permanently
logs/COMPONENT.TASK.log         its output
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


class JobRegistry:
    """The folder of one job, as one task of one component uses it."""

    def __init__(self, folder: Path, component: str, task: int) -> None:
        self.folder = folder
        self.component = component
        self.task = task
        self.log = folder / "logs" / f"{component}.{task}.log"
        self._address = folder / "addresses" / component / f"{task}.json"
        self._head = folder / "places" / component / f"{task}.json"
        self._note = folder / "notes" / f"{component}.{task}.json"

    def clear(self) -> None:
        """Remove what an earlier try of this job left."""
        for path in (self._address, self._head, self._note):
            _remove(path)
        self.log.parent.mkdir(parents=True, exist_ok=True)

    def publish(self, address: dict[str, Any]) -> None:
        write(self._address, address)

    def withdraw(self) -> None:
        _remove(self._address)
        _remove(self._head)

    def publish_head(self, head: dict[str, Any]) -> None:
        write(self._head, head)

    def write_death_note(self, note: dict[str, Any]) -> None:
        write(self._note, note)

    def read_head(self, component: str, task: int) -> dict[str, Any] | None:
        return _read(self.folder / "places" / component / f"{task}.json")


def read_addresses(folder: Path, component: str) -> list[dict[str, Any]]:
    """The addresses at which a component serves requests now, by task."""
    try:
        files = sorted((folder / "addresses" / component).glob("[0-9]*.json"), key=lambda path: int(path.stem))
    except (OSError, ValueError):
        return []
    return [address for address in map(_read, files) if address is not None]


def read_death_notes(folder: Path) -> list[dict[str, Any]]:
    """The death notes of a job, the earliest first."""
    notes = [note for note in map(_read, (folder / "notes").glob("*.json")) if note is not None]
    return sorted(notes, key=lambda note: float(note["at"]))


def tail_log(log: Path, start: int = 0) -> str:
    """The last lines of a log after byte `start`, and earlier ones that name an error.

    Inference servers print much after what killed them: shutdowns of their parts, leaks of their libraries.
    """
    try:
        with log.open("rb") as stream:
            stream.seek(max(start, log.stat().st_size - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError as error:
        return f"cannot read {log}: {error}"
    errors = [line for line in lines[:-LOG_LINES] if _ERROR.search(line)][-_ERROR_LINES:]
    earlier = [f"errors in {log}:", *(f"  | {line}" for line in errors)] if errors else []
    return "\n".join([*earlier, f"last lines of {log}:", *(f"  | {line}" for line in lines[-LOG_LINES:])])


def write(path: Path, value: dict[str, Any]) -> None:
    """Write a small JSON file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    new.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # removed, or a network file system shows it too early: it will be read again
        return None
    return value if isinstance(value, dict) else None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
