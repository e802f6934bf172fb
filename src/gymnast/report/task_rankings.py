"""The tasks to look at first: those whose rewards differ most, that took longest, or that failed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.report.markup import Markup, tag
from gymnast.report.run_setup import IN_MODEL_CALLS
from gymnast.report.scales import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.profile.table import Floats
    from gymnast.report.run_view import RunView

MAX_RANKED: Final = 10


@dataclass(frozen=True, slots=True)
class Ranking:
    """The first tasks of a run by some value."""

    title: str
    note: str
    unit: str
    rows: list[int]
    """Indices of the run's tasks."""
    values: Floats
    key: str
    """The column of the table of all tasks that has these values."""


def rank_tasks(run: RunView) -> list[Ranking]:
    """The tasks with the most failures, if any; the most uncertain and the slowest ones, if anything was scored."""
    tasks = run.tasks
    failed = tasks.failed.astype(np.float64)
    lost = Ranking(
        "Tasks with failures", "By rollouts without a score.", "failed", tasks.most_failed(MAX_RANKED), failed, "failed"
    )
    rankings = [lost] if run.failed else []
    return rankings if run.failed and not len(run.rewards) else [*_rank_scored(run), *rankings]


def _rank_scored(run: RunView) -> list[Ranking]:
    tasks = run.tasks
    unit = "seconds" if tasks.has_seconds else (run.token_field or "tokens").replace("_", " ")
    values, key = (tasks.seconds, "seconds") if tasks.has_seconds else (tasks.tokens, "tokens")
    return [
        Ranking(
            "Most uncertain tasks",
            "By the standard deviation of a task's rewards.",
            "spread",
            tasks.most_uncertain(MAX_RANKED),
            tasks.spread,
            "spread",
        ),
        Ranking("Slowest tasks", _duration_note(run, unit), unit, tasks.slowest(MAX_RANKED), values, key),
    ]


def _duration_note(run: RunView, unit: str) -> str:
    source = run.setup.seconds_source
    if source is None:
        return f"Records have no durations, so by mean {unit}."
    return "By mean seconds in model calls." if source == IN_MODEL_CALLS else f"By mean seconds, from `{source}`."


def render_rankings(run: RunView, prompts: Sequence[str]) -> Markup:
    """All rankings. `prompts`: the start of each task's prompt, in the order of the run's tasks."""
    return tag("div", *(_card(run, ranking, prompts) for ranking in rank_tasks(run)), class_="figures")


def _card(run: RunView, ranking: Ranking, prompts: Sequence[str]) -> Markup:
    caption = tag("figcaption", tag("h3", ranking.title), tag("p", ranking.note))
    if not ranking.rows:
        return tag("figure", caption, tag("p", "None.", class_="none"), class_="card")
    heads = [tag("th", name, scope="col") for name in ("task", "", "reward", ranking.unit)]
    texts = format_column([float(ranking.values[row]) for row in ranking.rows])
    rows = [_row(run, row, prompts[row], text) for row, text in zip(ranking.rows, texts, strict=True)]
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="ranking")
    more = tag(
        "a", "All tasks in this order", href=f"#sort={ranking.key}" + (f"&run={run.number}" if run.number else "")
    )
    return tag("figure", caption, table, tag("p", more, class_="small more"), class_="card")


def _row(run: RunView, row: int, prompt: str, value: str) -> Markup:
    tasks = run.tasks
    task = int(tasks.ids[row])
    return tag(
        "tr",
        tag("th", tag("a", str(task), href=fragment(run, task)), scope="row"),
        tag("td", tag("span", prompt), class_="prompt", dir="auto", title=prompt),
        tag("td", reward_text(run, row), class_="number"),
        tag("td", value, class_="number"),
    )


def fragment(run: RunView, task: int) -> str:
    """The link that opens a task."""
    return f"#task={task}" + (f"&run={run.number}" if run.number else "")


def reward_text(run: RunView, row: int) -> str:
    """A task's reward: '3 of 4' for binary rewards, else the mean."""
    mean, scored = float(run.tasks.mean[row]), int(run.tasks.scored[row])
    if math.isnan(mean):
        return "–"
    return f"{round(mean * scored)} of {scored}" if run.is_binary else f"{mean:.3f}"


def format_column(values: Sequence[float]) -> list[str]:
    """The numbers of a column with the same decimals: three digits of the largest one."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest >= 100 or all(value.is_integer() for value in values if math.isfinite(value)):
        return [format_count(round(value)) if math.isfinite(value) else "–" for value in values]
    digits = 2 - math.floor(math.log10(largest))
    return [f"{value:.{digits}f}" for value in values]
