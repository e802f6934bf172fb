"""What doctor says: findings with their evidence, notes that blame nobody, and the report that holds both."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from gymnast.config.secrets import Scrubber
from gymnast.store.redact import Redactor

if TYPE_CHECKING:
    from gymnast.types.failure import Layer

QUOTE_LIMIT: Final = 300
"""Characters of a quoted line."""
_LONGEST_READ: Final = 20_000


class Confidence(StrEnum):
    """How sure a finding is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen, and where: a line of a file, records by key, a count."""

    what: str
    file: str | None = None
    line: int | None = None
    keys: tuple[str, ...] = ()
    count: int | None = None
    quote: str | None = None

    @property
    def place(self) -> str:
        """`file:line`, as far as that is known."""
        if self.file is None:
            return ""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    id: str
    """The rule, and its anchor in docs/debugging/rules.md."""
    layer: Layer
    symptom: str
    cause: str
    action: str
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence = Confidence.HIGH
    lost: int = 0
    """Rollouts that are not scored because of this."""
    affected: int = 0
    """Rollouts that are scored, but perhaps not rightly."""
    is_symptom: bool = False
    """Says what is missing, not why: any finding that says why goes first."""
    weight: int = 0
    """Which goes first of findings that cost the same: the heavier."""
    explains: frozenset[str] = frozenset()
    """Findings that this one is the cause of."""
    ruled_out: tuple[str, ...] = ()
    follows: str = ""
    """The finding that is the cause of this one."""

    @property
    def docs(self) -> str:
        return f"docs/debugging/rules.md#{self.id}"

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "layer": self.layer.value,
            "symptom": self.symptom,
            "evidence": [_evidence_json(seen) for seen in self.evidence],
            "cause": self.cause,
            "next": self.action,
            "confidence": self.confidence.value,
            "rollouts_lost": self.lost,
            "rollouts_affected": self.affected,
            "ruled_out": list(self.ruled_out),
            "follows": self.follows or None,
            "docs": self.docs,
        }


@dataclass(frozen=True, slots=True)
class Note:
    """Something odd that is no fault: said, so that nobody has to wonder, and nothing is to be changed."""

    id: str
    text: str


class StepState(StrEnum):
    """How a step of looking ended."""

    OK = "ok"
    FOUND = "found"
    SKIPPED = "skipped"
    """There was nothing to look at."""


@dataclass(frozen=True, slots=True)
class Step:
    """One of the eight steps, and what it saw."""

    number: int
    name: str
    state: StepState
    saw: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Doctor's answer."""

    subject: str
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]
    steps: tuple[Step, ...]
    counts: dict[str, int] = field(default_factory=dict)
    stuck: tuple[dict[str, Any], ...] = ()
    """Attempts of a running collection, oldest first, with their stacks."""

    @property
    def is_healthy(self) -> bool:
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "healthy": self.is_healthy,
            "counts": self.counts,
            "findings": [finding.as_json() for finding in self.findings],
            "notes": [{"id": note.id, "text": note.text} for note in self.notes],
            "steps": [
                {"number": step.number, "name": step.name, "state": step.state.value, "saw": list(step.saw)}
                for step in self.steps
            ],
            "stuck": list(self.stuck),
        }


def _evidence_json(seen: Evidence) -> dict[str, Any]:
    found = {
        "what": seen.what,
        "file": seen.file,
        "line": seen.line,
        "keys": list(seen.keys) or None,
        "count": seen.count,
        "quote": seen.quote,
    }
    return {name: value for name, value in found.items() if value is not None}


def quoted(text: str, limit: int = QUOTE_LIMIT) -> str:
    """`text` on one line, without keys and passwords, cut where it gets long."""
    line = Redactor(Scrubber()).text(" ".join(text[:_LONGEST_READ].split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"
