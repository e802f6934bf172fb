"""How a collection ended: the exit code, and an explanation of what is missing. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.errors import UserError
from gymnast.types.failure import FailureKind, kind_named

if TYPE_CHECKING:
    from gymnast.types.events import RunFinished


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many rollouts may fail before the run counts as failed: a count, or a share of those requested."""

    count: int = 0
    share: float = 0.0

    def of(self, requested: int) -> int:
        return max(self.count, int(self.share * requested + 1e-9))


def parse_allowance(text: str) -> Allowance:
    """`5`, `1%` or `0.01`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text.strip())
    if match is None:
        raise UserError(f"expected a count or a share of rollouts, got '{text}'", next="for example 5, 1% or 0.01")
    if not match[2] and "." not in match[1]:
        return Allowance(count=int(match[1]))
    share = float(match[1]) / (100 if match[2] else 1)
    if share > 1:
        raise UserError(f"a share of rollouts is at most 100%, got '{text}'", next="for example 5, 1% or 0.01")
    return Allowance(share=share)


OUT_OF_BUDGET: Final = 4
"""The exit code of a run that used up its budget with rollouts still owed."""


def exit_code(finished: RunFinished, allowance: Allowance) -> int:
    """0 only if nothing is owed and no more rollouts failed than allowed."""
    if finished.is_out_of_budget:
        return OUT_OF_BUDGET
    failed = sum(finished.failed.values())
    return 0 if finished.owed == 0 and failed <= allowance.of(finished.requested) else 1


def explain_missing(finished: RunFinished) -> list[str]:
    """Why fewer rollouts were scored than requested, and what to do. Empty if nothing is missing."""
    if finished.scored == finished.requested:
        return []
    lines = [f"{finished.scored} of {finished.requested} rollouts were scored"]
    for name, count in sorted(finished.failed.items(), key=lambda pair: -pair[1]):
        kind = kind_named(name)
        lines.append(f"  {count} × {name} (layer {kind.layer.value}): {_hint(name, kind.hint, finished)}")
    if finished.owed:
        more = " and a larger budget" if finished.is_out_of_budget else ""
        again = " --retry-failed" if finished.failed and not finished.scored else ""
        verb = "is" if finished.owed == 1 else "are"
        lines.append(f"  {finished.owed} {verb} still owed: run the same command with --resume{again}{more}")
    if finished.note:
        lines.append(f"  why it ended: {' '.join(finished.note.split())}")
    if finished.failed and not finished.owed:
        lines.append("  once the cause is fixed: --resume --retry-failed retries the failed ones")
    return lines


def _hint(name: str, hint: str, finished: RunFinished) -> str:
    if name == FailureKind.OUT_OF_MEMORY:
        return f"{hint}; it was {finished.concurrency}"
    return hint
