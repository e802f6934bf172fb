"""The plot of reward against tokens: a scatter plot of few rollouts, a density plot of many.

Above it, the mean reward of rollouts of similar length, with its interval.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.report.bins import clip_interval, count_cells, make_reward_bins, needs_log_scale, reward_by_tokens
from gymnast.report.charts import format_interval
from gymnast.report.markup import Markup, format_coordinate, tag
from gymnast.report.plot import Axis, draw_plot, draw_whisker, horizontal_scale, line_path, vertical_scale
from gymnast.report.scales import format_count, format_short, linear_ticks, reward_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.profile.table import Floats
    from gymnast.report.bins import Bins, TokenBin
    from gymnast.report.run_view import RunView
    from gymnast.report.scales import Scale

_MAX_DOTS: Final = 600
_COLUMNS: Final = 56
_SHADES: Final = 8
_STRIP: Final = 16.0
"""The height in pixels of a row of cells for a single reward."""
_PADDING: Final = 0.08
"""Padding above and below the rewards, as a share of their range, for the jitter of dots."""


def draw_reward_vs_tokens(runs: Sequence[RunView]) -> Markup:
    """Whether longer rollouts are better ones."""
    tokens = np.concatenate([run.tokens for run in runs])
    known = tokens[np.isfinite(tokens)]
    x = _token_axis(known, str(runs[0].token_field))
    rewards = np.concatenate([run.rewards for run in runs])
    low, high = reward_range(float(rewards.min()), float(rewards.max()))
    padding = _PADDING * (high - low)
    scale = vertical_scale(low - padding, high + padding)
    y = Axis(scale, "reward", [(tick, format_short(tick)) for tick in linear_ticks(low, high, 5)])
    shapes = list(_rollouts(runs[0], x.scale, scale, padding)) if len(runs) == 1 else []
    marks = [mark for run in runs for mark in _means(run, x.scale, scale, (low, high))]
    plot = "tokens" if len(runs) == 1 else None
    return draw_plot(x, y, shapes, marks=marks, label="Reward against tokens.", plot=plot)


def _token_axis(known: Floats, field: str) -> Axis:
    is_log = needs_log_scale(known)
    low, high = float(known.min()), float(known.max())
    if not is_log:
        low = 0.0 if low < high / 2 else low
    title = field.replace("_", " ") + (" (logarithmic)" if is_log else "")
    if low == high:
        return Axis(horizontal_scale(low - 1, high + 1), title, [(low, format_short(low))])
    scale = horizontal_scale(low, high, is_log=is_log)
    return Axis(scale, title, [(tick, format_short(tick)) for tick in scale.ticks(6)])


def _rollouts(run: RunView, x: Scale, y: Scale, padding: float) -> Iterator[Markup]:
    known = np.flatnonzero(np.isfinite(run.tokens))
    if len(known) <= _MAX_DOTS:
        for row in known.tolist():
            yield _dot(run, row, x, y, padding)
    else:
        yield from _cells(run.tokens[known], run.rewards[known], x, y)


def _dot(run: RunView, row: int, x: Scale, y: Scale, padding: float) -> Markup:
    key, reward, tokens = run.table.key(row), float(run.rewards[row]), float(run.tokens[row])
    jitter = ((key.task * 31 + key.rollout * 17) % 23 / 22 - 0.5) * padding * 1.4 if run.is_binary else 0.0
    numbers = f"reward {format_short(reward)}, {format_count(int(tokens))} tokens"
    title = tag("title", f"task {key.task} rollout {key.rollout}: {numbers}")
    circle = tag("circle", title, cx=x(tokens), cy=y(reward + jitter), r=3.2, class_="rollout run-0")
    return tag("a", circle, href=f"#task={key.task}&rollout={key.rollout}", tabindex="-1")


def _cells(tokens: Floats, rewards: Floats, x: Scale, y: Scale) -> Iterator[Markup]:
    """One path per shade: the number of rollouts in a cell, on a square-root scale that keeps small counts visible."""
    bins = make_reward_bins([rewards])
    width = (x.end - x.start) / _COLUMNS
    columns = np.minimum(_COLUMNS - 1, x.shares(tokens) * _COLUMNS).astype(np.int64)
    counts = count_cells(columns, bins.indices(rewards), (_COLUMNS, len(bins)))
    largest = max(count for _, _, count in counts)
    paths: dict[int, list[str]] = {}
    for column, index, count in counts:
        top, bottom = _strip(bins, index, y)
        shade = max(1, math.ceil(_SHADES * math.sqrt(count / largest)))
        left, size = format_coordinate(x.start + column * width), format_coordinate(width - 0.5)
        cell = f"M{left} {format_coordinate(top)}h{size}V{format_coordinate(bottom)}h-{size}Z"
        paths.setdefault(shade, []).append(cell)
    for shade, cells in sorted(paths.items()):
        yield tag("path", d="".join(cells), class_="cell run-0", fill_opacity=shade / _SHADES)


def _strip(bins: Bins, index: int, y: Scale) -> tuple[float, float]:
    if not bins.are_values:
        return y(bins.edges[index + 1]), y(bins.edges[index])
    middle = y(bins.edges[index])
    return middle - _STRIP / 2, middle + _STRIP / 2


def _means(run: RunView, x: Scale, y: Scale, bounds: tuple[float, float]) -> Iterator[Markup]:
    bins = reward_by_tokens(run.table, run.tokens)
    if not bins:
        return
    points = [(x(group.median), y(group.reward.value)) for group in bins]
    colour = f"run-{run.number % 6}"
    yield tag("path", d=line_path(points), class_=f"curve mean {colour}")
    for (left, top), group in zip(points, bins, strict=True):
        low, high = clip_interval(group.reward.low, group.reward.high, bounds)
        if math.isfinite(group.reward.low):
            yield draw_whisker(left, y(low), y(high), class_=f"whisker mean {colour}")
        yield tag("circle", _mean_title(run, group), cx=left, cy=top, r=3.5, class_=f"dot mean {colour}")


def format_token_range(group: TokenBin) -> str:
    """1,000 to 2,000"""
    return f"{format_count(int(group.low))} to {format_count(int(group.high))}"


def _mean_title(run: RunView, group: TokenBin) -> Markup:
    rollouts = f"{format_token_range(group)} tokens, {format_count(group.rollouts)} rollouts"
    return tag("title", f"{run.name}: {rollouts}, mean reward {format_interval(group.reward)}")
