"""The table of signatures: log lines that identify a fault (`signature_rows`) or a class of them (`signature_classes`).

To add one, add a row there, a line in tests/doctor/lines.py, and a keyword in `log_markers` if none matches yet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence
from gymnast.doctor.signature_classes import CLASSES
from gymnast.doctor.signature_rows import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.doctor.signature_rows import Row
    from gymnast.types.failure import Layer

ROOT_WEIGHT: Final = 86
"""From this weight on, a signature names a cause; below, it may be the consequence of one."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern of log lines, and what it means."""

    id: str
    layer: Layer
    pattern: re.Pattern[bytes]
    symptom: str
    cause: str
    action: str
    weight: int
    """The heaviest signature of a line counts."""
    confidence: Confidence = Confidence.HIGH

    @property
    def is_root(self) -> bool:
        return self.weight >= ROOT_WEIGHT

    @property
    def is_vague(self) -> bool:
        """True if it says that something ended, but not why."""
        return self.confidence is Confidence.LOW


def _confidence_of(name: str) -> Confidence:
    if name in _BROAD or name in _AMBIGUOUS:
        return Confidence.MEDIUM
    return Confidence.LOW if name in _VAGUE else Confidence.HIGH


def _table(rows: Iterable[Row]) -> dict[str, Signature]:
    return {
        name: Signature(name, layer, re.compile(pattern.encode()), symptom, cause, action, weight, _confidence_of(name))
        for name, layer, weight, pattern, symptom, cause, action in rows
    }


_VAGUE: Final = frozenset({"task_refused"})
"""Lines that say that something ended, but not why. (75 is the exit code of a worker that was asked to stop.)"""
_AMBIGUOUS: Final = frozenset({"tool_grammar"})
"""The words also occur in messages about other settings."""
_BROAD: Final = frozenset(row[0] for row in CLASSES)
ANY_LEVEL: Final = frozenset(
    {"verify_schema", "key_refused", "clients_gone", "context_overflow", "model_name_wrong", "process_crashed"}
)
"""Access logs and the like report these at level INFO."""
WARNINGS: Final = frozenset({"loop_blocked", "clients_gone", "inner_500_no_body", "verifier_exception"})
"""These count although a line calls them warnings; others only if something else failed."""
OFTEN_NORMAL: Final = {"clients_gone": 50}
"""Less than this many lines of these are normal."""
ENDS: Final = frozenset({"process_crashed", "engine_dead", "task_refused", "container_crashes"})
"""How a program ends after any error: an earlier one in the same log is the cause."""
SIGNATURES: Final = _table((*ROWS, *CLASSES))
