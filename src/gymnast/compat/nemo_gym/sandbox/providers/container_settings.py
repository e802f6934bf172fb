"""The settings of the container providers: `create` and `exec` blocks of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from gymnast.compat.nemo_gym.errors import InvalidValueError
from gymnast.errors import suggest

CREATE_TIMEOUT_S: Final = 600.0
SettingsT = TypeVar("SettingsT")


@dataclass(frozen=True)
class DockerCreateConfig:
    """How containers are created; the options of the spec are added."""

    image: str | None = None
    pull: str = "missing"
    start_timeout_s: float | None = CREATE_TIMEOUT_S
    use_init: bool = True
    network: str | None = None
    read_only: bool = False
    cap_drop: list[str] = field(default_factory=list)
    security_opt: list[str] = field(default_factory=list)
    pids_limit: int | None = None
    extra_run_args: list[str] = field(default_factory=list)
    publish_host: str = "127.0.0.1"

    def options(self) -> list[str]:
        """The options of `docker run` for these settings."""
        words = ["--read-only"] if self.read_only else []
        words += [f"--cap-drop={name}" for name in self.cap_drop]
        words += [f"--security-opt={text}" for text in self.security_opt]
        words += [f"--pids-limit={self.pids_limit}"] if self.pids_limit is not None else []
        return [*words, *self.extra_run_args]


@dataclass(frozen=True)
class DockerExecConfig:
    """How commands are run in a container."""

    default_timeout_s: float | None = 180
    extra_exec_args: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ApptainerCreateConfig:
    """How instances are started."""

    image: str | None = None
    start_timeout_s: float | None = CREATE_TIMEOUT_S
    extra_start_args: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ApptainerExecConfig:
    """How commands are run in an instance. `default_binds` are mounted when it is started."""

    default_timeout_s: float | None = 180
    default_binds: list[str] = field(default_factory=list)
    extra_exec_args: list[str] = field(default_factory=list)


IGNORED: Final = frozenset(
    {
        *("keepalive_shell", "keepalive_cmd", "apply_resource_limits", "mount_point"),
        *("concurrency", "exec_shell", "fakeroot_for_root"),
    }
)
"""Settings of NeMo Gym's providers that have no effect here."""


def read_settings(kind: type[SettingsT], block: Any) -> SettingsT:
    """Settings from a block of a configuration, or as they are. An unknown name is an error."""
    if isinstance(block, kind):
        return block
    values = dict(block) if isinstance(block, Mapping) else {}
    known = [entry.name for entry in fields(kind)]  # type: ignore[arg-type] # a dataclass
    for name in values.keys() - set(known) - IGNORED:
        raise InvalidValueError(f"unknown setting '{name}' of the sandbox provider", next=suggest(name, known))
    return kind(**{name: value for name, value in values.items() if name in known})
