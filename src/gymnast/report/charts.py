"""The report's plots of rewards, tasks and pass@k: values in, SVG out. The style sheet has the colours and weights.

Several runs share one plot, each with its own colour and, for lines, dashes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.report.bins import clip_interval, make_reward_bins, split_evenly
from gymnast.report.markup import Markup, tag
from gymnast.report.plot import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
    Axis,
    draw_plot,
    draw_whisker,
    horizontal_scale,
    line_path,
    step_area,
    step_path,
    vertical_scale,
)
from gymnast.report.scales import Scale, format_count, format_percent, format_short, linear_ticks, reward_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.profile.intervals import Estimate
    from gymnast.report.bins import Bins
    from gymnast.report.run_view import RunView

_MAX_LABELLED_BARS: Final = 14
_MAX_LINEAR_K: Final = 20
_MAX_STEPS: Final = 480
"""More steps are invisible on a screen."""


def draw_reward_histogram(runs: Sequence[RunView]) -> Markup:
    """The distribution of rewards, as shares of each run's rollouts."""
    bins = make_reward_bins([run.rewards for run in runs])
    shares = [[count / max(1, len(run.rewards)) for count in bins.counts(run.rewards)] for run in runs]
    top = max(map(max, shares))
    ticks = [(tick, format_percent(tick)) for tick in linear_ticks(0, top, 5)]
    y = Axis(vertical_scale(0, top * 1.08), "share of rollouts", ticks)
    x = _value_axis(bins) if bins.are_values else _bin_axis(bins)
    bars = [bar for run, own in zip(runs, shares, strict=True) for bar in _bars(run, bins, own, y.scale, len(runs))]
    return draw_plot(x, y, bars, label="Histogram of rewards; the numbers are in the table below it.")


def _value_axis(bins: Bins) -> Axis:
    """Single values, evenly spaced."""
    ticks = [(index + 0.5, label) for index, label in enumerate(bins.labels())]
    return Axis(horizontal_scale(0, len(bins)), "reward", ticks)


def _bin_axis(bins: Bins) -> Axis:
    low, high = bins.edges[0], bins.edges[-1]
    width = (high - low) / len(bins)
    ticks = [((value - low) / width, format_short(value)) for value in linear_ticks(low, high, 6)]
    return Axis(horizontal_scale(0, len(bins)), "reward", ticks)


def _bars(run: RunView, bins: Bins, shares: Sequence[float], y: Scale, runs: int) -> Iterator[Markup]:
    slot = (WIDTH - LEFT - RIGHT) / len(bins)
    width = min(slot * (0.72 if bins.are_values else 0.92), 84.0 * runs) / runs
    counts = bins.counts(run.rewards)
    for index, (share, label) in enumerate(zip(shares, bins.labels(), strict=True)):
        left = LEFT + slot * (index + 0.5) + width * (run.number - runs / 2)
        height = HEIGHT - BOTTOM - y(share)
        rollouts = f"{format_count(counts[index])} rollouts ({format_percent(share)})"
        title = tag("title", f"{run.name}: reward {label}, {rollouts}")
        colour = f"bar run-{run.number % 6}"
        if share:
            yield tag("rect", title, x=left + 0.5, y=y(share), width=width - 1, height=height, class_=colour)
        if len(bins) * runs <= _MAX_LABELLED_BARS:
            yield tag("text", format_percent(share), x=left + width / 2, y=y(share) - 5, class_="value")


def draw_pass_rates(runs: Sequence[RunView]) -> Markup:
    """The mean reward of each task with its interval, easiest first."""
    bounds = _reward_bounds(runs)
    y_scale = vertical_scale(*bounds)
    by_share = len({len(run.groups) for run in runs}) > 1
    end = 1.0 if by_share else float(max(len(run.groups) for run in runs))
    ticks = [
        (tick, format_percent(tick) if by_share else format_count(int(tick)))
        for tick in linear_ticks(0, end, 6)
        if tick == int(tick) or by_share
    ]
    x = Axis(horizontal_scale(0, end), "share of tasks, easiest first" if by_share else "tasks, easiest first", ticks)
    shapes = [shape for run in runs for shape in _rates(run, x.scale, y_scale, bounds)]
    name = "pass-rates" if len(runs) == 1 else None
    return draw_plot(x, _reward_axis(runs, y_scale), shapes, label="Mean reward of each task, sorted.", plot=name)


def _rates(run: RunView, x: Scale, y: Scale, bounds: tuple[float, float]) -> Iterator[Markup]:
    tasks = run.tasks
    scored = np.flatnonzero(tasks.scored > 0)
    order = scored[np.lexsort((tasks.ids[scored], (tasks.high - tasks.low)[scored], -tasks.mean[scored]))]
    if not len(order):
        return
    starts, ends = split_evenly(len(order), _MAX_STEPS)
    steps = [order[start:end] for start, end in zip(starts, ends, strict=True)]
    share = x.high / len(order)
    edges = [x(float(edge) * share) for edge in [*starts, ends[-1]]]
    mean = [y(float(tasks.mean[step].mean())) for step in steps]
    colour = f"run-{run.number % 6}"
    if np.isfinite(tasks.low[order]).any():
        bands = [clip_interval(float(tasks.low[step].mean()), float(tasks.high[step].mean()), bounds) for step in steps]
        area = step_area(edges, [y(low) for low, _ in bands], [y(high) for _, high in bands])
        yield tag("path", d=area, class_=f"band {colour}")
    yield tag("path", d=step_path(edges, mean), class_=f"curve {colour}")


def draw_pass_at_k(runs: Sequence[RunView]) -> Markup:
    """The gain from several rollouts per task."""
    max_k = max(run.curve[-1][0] for run in runs if run.curve)
    is_log = max_k > _MAX_LINEAR_K
    bounds = _reward_bounds(runs)
    y_scale = vertical_scale(*bounds)
    low, high = (1.0, float(max_k)) if max_k > 1 else (0.5, 1.5)
    ticks = [(float(k), str(k)) for k in _k_ticks(max_k, is_log=is_log)]
    x = Axis(horizontal_scale(low, high, is_log=is_log), "k (rollouts per task)", ticks)
    shapes = [shape for run in runs if run.curve for shape in _curve(run, x.scale, y_scale, bounds)]
    return draw_plot(
        x, _reward_axis(runs, y_scale, best=True), shapes, label="pass@k; numbers are in the table below it."
    )


def _k_ticks(max_k: int, *, is_log: bool) -> list[int]:
    if not is_log and max_k <= 10:
        return list(range(1, max_k + 1))
    return [2**power for power in range(20) if 2**power <= max_k]


def _curve(run: RunView, x: Scale, y: Scale, bounds: tuple[float, float]) -> Iterator[Markup]:
    points = [(x(k), estimate) for k, estimate in run.curve]
    colour = f"run-{run.number % 6}"
    if len(points) == 1 and math.isfinite(points[0][1].low):
        low, high = clip_interval(points[0][1].low, points[0][1].high, bounds)
        yield draw_whisker(points[0][0], y(low), y(high), class_=f"whisker {colour}")
    elif all(math.isfinite(estimate.low) for _, estimate in points):
        band = [(left, clip_interval(estimate.low, estimate.high, bounds)) for left, estimate in points]
        upper = [(left, y(high)) for left, (_, high) in band]
        lower = [(left, y(low)) for left, (low, _) in band]
        yield tag("path", d=line_path([*upper, *reversed(lower)]) + "Z", class_=f"band {colour}")
    yield tag("path", d=line_path([(left, y(estimate.value)) for left, estimate in points]), class_=f"curve {colour}")
    for (left, estimate), (k, _) in zip(points, run.curve, strict=True):
        title = tag("title", f"{run.name}: pass@{k} = {format_interval(estimate)}, {format_count(estimate.n)} tasks")
        yield tag("circle", title, cx=left, cy=y(estimate.value), r=3.5, class_=f"dot {colour}")


def format_interval(estimate: Estimate, digits: int = 3) -> str:
    """0.420 [0.315, 0.525]"""
    if not math.isfinite(estimate.low):
        return f"{estimate.value:.{digits}f} (one task: no interval)"
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def _reward_bounds(runs: Sequence[RunView]) -> tuple[float, float]:
    return reward_range(
        min(float(run.rewards.min(initial=0.0)) for run in runs),
        max(float(run.rewards.max(initial=1.0)) for run in runs),
    )


def _reward_axis(runs: Sequence[RunView], scale: Scale, *, best: bool = False) -> Axis:
    """Percentages for binary rewards, else rewards."""
    ticks = linear_ticks(scale.low, scale.high, 5)
    if all(run.is_binary for run in runs):
        return Axis(scale, "pass@k" if best else "pass rate", [(tick, format_percent(tick)) for tick in ticks])
    title = "expected best reward of k" if best else "mean reward"
    return Axis(scale, title, [(tick, format_short(tick)) for tick in ticks])
