"""Rules about what is running: servers and endpoints that do not answer, stuck attempts, and normal full load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding, Note
from gymnast.doctor.rules.rule import Rule
from gymnast.types.failure import FailureKind, Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts
    from gymnast.doctor.rules.rule import NoteRule

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
_MAX_SHOWN: Final = 5


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


def endpoint_silent(facts: Facts) -> Finding | None:
    """A policy endpoint does not answer /models."""
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


def attempts_stuck(facts: Facts) -> Finding | None:
    """Attempts of a collection, or requests of a `serve`, wait much longer than others take."""
    stuck = _stuck(facts)
    if not stuck:
        return None
    first = stuck[0]
    stage, where = first["stage"], _where(first)
    evidence = [
        Evidence(
            f"{row['key']} in stage {row['stage']}: waiting for {_where(row)} for {row['in_stage_s']:.0f} s",
            keys=(row["key"],),
        )
        for row in stuck[:_MAX_SHOWN]
    ]
    shown = [row for row in (*facts.stacks, *facts.requests) if row["key"] == first["key"]]
    evidence += [Evidence("stack of " + row["key"], quote=_innermost(row)) for row in shown[:1]]
    what = "requests" if facts.live is None else "rollouts"
    return Finding(
        "stuck",
        _LAYERS.get(stage, Layer.INFRA),
        f"{len(stuck)} {what} in stage {stage} are waiting for {where}, the first for {first['in_stage_s']:.0f} s",
        f"{where} does not reply; every wait has a deadline, so the run continues, but slowly",
        _ACTIONS.get(stage, "check what the stack below waits for; gymnast ctl RUN cancel KEY cancels a rollout"),
        tuple(evidence),
        Confidence.MEDIUM,
        affected=len(stuck),
        weight=70,
    )


def _stuck(facts: Facts) -> list[dict[str, Any]]:
    """The stuck attempts or requests, the longest wait first."""
    rows = list(facts.live.get("oldest", ())) if facts.live is not None else list(facts.requests)
    endpoints = {row["key"]: row.get("endpoint") for row in facts.stacks}
    limit_s = _wait_limit(facts, facts.live) if facts.live is not None else facts.stuck_after_s
    entries = [{**row, "endpoint": row.get("endpoint") or endpoints.get(row["key"])} for row in rows]
    return sorted((row for row in entries if row["in_stage_s"] >= limit_s), key=lambda row: -float(row["in_stage_s"]))


def _where(row: dict[str, Any]) -> str:
    name = row["instance"] or row["agent"]
    return f"{name} ({row['endpoint']})" if row.get("endpoint") else str(name)


def _wait_limit(facts: Facts, live: dict[str, Any]) -> float:
    """How long a wait may be: as configured, or ten times the duration of a rollout."""
    done = live["scored"] + sum(live["failed"].values())
    mean_s = live["seconds"] * max(1, live["limit"]) / done if done else 0.0
    return float(max(facts.stuck_after_s, 10 * mean_s))


def _innermost(entry: dict[str, Any]) -> str:
    frames = entry.get("frames") or ["no frame"]
    return " ← ".join(reversed(frames[-3:]))


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
    if attempts_stuck(facts) is not None or not live["per_second"]:
        return None
    return Note(
        "saturated",
        f"{live['in_flight']} rollouts in flight of {live['limit']} allowed, {live['per_second']:.1f} a second, no "
        "errors: normal full load",
    )


RULES: Final = (
    Rule(
        *("servers_down", Layer.INFRA, 3, "Instances of a running `serve` do not answer."),
        *("Read the log of the first.", servers_down),
    ),
    Rule("endpoint_down", Layer.MODEL_SERVING, 2, "The endpoint does not answer now.", "Start it.", endpoint_silent),
    Rule(
        *("stuck", Layer.THROUGHPUT, 4, "Rollouts of a running collection wait much longer than others take."),
        *("Check what the stack waits for.", attempts_stuck),
    ),
    Rule(
        *("endpoint_down", Layer.MODEL_SERVING, 2, "A server that a running collection waits for is down."),
        *("Restart it; the run continues automatically.", out_of_reach),
    ),
)
NOTES: Final[tuple[NoteRule, ...]] = (at_full_load,)
