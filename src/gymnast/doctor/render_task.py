"""Renders the history of a task as text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.doctor.task_history import RolloutHistory, TaskHistory


def render_task_history(history: TaskHistory) -> Iterator[str]:
    """The lines to print."""
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
        yield f"  confidence: {finding.confidence.value} ({finding.docs})"
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
