"""The frame of a plot as SVG: its size, and two axes with ticks and titles around the shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.report.markup import Markup, format_coordinate, join_markup, tag
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
    """An axis: its scale, its title, and its ticks with their labels."""

    scale: Scale
    title: str
    ticks: Sequence[tuple[float, str]]


def horizontal_scale(low: float, high: float, *, is_log: bool = False) -> Scale:
    """A scale from left to right."""
    return Scale(low, high, LEFT, WIDTH - RIGHT, is_log)


def vertical_scale(low: float, high: float) -> Scale:
    """A scale from the bottom to the top."""
    return Scale(low, high, HEIGHT - BOTTOM, TOP)


def draw_plot(
    x: Axis, y: Axis, shapes: Iterable[Child], *, label: str, marks: Iterable[Child] = (), plot: str | None = None
) -> Markup:
    """A plot. `marks` are drawn above the shapes; `plot` is the plot's name for the script that follows the pointer."""
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
        top = y.scale(value)
        lines.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=top, y2=top, class_="grid"))
        lines.append(tag("text", text, x=LEFT - 8, y=top + 4, class_="tick end"))
    return join_markup(lines)


def _x_ticks(x: Axis) -> Markup:
    bottom = HEIGHT - BOTTOM
    marks: list[Child] = []
    for value, text in x.ticks:
        left = x.scale(value)
        marks.append(tag("line", x1=left, x2=left, y1=bottom, y2=bottom + _TICK, class_="axis"))
        marks.append(tag("text", text, x=left, y=bottom + 18, class_="tick"))
    return join_markup(marks)


def line_path(points: Iterable[tuple[float, float]]) -> str:
    """Straight lines through points."""
    return "M" + "L".join(f"{format_coordinate(x)} {format_coordinate(y)}" for x, y in points)


def step_path(edges: Sequence[float], heights: Sequence[float]) -> str:
    """A step line: one height between each pair of edges."""
    levels = [format_coordinate(height) for height in heights]
    parts = [f"M{format_coordinate(edges[0])} {levels[0]}"]
    for index, level in enumerate(levels):
        if index and level != levels[index - 1]:
            parts.append(f"V{level}")
        if index + 1 == len(levels) or levels[index + 1] != level:
            parts.append(f"H{format_coordinate(edges[index + 1])}")
    return "".join(parts)


def step_area(edges: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> str:
    """The area between two step lines."""
    back = step_path(list(reversed(edges)), list(reversed(lower)))
    return f"{step_path(edges, upper)}L{back[1:]}Z"


def draw_whisker(x: float, low: float, high: float, *, reach: float = 4, class_: str = "whisker") -> Markup:
    """A vertical interval with caps."""
    left, middle, right, bottom, top = map(format_coordinate, (x - reach, x, x + reach, low, high))
    caps = f"M{left} {bottom}H{right}M{left} {top}H{right}"
    return tag("path", d=f"M{middle} {bottom}V{top}{caps}", class_=class_)
