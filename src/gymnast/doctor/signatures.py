"""The table of signatures: log lines that identify a fault, or a class of them.

To add one, add an entry to tables/signatures.toml, a line in tests/doctor/lines.py, and a keyword in `log_markers` if
none matches yet.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

import msgspec

from gymnast.doctor.findings import Confidence
from gymnast.doctor.load_table import join_pattern, load_rows
from gymnast.types.failure import Layer

ROOT_WEIGHT: Final = 86
"""From this weight on, a signature names a cause; below, it may be the consequence of one."""


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A pattern of log lines, and what it means."""

    id: str
    layer: Layer
    weight: int
    """The heaviest signature of a line counts."""
    expression: str | list[str] = msgspec.field(name="pattern")
    symptom: str
    cause: str
    action: str
    ignore_case: bool = False
    is_broad: bool = False
    """Lines of a class of faults, by words that programs share."""
    is_ambiguous: bool = False
    """The words also occur in messages about other settings."""
    is_vague: bool = False
    """It says that something ended, but not why."""
    is_end: bool = False
    """How a program ends after any error: an earlier one in the same log is the cause."""
    at_any_level: bool = False
    """Access logs and the like report it at level INFO."""
    even_as_warning: bool = False
    """It counts although a line calls it a warning; others only if something else failed."""
    min_lines: int = 1
    """Fewer lines of it are normal."""

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        joined = join_pattern(self.expression)
        return re.compile((f"(?i:{joined})" if self.ignore_case else joined).encode())

    @property
    def is_root(self) -> bool:
        return self.weight >= ROOT_WEIGHT

    @property
    def confidence(self) -> Confidence:
        if self.is_broad or self.is_ambiguous:
            return Confidence.MEDIUM
        return Confidence.LOW if self.is_vague else Confidence.HIGH


SIGNATURES: Final = load_rows("signatures", Signature)
BROAD: Final = frozenset(name for name, signature in SIGNATURES.items() if signature.is_broad)
REFUSALS: Final = frozenset({"model_name_wrong", "key_refused", "context_overflow"})
"""What a server refuses to one request, and why; the next ones may be fine."""
ENDS: Final = tuple(name for name, signature in SIGNATURES.items() if signature.is_end)
