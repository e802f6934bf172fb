"""A circuit breaker for each agent: start its rollouts, wait, or give up. Pure: outcomes and times are arguments.

- closed: rollouts start. A series of outages (`Recovery.OUTAGE`) opens the breaker.
- open: nothing starts for a pause that doubles each time; then one rollout probes. A scored rollout closes the breaker;
  a failure of another kind closes it too, because something answered.
- given up, permanently: by the preflight, because it was open for longer than `give_up_after_s`, or because nothing was
  ever scored and a retry cannot fix the failures, such as a wrong key, rows that never match or a verifier that always
  raises.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gymnast.types.failure import FailureKind, Layer, Recovery, kind_named

if TYPE_CHECKING:
    from gymnast.types.failure import FailureDetail

_OPEN_AFTER: Final = 8
_MAX_CONFIG_FAILURES: Final = 5
_MAX_FAILURES: Final = 20
_MAX_MODEL_ERRORS: Final = 100
"""An endpoint that replies, but only with errors, may recover; not after this many."""
_MAX_PAUSE_S: Final = 30.0


@dataclass(slots=True)
class _Agent:
    scored: int = 0
    kinds: Counter[FailureKind] = field(default_factory=Counter)
    last: FailureDetail | None = None
    outages_in_a_row: int = 0
    pauses: int = 0
    open_since: float | None = None
    paused_until: float = 0.0
    is_probing: bool = False


class CircuitBreaker:
    """The breakers of all agents of a run."""

    def __init__(self, *, give_up_after_s: float) -> None:
        self._give_up_after_s = give_up_after_s
        self._agents: defaultdict[str, _Agent] = defaultdict(_Agent)
        self._given_up: dict[str, str] = {}
        """Agents that were given up, with the reason."""

    def record_scored(self, name: str) -> None:
        """A rollout of the agent was scored: whatever was down is up."""
        agent = self._agents[name]
        agent.scored += 1
        agent.outages_in_a_row = agent.pauses = 0
        agent.open_since = None
        agent.paused_until = 0.0
        agent.is_probing = False

    def record_failure(self, name: str, detail: FailureDetail, now: float) -> None:
        """An attempt of the agent failed."""
        agent = self._agents[name]
        agent.kinds[detail.kind] += 1
        agent.last = detail
        agent.is_probing = False
        if kind_named(detail.kind).recovery is Recovery.OUTAGE:
            agent.outages_in_a_row += 1
            if agent.outages_in_a_row >= _OPEN_AFTER:
                self._open(name, agent, now)
        else:
            agent.outages_in_a_row = 0
            agent.open_since = None
        if name not in self._given_up and (reason := _why_hopeless(name, agent)) is not None:
            self._given_up[name] = reason

    def give_up(self, name: str, reason: str) -> None:
        """Start no more rollouts of the agent: the preflight has shown that none can succeed."""
        self._given_up[name] = reason

    def may_start(self, name: str, now: float) -> bool:
        """Whether a rollout of the agent may start now. After a pause one may, as a probe."""
        agent = self._agents.get(name)
        if name in self._given_up:
            return False
        if agent is None or agent.open_since is None:
            return True
        if now < agent.paused_until or agent.is_probing:
            return False
        agent.is_probing = True
        return True

    def give_up_reason(self, name: str) -> str | None:
        """Why the agent was given up, or None."""
        return self._given_up.get(name)

    def reasons(self) -> dict[str, str]:
        """Every agent that was given up, with the reason."""
        return dict(self._given_up)

    def open_for_s(self, now: float) -> dict[str, float]:
        """Agents whose breaker is open, and for how long it has been."""
        return {name: now - agent.open_since for name, agent in self._agents.items() if agent.open_since is not None}

    def _open(self, name: str, agent: _Agent, now: float) -> None:
        if agent.open_since is None:
            agent.open_since = now
        if now >= agent.paused_until:
            agent.paused_until = now + min(2.0 ** min(agent.pauses, 30), _MAX_PAUSE_S)
            agent.pauses += 1
        if now - agent.open_since > self._give_up_after_s:
            where = agent.last.endpoint or agent.last.instance if agent.last else None
            what = agent.last.message if agent.last else ""
            self._given_up[name] = f"{where} has been unreachable for {now - agent.open_since:.0f} s: {what}"


def _why_hopeless(name: str, agent: _Agent) -> str | None:
    """Why going on is hopeless: nothing was scored yet, and all failures are of kinds that time does not heal."""
    if agent.scored or agent.last is None:
        return None
    total = agent.kinds.total()
    kinds = [kind_named(kind) for kind in agent.kinds]
    if total >= _MAX_CONFIG_FAILURES and all(kind.layer is Layer.CONFIG for kind in kinds):
        return f"the first {total} attempts of {name} failed on the configuration: {agent.last.message}"
    allowed = _MAX_MODEL_ERRORS if FailureKind.MODEL_ERROR in agent.kinds else _MAX_FAILURES
    if total >= allowed and all(kind.recovery in {Recovery.FIX, Recovery.RETRY} for kind in kinds):
        counts = ", ".join(f"{count} × {kind}" for kind, count in agent.kinds.most_common(3))
        return f"the first {total} attempts of {name} all failed ({counts}): {agent.last.message}"
    return None
