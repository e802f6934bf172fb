"""The eight examination steps in fixed order, each with its observations, so that a diagnosis can be followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Step, StepState
from gymnast.doctor.rules.registry import RULES
from gymnast.types.failure import FailureKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.doctor.facts import Facts
    from gymnast.doctor.findings import Finding

    Observe = Callable[[Facts], list[str]]

_MAX_SHOWN: Final = 4


def _scheduler(facts: Facts) -> list[str]:
    lines: list[str] = []
    if facts.job is not None:
        lines.append(f"job {facts.job.id}: {facts.job.state} {facts.job.reason} (exit {facts.job.exit_code or '-'})")
    elif facts.job_problem:
        lines.append(facts.job_problem)
    logs = facts.logs
    if logs.files:
        lines.append(f"{len(logs.files)} log files, {logs.lines} lines, {logs.size_bytes / 1e6:.1f} MB")
        lines += [
            f"{name}: {hit.count} lines, first {hit.first.file}:{hit.first.line}" for name, hit in logs.hits.items()
        ]
    lines += [f"could not read {problem}" for problem in logs.unreadable]
    if facts.run is not None and facts.run.manifest is not None:
        writer = "a process is writing it" if facts.run.is_running else "no process is writing it"
        lines.append(f"manifest: {facts.run.manifest.state.value}; {writer}")
    return lines


def _endpoint(facts: Facts) -> list[str]:
    lines = [f"GET {probe.url}: {probe.detail or 'ok'} {', '.join(probe.models[:3])}".strip() for probe in facts.probes]
    groups = [
        group for group in (facts.run.failures if facts.run is not None else ()) if group.kind.startswith("model")
    ]
    lines += [f"{group.attempts} × {group.kind} at {group.first.endpoint or 'the endpoint'}" for group in groups]
    if facts.run is not None and facts.run.scored and not groups:
        lines.append(f"it works: {facts.run.scored} rollouts are scored, no attempt failed in a model call")
    return lines


def _servers(facts: Facts) -> list[str]:
    lines = [f"{server.name} at {server.url}: {server.detail or 'ready'}" for server in facts.servers]
    kinds = (
        FailureKind.ENVIRONMENT_UNREACHABLE,
        FailureKind.AGENT_UNREACHABLE,
        FailureKind.AGENT_NOT_FOUND,
        FailureKind.INSTANCE_DIED,
        FailureKind.WORKER_DIED,
    )
    return lines + [f"{group.attempts} × {group.kind}: {group.first.message[:100]}" for group in facts.groups(*kinds)]


def _tools(facts: Facts) -> list[str]:
    run = facts.run
    if run is None:
        return []
    groups = facts.groups(
        FailureKind.TOOL_ERROR, FailureKind.TOOL_TIMEOUT, FailureKind.SESSION_EXPIRED, FailureKind.SANDBOX_FAILED
    )
    lines = [f"{group.attempts} × {group.kind}: {group.first.message[:100]}" for group in groups]
    if run.records is not None and run.records.unowned_tools:
        lines.append(f"not in any environment: {', '.join(run.records.unowned_tools)}")
    if run.plan is not None and not run.plan.has_tools:
        lines.append("no row has tools")
    elif run.plan is not None and not lines:
        lines.append("rows have tools; no call failed")
    return lines


def _inputs(facts: Facts) -> list[str]:
    run = facts.run
    if run is None:
        return []
    lines: list[str] = []
    if run.plan is not None:
        lines.append(f"{run.plan.rows} planned rollouts of {run.plan.tasks} tasks")
    if run.source is not None:
        state = {True: "changed since", False: "unchanged", None: "cannot be compared"}[run.source.changed]
        lines.append(f"{run.source.path}: {state if run.source.exists else 'missing'} {run.source.detail}".strip())
    return lines


def _counts(facts: Facts) -> list[str]:
    run = facts.run
    if run is None:
        return []
    lines = [f"{run.requested} requested, {run.scored} scored, {run.lost} not"]
    lines.append(f"{run.failure_lines} failed attempts; {run.unexplained} rollouts without a record")
    if run.profile_rows is not None:
        lines.append(f"{run.profile_rows} rows in the profile")
    return lines


def _exceptions(facts: Facts) -> list[str]:
    real = facts.logs.real_exceptions
    noise = sum(logged.count for logged in facts.logs.exceptions if logged.is_noise)
    lines = [
        f"{logged.end.file}:{logged.end.line} {logged.end.text[:120]} (× {logged.count})"
        for logged in real[:_MAX_SHOWN]
    ]
    if noise:
        lines.append(f"{noise} tracebacks of cancellations and shutdown, ignored")
    kinds = (
        FailureKind.VERIFIER_ERROR,
        FailureKind.VERIFIER_TIMEOUT,
        FailureKind.VERIFIER_BAD_REPLY,
        FailureKind.JUDGE_FAILED,
        FailureKind.SEED_ERROR,
        FailureKind.AGENT_ERROR,
    )
    return lines + [f"{group.attempts} × {group.kind}: {group.first.body[:100]}" for group in facts.groups(*kinds)]


def _schema(facts: Facts) -> list[str]:
    return [str(field) for field in (facts.run.schema if facts.run is not None else ())]


STEPS: Final[tuple[tuple[str, Observe], ...]] = (
    ("scheduler, job state and logs", _scheduler),
    ("policy endpoint and its /models", _endpoint),
    ("all expected servers ready", _servers),
    ("tool routing, and the sandbox if there is one", _tools),
    ("materialized inputs against the source data", _inputs),
    ("rollout and profile counts", _counts),
    ("the first real verifier exception", _exceptions),
    ("the failing row against the environment's model", _schema),
)


def make_steps(facts: Facts, findings: Sequence[Finding]) -> tuple[Step, ...]:
    """All steps in order, each with its observations and whether it led to a finding."""
    step_of = {rule.id: rule.step for rule in RULES}
    faulty = {step_of.get(finding.id, 6) for finding in findings}
    return tuple(_step(number, name, observe(facts), faulty) for number, (name, observe) in enumerate(STEPS, 1))


def _step(number: int, name: str, lines: list[str], faulty: set[int]) -> Step:
    state = StepState.FOUND if number in faulty else StepState.OK if lines else StepState.SKIPPED
    return Step(number, name, state, tuple(lines))
