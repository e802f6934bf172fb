"""The report for the terminal: tables and plots of block characters, as lines of a given width. Plain text only."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.cells import cell_len, set_cell_size

from gymnast.report.bins import reward_bins, stretches
from gymnast.report.charts import interval_text
from gymnast.report.failure_chart import failed_kinds
from gymnast.report.notices import notices
from gymnast.report.payload import snippet
from gymnast.report.rankings import rank, reward_text, said
from gymnast.report.records import prompts
from gymnast.report.scales import count, percent, short, span
from gymnast.report.visible import one_line
from gymnast.types.failure import kind_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.report.rankings import Ranking
    from gymnast.report.run_view import RunView

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_ROWS: Final = 8
_LISTED: Final = 5


def report_lines(runs: Sequence[RunView], width: int) -> Iterator[str]:
    """Everything, one run after the other."""
    for place, run in enumerate(runs):
        if place:
            yield ""
        yield from _run_lines(run, width)


def _run_lines(run: RunView, width: int) -> Iterator[str]:
    for line in headline_lines(run):
        yield from _folded(line, width)
    if len(run.rewards):
        yield from (*_heading("rewards", width), *_histogram(run, width))
        yield from (*_heading(_rates_title(run), width), *_rates(run, width))
        best = "pass@k" if run.is_binary else "expected best reward of k"
        yield from (*_heading(best, width), *_curve(run, width))
    if failed_kinds([run]):
        title = "failures: rollouts without a score / failed attempts"
        yield from (*_heading(title, width), *_failures(run, width))
    if len(run.rewards):
        texts = [snippet(given) for given in prompts(run)]
        for ranking in rank(run):
            yield from _ranking(run, ranking, texts, width)


def headline_lines(run: RunView) -> Iterator[str]:
    """The headline in a few lines."""
    head = run.headline
    asked = f"{count(head.requested)} asked for, " if run.has_inputs else ""
    missing = f", {count(head.missing)} missing" if run.has_inputs else ""
    yield one_line(run.name, 60)
    yield (
        f"  {count(head.tasks)} tasks; rollouts: {asked}{count(head.scored)} scored, {count(run.failed)} failed, "
        f"{count(run.excluded)} excluded{missing}"
    )
    if len(run.rewards):
        yield f"  mean reward {interval_text(run.mean_reward, 4)}"
    for one in head.agents if len(head.agents) > 1 else ():
        yield f"    {one_line(one.agent or '(no name)', 40)}: {interval_text(one.mean_reward, 4)}"
    for notice in notices(run):
        yield f"  note: {notice}"


def _histogram(run: RunView, width: int) -> Iterator[str]:
    bins = reward_bins([run.rewards])
    counts = bins.counts(run.rewards)
    most, total = max(counts), max(1, sum(counts))
    labels = bins.labels()
    left = max(map(len, labels))
    for label, number in zip(labels, counts, strict=True):
        told = f"{count(number)} ({percent(number / total)})"
        yield f"  {label:>{left}} {_bar(number / most, width - left - 25)} {told}"


def _rates_title(run: RunView) -> str:
    what = "pass rate per task" if run.is_binary else "mean reward per task"
    return f"{what}, easiest first ({count(len(run.groups))} tasks)"


def _rates(run: RunView, width: int) -> Iterator[str]:
    """A filled curve: columns are stretches of the sorted tasks."""
    means = np.sort(run.tasks.mean[run.tasks.scored > 0])[::-1]
    low, high = span(float(run.rewards.min()), float(run.rewards.max()))
    room = width - 10
    first, last = stretches(len(means), room)
    heights = [float(means[a:b].mean() - low) / (high - low) * _ROWS for a, b in zip(first, last, strict=True)]
    wide = max(1, room // len(heights)) if len(heights) < room else 1
    for row in range(_ROWS - 1, -1, -1):
        label = {_ROWS - 1: short(high), 0: short(low)}.get(row, "")
        cells = "".join(_LEVELS[_level(height - row)] * wide for height in heights)
        yield f"  {label:>5} │{cells}".rstrip()
    yield f"        └{'─' * (wide * len(heights))}"


def _level(part: float) -> int:
    return round(min(1.0, max(0.0, part)) * (len(_LEVELS) - 1))


def _curve(run: RunView, width: int) -> Iterator[str]:
    low, high = span(float(run.rewards.min()), float(run.rewards.max()))
    last = run.curve[-1][0]
    for k, found in run.curve:
        if k & (k - 1) == 0 or k == last:
            share = (found.value - low) / (high - low)
            yield f"  {k:>5} {_bar(share, width - 34)} {interval_text(found)}"


def _failures(run: RunView, width: int) -> Iterator[str]:
    attempts = run.loaded.failures.attempts
    for kind in failed_kinds([run]):
        told = f"{count(run.headline.failed.get(kind, 0))} / {count(attempts[kind])}"
        line = f"  {one_line(kind, 26):<26} {told:>15}  {kind_named(kind).hint}"
        yield _fitted(line, width)


def _ranking(run: RunView, ranking: Ranking, texts: Sequence[str], width: int) -> Iterator[str]:
    note = ranking.note[0].lower() + ranking.note[1:].rstrip(".")
    yield from _heading(f"{ranking.title.lower()} ({note})", width)
    for row in ranking.rows[:_LISTED]:
        numbers = f"{reward_text(run, row):>10} {said(float(ranking.values[row])):>9}"
        yield f"  {int(run.tasks.ids[row]):>7} {_fitted(texts[row], width - 32)} {numbers}"
    if not ranking.rows:
        yield "  there are none"


def _bar(share: float, room: int) -> str:
    """A bar of a share of the room, padded to all of it."""
    if not math.isfinite(share):
        return " " * room
    eighths = round(min(1.0, max(0.0, share)) * room * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(room)


def _fitted(text: str, room: int) -> str:
    """Cut or padded to so many cells: some characters take two."""
    return text + " " * (room - cell_len(text)) if cell_len(text) <= room else set_cell_size(text, room - 1) + "…"


def _heading(text: str, width: int) -> Iterator[str]:
    yield ""
    yield from _folded(text, width)


def _folded(text: str, width: int) -> Iterator[str]:
    """A sentence in lines, continued under its beginning."""
    return iter(textwrap.wrap(text, width, subsequent_indent="    ") or [""])
