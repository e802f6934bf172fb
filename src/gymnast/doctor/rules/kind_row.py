"""A row of the table of kind rules: which failures, of which layer, because of what, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence

if TYPE_CHECKING:
    from gymnast.types.failure import Layer


@dataclass(frozen=True, slots=True)
class KindRow:
    """One rule."""

    id: str
    layer: Layer
    kinds: tuple[str, ...]
    symptom: str
    cause: str
    action: str
    about: str
    step: int = 2
    flavors: frozenset[str] | None = None
    """None for any."""
    confidence: Confidence = Confidence.HIGH
    explains: frozenset[str] = frozenset()


EMPTY: Final = frozenset({"empty"})
SAID: Final = frozenset({"", "html"})
"""Flavors of a failure that came with words, and of one that came without."""
