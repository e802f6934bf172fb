"""A rule for failures of certain kinds: their layer, cause, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gymnast.doctor.findings import Confidence
from gymnast.types.failure import KINDS, FailureKind, Layer


@dataclass(frozen=True, slots=True)
class KindRule:
    """One row of the table of kind rules."""

    id: str
    kinds: tuple[FailureKind, ...]
    symptom: str
    cause: str
    action: str
    about: str
    step: int = 2
    flavors: frozenset[str] | None = None
    """None matches any."""
    confidence: Confidence = Confidence.HIGH
    explains: frozenset[str] = frozenset()
    belongs_to: Layer | None = None
    """The layer, if it is not that of the first kind."""

    @property
    def layer(self) -> Layer:
        return self.belongs_to or KINDS[self.kinds[0]].layer


EMPTY: Final = frozenset({"empty"})
NON_EMPTY: Final = frozenset({"", "html"})
"""Flavors of failures without and with an error message."""
