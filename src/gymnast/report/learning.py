"""Learning curves as a page: held-out reward over the steps of one or several trainings, with their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING

from gymnast import __version__
from gymnast.report.figures import COLOURS, legend_of, table
from gymnast.report.markup import Markup, joined, tag
from gymnast.report.page import asset, assets, policy
from gymnast.report.plot import Axis, across, drawing, line_path, upwards
from gymnast.report.scales import short, span
from gymnast.store.replacing import write_replacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Point:
    """The policy after so many steps."""

    step: int
    seconds: float
    reward: float
    """The mean over held-out tasks."""
    parts: dict[str, float]
    """The same by environment."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One training."""

    name: str
    points: Sequence[Point]


def write_learning_report(title: str, curves: Sequence[Curve], output: Path, *, note: str = "") -> None:
    """One file that loads nothing, like the report of a run."""
    style = assets(("page.css", "charts.css"))
    parts = sorted({name for curve in curves for point in curve.points for name in point.parts})
    figures = [
        _figure("Held-out reward", curves, None),
        *(_figure(f"Held-out reward: {name}", curves, name) for name in parts),
    ]
    values = {
        "title": joined([title]),
        "note": tag("p", note, class_="small") if note else Markup(""),
        "figures": tag("div", *figures, class_="figures"),
        "version": joined([__version__]),
        "policy": policy(style, ""),
        "style": style,
    }
    write_replacing(output, Template(asset("learning.html")).substitute(values).encode())


def _figure(title: str, curves: Sequence[Curve], part: str | None) -> Markup:
    heads = ["step", "minutes", *(curve.name for curve in curves)]
    unfolded = tag("details", tag("summary", "numbers"), table(heads, _rows(curves, part)), class_="data")
    caption = tag("figcaption", tag("h3", title), tag("p", "Mean reward on tasks that are never trained on."))
    names = legend_of((place, curve.name) for place, curve in enumerate(curves))
    return tag("figure", caption, names, _plot(title, curves, part), unfolded, class_="card")


def _plot(title: str, curves: Sequence[Curve], part: str | None) -> Markup:
    last = max((curve.points[-1].step for curve in curves if curve.points), default=1) or 1
    values = [_value(point, part) for curve in curves for point in curve.points] or [0.0]
    x_scale, y_scale = across(0.0, float(last)), upwards(*span(min(values), max(values)))
    x = Axis(x_scale, "training steps", [(tick, short(tick)) for tick in x_scale.ticks(6)])
    y = Axis(y_scale, "mean reward", [(tick, short(tick)) for tick in y_scale.ticks(5)])
    shapes = [shape for place, curve in enumerate(curves) for shape in _shapes(place, curve, part, x, y)]
    return drawing(x, y, shapes, label=f"{title} over training steps; numbers are in the table below it.")


def _shapes(place: int, curve: Curve, part: str | None, x: Axis, y: Axis) -> Iterator[Markup]:
    colour = f"run-{place % COLOURS}"
    points = [(x.scale(point.step), y.scale(_value(point, part))) for point in curve.points]
    if points:
        yield tag("path", d=line_path(points), class_=f"curve {colour}")
    for (at, height), point in zip(points, curve.points, strict=True):
        told = tag("title", f"{curve.name}, step {point.step}: {_value(point, part):.3f}")
        yield tag("circle", told, cx=at, cy=height, r=3.5, class_=f"dot {colour}")


def _rows(curves: Sequence[Curve], part: str | None) -> Iterator[list[str]]:
    by_step: dict[int, dict[int, Point]] = {}
    for place, curve in enumerate(curves):
        for point in curve.points:
            by_step.setdefault(point.step, {})[place] = point
    for step, found in sorted(by_step.items()):
        minutes = max(point.seconds for point in found.values()) / 60
        cells = (f"{_value(found[place], part):.3f}" if place in found else "" for place in range(len(curves)))
        yield [str(step), f"{minutes:.1f}", *cells]


def _value(point: Point, part: str | None) -> float:
    return point.reward if part is None else point.parts.get(part, 0.0)
