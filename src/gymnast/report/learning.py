"""A page of learning curves: held-out reward over the steps of one or several training runs, with their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING

from gymnast import __version__
from gymnast.report.figure_cards import COLOURS, render_legend, render_numbers, render_table
from gymnast.report.html_page import read_asset, read_assets, security_policy
from gymnast.report.markup import Markup, join_markup, tag
from gymnast.report.plot import Axis, draw_plot, horizontal_scale, line_path, vertical_scale
from gymnast.report.scales import format_short, reward_range
from gymnast.store.atomic import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Point:
    """The policy after a number of steps."""

    step: int
    seconds: float
    reward: float
    """The mean over held-out tasks."""
    parts: dict[str, float]
    """The mean by environment."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One training run."""

    name: str
    points: Sequence[Point]


def write_learning_report(title: str, curves: Sequence[Curve], output: Path, *, note: str = "") -> None:
    """Write one self-contained file, like the report of a run."""
    style = read_assets(("page.css", "charts.css"))
    parts = sorted({name for curve in curves for point in curve.points for name in point.parts})
    figures = [_figure("Held-out reward", curves, None)]
    if len(parts) > 1:
        figures += [_figure(f"Held-out reward: {name}", curves, name) for name in parts]
    values = {
        "title": join_markup([title]),
        "note": tag("p", note, class_="small") if note else Markup(""),
        "figures": tag("div", *figures, class_="figures"),
        "version": join_markup([__version__]),
        "policy": security_policy(style, ""),
        "style": style,
    }
    atomic_write(output, Template(read_asset("learning.html")).substitute(values).encode())


def _figure(title: str, curves: Sequence[Curve], part: str | None) -> Markup:
    heads = ["step", "minutes", *(curve.name for curve in curves)]
    numbers = render_numbers(render_table(heads, _rows(curves, part)))
    caption = tag("figcaption", tag("h3", title), tag("p", "Mean reward on tasks that are never trained on."))
    legend = render_legend((number, curve.name) for number, curve in enumerate(curves))
    return tag("figure", caption, legend, _plot(title, curves, part), numbers, class_="card")


def _plot(title: str, curves: Sequence[Curve], part: str | None) -> Markup:
    last = max((curve.points[-1].step for curve in curves if curve.points), default=1) or 1
    values = [_value(point, part) for curve in curves for point in curve.points] or [0.0]
    x_scale, y_scale = horizontal_scale(0.0, float(last)), vertical_scale(*reward_range(min(values), max(values)))
    x = Axis(x_scale, "training steps", [(tick, format_short(tick)) for tick in x_scale.ticks(6)])
    y = Axis(y_scale, "mean reward", [(tick, format_short(tick)) for tick in y_scale.ticks(5)])
    shapes = [shape for number, curve in enumerate(curves) for shape in _shapes(number, curve, part, x, y)]
    return draw_plot(x, y, shapes, label=f"{title} over training steps; numbers are in the table below it.")


def _shapes(number: int, curve: Curve, part: str | None, x: Axis, y: Axis) -> Iterator[Markup]:
    colour = f"run-{number % COLOURS}"
    points = [(x.scale(point.step), y.scale(_value(point, part))) for point in curve.points]
    if points:
        yield tag("path", d=line_path(points), class_=f"curve {colour}")
    for (left, top), point in zip(points, curve.points, strict=True):
        title = tag("title", f"{curve.name}, step {point.step}: {_value(point, part):.3f}")
        yield tag("circle", title, cx=left, cy=top, r=3.5, class_=f"dot {colour}")


def _rows(curves: Sequence[Curve], part: str | None) -> Iterator[list[str]]:
    by_step: dict[int, dict[int, Point]] = {}
    for number, curve in enumerate(curves):
        for point in curve.points:
            by_step.setdefault(point.step, {})[number] = point
    for step, points in sorted(by_step.items()):
        minutes = max(point.seconds for point in points.values()) / 60
        cells = (f"{_value(points[number], part):.3f}" if number in points else "" for number in range(len(curves)))
        yield [str(step), f"{minutes:.1f}", *cells]


def _value(point: Point, part: str | None) -> float:
    return point.reward if part is None else point.parts.get(part, 0.0)
