"""Judges the waits of a running collection: a hang, an endpoint at work, or not yet known. Pure.

How long a wait may last follows from what the user set, from the rollouts of this run that were scored, and from the
endpoint's own metrics. Rollouts that failed say nothing: one that timed out lasted as long as its deadline. Early in a
run only short rollouts have finished, so their durations are proof only once the slots have been filled anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from gymnast.doctor.findings import Confidence

if TYPE_CHECKING:
    from gymnast.doctor.facts import EndpointActivity, Facts

_DEFAULT_PATIENCE_S: Final = 60.0
_MIN_SCORED: Final = 10
"""Scored rollouts that show which durations are usual."""
_MIN_SCORED_AT_WORK: Final = 30
"""The same, against an endpoint that is at work."""
_TIMES_MEAN: Final = 10
_TIMES_LONGEST: Final = 2
_MIN_PAUSE_S: Final = 5.0
_MAX_UNDECIDED_S: Final = 1800.0
"""A wait this long is reported even without proof."""


class EndpointState(StrEnum):
    """What an endpoint does while rollouts wait for it."""

    UNKNOWN = "unknown"
    WORKING = "working"
    STALLED = "stalled"
    """Has requests, and no token comes out."""
    IDLE = "idle"
    """Has no request."""
    SILENT = "silent"
    """Does not answer at all."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What the rollouts in flight wait for."""

    rows: tuple[dict[str, Any], ...]
    """The oldest, longest wait first."""
    count: int
    is_total: bool
    """Nothing in flight has moved, and nothing was settled, for that long."""
    state: EndpointState
    activity: EndpointActivity | None = None
    is_fault: bool = True
    """False: the endpoint is at work, or it is not known whether such a wait is unusual."""
    confidence: Confidence = Confidence.MEDIUM
    usual: str = ""
    """What is known about rollouts that were scored."""


def patience_s(stuck_after_s: float | None) -> float:
    """How long a wait may last at least."""
    return _DEFAULT_PATIENCE_S if stuck_after_s is None else stuck_after_s


def judge_endpoint(activity: EndpointActivity | None) -> EndpointState:
    """What an endpoint does, as far as its metrics tell."""
    if activity is None:
        return EndpointState.UNKNOWN
    if not activity.answers:
        return EndpointState.SILENT
    before, after = activity.before, activity.after
    if before is None or after is None:
        return EndpointState.UNKNOWN
    if before.tokens != after.tokens or after.throughput > 0:
        return EndpointState.WORKING
    if not (before.running or before.waiting or after.running or after.waiting):
        return EndpointState.IDLE
    return EndpointState.STALLED if after.tokens is not None else EndpointState.UNKNOWN


def judge_waits(facts: Facts) -> Wait | None:
    """The longest waits of a running collection; None if none is long."""
    live = facts.live
    if live is None or not live["oldest"]:
        return None
    patience, mean_s, longest_s = patience_s(facts.stuck_after_s), _mean_s(live), float(live["longest_scored_s"])
    stall_s = max(patience, _TIMES_LONGEST * longest_s)
    is_total = _has_stalled(live, stall_s)
    limit_s = stall_s if is_total else max(stall_s, _TIMES_MEAN * mean_s)
    endpoints = {row["key"]: row.get("endpoint") for row in facts.stacks}
    entries = [{**row, "endpoint": row.get("endpoint") or endpoints.get(row["key"])} for row in live["oldest"]]
    rows = sorted((row for row in entries if row["in_stage_s"] >= limit_s), key=lambda row: -float(row["in_stage_s"]))
    if not rows:
        return None
    return _judge(facts, live, rows, is_total=is_total)


def _judge(facts: Facts, live: dict[str, Any], rows: list[dict[str, Any]], *, is_total: bool) -> Wait:
    """Rows at an endpoint that is at work do not count, unless many others were far faster."""
    activities = {activity.url: activity for activity in facts.activity}
    scored, usual = _count_scored(live), _describe_usual(live)
    at_work = [row for row in rows if _state_of(row, activities) is EndpointState.WORKING]
    others = [row for row in rows if row not in at_work]
    if not others:
        activity = activities[at_work[0]["endpoint"]]
        is_odd = not is_total and scored >= _MIN_SCORED_AT_WORK
        return Wait(
            *(tuple(rows), len(rows), is_total, EndpointState.WORKING, activity),
            is_fault=is_odd,
            confidence=Confidence.LOW,
            usual=usual,
        )
    state = _state_of(others[0], activities)
    is_total = is_total and not at_work
    is_proved = state is not EndpointState.UNKNOWN or facts.stuck_after_s is not None
    is_unusual = scored >= max(_MIN_SCORED, live["in_flight"] if is_total else 0)
    is_endless = others[0]["in_stage_s"] >= _MAX_UNDECIDED_S
    return Wait(
        tuple(others),
        int(live["in_flight"]) if is_total else len(others),
        is_total,
        state,
        activities.get(others[0]["endpoint"] or ""),
        is_fault=is_proved or is_unusual or is_endless,
        confidence=Confidence.MEDIUM if is_proved or is_unusual else Confidence.LOW,
        usual=usual,
    )


def _state_of(row: dict[str, Any], activities: dict[str, EndpointActivity]) -> EndpointState:
    return judge_endpoint(activities.get(row["endpoint"] or "") if row["stage"] == "model" else None)


def _has_stalled(live: dict[str, Any], limit_s: float) -> bool:
    """True if everything in flight has been where it is for that long, and nothing was settled since."""
    shortest, settled = live["shortest_wait_s"], live["since_settled_s"]
    return shortest is not None and shortest >= limit_s and (settled is None or settled >= limit_s)


def has_paused_settling(live: dict[str, Any]) -> bool:
    """True if no rollout was settled for far longer than usual: the average rate says nothing about now."""
    settled = live["since_settled_s"]
    usual_s = max(_TIMES_LONGEST * float(live["longest_scored_s"]), _TIMES_MEAN / float(live["per_second"]))
    return settled is not None and settled > max(_MIN_PAUSE_S, usual_s)


def _count_scored(live: dict[str, Any]) -> int:
    """Scored rollouts of this invocation."""
    stats = live.get("this_invocation") or {}
    return int(stats.get("scored") or 0)


def _mean_s(live: dict[str, Any]) -> float:
    stats = live.get("this_invocation") or {}
    return float(stats.get("mean_seconds") or 0.0)


def _describe_usual(live: dict[str, Any]) -> str:
    scored = _count_scored(live)
    if not scored:
        return "no rollout has been scored since it started"
    mean_s, longest_s = _mean_s(live), live["longest_scored_s"]
    return f"{scored} scored rollouts took {mean_s:.1f} s on average, {longest_s:.1f} s at most"
