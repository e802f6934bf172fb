"""What is running now: servers and endpoints that do not answer, attempts that are stuck, and load that is no fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding, Note
from gymnast.doctor.rules.rule import Rule
from gymnast.types.failure import Layer

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
    "model": "look at the model server (its log, its queue): it holds answers back; lower --concurrency if it is full",
    "tool": "see that the environment owns the tool and what it waits for (stack below); tool_timeout_s ends the wait",
    "verify": "see what the verifier waits for (stack below); verify_timeout_s ends the wait",
}
_SHOWN: Final = 5


def servers_down(facts: Facts) -> Finding | None:
    """Instances of a serve that do not answer."""
    down = [server for server in facts.servers if not server.ok]
    if not down:
        return None
    names = ", ".join(server.name for server in down)
    return Finding(
        "servers_down",
        Layer.INFRA,
        f"{len(down)} of {len(facts.servers)} servers are not ready: {names}",
        "the process died, is still starting, or listens elsewhere",
        f"read the log of {down[0].name} (gymnast status names the file) and start it again",
        tuple(Evidence(f"{server.name} at {server.url}: {server.said}") for server in down[:_SHOWN]),
        weight=93,
        explains=frozenset({"environment_down", "agent_down", "endpoint_down"}),
    )


def endpoint_silent(facts: Facts) -> Finding | None:
    """A policy endpoint that does not answer /models now."""
    down = [probe for probe in facts.probes if not probe.ok]
    if not down or facts.is_whole:
        return None
    probe = down[0]
    return Finding(
        "endpoint_down",
        Layer.MODEL_SERVING,
        f"the policy endpoint {probe.url} does not answer",
        f"asked just now: {probe.said}",
        f"start it, or correct its URL: curl {probe.url}; then run again with --resume",
        tuple(Evidence(f"GET {probe.url}: {probe.said}") for probe in down[:_SHOWN]),
        lost=facts.unexplained,
        weight=67,
    )


def attempts_stuck(facts: Facts) -> Finding | None:
    """What has not moved for long, far longer than others take: attempts of a collection, requests of a serve."""
    stuck = _stuck(facts)
    if not stuck:
        return None
    first = stuck[0]
    stage, where = first["stage"], _where(first)
    seen = [
        Evidence(
            f"{row['key']} waits for {_where(row)} at {row['stage']} for {row['in_stage_s']:.0f} s", keys=(row["key"],)
        )
        for row in stuck[:_SHOWN]
    ]
    shown = [row for row in (*facts.stacks, *facts.requests) if row["key"] == first["key"]]
    seen += [Evidence("stack of " + row["key"], quote=_innermost(row)) for row in shown[:1]]
    what = "requests" if facts.live is None else "rollouts"
    return Finding(
        "stuck",
        _LAYERS.get(stage, Layer.INFRA),
        f"{len(stuck)} {what} wait at {stage} for {where}, the first since {first['in_stage_s']:.0f} s",
        f"{where} does not answer; every wait has a deadline, so the rest goes on, but slowly",
        _ACTIONS.get(stage, "see what the stack below waits for; gymnast ctl RUN cancel KEY gives a rollout up"),
        tuple(seen),
        Confidence.MEDIUM,
        affected=len(stuck),
        weight=70,
    )


def _stuck(facts: Facts) -> list[dict[str, Any]]:
    """The longest wait first."""
    rows = list(facts.live.get("oldest", ())) if facts.live is not None else list(facts.requests)
    endpoints = {row["key"]: row.get("endpoint") for row in facts.stacks}
    patience_s = _patience(facts, facts.live) if facts.live is not None else facts.stuck_after_s
    found = [{**row, "endpoint": row.get("endpoint") or endpoints.get(row["key"])} for row in rows]
    return sorted((row for row in found if row["in_stage_s"] >= patience_s), key=lambda row: -float(row["in_stage_s"]))


def _where(row: dict[str, Any]) -> str:
    name = row["instance"] or row["agent"]
    return f"{name} ({row['endpoint']})" if row.get("endpoint") else str(name)


def _patience(facts: Facts, live: dict[str, Any]) -> float:
    """How long a wait may be: what was said, or ten times what a rollout takes here."""
    done = live["scored"] + sum(live["failed"].values())
    mean_s = live["seconds"] * max(1, live["limit"]) / done if done else 0.0
    return float(max(facts.stuck_after_s, 10 * mean_s))


def _innermost(entry: dict[str, Any]) -> str:
    frames = entry.get("frames") or ["no frame"]
    return " ← ".join(reversed(frames[-3:]))


def out_of_reach(facts: Facts) -> Finding | None:
    """Something that a running collection waits for is down."""
    live = facts.live
    away = live.get("out_of_reach_s") if live is not None else None
    if not away:
        return None
    agent, seconds = max(away.items(), key=lambda pair: float(pair[1]))
    failed = facts.groups("model_unreachable", "model_overloaded", "environment_unreachable", "instance_died")
    where = failed[0].first.endpoint or failed[0].first.instance if failed else "what it needs"
    is_model = not failed or failed[0].kind.startswith("model")
    return Finding(
        "endpoint_down" if is_model else "environment_down",
        Layer.MODEL_SERVING if is_model else Layer.INFRA,
        f"{agent} waits for {where}, which has been out of reach for {seconds:.0f} s",
        "nothing answers there: it is not up, died, or its URL is wrong",
        f"start it again: the run goes on by itself; curl {where}/models" if is_model else f"start {where} again",
        (Evidence(f"{agent}: out of reach for {seconds:.0f} s"),),
        affected=int(live["owed"]) if live is not None else 0,
        weight=80,
    )


def at_full_load(facts: Facts) -> Note | None:
    """Every place taken, steady output, no errors: full load."""
    live = facts.live
    if live is None or live["in_flight"] < live["limit"] or live["failed"] or live["out_of_reach_s"]:
        return None
    if attempts_stuck(facts) is not None or not live["per_second"]:
        return None
    return Note(
        "saturated",
        f"{live['in_flight']} rollouts in flight of {live['limit']} allowed, {live['per_second']:.1f} a second, no "
        "errors: full load, no fault; change nothing",
    )


RULES: Final = (
    Rule(
        *("servers_down", Layer.INFRA, 3, "Instances of a serve do not answer."),
        *("Read the log of the first.", servers_down),
    ),
    Rule("endpoint_down", Layer.MODEL_SERVING, 2, "The endpoint does not answer now.", "Start it.", endpoint_silent),
    Rule(
        *("stuck", Layer.THROUGHPUT, 4, "Rollouts of a running collection wait far longer than others take."),
        *("See what the stack waits for.", attempts_stuck),
    ),
    Rule(
        *("endpoint_down", Layer.MODEL_SERVING, 2, "What a running collection waits for is down."),
        *("Start it again: the run goes on by itself.", out_of_reach),
    ),
)
NOTES: Final[tuple[NoteRule, ...]] = (at_full_load,)
