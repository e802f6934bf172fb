"""What doctor reports: findings with their evidence, notes about harmless oddities, and the diagnosis with both."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from gymnast.config.secrets import Scrubber
from gymnast.store.redact import Redactor

if TYPE_CHECKING:
    from gymnast.types.failure import Layer

QUOTE_LIMIT: Final = 300
"""Maximum length of a quoted line."""
LONG_QUOTE: Final = 420
"""Maximum length of a line that reports a failure."""
_MAX_READ: Final = 20_000


class Confidence(StrEnum):
    """How certain a finding is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation and where it was made: a line of a file, records by key, a count."""

    what: str
    file: str | None = None
    line: int | None = None
    keys: tuple[str, ...] = ()
    count: int | None = None
    quote: str | None = None

    @property
    def location(self) -> str:
        """`file:line`, as far as known."""
        if self.file is None:
            return ""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Finding:
    id: str
    """The rule's id: `gymnast doctor --explain ID` and docs/debugging/rules.md explain it."""
    layer: Layer
    symptom: str
    cause: str
    action: str
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence = Confidence.HIGH
    lost: int = 0
    """Rollouts not scored because of this."""
    affected: int = 0
    """Rollouts that are scored, but perhaps incorrectly."""
    is_symptom: bool = False
    """States what is missing, not why: ranked after any finding that explains it."""
    weight: int = 0
    """Breaks ties between findings with the same cost: heavier first."""
    explains: frozenset[str] = frozenset()
    """Ids of findings that this one causes."""
    order: float = 0.0
    """When its first evidence was logged: of two causes in logs, the earlier one is first."""
    ruled_out: tuple[str, ...] = ()
    follows: str = ""
    """Id of the finding that causes this one."""

    @property
    def docs(self) -> str:
        """The command that explains it: a page of the docs may not be installed."""
        return f"gymnast doctor --explain {self.id}"

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "layer": self.layer.value,
            "symptom": self.symptom,
            "evidence": [_evidence_json(evidence) for evidence in self.evidence],
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
    """An oddity that is not a fault, mentioned so that it does not raise questions."""

    id: str
    text: str


class StepState(StrEnum):
    """How an examination step ended."""

    OK = "ok"
    FOUND = "found"
    SKIPPED = "skipped"
    """There was nothing to examine."""


@dataclass(frozen=True, slots=True)
class Step:
    """One of the eight examination steps and its observations."""

    number: int
    name: str
    state: StepState
    observations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Doctor's result."""

    target: str
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]
    steps: tuple[Step, ...]
    counts: dict[str, int] = field(default_factory=dict)
    stuck: tuple[dict[str, Any], ...] = ()
    """Stuck attempts of a running collection, oldest first, with their stacks."""
    log_lines: int = 0

    @property
    def is_healthy(self) -> bool:
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        return {
            "subject": self.target,
            "healthy": self.is_healthy,
            "counts": self.counts,
            "findings": [finding.as_json() for finding in self.findings],
            "notes": [{"id": note.id, "text": note.text} for note in self.notes],
            "steps": [
                {"number": step.number, "name": step.name, "state": step.state.value, "saw": list(step.observations)}
                for step in self.steps
            ],
            "stuck": list(self.stuck),
        }


def _evidence_json(evidence: Evidence) -> dict[str, Any]:
    fields = {
        "what": evidence.what,
        "file": evidence.file,
        "line": evidence.line,
        "keys": list(evidence.keys) or None,
        "count": evidence.count,
        "quote": evidence.quote,
    }
    return {name: value for name, value in fields.items() if value is not None}


def quote_ends(text: str) -> str:
    """`text` on one line, redacted; of a long one both ends: errors that wrap others say why at the end."""
    line = quote_line(text, _MAX_READ)
    half = LONG_QUOTE // 2
    return line if len(line) <= LONG_QUOTE else f"{line[: half - 2]} … {line[-half:]}"


def quote_line(text: str, limit: int = QUOTE_LIMIT) -> str:
    """`text` on one line, with secrets redacted, cut to `limit` characters."""
    line = Redactor(Scrubber()).text(" ".join(text[:_MAX_READ].split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"
