"""A rule for failures of certain kinds: their layer, cause, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence

if TYPE_CHECKING:
    from gymnast.types.failure import FailureKind, Layer


@dataclass(frozen=True, slots=True)
class KindRule:
    """One row of the table of kind rules."""

    id: str
    layer: Layer
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


EMPTY: Final = frozenset({"empty"})
NON_EMPTY: Final = frozenset({"", "html"})
"""Flavors of failures without and with an error message."""
