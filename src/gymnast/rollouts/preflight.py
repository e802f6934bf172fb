"""The preflight of a run: the first rollouts of each agent run one at a time, until one shows that others can succeed.

Pure: outcomes and times are arguments. It makes no extra requests, and it ends for an agent as soon as a model has
answered, a rollout was scored, one failed for a reason that others need not share, or `_PATIENCE_S` has passed: an
endpoint that refuses does so at once. A run is ended only by what every other rollout would meet as well:

- `_MIN_REFUSALS` rollouts in a row that the endpoint refuses for a reason that does not depend on the row;
- a suspicion of the probes made before (`preflight_probes`) that the first rollout confirms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.rollouts.attempt import Failed, Scored
from gymnast.types.failure import FailureDetail, Layer, Stage, kind_named
from gymnast.types.truncation import Truncation
from gymnast.wire.endpoint_errors import Cause, Certainty

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gymnast.rollouts.attempt import Outcome
    from gymnast.rollouts.runner import WorkItem

_PATIENCE_S: Final = 1.0
_SUSPICIOUS_PATIENCE_S: Final = 60.0
"""How long to wait for the first rollout if there is a suspicion."""
_MIN_REFUSALS: Final = 3
_SAME_FOR_ALL: Final = frozenset(
    {
        *(Cause.KEY_REFUSED, Cause.ACCESS_DENIED, Cause.QUOTA, Cause.MODEL_NAME, Cause.LORA, Cause.OTHER_MODEL),
        *(Cause.NO_SUCH_PATH, Cause.NO_RESPONSES_API, Cause.WRONG_DIALECT, Cause.REDIRECT, Cause.HTML_BODY),
        *(Cause.TLS_UNTRUSTED, Cause.TLS_ON_PLAIN, Cause.PLAIN_ON_TLS),
    }
)
"""Refusals that do not depend on the request and that do not pass by themselves."""


def is_same_for_all(detail: FailureDetail) -> bool:
    """Whether an endpoint would refuse every other request, too, by its own words."""
    return detail.cause in _SAME_FOR_ALL and detail.certainty not in {None, Certainty.STATUS}


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What will fail every rollout of some agents, unless the first one shows that it does not."""

    agents: frozenset[str]
    reason: str
    is_confirmed_by: Callable[[Outcome], bool]


def shows_refused_judge(outcome: Outcome) -> bool:
    """Whether a rollout failed where its judge is called."""
    return isinstance(outcome, Failed) and outcome.detail.stage is Stage.VERIFY


def shows_overflow(outcome: Outcome) -> bool:
    """Whether a rollout's first prompt did not fit into the context."""
    if isinstance(outcome, Scored):
        return outcome.truncated is Truncation.LENGTH and not outcome.output_tokens
    return outcome.detail.cause in {Cause.CONTEXT_OVERFLOW, Cause.OUTPUT_LIMIT}


@dataclass(slots=True)
class _Trial:
    """The first rollouts of an agent."""

    suspicions: list[Suspicion]
    is_flying: bool = False
    refusals: int = 0


class Preflight:
    """The trials of all agents of a run."""

    def __init__(self, suspicions: Iterable[Suspicion] = ()) -> None:
        self._suspicions = tuple(suspicions)
        self._trials: dict[str, _Trial] = {}
        """Of agents whose trial is not over."""
        self._passed: set[str] = set()
        """Agents whose trial is over."""

    def may_start(self, agent: str) -> bool:
        """Whether a rollout of the agent may start: only one at a time during its trial."""
        return agent in self._passed or not self._trial(agent).is_flying

    def record_start(self, agent: str) -> None:
        if agent not in self._passed:
            self._trial(agent).is_flying = True

    def record_outcome(self, agent: str, outcome: Outcome) -> str | None:
        """Why no other rollout of the agent can succeed, or None."""
        if agent in self._passed:
            return None
        trial = self._trial(agent)
        trial.is_flying = False
        for suspicion in trial.suspicions:
            if suspicion.is_confirmed_by(outcome):
                return f"preflight: {suspicion.reason}"
        if isinstance(outcome, Failed) and _is_refusal(outcome.detail):
            return _count_refusal(agent, trial, outcome.detail)
        self._end(agent)
        return None

    def review(self, items: Iterable[WorkItem], now: float) -> None:
        """End the trials of agents whose first rollout got an answer, or takes long."""
        for item in items if self._trials else ():
            if item.agent in self._passed:
                continue
            trial = self._trial(item.agent)
            usage = item.progress.usage_counter
            has_answer = usage is not None and usage.calls > usage.failed_calls
            patience_s = _SUSPICIOUS_PATIENCE_S if trial.suspicions else _PATIENCE_S
            if (has_answer and not trial.suspicions) or now - item.started > patience_s:
                self._end(item.agent)

    def _end(self, agent: str) -> None:
        self._passed.add(agent)
        self._trials.pop(agent, None)

    def _trial(self, agent: str) -> _Trial:
        if agent not in self._trials:
            self._trials[agent] = _Trial([suspicion for suspicion in self._suspicions if agent in suspicion.agents])
        return self._trials[agent]


def _is_refusal(detail: FailureDetail) -> bool:
    return kind_named(detail.kind).layer is Layer.CONFIG or is_same_for_all(detail)


def _count_refusal(agent: str, trial: _Trial, detail: FailureDetail) -> str | None:
    """Refusals that may depend on the row are left to the circuit breaker, which sees them one at a time."""
    trial.refusals = trial.refusals + 1 if is_same_for_all(detail) else 0
    if trial.refusals < _MIN_REFUSALS:
        return None
    return f"preflight: the first attempts of {agent} failed on the configuration: {detail.message}"
