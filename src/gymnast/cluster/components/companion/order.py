"""What a companion is told, and how places that are known only where it runs are filled in. Pure but for reading."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SCHEMA_VERSION = 1
_PLACE = re.compile(
    r"\{(port|host|task|gpus|folder|head|head_port|task\*\d+|(?:host|port|url|addresses):[A-Za-z0-9_.-]+)\}"
)


@dataclass(frozen=True)
class Ready:
    """When it is ready: as in `components.spec.ReadyCheck`."""

    path: str
    deadline_s: float
    first_interval_s: float
    longest_interval_s: float


@dataclass(frozen=True)
class Order:
    """One component, as its file in the job's folder says."""

    name: str
    command: list[str]
    rest_command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str | None = None
    tasks: int = 1
    tasks_per_node: int = 1
    gpus_per_task: int = 0
    needs: dict[str, int] = field(default_factory=dict)
    """Components that must be ready first, and how many addresses each publishes."""
    needs_deadline_s: float = 3600.0
    ready: Ready | None = None
    restarts: int = 0
    is_main: bool = False
    stop_s: float = 20.0
    bind: str = "127.0.0.1"
    """The address that `{host}` is: loopback where the whole job is on one node."""

    @property
    def is_spread(self) -> bool:
        """Whether its tasks are one program over several nodes."""
        return bool(self.rest_command)

    def words(self, task: int) -> list[str]:
        return self.rest_command if task and self.is_spread else self.command

    @property
    def wants_port(self) -> bool:
        texts = [*self.command, *self.rest_command, *self.environment.values()]
        return self.ready is not None or any("{port}" in text for text in texts)


def read_order(path: Path) -> Order:
    """The order in a file. A file of another version is refused."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    version = found.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise ValueError(f"{path} has version {version}, this companion reads {SCHEMA_VERSION}")
    ready = found.pop("ready", None)
    return Order(ready=Ready(**ready) if ready else None, **found)


def filled(text: str, places: Mapping[str, str]) -> str:
    """The text with every known place filled in. Braces that are no place of ours stay as they are."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name.startswith("task*"):
            return str(int(places["task"]) * int(name[5:]))
        if name not in places:
            raise ValueError(f"{{{name}}} is not known here: {text}")
        return places[name]

    return _PLACE.sub(value, text)


def places_in(texts: Sequence[str]) -> list[tuple[str, str]]:
    """The places of other components that texts ask for: (what, component)."""
    found = [match.group(1) for text in texts for match in _PLACE.finditer(text)]
    return [(name.split(":", 1)[0], name.split(":", 1)[1]) for name in found if ":" in name]
