"""The fixed order of looking: eight steps, each with what it saw, so that anybody can follow how doctor got there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Step, StepState
from gymnast.doctor.rules.registry import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.doctor.facts import Facts
    from gymnast.doctor.findings import Finding

    See = Callable[[Facts], list[str]]

_SHOWN: Final = 4


def _scheduler(facts: Facts) -> list[str]:
    saw: list[str] = []
    if facts.job is not None:
        saw.append(f"job {facts.job.id}: {facts.job.state} {facts.job.reason} (exit {facts.job.exit_code or '-'})")
    elif facts.job_problem:
        saw.append(facts.job_problem)
    logs = facts.logs
    if logs.files:
        saw.append(f"{len(logs.files)} log files, {logs.lines} lines, {logs.size_bytes / 1e6:.1f} MB")
        saw += [
            f"{name}: {hit.count} lines, first {hit.first.file}:{hit.first.line}" for name, hit in logs.hits.items()
        ]
    saw += [f"could not read {said}" for said in logs.unreadable]
    if facts.run is not None and facts.run.manifest is not None:
        held = "a process is writing it" if facts.run.is_running else "nobody is writing it"
        saw.append(f"manifest: {facts.run.manifest.state.value}; {held}")
    return saw


def _endpoint(facts: Facts) -> list[str]:
    saw = [f"GET {probe.url}: {probe.said or 'ok'} {', '.join(probe.models[:3])}".strip() for probe in facts.probes]
    groups = [
        group for group in (facts.run.failures if facts.run is not None else ()) if group.kind.startswith("model")
    ]
    saw += [f"{group.attempts} × {group.kind} at {group.first.endpoint or 'the endpoint'}" for group in groups]
    if facts.run is not None and facts.run.scored and not groups:
        saw.append(f"it answered: {facts.run.scored} rollouts are scored, no attempt failed on a model call")
    return saw


def _servers(facts: Facts) -> list[str]:
    saw = [f"{server.name} at {server.url}: {server.said or 'ready'}" for server in facts.servers]
    kinds = ("environment_unreachable", "agent_unreachable", "agent_not_found", "instance_died", "worker_died")
    return saw + [f"{group.attempts} × {group.kind}: {group.first.message[:100]}" for group in facts.groups(*kinds)]


def _tools(facts: Facts) -> list[str]:
    run = facts.run
    if run is None:
        return []
    groups = facts.groups("tool_error", "tool_timeout", "session_expired", "sandbox_failed")
    saw = [f"{group.attempts} × {group.kind}: {group.first.message[:100]}" for group in groups]
    if run.records is not None and run.records.unowned_tools:
        saw.append(f"owned by nobody: {', '.join(run.records.unowned_tools)}")
    if run.plan is not None and not run.plan.tools:
        saw.append("no row offers tools")
    elif run.plan is not None and not saw:
        saw.append("rows offer tools; no call failed")
    return saw


def _inputs(facts: Facts) -> list[str]:
    run = facts.run
    if run is None:
        return []
    saw: list[str] = []
    if run.plan is not None:
        saw.append(f"{run.plan.rows} planned rollouts of {run.plan.tasks} tasks")
    if run.source is not None:
        how = {True: "changed since", False: "unchanged", None: "cannot be compared"}[run.source.changed]
        saw.append(f"{run.source.path}: {how if run.source.exists else 'not here'} {run.source.detail}".strip())
    return saw


def _counts(facts: Facts) -> list[str]:
    run = facts.run
    if run is None:
        return []
    saw = [f"{run.requested} requested, {run.scored} scored, {run.lost} not"]
    saw.append(f"{run.failure_lines} failed attempts; {run.unexplained} rollouts without a record")
    if run.profile_rows is not None:
        saw.append(f"{run.profile_rows} rows in the profile")
    return saw


def _exceptions(facts: Facts) -> list[str]:
    real = facts.logs.real_exceptions
    noise = sum(found.count for found in facts.logs.exceptions if found.is_noise)
    saw = [f"{found.end.file}:{found.end.line} {found.end.text[:120]} (× {found.count})" for found in real[:_SHOWN]]
    if noise:
        saw.append(f"{noise} tracebacks of cancellations and shutdown, passed over")
    kinds = ("verifier_error", "verifier_timeout", "verifier_bad_reply", "judge_failed", "seed_error", "agent_error")
    return saw + [f"{group.attempts} × {group.kind}: {group.first.body[:100]}" for group in facts.groups(*kinds)]


def _schema(facts: Facts) -> list[str]:
    return [str(found) for found in (facts.run.schema if facts.run is not None else ())]


STEPS: Final[tuple[tuple[str, See], ...]] = (
    ("scheduler, job state and logs", _scheduler),
    ("policy endpoint and its /models", _endpoint),
    ("all expected servers ready", _servers),
    ("tool routing, and the sandbox if there is one", _tools),
    ("materialized inputs against the source data", _inputs),
    ("rollout and profile counts", _counts),
    ("the first real verifier exception", _exceptions),
    ("the failing row against the environment's model", _schema),
)


def walk(facts: Facts, findings: Sequence[Finding]) -> tuple[Step, ...]:
    """All steps, in order, each with what it saw and whether a finding came of it."""
    step_of = {rule.id: rule.step for rule in RULES}
    blamed = {step_of.get(finding.id, 6) for finding in findings}
    return tuple(_step(number, name, see(facts), blamed) for number, (name, see) in enumerate(STEPS, 1))


def _step(number: int, name: str, saw: list[str], blamed: set[int]) -> Step:
    state = StepState.FOUND if number in blamed else StepState.OK if saw else StepState.SKIPPED
    return Step(number, name, state, tuple(saw))
