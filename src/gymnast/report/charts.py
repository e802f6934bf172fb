"""The report's plots of rewards, tasks and pass@k: values in, SVG out. Colours and weights are the style sheet's.

Several runs are drawn into one plot, each in its colour and, where lines are concerned, its dashes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.report.bins import clipped, reward_bins, stretches
from gymnast.report.markup import Markup, tag
from gymnast.report.plot import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
    Axis,
    across,
    drawing,
    line_path,
    step_area,
    step_path,
    upwards,
    whisker,
)
from gymnast.report.scales import Scale, count, even_ticks, percent, short, span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.profile.intervals import Estimate
    from gymnast.report.bins import Bins
    from gymnast.report.run_view import RunView

_LABELLED_BARS: Final = 14
_LARGEST_EVEN_K: Final = 20
_STRETCHES: Final = 480
"""More steps than this cannot be seen on a screen."""


def reward_histogram(runs: Sequence[RunView]) -> Markup:
    """How rewards are distributed, as shares of each run's rollouts."""
    bins = reward_bins([run.rewards for run in runs])
    shares = [[found / max(1, len(run.rewards)) for found in bins.counts(run.rewards)] for run in runs]
    top = max(max(one) for one in shares)
    y = Axis(upwards(0, top * 1.08), "share of rollouts", [(one, percent(one)) for one in even_ticks(0, top, 5)])
    x = _value_axis(bins) if bins.are_values else _bin_axis(bins)
    bars = [bar for run, mine in zip(runs, shares, strict=True) for bar in _bars(run, bins, mine, y.scale, len(runs))]
    return drawing(x, y, bars, label="Histogram of rewards; the numbers are in the table below it.")


def _value_axis(bins: Bins) -> Axis:
    """Single values stand side by side at even distances."""
    ticks = [(place + 0.5, label) for place, label in enumerate(bins.labels())]
    return Axis(across(0, len(bins)), "reward", ticks)


def _bin_axis(bins: Bins) -> Axis:
    low, high = bins.edges[0], bins.edges[-1]
    width = (high - low) / len(bins)
    ticks = [((value - low) / width, short(value)) for value in even_ticks(low, high, 6)]
    return Axis(across(0, len(bins)), "reward", ticks)


def _bars(run: RunView, bins: Bins, shares: Sequence[float], y: Scale, runs: int) -> Iterator[Markup]:
    slot = (WIDTH - LEFT - RIGHT) / len(bins)
    width = min(slot * (0.72 if bins.are_values else 0.92), 84.0 * runs) / runs
    counts = bins.counts(run.rewards)
    for place, (share, label) in enumerate(zip(shares, bins.labels(), strict=True)):
        left = LEFT + slot * (place + 0.5) + width * (run.number - runs / 2)
        height = HEIGHT - BOTTOM - y(share)
        title = tag("title", f"{run.name}: reward {label}, {count(counts[place])} rollouts ({percent(share)})")
        colour = f"bar run-{run.number % 6}"
        if share:
            yield tag("rect", title, x=left + 0.5, y=y(share), width=width - 1, height=height, class_=colour)
        if len(bins) * runs <= _LABELLED_BARS:
            yield tag("text", percent(share), x=left + width / 2, y=y(share) - 5, class_="value")


def pass_rates(runs: Sequence[RunView]) -> Markup:
    """Each task's mean reward, easiest first, and where it may lie."""
    bounds = _reward_span(runs)
    y_scale = upwards(*bounds)
    most = max(_scored_tasks(run) for run in runs)
    by_share = len({_scored_tasks(run) for run in runs}) > 1
    ends = 1.0 if by_share else float(most)
    ticks = [
        (one, percent(one) if by_share else count(int(one)))
        for one in even_ticks(0, ends, 6)
        if one == int(one) or by_share
    ]
    x = Axis(across(0, ends), "share of tasks, easiest first" if by_share else "tasks, easiest first", ticks)
    shapes = [shape for run in runs for shape in _rates(run, x.scale, y_scale, bounds)]
    name = "pass-rates" if len(runs) == 1 else None
    return drawing(x, _reward_axis(runs, y_scale), shapes, label="Mean reward of each task, sorted.", plot=name)


def _rates(run: RunView, x: Scale, y: Scale, bounds: tuple[float, float]) -> Iterator[Markup]:
    tasks = run.tasks
    there = np.flatnonzero(tasks.scored > 0)
    order = there[np.lexsort((tasks.ids[there], (tasks.high - tasks.low)[there], -tasks.mean[there]))]
    if not len(order):
        return
    first, last = stretches(len(order), _STRETCHES)
    share = x.high / len(order)
    edges = [x(float(edge) * share) for edge in [*first, last[-1]]]
    mean = [y(float(tasks.mean[order[a:b]].mean())) for a, b in zip(first, last, strict=True)]
    colour = f"run-{run.number % 6}"
    lows, highs = tasks.low[order], tasks.high[order]
    if np.isfinite(lows).any():
        pairs = [
            clipped(float(lows[a:b].mean()), float(highs[a:b].mean()), bounds) for a, b in zip(first, last, strict=True)
        ]
        area = step_area(edges, [y(low) for low, _ in pairs], [y(high) for _, high in pairs])
        yield tag("path", d=area, class_=f"band {colour}")
    yield tag("path", d=step_path(edges, mean), class_=f"curve {colour}")


def pass_at_k_curve(runs: Sequence[RunView]) -> Markup:
    """How much more than once helps."""
    most = max(run.curve[-1][0] for run in runs if run.curve)
    is_log = most > _LARGEST_EVEN_K
    bounds = _reward_span(runs)
    y_scale = upwards(*bounds)
    low, high = (1.0, float(most)) if most > 1 else (0.5, 1.5)
    ticks = [(float(k), str(k)) for k in _k_ticks(most, is_log=is_log)]
    x = Axis(across(low, high, is_log=is_log), "k (rollouts per task)", ticks)
    shapes = [shape for run in runs if run.curve for shape in _curve(run, x.scale, y_scale, bounds)]
    return drawing(
        x, _reward_axis(runs, y_scale, best=True), shapes, label="pass@k; numbers are in the table below it."
    )


def _k_ticks(most: int, *, is_log: bool) -> list[int]:
    if not is_log and most <= 10:
        return list(range(1, most + 1))
    return [2**power for power in range(20) if 2**power <= most]


def _curve(run: RunView, x: Scale, y: Scale, bounds: tuple[float, float]) -> Iterator[Markup]:
    points = [(x(k), found) for k, found in run.curve]
    colour = f"run-{run.number % 6}"
    if len(points) == 1 and math.isfinite(points[0][1].low):
        low, high = clipped(points[0][1].low, points[0][1].high, bounds)
        yield whisker(points[0][0], y(low), y(high), class_=f"whisker {colour}")
    elif all(math.isfinite(found.low) for _, found in points):
        rails = [clipped(found.low, found.high, bounds) for _, found in points]
        upper = [(at, y(high)) for (at, _), (_, high) in zip(points, rails, strict=True)]
        lower = [(at, y(low)) for (at, _), (low, _) in zip(points, rails, strict=True)]
        yield tag("path", d=line_path([*upper, *reversed(lower)]) + "Z", class_=f"band {colour}")
    yield tag("path", d=line_path([(at, y(found.value)) for at, found in points]), class_=f"curve {colour}")
    for (at, found), (k, _) in zip(points, run.curve, strict=True):
        title = tag("title", f"{run.name}: pass@{k} = {interval_text(found)}, {count(found.n)} tasks")
        yield tag("circle", title, cx=at, cy=y(found.value), r=3.5, class_=f"dot {colour}")


def interval_text(found: Estimate, digits: int = 3) -> str:
    """0.420 [0.315, 0.525]"""
    if not math.isfinite(found.low):
        return f"{found.value:.{digits}f} (one task: no interval)"
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _scored_tasks(run: RunView) -> int:
    return len(run.groups)


def _reward_span(runs: Sequence[RunView]) -> tuple[float, float]:
    return span(
        min(float(run.rewards.min(initial=0.0)) for run in runs),
        max(float(run.rewards.max(initial=1.0)) for run in runs),
    )


def _reward_axis(runs: Sequence[RunView], scale: Scale, *, best: bool = False) -> Axis:
    """Shares in percent where rewards are 0 and 1, else rewards."""
    ticks = even_ticks(scale.low, scale.high, 5)
    if all(run.is_binary for run in runs):
        return Axis(scale, "pass@k" if best else "pass rate", [(one, percent(one)) for one in ticks])
    return Axis(scale, "expected best reward of k" if best else "mean reward", [(one, short(one)) for one in ticks])
