"""The definition of a rule, decorators that make rules of functions, and helpers that make evidence."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymnast.doctor.facts import Facts, RecordFacts, RunFacts
from gymnast.doctor.findings import Evidence, Finding, Note, quote_line

if TYPE_CHECKING:
    from gymnast.doctor.facts import FailureGroup, Hit
    from gymnast.types.failure import Layer

NoteRule = Callable[[Facts], Note | None]
Detect = Callable[[Facts], Finding | None]
DetectInRun = Callable[[RunFacts], Finding | None]
DetectInRecords = Callable[[RunFacts, RecordFacts], Finding | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A possible fault, and the function that detects it."""

    id: str
    layer: Layer
    step: int
    """The examination step that provides its evidence."""
    about: str
    """When it applies, as a sentence for docs/debugging/rules.md."""
    action: str
    apply: Detect


def rule(layer: Layer, step: int, action: str, *, name: str | None = None) -> Callable[[Detect], Rule]:
    """Make a rule of a function whose docstring starts with when the rule applies. The id is `name`, or its own."""

    def decorate(detect: Detect) -> Rule:
        return Rule(name or detect.__name__, layer, step, _about(detect), action, detect)

    return decorate


def run_rule(layer: Layer, step: int, action: str, *, name: str | None = None) -> Callable[[DetectInRun], Rule]:
    """The same for a function that looks at a run."""

    def decorate(detect: DetectInRun) -> Rule:
        def apply(facts: Facts) -> Finding | None:
            return detect(facts.run) if facts.run is not None else None

        return Rule(name or detect.__name__, layer, step, _about(detect), action, apply)

    return decorate


def record_rule(layer: Layer, step: int, action: str, *, name: str | None = None) -> Callable[[DetectInRecords], Rule]:
    """The same for a function that looks at the records of a run."""

    def decorate(detect: DetectInRecords) -> Rule:
        def apply(facts: Facts) -> Finding | None:
            run = facts.run
            return detect(run, run.records) if run is not None and run.records is not None else None

        return Rule(name or detect.__name__, layer, step, _about(detect), action, apply)

    return decorate


def _about(detect: Callable[..., Any]) -> str:
    return (inspect.getdoc(detect) or "").partition("\n")[0]


def group_evidence(facts: Facts, group: FailureGroup) -> tuple[Evidence, ...]:
    """Evidence from the failures file about a group."""
    assert facts.run is not None
    first = group.first
    file = str(facts.run.output.with_name(facts.run.output.stem + "_failures.jsonl"))
    evidence = [
        Evidence(
            f"{group.attempts} failed attempts, kind {group.kind}",
            file,
            first.line,
            group.keys,
            group.attempts,
            quote_line(first.message or first.body),
        )
    ]
    if first.body and first.body not in first.message:
        evidence.append(Evidence("the reply", file, first.line, quote=quote_line(first.body)))
    if first.chain:
        evidence.append(Evidence("via " + " ← ".join(first.chain)))
    if len(group.bodies) > 1:
        common = ", ".join(f"{count} × {quote_line(text, 80)}" for text, count in group.bodies.most_common(3))
        evidence.append(Evidence(f"most common messages: {common}"))
    return tuple(evidence)


def hit_evidence(what: str, hit: Hit) -> Evidence:
    """Evidence from a log."""
    return Evidence(what, hit.first.file, hit.first.line, count=hit.count, quote=hit.first.text)
