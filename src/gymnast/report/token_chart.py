"""The plot of reward against tokens: single rollouts where they are few, their density where they are many.

Above either lies the mean reward of rollouts of similar length, with its interval.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.report.bins import clipped, density, is_wide, reward_bins, reward_by_tokens
from gymnast.report.charts import interval_text
from gymnast.report.markup import Markup, number, tag
from gymnast.report.plot import Axis, across, drawing, line_path, upwards, whisker
from gymnast.report.scales import count, even_ticks, short, span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.profile.table import Floats
    from gymnast.report.bins import Bins, TokenBin
    from gymnast.report.run_view import RunView
    from gymnast.report.scales import Scale

_DOTS_AT_MOST: Final = 600
_COLUMNS: Final = 56
_SHADES: Final = 8
_STRIP: Final = 16.0
"""Pixels of a row of cells that stands for a single reward."""
_ROOM: Final = 0.08
"""Above and below the rewards, as a share of their range: dots are spread a little."""


def reward_versus_tokens(runs: Sequence[RunView]) -> Markup:
    """Whether longer rollouts are better ones."""
    tokens = np.concatenate([run.tokens for run in runs])
    known = tokens[np.isfinite(tokens)]
    x = _token_axis(known, str(runs[0].token_field))
    rewards = np.concatenate([run.rewards for run in runs])
    low, high = span(float(rewards.min()), float(rewards.max()))
    room = _ROOM * (high - low)
    scale = upwards(low - room, high + room)
    y = Axis(scale, "reward", [(one, short(one)) for one in even_ticks(low, high, 5)])
    shapes = list(_rollouts(runs[0], x.scale, scale, room)) if len(runs) == 1 else []
    marks = [mark for run in runs for mark in _means(run, x.scale, scale, (low, high))]
    return drawing(x, y, shapes, marks=marks, label="Reward against tokens.", plot="tokens" if len(runs) == 1 else None)


def _token_axis(known: Floats, field: str) -> Axis:
    is_log = is_wide(known)
    low, high = float(known.min()), float(known.max())
    if not is_log:
        low = 0.0 if low < high / 2 else low
    title = field.replace("_", " ") + (" (logarithmic)" if is_log else "")
    if low == high:
        return Axis(across(low - 1, high + 1), title, [(low, short(low))])
    scale = across(low, high, is_log=is_log)
    return Axis(scale, title, [(one, short(one)) for one in scale.ticks(6)])


def _rollouts(run: RunView, x: Scale, y: Scale, room: float) -> Iterator[Markup]:
    known = np.flatnonzero(np.isfinite(run.tokens))
    if len(known) <= _DOTS_AT_MOST:
        for row in known.tolist():
            yield _dot(run, row, x, y, room)
    else:
        yield from _cells(run.tokens[known], run.rewards[known], x, y)


def _dot(run: RunView, row: int, x: Scale, y: Scale, room: float) -> Markup:
    key, reward, tokens = run.table.key(row), float(run.rewards[row]), float(run.tokens[row])
    spread = ((key.task * 31 + key.rollout * 17) % 23 / 22 - 0.5) * room * 1.4 if run.is_binary else 0.0
    title = tag("title", f"task {key.task} rollout {key.rollout}: reward {short(reward)}, {count(int(tokens))} tokens")
    circle = tag("circle", title, cx=x(tokens), cy=y(reward + spread), r=3.2, class_="rollout run-0")
    return tag("a", circle, href=f"#task={key.task}&rollout={key.rollout}", tabindex="-1")


def _cells(tokens: Floats, rewards: Floats, x: Scale, y: Scale) -> Iterator[Markup]:
    """One path for each shade: the number of rollouts in a cell, on a square-root scale so that few are seen too."""
    bins = reward_bins([rewards])
    width = (x.end - x.start) / _COLUMNS
    columns = np.minimum(_COLUMNS - 1, x.along(tokens) * _COLUMNS).astype(np.int64)
    found = density(columns, bins.places(rewards), (_COLUMNS, len(bins)))
    most = max(total for _, _, total in found)
    paths: dict[int, list[str]] = {}
    for column, place, total in found:
        top, bottom = _strip(bins, place, y)
        shade = max(1, math.ceil(_SHADES * math.sqrt(total / most)))
        left = x.start + column * width
        cell = f"M{number(left)} {number(top)}h{number(width - 0.5)}V{number(bottom)}h-{number(width - 0.5)}Z"
        paths.setdefault(shade, []).append(cell)
    for shade, cells in sorted(paths.items()):
        yield tag("path", d="".join(cells), class_="cell run-0", fill_opacity=shade / _SHADES)


def _strip(bins: Bins, place: int, y: Scale) -> tuple[float, float]:
    if not bins.are_values:
        return y(bins.edges[place + 1]), y(bins.edges[place])
    middle = y(bins.edges[place])
    return middle - _STRIP / 2, middle + _STRIP / 2


def _means(run: RunView, x: Scale, y: Scale, bounds: tuple[float, float]) -> Iterator[Markup]:
    found = reward_by_tokens(run.table, run.tokens)
    if not found:
        return
    points = [(x(one.middle), y(one.reward.value)) for one in found]
    colour = f"run-{run.number % 6}"
    yield tag("path", d=line_path(points), class_=f"curve mean {colour}")
    for (at, height), one in zip(points, found, strict=True):
        low, high = clipped(one.reward.low, one.reward.high, bounds)
        if math.isfinite(one.reward.low):
            yield whisker(at, y(low), y(high), class_=f"whisker mean {colour}")
        yield tag("circle", tag("title", _told(run, one)), cx=at, cy=height, r=3.5, class_=f"dot mean {colour}")


def _told(run: RunView, one: TokenBin) -> str:
    return (
        f"{run.name}: {count(int(one.low))} to {count(int(one.high))} tokens, {count(one.rollouts)} rollouts, "
        f"mean reward {interval_text(one.reward)}"
    )
