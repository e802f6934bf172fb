"""Renders the diagnosis of a run, and the history of one task, as text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from gymnast.doctor.rules.live import UNDECIDED
from gymnast.types.nouns import count_noun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.doctor.findings import Diagnosis, Evidence, Finding
    from gymnast.doctor.task_history import RolloutHistory, TaskHistory

_MAX_FINDINGS: Final = 5
_MAX_EVIDENCE: Final = 4
_MAX_OBSERVATIONS: Final = 8
_MAX_KEYS: Final = 6


def render_diagnosis(diagnosis: Diagnosis, *, with_steps: bool = False) -> Iterator[str]:
    if with_steps:
        yield from _steps(diagnosis)
        yield ""
    counts = ", ".join(f"{number} {name}" for name, number in diagnosis.counts.items())
    yield f"{diagnosis.target}: {counts}" if counts else diagnosis.target
    if diagnosis.is_healthy:
        is_open = any(note.id == UNDECIDED for note in diagnosis.notes)
        yield "no fault found, but see the note" if is_open else _healthy(diagnosis)
    causes = [finding for finding in diagnosis.findings if not finding.follows]
    for number, finding in enumerate(causes[:_MAX_FINDINGS], 1):
        yield ""
        yield from _finding(number, finding)
        yield from (
            f"   leads to:   [{other.layer.value}] {other.symptom}"
            for other in diagnosis.findings
            if other.follows == finding.id
        )
    if len(causes) > _MAX_FINDINGS:
        yield ""
        yield f"… and {len(causes) - _MAX_FINDINGS} more; --json lists them all"
    for note in diagnosis.notes:
        yield f"note: {note.text}"
    yield from _stacks(diagnosis)


def _healthy(diagnosis: Diagnosis) -> str:
    return (
        "healthy: nothing to change"
        if diagnosis.counts or not diagnosis.log_lines
        else (
            f"no fault found in {diagnosis.log_lines} log lines; with the run they belong to, doctor sees more: "
            f"gymnast doctor RUN --logs FILE"
        )
    )


def _stacks(diagnosis: Diagnosis) -> Iterator[str]:
    """Attempts with the same stack are shown together."""
    by_stack: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for entry in diagnosis.stuck:
        by_stack.setdefault(tuple(entry.get("frames") or ()), []).append(entry)
    for frames, entries in by_stack.items():
        first = entries[0]
        keys = " ".join(str(entry["key"]) for entry in entries[:_MAX_KEYS])
        more = f" and {len(entries) - _MAX_KEYS} more" if len(entries) > _MAX_KEYS else ""
        at = " ".join(str(first.get(part) or "") for part in ("stage", "instance", "endpoint")).strip()
        yield ""
        yield f"{keys}{more} ({at}, {first.get('in_stage_s', 0):.0f} s), stack, innermost last:"
        yield from (f"    {frame}" for frame in frames or ["(no frame: its process has not reported it yet)"])


def _steps(diagnosis: Diagnosis) -> Iterator[str]:
    for step in diagnosis.steps:
        yield f"{step.number} {step.name}: {step.state.value}"
        yield from (f"    {text}" for text in step.observations[:_MAX_OBSERVATIONS])


def _finding(number: int, finding: Finding) -> Iterator[str]:
    cost = f" ({count_noun(finding.lost, 'rollout')} lost)" if finding.lost else ""
    if finding.affected and not finding.lost:
        cost = f" ({finding.affected} rollouts affected)"
    yield f"{number}. [{finding.layer.value}] {finding.symptom}"
    yield f"   cause:      {finding.cause}"
    yield f"   next:       {finding.action}"
    yield f"   confidence: {finding.confidence.value}{cost}"
    yield from (f"   evidence:   {_evidence(evidence)}" for evidence in finding.evidence[:_MAX_EVIDENCE])
    if number == 1:
        yield from (f"   ruled out:  {reason}" for reason in finding.ruled_out)
    yield f"   more:       {finding.docs}"


def _evidence(evidence: Evidence) -> str:
    parts = [evidence.location, evidence.what]
    if evidence.keys:
        parts.append("rollouts " + " ".join(evidence.keys))
    text = " · ".join(part for part in parts if part)
    return f"{text}\n                 > {evidence.quote}" if evidence.quote else text


def render_task_history(history: TaskHistory) -> Iterator[str]:
    yield f"{history.run}: task {history.task}"
    if history.prompt:
        yield f"  prompt: {history.prompt}"
    for rollout in history.rollouts:
        yield ""
        yield from _rollout(rollout)
    yield ""
    for finding in history.findings[:1]:
        yield f"[{finding.layer.value}] {finding.symptom}"
        yield f"  cause:      {finding.cause}"
        yield f"  confidence: {finding.confidence.value}"
        yield f"  more:       {finding.docs}"
        yield from (
            f"  evidence:   {evidence.what}" for evidence in finding.evidence if evidence.what.startswith("schema of")
        )
        logged = (evidence for evidence in finding.evidence if evidence.file and evidence.file.endswith(".log"))
        yield from (
            f"  log:        {evidence.location} {evidence.what}\n                > {evidence.quote}"
            for evidence in logged
        )
    yield f"next: {history.next}"


def _rollout(rollout: RolloutHistory) -> Iterator[str]:
    count = len(rollout.attempts)
    retries = f" after {count} failed attempt{'s' if count != 1 else ''}" if count else ""
    if rollout.reward is not None:
        reason = rollout.record_facts.get("incomplete")
        truncated = f", truncated ({reason})" if reason else ""
        yield f"{rollout.key} scored {rollout.reward:g}{retries}{truncated} ({rollout.record})"
        fields = ", ".join(f"{name}={value!r}" for name, value in rollout.record_facts["verifier_said"].items())
        if fields:
            yield f"  verifier: {fields}"
    else:
        yield f"{rollout.key} {rollout.state}{retries}"
    if rollout.running is not None and rollout.reward is None:
        now = rollout.running
        server = f"{now.get('instance') or now.get('agent', '')} {now.get('endpoint') or ''}".strip()
        yield f"  now: in stage {now['stage']}, waiting for {server} for {now['in_stage_s']:.0f} s"
        yield from (f"    {frame}" for frame in now.get("frames") or ())
    for attempt in rollout.attempts:
        yield from _attempt(attempt)


def _attempt(attempt: dict[str, Any]) -> Iterator[str]:
    started_at = attempt.get("started_at")
    when = time.strftime(" at %Y-%m-%d %H:%M:%S", time.localtime(started_at)) if started_at else ""
    duration = f", {attempt['seconds']:.1f} s" if attempt.get("seconds") else ""
    parts = (f"stage {attempt.get('stage', '?')}", attempt.get("instance"))
    location = " · ".join(part for part in parts if part)
    yield f"  attempt {attempt['attempt'] + 1}{when}{duration}: {attempt['kind']} · {location}"
    yield f"    {attempt['at']}"
    yield f"    > {attempt['said']}"
    if attempt.get("body"):
        yield f"    reply: {attempt['body']}"
    if attempt.get("chain"):
        yield f"    via {' ← '.join(attempt['chain'])}"
