"""The story of a task as lines for people."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.doctor.task import RolloutStory, TaskStory


def lines_of_task(story: TaskStory) -> Iterator[str]:
    """What is printed."""
    yield f"{story.run}: task {story.task}"
    if story.prompt:
        yield f"  asked: {story.prompt}"
    for rollout in story.rollouts:
        yield ""
        yield from _rollout(rollout)
    yield ""
    for finding in story.findings[:1]:
        yield f"[{finding.layer.value}] {finding.symptom}"
        yield f"  cause:      {finding.cause}"
        yield f"  confidence: {finding.confidence.value} ({finding.docs})"
        yield from (f"  evidence:   {seen.what}" for seen in finding.evidence if seen.what.startswith("schema of"))
        logged = (seen for seen in finding.evidence if seen.file and seen.file.endswith(".log"))
        yield from (f"  log:        {seen.place} {seen.what}\n                > {seen.quote}" for seen in logged)
    yield f"next: {story.next}"


def _rollout(rollout: RolloutStory) -> Iterator[str]:
    number = len(rollout.attempts)
    tries = f" after {number} failed attempt{'s' if number != 1 else ''}" if number else ""
    if rollout.reward is not None:
        cut = f", cut off ({rollout.record_facts['incomplete']})" if rollout.record_facts.get("incomplete") else ""
        yield f"{rollout.key} scored {rollout.reward:g}{tries}{cut} ({rollout.record})"
        said = ", ".join(f"{name}={value!r}" for name, value in rollout.record_facts["verifier_said"].items())
        if said:
            yield f"  verifier: {said}"
    else:
        yield f"{rollout.key} {rollout.state}{tries}"
    if rollout.running is not None and rollout.reward is None:
        now = rollout.running
        waits = f"{now.get('instance') or now.get('agent', '')} {now.get('endpoint') or ''}".strip()
        yield f"  now: at {now['stage']} for {waits}, since {now['in_stage_s']:.0f} s"
        yield from (f"    {frame}" for frame in now.get("frames") or ())
    for attempt in rollout.attempts:
        yield from _attempt(attempt)


def _attempt(attempt: dict[str, Any]) -> Iterator[str]:
    began = attempt.get("started_at")
    when = time.strftime(" at %Y-%m-%d %H:%M:%S", time.localtime(began)) if began else ""
    took = f", {attempt['seconds']:.1f} s" if attempt.get("seconds") else ""
    places = (f"stage {attempt.get('stage', '?')}", attempt.get("instance"))
    place = " · ".join(part for part in places if part)
    yield f"  attempt {attempt['attempt'] + 1}{when}{took}: {attempt['kind']} · {place}"
    yield f"    {attempt['at']}"
    yield f"    > {attempt['said']}"
    if attempt.get("body"):
        yield f"    answered: {attempt['body']}"
    if attempt.get("chain"):
        yield f"    through {' ← '.join(attempt['chain'])}"
