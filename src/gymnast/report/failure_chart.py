"""The plot of failures by kind: how many rollouts each kind cost, and how many attempts failed on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.report.markup import Markup, tag
from gymnast.report.scales import count
from gymnast.report.visible import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.report.run_view import RunView

_WIDTH: Final = 560
_LABELS: Final = 168
_NUMBERS: Final = 64
_BAR: Final = 14
_GAP: Final = 12
_SHOWN: Final = 12


def failed_kinds(runs: Sequence[RunView]) -> list[str]:
    """Every kind of failure in any of the runs, the most frequent first."""
    totals: dict[str, int] = {}
    for run in runs:
        for kind, attempts in run.loaded.failures.attempts.items():
            totals[kind] = totals.get(kind, 0) + attempts
    return sorted(totals, key=lambda kind: (-totals[kind], kind))


def failure_bars(runs: Sequence[RunView]) -> Markup:
    """A bar for each kind and run: attempts in a light colour, rollouts without a score in a full one."""
    kinds = failed_kinds(runs)[:_SHOWN]
    row = _BAR * len(runs) + _GAP
    most = max(run.loaded.failures.attempts[kind] for run in runs for kind in kinds)
    height = row * len(kinds) + 8
    rows = [shape for place, kind in enumerate(kinds) for shape in _row(runs, kind, place * row + 6, most)]
    return tag(
        "svg", *rows, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label="Failures by kind; see the table below."
    )


def _row(runs: Sequence[RunView], kind: str, top: float, most: int) -> Iterator[Markup]:
    yield tag("text", one_line(kind, 24), x=_LABELS - 10, y=top + _BAR * len(runs) / 2 + 4, class_="tick end")
    for run in runs:
        attempts, lost = run.loaded.failures.attempts[kind], run.headline.failed.get(kind, 0)
        at = top + _BAR * run.number
        long = (_WIDTH - _LABELS - _NUMBERS) / most
        title = tag("title", f"{run.name}: {count(attempts)} failed attempts, {count(lost)} rollouts without a score")
        colour = f"run-{run.number % 6}"
        yield tag("rect", title, x=_LABELS, y=at, width=attempts * long, height=_BAR - 2, class_=f"bar light {colour}")
        yield tag("rect", x=_LABELS, y=at, width=lost * long, height=_BAR - 2, class_=f"bar {colour}")
        yield tag(
            "text",
            f"{count(lost)} / {count(attempts)}",
            x=_LABELS + attempts * long + 6,
            y=at + _BAR - 4,
            class_="tick start",
        )
