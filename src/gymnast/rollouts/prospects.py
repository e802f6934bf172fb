"""Whether going on makes sense. Pure: told outcomes and the time, it answers for each agent: go on, wait, or give up.

Waiting is a circuit breaker: what cannot be reached is left alone for a growing while and then tried with one rollout.
Giving up is for what no waiting mends: a wrong key, rows that never fit, a verifier that always raises.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gymnast.types.failure import Layer, kind_named

if TYPE_CHECKING:
    from gymnast.types.failure import FailureDetail

_UNREACHABLE: Final = frozenset(
    {"model_unreachable", "model_overloaded", "environment_unreachable", "agent_unreachable", "instance_died"}
)
_TRIP_AFTER: Final = 8
_HOPELESS_CONFIG: Final = 5
_HOPELESS_ANY: Final = 20
_HOPELESS_ERRORS: Final = 100
"""An endpoint that answers, but with errors only, may yet come round; not after this many."""
_LONGEST_PAUSE_S: Final = 30.0


@dataclass(slots=True)
class _Agent:
    scored: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    last: FailureDetail | None = None
    in_a_row: int = 0
    trips: int = 0
    down_since: float | None = None
    closed_until: float = 0.0
    probing: bool = False
    given_up: str | None = None


class Prospects:
    """The prospects of each agent's rollouts."""

    def __init__(self, *, give_up_after_s: float) -> None:
        self._give_up_after_s = give_up_after_s
        self._agents: dict[str, _Agent] = {}

    def scored(self, agent: str) -> None:
        """A rollout of the agent was scored: whatever was down is up."""
        found = self._of(agent)
        found.scored += 1
        found.in_a_row = found.trips = 0
        found.down_since = None
        found.closed_until = 0.0
        found.probing = False

    def failed(self, agent: str, detail: FailureDetail, now: float) -> None:
        """An attempt of the agent failed."""
        found = self._of(agent)
        found.kinds[detail.kind] += 1
        found.last = detail
        found.probing = False
        if detail.kind in _UNREACHABLE:
            found.in_a_row += 1
            if found.in_a_row >= _TRIP_AFTER:
                self._trip(found, now)
        else:
            found.in_a_row = 0
            found.down_since = None
        found.given_up = found.given_up or self._verdict(agent, found)

    def may_start(self, agent: str, now: float) -> bool:
        """Whether a rollout of the agent may be started now. After a pause, one may, to see how things are."""
        found = self._agents.get(agent)
        if found is None:
            return True
        if found.given_up is not None:
            return False
        if found.down_since is None:
            return True
        if now < found.closed_until or found.probing:
            return False
        found.probing = True
        return True

    def given_up(self, agent: str) -> str | None:
        """Why the agent's rollouts are not worth starting any more, or None."""
        found = self._agents.get(agent)
        return found.given_up if found is not None else None

    def reasons(self) -> dict[str, str]:
        """Every agent that was given up, with the reason."""
        return {name: agent.given_up for name, agent in self._agents.items() if agent.given_up is not None}

    def paused(self, now: float) -> dict[str, float]:
        """Agents that wait for something to come back, and for how long it has been down."""
        return {name: now - agent.down_since for name, agent in self._agents.items() if agent.down_since is not None}

    def _of(self, agent: str) -> _Agent:
        return self._agents.setdefault(agent, _Agent())

    def _trip(self, found: _Agent, now: float) -> None:
        if found.down_since is None:
            found.down_since = now
        if now >= found.closed_until:
            found.closed_until = now + min(2.0 ** min(found.trips, 30), _LONGEST_PAUSE_S)
            found.trips += 1
        if now - found.down_since > self._give_up_after_s:
            where = found.last.endpoint or found.last.instance if found.last else None
            what = found.last.message if found.last else ""
            found.given_up = f"{where} has been out of reach for {now - found.down_since:.0f} s: {what}"

    def _verdict(self, agent: str, found: _Agent) -> str | None:
        """Nothing scored yet and nothing but failures of a kind that repeating does not mend."""
        if found.scored or found.last is None:
            return None
        total = found.kinds.total()
        layers = {kind_named(kind).layer for kind in found.kinds}
        if layers == {Layer.CONFIG} and total >= _HOPELESS_CONFIG:
            return f"the first {total} attempts of {agent} failed on the configuration: {found.last.message}"
        enough = _HOPELESS_ERRORS if "model_error" in found.kinds else _HOPELESS_ANY
        if total >= enough and not set(found.kinds) & _TRANSIENT:
            kinds = ", ".join(f"{count} × {kind}" for kind, count in found.kinds.most_common(3))
            return f"the first {total} attempts of {agent} all failed ({kinds}): {found.last.message}"
        return None


# Failures that may pass by themselves; a run that begins with them is not hopeless.
_TRANSIENT: Final = _UNREACHABLE | {
    "model_rate_limited", "model_timeout", "rollout_timeout", "tool_timeout", "seed_timeout",
    "verifier_timeout", "judge_failed", "out_of_memory", "worker_died", "session_expired",
}  # fmt: skip
