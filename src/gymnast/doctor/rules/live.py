"""Rules about what is running: servers and endpoints that do not answer, stuck attempts, and normal full load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding, Note
from gymnast.doctor.rules.rule import rule
from gymnast.doctor.waits import EndpointState, has_paused_settling, judge_waits, patience_s
from gymnast.types.failure import FailureKind, Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts
    from gymnast.doctor.rules.rule import NoteRule
    from gymnast.doctor.waits import Wait

_LAYERS: Final = {
    "model": Layer.MODEL_SERVING,
    "tool": Layer.THROUGHPUT,
    "verify": Layer.VERIFIER,
    "seed": Layer.VERIFIER,
    "close": Layer.VERIFIER,
    "agent": Layer.AGENT,
    "plan": Layer.INFRA,
}
_ACTIONS: Final = {
    "model": "check the model server's log and queue: it does not reply; lower --concurrency if it is full",
    "tool": "check that the environment has the tool and what it waits for (stack below); tool_timeout_s ends the wait",
    "verify": "check what the verifier waits for (stack below); verify_timeout_s ends the wait",
}
_STATE_ACTIONS: Final = {
    EndpointState.SILENT: "check that the model server runs (its log, nvidia-smi); restart it, and the run continues",
    EndpointState.STALLED: "read the model server's log (NCCL, CUDA, a dead worker) and restart it; the run continues",
    EndpointState.IDLE: "check the proxy or load balancer in front of the model server, and the server's log for "
    "aborted requests; gymnast ctl RUN cancel KEY retries a rollout",
}
_MAX_SHOWN: Final = 5
_BUSY: Final = frozenset({FailureKind.MODEL_RATE_LIMITED.value, FailureKind.MODEL_OVERLOADED.value})
"""Replies of an endpoint that limits its load: finding the best concurrency causes some."""
_MAX_BUSY: Final = 0.5
_MAX_BROKEN: Final = 0.2
_MIN_RETRIED: Final = 10
UNDECIDED: Final = "undecided"
"""The note about waits that may be a hang."""


@rule(Layer.INFRA, 3, "Read the log of the first.")
def servers_down(facts: Facts) -> Finding | None:
    """Instances of a running `serve` do not answer."""
    down = [server for server in facts.servers if not server.ok]
    if not down:
        return None
    names = ", ".join(server.name for server in down)
    return Finding(
        "servers_down",
        Layer.INFRA,
        f"{len(down)} of {len(facts.servers)} servers are not ready: {names}",
        "the process died, is still starting, or listens elsewhere",
        f"read the log of {down[0].name} (gymnast status shows the file) and restart it",
        tuple(Evidence(f"{server.name} at {server.url}: {server.detail}") for server in down[:_MAX_SHOWN]),
        weight=93,
        explains=frozenset({"environment_down", "agent_down", "endpoint_down"}),
    )


@rule(Layer.MODEL_SERVING, 2, "Start it.", name="endpoint_down")
def endpoint_silent(facts: Facts) -> Finding | None:
    """The endpoint does not answer now."""
    down = [probe for probe in facts.probes if not probe.ok]
    if not down or facts.is_complete:
        return None
    probe = down[0]
    return Finding(
        "endpoint_down",
        Layer.MODEL_SERVING,
        f"the policy endpoint {probe.url} does not answer",
        f"a request just now failed: {probe.detail}",
        f"start it, or correct its URL: curl {probe.url}; then run again with --resume",
        tuple(Evidence(f"GET {probe.url}: {probe.detail}") for probe in down[:_MAX_SHOWN]),
        lost=facts.unexplained,
        weight=67,
    )


@rule(Layer.THROUGHPUT, 4, "Check what the stack waits for.", name="stuck")
def attempts_stuck(facts: Facts) -> Finding | None:
    """Rollouts of a running collection wait much longer than others take."""
    wait = judge_waits(facts)
    if wait is not None:
        return _stuck_rollouts(facts, wait) if wait.is_fault else None
    rows = [row for row in facts.requests if row["in_stage_s"] >= patience_s(facts.stuck_after_s)]
    if facts.live is not None or not rows:
        return None
    first = max(rows, key=lambda row: float(row["in_stage_s"]))
    return _stuck_finding(facts, rows, first, f"{len(rows)} requests", f"{_where(first)} does not reply")


def _stuck_rollouts(facts: Facts, wait: Wait) -> Finding:
    first = wait.rows[0]
    what = f"all {wait.count} rollouts in flight" if wait.is_total else f"{wait.count} rollouts"
    finding = _stuck_finding(facts, list(wait.rows), first, what, _explain(wait, _where(first)))
    evidence = [*finding.evidence, Evidence(wait.usual), *_activity_evidence(wait)]
    action = _STATE_ACTIONS.get(wait.state, finding.action)
    return replace(finding, evidence=tuple(evidence), confidence=wait.confidence, affected=wait.count, action=action)


def _stuck_finding(facts: Facts, rows: list[dict[str, Any]], first: dict[str, Any], what: str, cause: str) -> Finding:
    evidence = [
        Evidence(
            f"{row['key']} in stage {row['stage']}: waiting for {_where(row)} for {row['in_stage_s']:.0f} s",
            keys=(row["key"],),
        )
        for row in rows[:_MAX_SHOWN]
    ]
    shown = [row for row in (*facts.stacks, *facts.requests) if row["key"] == first["key"]]
    evidence += [Evidence("stack of " + row["key"], quote=_innermost(row)) for row in shown[:1]]
    stage = first["stage"]
    return Finding(
        "stuck",
        _LAYERS.get(stage, Layer.INFRA),
        f"{what} in stage {stage} are waiting for {_where(first)}, the first for {first['in_stage_s']:.0f} s",
        f"{cause}; every wait has a deadline, so the run continues, but slowly",
        _ACTIONS.get(stage, "check what the stack below waits for; gymnast ctl RUN cancel KEY cancels a rollout"),
        tuple(evidence),
        Confidence.MEDIUM,
        affected=len(rows),
        weight=70,
    )


def _explain(wait: Wait, where: str) -> str:
    match wait.state:
        case EndpointState.SILENT:
            return f"{where} does not answer a simple GET either"
        case EndpointState.STALLED:
            return f"{where} has requests, but no token comes out of it: its engine hangs"
        case EndpointState.IDLE:
            return f"{where} has no request: ours were lost on the way, or it has forgotten them"
        case EndpointState.WORKING:
            return f"{where} is at work; these requests are lost, or far longer than any before"
    return f"{where} does not reply"


def _activity_evidence(wait: Wait) -> list[Evidence]:
    activity = wait.activity
    if activity is None:
        return []
    if not activity.answers:
        return [Evidence(f"GET {activity.url}/models: {activity.detail}")]
    before, after = activity.before, activity.after
    if before is None or after is None:
        return [Evidence(f"{activity.url} answers /models and has no metrics")]
    load = f"{after.running:.0f} requests running, {after.waiting:.0f} waiting"
    if after.tokens is None or before.tokens is None:
        return [Evidence(f"metrics of {activity.url}: {load}, {after.throughput:.1f} tokens a second")]
    tokens = after.tokens - before.tokens
    return [Evidence(f"metrics of {activity.url}: {load}, {tokens:.0f} tokens in {activity.seconds:.1f} s")]


def _where(row: dict[str, Any]) -> str:
    name = row["instance"] or row["agent"]
    return f"{name} ({row['endpoint']})" if row.get("endpoint") else str(name)


def _innermost(entry: dict[str, Any]) -> str:
    frames = entry.get("frames") or ["no frame"]
    return " ← ".join(reversed(frames[-3:]))


@rule(Layer.MODEL_SERVING, 2, "Check each replica.")
def calls_retried(facts: Facts) -> Finding | None:
    """Many model calls fail, and retries in the model server hide it."""
    live = facts.live
    retried: dict[str, int] = (live or {}).get("retried_calls") or {}
    if live is None or not retried:
        return None
    calls = max(1, live["model_calls"])
    broken = {kind: count for kind, count in retried.items() if kind not in _BUSY}
    kinds, share = (broken, _MAX_BROKEN) if broken else (retried, _MAX_BUSY)
    failed = sum(kinds.values())
    if failed < _MIN_RETRIED or failed / calls < share:
        return None
    worst = max(kinds, key=lambda kind: kinds[kind])
    return Finding(
        "calls_retried",
        Layer.MODEL_SERVING,
        f"{failed} of {calls} model calls failed ({worst}) and were repeated: {failed / calls:.0%}",
        "a replica, proxy or the server fails some of the requests; retries hide it and cost time",
        "gymnast check endpoint URL, for each replica; read the server's log",
        (Evidence(", ".join(f"{count} × {kind}" for kind, count in retried.items()), count=failed),),
        Confidence.MEDIUM,
        affected=failed,
        weight=50,
    )


@rule(Layer.MODEL_SERVING, 2, "Restart it; the run continues automatically.", name="endpoint_down")
def out_of_reach(facts: Facts) -> Finding | None:
    """A server that a running collection waits for is down."""
    live = facts.live
    unreachable = live.get("out_of_reach_s") if live is not None else None
    if not unreachable:
        return None
    agent, seconds = max(unreachable.items(), key=lambda pair: float(pair[1]))
    failed = facts.groups(
        FailureKind.MODEL_UNREACHABLE,
        FailureKind.MODEL_OVERLOADED,
        FailureKind.ENVIRONMENT_UNREACHABLE,
        FailureKind.INSTANCE_DIED,
    )
    where = failed[0].first.endpoint or failed[0].first.instance if failed else "what it needs"
    is_model = not failed or failed[0].kind.startswith("model")
    return Finding(
        "endpoint_down" if is_model else "environment_down",
        Layer.MODEL_SERVING if is_model else Layer.INFRA,
        f"{agent} waits for {where}, which has been unreachable for {seconds:.0f} s",
        "nothing answers there: it is not running, or its URL is wrong",
        f"restart it, and the run continues automatically; curl {where}/models" if is_model else f"restart {where}",
        (Evidence(f"{agent}: unreachable for {seconds:.0f} s"),),
        affected=int(live["owed"]) if live is not None else 0,
        weight=80,
    )


def at_full_load(facts: Facts) -> Note | None:
    """All slots in use, steady output, no errors: full load."""
    live = facts.live
    if live is None or live["in_flight"] < live["limit"] or live["failed"] or live["out_of_reach_s"]:
        return None
    if judge_waits(facts) is not None or not live["per_second"] or calls_retried.apply(facts) is not None:
        return None
    if has_paused_settling(live):
        return None
    repeated = sum((live.get("retried_calls") or {}).values())
    errors = f"{repeated} of {live['model_calls']} model calls repeated" if repeated else "no errors"
    return Note(
        "saturated",
        f"{live['in_flight']} rollouts in flight of {live['limit']} allowed, {live['per_second']:.1f} a second, "
        f"{errors}: normal full load",
    )


def calls_repeated(facts: Facts) -> Note | None:
    """Model calls that failed and were repeated, too few for a finding, while nothing was settled for long."""
    live = facts.live
    retried: dict[str, int] = (live or {}).get("retried_calls") or {}
    if live is None or not retried or not live["per_second"] or not has_paused_settling(live):
        return None
    kinds = ", ".join(f"{count} × {kind}" for kind, count in retried.items())
    return Note(
        "calls_repeated",
        f"no rollout was settled for {live['since_settled_s']:.0f} s, and model calls fail ({kinds}): they are "
        "repeated. gymnast check endpoint tests the endpoint now",
    )


def long_waits(facts: Facts) -> Note | None:
    """Waits that are long, and not known to be a fault."""
    wait = judge_waits(facts)
    if wait is None or wait.is_fault:
        return None
    first = wait.rows[0]
    text = (
        f"{wait.count} rollouts in stage {first['stage']} are waiting for {_where(first)}, the first for "
        f"{first['in_stage_s']:.0f} s"
    )
    if wait.state is EndpointState.WORKING:
        work = "; ".join(evidence.what for evidence in _activity_evidence(wait))
        return Note("slow", f"{text}; it is at work ({work}), so this is slow, not stuck")
    return Note(
        UNDECIDED,
        f"{text}; {wait.usual}, so a hang and long answers look alike here. If that is too long for you: --stuck-after "
        f"{patience_s(None):.0f} reports it, gymnast check endpoint tests the endpoint, and the stacks are below",
    )


def paused(facts: Facts) -> Note | None:
    """The collection starts nothing on purpose."""
    live = facts.live
    if live is None:
        return None
    if live["state"] == "paused":
        return Note("paused", "the run is paused: gymnast ctl RUN resume continues it")
    if live.get("is_held"):
        return Note("paused", "the run waits for the consumer of its records")
    return None


RULES: Final = (servers_down, endpoint_silent, attempts_stuck, out_of_reach, calls_retried)
NOTES: Final[tuple[NoteRule, ...]] = (at_full_load, calls_repeated, long_waits, paused)
