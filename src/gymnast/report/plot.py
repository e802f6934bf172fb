"""The frame of a plot: its size, its two axes with ticks and titles, and the shapes that are drawn in it, as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.report.markup import Markup, joined, number, tag
from gymnast.report.scales import Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.report.markup import Child

WIDTH: Final = 560
HEIGHT: Final = 290
LEFT: Final = 62
RIGHT: Final = 18
TOP: Final = 18
BOTTOM: Final = 46
_TICK: Final = 5


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its scale, what it shows, and its ticks with their texts."""

    scale: Scale
    title: str
    ticks: Sequence[tuple[float, str]]


def across(low: float, high: float, *, is_log: bool = False) -> Scale:
    """A scale from left to right."""
    return Scale(low, high, LEFT, WIDTH - RIGHT, is_log)


def upwards(low: float, high: float) -> Scale:
    """A scale from the bottom to the top."""
    return Scale(low, high, HEIGHT - BOTTOM, TOP)


def drawing(
    x: Axis, y: Axis, shapes: Iterable[Child], *, label: str, marks: Iterable[Child] = (), plot: str | None = None
) -> Markup:
    """A plot. `marks` lie above the shapes; `plot` names it for the script that follows the pointer."""
    return tag(
        "svg",
        _grid(y),
        _x_ticks(x),
        tag("g", *shapes, class_="shapes"),
        tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM, class_="axis"),
        tag("g", *marks, class_="marks"),
        tag("text", x.title, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 8, class_="title"),
        tag("text", y.title, x=-(TOP + HEIGHT - BOTTOM) / 2, y=14, class_="title", transform="rotate(-90)"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="group" if plot else "img",
        aria_label=label,
        data_plot=plot,
        data_left=LEFT if plot else None,
        data_right=WIDTH - RIGHT if plot else None,
    )


def _grid(y: Axis) -> Markup:
    lines: list[Child] = []
    for value, text in y.ticks:
        at = y.scale(value)
        lines.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        lines.append(tag("text", text, x=LEFT - 8, y=at + 4, class_="tick end"))
    return joined(lines)


def _x_ticks(x: Axis) -> Markup:
    bottom = HEIGHT - BOTTOM
    marks: list[Child] = []
    for value, text in x.ticks:
        at = x.scale(value)
        marks.append(tag("line", x1=at, x2=at, y1=bottom, y2=bottom + _TICK, class_="axis"))
        marks.append(tag("text", text, x=at, y=bottom + 18, class_="tick"))
    return joined(marks)


def line_path(points: Iterable[tuple[float, float]]) -> str:
    """Straight lines through points."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def step_path(edges: Sequence[float], heights: Sequence[float]) -> str:
    """A line of steps: one height between every two edges."""
    parts = [f"M{number(edges[0])} {number(heights[0])}"]
    for place, height in enumerate(heights):
        if place and number(height) != number(heights[place - 1]):
            parts.append(f"V{number(height)}")
        is_last = place + 1 == len(heights)
        if is_last or number(heights[place + 1]) != number(height):
            parts.append(f"H{number(edges[place + 1])}")
    return "".join(parts)


def step_area(edges: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> str:
    """The area between two lines of steps."""
    back = step_path(list(reversed(edges)), list(reversed(lower)))
    return f"{step_path(edges, upper)}L{back[1:]}Z"


def whisker(x: float, low: float, high: float, *, reach: float = 4, class_: str = "whisker") -> Markup:
    """An upright interval with caps."""
    caps = "".join(f"M{number(x - reach)} {number(at)}H{number(x + reach)}" for at in (low, high))
    return tag("path", d=f"M{number(x)} {number(low)}V{number(high)}{caps}", class_=class_)
