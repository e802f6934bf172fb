"""The spec of a sidecar, and the placeholders that are filled in where it runs. Pure, except for reading the file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SCHEMA_VERSION = 1
_PLACEHOLDER = re.compile(
    r"\{(port|host|task|gpus|folder|head|head_port|task\*\d+|(?:host|port|url|addresses):[A-Za-z0-9_.-]+)\}"
)


@dataclass(frozen=True)
class Ready:
    """When it is ready, as in `sidecars.component.ReadyCheck`."""

    path: str
    deadline_s: float
    first_interval_s: float
    longest_interval_s: float


@dataclass(frozen=True)
class SidecarSpec:
    """One component, from its file in the job's folder."""

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
    """The value of `{host}`: loopback if the whole job is on one node."""

    @property
    def is_multi_node(self) -> bool:
        """Whether its tasks are one program over several nodes."""
        return bool(self.rest_command)

    def command_for(self, task: int) -> list[str]:
        return self.rest_command if task and self.is_multi_node else self.command

    @property
    def needs_port(self) -> bool:
        texts = [*self.command, *self.rest_command, *self.environment.values()]
        return self.ready is not None or any("{port}" in text for text in texts)


def read_sidecar_spec(path: Path) -> SidecarSpec:
    """Read a spec. Raises ValueError for a file of another version."""
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    version = values.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise ValueError(f"{path} has version {version}, this sidecar reads {SCHEMA_VERSION}")
    ready = values.pop("ready", None)
    return SidecarSpec(ready=Ready(**ready) if ready else None, **values)


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Fill in every placeholder. Other braces stay unchanged."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if name.startswith("task*"):
            return str(int(values["task"]) * int(name[5:]))
        if name not in values:
            raise ValueError(f"{{{name}}} is not known here: {text}")
        return values[name]

    return _PLACEHOLDER.sub(replace, text)


def find_placeholders(texts: Sequence[str]) -> list[tuple[str, str]]:
    """The placeholders in texts that refer to other components: (what, component)."""
    names = [match.group(1) for text in texts for match in _PLACEHOLDER.finditer(text)]
    return [(name.split(":", 1)[0], name.split(":", 1)[1]) for name in names if ":" in name]
