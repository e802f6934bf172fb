"""How many rollouts may be in flight: the host's limits, and those that agents and environments declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.rollouts.engine import DEFAULT_CAP
from gymnast.runtime.host import available_memory_bytes
from gymnast.wire.http_client import max_open_connections

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.config import Instance

_BYTES_PER_ROLLOUT: Final = 2 * 1024 * 1024


def agent_limits(instances: Iterable[Instance]) -> dict[str, int]:
    """The maximum number of rollouts in flight of each agent that has one, by itself or through its environment."""
    by_name = {instance.name: instance for instance in instances}
    allowed: dict[str, int] = {}
    for instance in by_name.values():
        if instance.kind == "responses_api_agents":
            needed = [instance, *(by_name[ref.name] for ref in instance.refs.values() if ref.name in by_name)]
            values = [server.settings.get(key) for server in needed for key in ("max_rollouts", "max_sessions")]
            limits = [value for value in values if isinstance(value, int)]
            if limits:
                allowed[instance.name] = min(limits)
    return allowed


def host_cap() -> int:
    """The maximum number of rollouts in flight that the host's open files and memory allow."""
    memory = available_memory_bytes()
    by_memory = memory // _BYTES_PER_ROLLOUT if memory is not None else DEFAULT_CAP
    return max(1, min(DEFAULT_CAP, max_open_connections() // 2, by_memory))
