"""The plot of failures by kind: lost rollouts and failed attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.report.markup import Markup, tag
from gymnast.report.safe_text import to_one_line
from gymnast.report.scales import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.report.run_view import RunView

_WIDTH: Final = 560
_LABELS: Final = 168
_NUMBERS: Final = 64
_BAR: Final = 14
_GAP: Final = 12
_MAX_KINDS: Final = 12


def failed_kinds(runs: Sequence[RunView]) -> list[str]:
    """Every failure kind of the runs, the most frequent first."""
    totals: dict[str, int] = {}
    for run in runs:
        for kind, attempts in run.loaded.failures.attempts.items():
            totals[kind] = totals.get(kind, 0) + attempts
    return sorted(totals, key=lambda kind: (-totals[kind], kind))


def draw_failure_bars(runs: Sequence[RunView]) -> Markup:
    """A bar for each kind and run: failed attempts in a light colour, rollouts without a score in the full one."""
    kinds = failed_kinds(runs)[:_MAX_KINDS]
    row = _BAR * len(runs) + _GAP
    max_attempts = max(run.loaded.failures.attempts[kind] for run in runs for kind in kinds)
    height = row * len(kinds) + 8
    rows = [shape for index, kind in enumerate(kinds) for shape in _row(runs, kind, index * row + 6, max_attempts)]
    return tag(
        "svg", *rows, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label="Failures by kind; see the table below."
    )


def _row(runs: Sequence[RunView], kind: str, top: float, max_attempts: int) -> Iterator[Markup]:
    yield tag("text", to_one_line(kind, 24), x=_LABELS - 10, y=top + _BAR * len(runs) / 2 + 4, class_="tick end")
    for run in runs:
        attempts, lost = run.loaded.failures.attempts[kind], run.headline.failed.get(kind, 0)
        y = top + _BAR * run.number
        unit = (_WIDTH - _LABELS - _NUMBERS) / max_attempts
        numbers = f"{format_count(attempts)} failed attempts, {format_count(lost)} rollouts without a score"
        title = tag("title", f"{run.name}: {numbers}")
        colour = f"run-{run.number % 6}"
        yield tag("rect", title, x=_LABELS, y=y, width=attempts * unit, height=_BAR - 2, class_=f"bar light {colour}")
        yield tag("rect", x=_LABELS, y=y, width=lost * unit, height=_BAR - 2, class_=f"bar {colour}")
        label = f"{format_count(lost)} / {format_count(attempts)}"
        yield tag("text", label, x=_LABELS + attempts * unit + 6, y=y + _BAR - 4, class_="tick start")
