"""What a rule is, and what rules need to make a finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gymnast.doctor.facts import Facts
from gymnast.doctor.findings import Evidence, Finding, Note, quoted

if TYPE_CHECKING:
    from gymnast.doctor.facts import FailureGroup, Hit
    from gymnast.types.failure import Layer

NoteRule = Callable[[Facts], Note | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One suspect."""

    id: str
    layer: Layer
    step: int
    """The step of looking that gives its evidence."""
    about: str
    """One sentence for docs/debugging/rules.md: when it is found."""
    action: str
    look: Callable[[Facts], Finding | None]


def group_evidence(facts: Facts, group: FailureGroup) -> tuple[Evidence, ...]:
    """What the failures file shows of a group."""
    assert facts.run is not None
    first = group.first
    file = str(facts.run.output.with_name(facts.run.output.stem + "_failures.jsonl"))
    seen = [
        Evidence(
            f"{group.attempts} failed attempts, kind {group.kind}",
            file,
            first.line,
            group.keys,
            group.attempts,
            quoted(first.message or first.body),
        )
    ]
    if first.body and first.body not in first.message:
        seen.append(Evidence("what was answered", file, first.line, quote=quoted(first.body)))
    if first.chain:
        seen.append(Evidence("through " + " ← ".join(first.chain)))
    if len(group.bodies) > 1:
        often = ", ".join(f"{number} × {quoted(said, 80)}" for said, number in group.bodies.most_common(3))
        seen.append(Evidence(f"most often said: {often}"))
    return tuple(seen)


def hit_evidence(what: str, hit: Hit) -> Evidence:
    """What a log shows."""
    return Evidence(what, hit.first.file, hit.first.line, count=hit.count, quote=hit.first.text)
