"""How many rollouts may be in flight: what the host allows, and what agents and environments say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.rollouts.engine import DEFAULT_CAP
from gymnast.runtime.host import available_memory_bytes
from gymnast.wire.http_client import connection_budget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.config import Instance

_BYTES_PER_ROLLOUT: Final = 2 * 1024 * 1024


def agent_limits(instances: Iterable[Instance]) -> dict[str, int]:
    """Rollouts in flight that agents and their environments allow, where they say so."""
    by_name = {instance.name: instance for instance in instances}
    found: dict[str, int] = {}
    for instance in by_name.values():
        if instance.kind == "responses_api_agents":
            needed = [instance, *(by_name[ref.name] for ref in instance.refs.values() if ref.name in by_name)]
            limits = [one.settings.get(key) for one in needed for key in ("max_rollouts", "max_sessions")]
            given = [limit for limit in limits if isinstance(limit, int)]
            if given:
                found[instance.name] = min(given)
    return found


def host_cap() -> int:
    """Rollouts in flight that the host's open files and memory allow."""
    memory = available_memory_bytes()
    by_memory = memory // _BYTES_PER_ROLLOUT if memory is not None else DEFAULT_CAP
    return max(1, min(DEFAULT_CAP, connection_budget() // 2, by_memory))
