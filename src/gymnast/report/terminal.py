"""The report for the terminal: tables and plots of block characters, in plain text of a given width."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.cells import cell_len, set_cell_size

from gymnast.report.bins import make_reward_bins, split_evenly
from gymnast.report.charts import format_interval
from gymnast.report.failure_chart import failed_kinds
from gymnast.report.notices import notices
from gymnast.report.payload import snippet
from gymnast.report.records import read_tasks
from gymnast.report.run_description import describe_setup
from gymnast.report.safe_text import to_one_line
from gymnast.report.scales import format_count, format_percent, format_short, reward_range
from gymnast.report.task_rankings import format_column, rank_tasks, reward_text
from gymnast.types.failure import kind_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.report.run_view import RunView
    from gymnast.report.task_rankings import Ranking

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_ROWS: Final = 8
_MAX_RANKED: Final = 5


def report_lines(runs: Sequence[RunView], width: int) -> Iterator[str]:
    """The report of all runs, one after the other."""
    for index, run in enumerate(runs):
        if index:
            yield ""
        yield from _run_lines(run, width)


def _run_lines(run: RunView, width: int) -> Iterator[str]:
    for line in headline_lines(run):
        yield from _wrap(line, width)
    if len(run.rewards):
        yield from (*_heading("rewards", width), *_histogram(run, width))
        yield from (*_heading(_rates_title(run), width), *_rates(run, width))
        best = "pass@k" if run.is_binary else "expected best reward of k"
        yield from (*_heading(best, width), *_curve(run, width))
    if failed_kinds([run]):
        title = "failures: rollouts without a score / failed attempts"
        yield from (*_heading(title, width), *_failures(run, width))
    if len(run.rewards) or run.failed:
        texts = [snippet(start.prompt) for start in read_tasks(run)]
        for ranking in rank_tasks(run):
            yield from _ranking(run, ranking, texts, width)


def headline_lines(run: RunView) -> Iterator[str]:
    """The headline in a few lines."""
    head = run.headline
    counts = [("scored", head.scored), ("failed", run.failed), ("excluded", run.excluded)]
    if run.has_inputs:
        counts = [("requested", head.requested), *counts, ("missing", head.missing)]
    yield to_one_line(run.name, 60)
    for name, text in describe_setup(run):
        yield f"  {name}: {text}"
    rollouts = ", ".join(f"{format_count(number)} {name}" for name, number in counts)
    yield f"  {format_count(head.tasks)} tasks; rollouts: {rollouts}"
    if run.truncated:
        share = run.truncated / max(1, head.scored + run.excluded)
        yield f"  truncated by a length or step limit: {format_count(run.truncated)} ({format_percent(share)})"
    if len(run.rewards):
        yield f"  mean reward {format_interval(run.mean_reward, 4)}"
    for agent in head.agents if len(head.agents) > 1 else ():
        yield f"    {to_one_line(agent.agent or '(no name)', 40)}: {format_interval(agent.mean_reward, 4)}"
    for notice in notices(run):
        yield f"  note: {notice}"


def _histogram(run: RunView, width: int) -> Iterator[str]:
    bins = make_reward_bins([run.rewards])
    counts = bins.counts(run.rewards)
    largest, total = max(counts), max(1, sum(counts))
    labels = bins.labels()
    left = max(map(len, labels))
    for label, number in zip(labels, counts, strict=True):
        numbers = f"{format_count(number)} ({format_percent(number / total)})"
        yield f"  {label:>{left}} {_bar(number / largest, width - left - 25)} {numbers}"


def _rates_title(run: RunView) -> str:
    value = "pass rate per task" if run.is_binary else "mean reward per task"
    return f"{value}, easiest first ({format_count(len(run.groups))} tasks)"


def _rates(run: RunView, width: int) -> Iterator[str]:
    """A filled curve over the sorted tasks, divided evenly among the columns."""
    means = np.sort(run.tasks.mean[run.tasks.scored > 0])[::-1]
    low, high = reward_range(float(run.rewards.min()), float(run.rewards.max()))
    columns = width - 10
    starts, ends = split_evenly(len(means), columns)
    heights = [
        float(means[start:end].mean() - low) / (high - low) * _ROWS for start, end in zip(starts, ends, strict=True)
    ]
    bar_width = max(1, columns // len(heights)) if len(heights) < columns else 1
    for row in range(_ROWS - 1, -1, -1):
        label = {_ROWS - 1: format_short(high), 0: format_short(low)}.get(row, "")
        cells = "".join(_LEVELS[_level(height - row)] * bar_width for height in heights)
        yield f"  {label:>5} │{cells}".rstrip()
    yield f"        └{'─' * (bar_width * len(heights))}"


def _level(part: float) -> int:
    return round(min(1.0, max(0.0, part)) * (len(_LEVELS) - 1))


def _curve(run: RunView, width: int) -> Iterator[str]:
    low, high = reward_range(float(run.rewards.min()), float(run.rewards.max()))
    last = run.curve[-1][0]
    for k, estimate in run.curve:
        if k & (k - 1) == 0 or k == last:
            share = (estimate.value - low) / (high - low)
            yield f"  {k:>5} {_bar(share, width - 34)} {format_interval(estimate)}"


def _failures(run: RunView, width: int) -> Iterator[str]:
    attempts = run.loaded.failures.attempts
    for kind in failed_kinds([run]):
        numbers = f"{format_count(run.headline.failed.get(kind, 0))} / {format_count(attempts[kind])}"
        line = f"  {to_one_line(kind, 26):<26} {numbers:>15}  {kind_named(kind).hint}"
        yield _fit(line, width)


def _ranking(run: RunView, ranking: Ranking, texts: Sequence[str], width: int) -> Iterator[str]:
    note = ranking.note[0].lower() + ranking.note[1:].rstrip(".")
    yield from _heading(f"{ranking.title.lower()} ({note})", width)
    shown = ranking.rows[:_MAX_RANKED]
    values = format_column([float(ranking.values[row]) for row in shown])
    for row, value in zip(shown, values, strict=True):
        numbers = f"{reward_text(run, row):>10} {value:>9}"
        yield f"  {int(run.tasks.ids[row]):>7} {_fit(texts[row], width - 32)} {numbers}"
    if not ranking.rows:
        yield "  none"


def _bar(share: float, width: int) -> str:
    """A bar of a share of the width, padded to the full width."""
    if not math.isfinite(share):
        return " " * width
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)


def _fit(text: str, width: int) -> str:
    """Cut or pad to a width in cells: some characters take two."""
    return text + " " * (width - cell_len(text)) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _heading(text: str, width: int) -> Iterator[str]:
    yield ""
    yield from _wrap(text, width)


def _wrap(text: str, width: int) -> Iterator[str]:
    """Wrap a text, with continuation lines indented."""
    return iter(textwrap.wrap(text, width, subsequent_indent="    ") or [""])
