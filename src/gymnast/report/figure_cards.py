"""The figures of the page: a title, a caption, a plot, and its numbers in a table to unfold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gymnast.report.bins import make_reward_bins, reward_by_tokens
from gymnast.report.charts import draw_pass_at_k, draw_pass_rates, draw_reward_histogram, format_interval
from gymnast.report.failure_chart import draw_failure_bars, failed_kinds
from gymnast.report.markup import Markup, join_markup, tag
from gymnast.report.safe_text import to_one_line
from gymnast.report.scales import format_count
from gymnast.report.token_chart import draw_reward_vs_tokens, format_token_range
from gymnast.types.failure import kind_named
from gymnast.types.nouns import count_noun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.profile.table import Floats
    from gymnast.report.bins import Bins
    from gymnast.report.run_view import RunView

COLOURS: Final = 6
"""The number of line colours, which repeat."""


def render_figures(runs: Sequence[RunView]) -> Markup:
    """All figures that these runs have data for."""
    scored = [run for run in runs if len(run.rewards)]
    cards = [_rewards(scored), _rates(scored), _curve(scored), _tokens(scored)] if scored else []
    return join_markup([tag("div", *cards, class_="figures") if cards else None, _failures(runs)])


def _rewards(runs: Sequence[RunView]) -> Markup:
    bins = make_reward_bins([run.rewards for run in runs])
    return _figure(
        "Rewards",
        _sample_sizes(runs, "rollout", [len(run.rewards) for run in runs]),
        draw_reward_histogram(runs),
        runs,
        numbers=_count_table("reward", bins, runs, "rollouts", [run.rewards for run in runs]),
    )


def _rates(runs: Sequence[RunView]) -> Markup:
    title = "Pass rate per task" if all(run.is_binary for run in runs) else "Mean reward per task"
    sizes = _sample_sizes(runs, "task", [len(run.groups) for run in runs])
    hint = " Click a task to open it." if len(runs) == 1 else ""
    means = [run.tasks.mean[run.tasks.scored > 0] for run in runs]
    return _figure(
        title,
        f"{sizes}; the band is each task's 95% interval.{hint}",
        draw_pass_rates(runs),
        runs,
        numbers=_count_table(title.lower(), make_reward_bins(means), runs, "tasks", means),
    )


def _curve(runs: Sequence[RunView]) -> Markup:
    title = "pass@k" if all(run.is_binary for run in runs) else "Best of k"
    sizes = _sample_sizes(runs, "task", [run.curve[0][1].n for run in runs])
    max_k = max(run.curve[-1][0] for run in runs)
    note = " Tasks have one rollout each, so there is only pass@1." if max_k == 1 else ""
    curves = ((run.name, k, estimate) for run in runs for k, estimate in run.curve)
    rows = ((name, k, format_interval(estimate, 4), format_count(estimate.n)) for name, k, estimate in curves)
    return _figure(
        title,
        f"{sizes}; the band is the 95% interval.{note}",
        draw_pass_at_k(runs),
        runs,
        numbers=render_table(["run", "k", title + " with 95% interval", "tasks"], rows),
    )


def _tokens(runs: Sequence[RunView]) -> Markup:
    known = [run for run in runs if run.token_field is not None]
    if not known:
        return _figure("Reward and tokens", "No record has usage, so there is nothing to plot.", None, runs)
    totals = [sum(map(math.isfinite, run.tokens.tolist())) for run in known]
    bins = ((run.name, group) for run in known for group in reward_by_tokens(run.table, run.tokens))
    rows = (
        (name, format_token_range(group), format_count(group.rollouts), format_interval(group.reward))
        for name, group in bins
    )
    return _figure(
        "Reward and tokens",
        _sample_sizes(known, "rollout", totals) + "; the line is the mean at similar length, with 95% intervals.",
        draw_reward_vs_tokens(known),
        known,
        numbers=render_table(["run", "tokens", "rollouts", "mean reward with 95% interval"], rows),
    )


def _failures(runs: Sequence[RunView]) -> Markup:
    kinds = failed_kinds(runs)
    if not kinds:
        has_files = all(run.has_failures_file for run in runs)
        text = "No attempt failed." if has_files else "There is no failures file: no failed attempts are recorded."
        return _figure("Failures", text, None, runs, class_="card wide")
    rows = ((to_one_line(kind, 40), kind_named(kind).layer.value, kind_named(kind).hint) for kind in kinds)
    text = "Full colour: rollouts without a score, by their last failure. Light: all failed attempts."
    plots = tag("div", draw_failure_bars(runs), render_table(["kind", "layer", "next step"], rows), class_="beside")
    return _figure("Failures", text, plots, runs, class_="card wide")


def _figure(
    title: str,
    text: str,
    plot: Markup | None,
    runs: Sequence[RunView],
    *,
    numbers: Markup | None = None,
    class_: str = "card",
) -> Markup:
    has_legend = plot is not None and len(runs) > 1
    return tag(
        "figure",
        tag("figcaption", tag("h3", title), tag("p", text)),
        render_legend((run.number, run.name) for run in runs) if has_legend else None,
        plot,
        render_numbers(numbers) if numbers is not None else None,
        class_=class_,
    )


def render_legend(lines: Iterable[tuple[int, str]]) -> Markup:
    """The legend of lines, given their numbers and names."""
    return tag("p", *(tag("span", _stroke(number), name) for number, name in lines), class_="legend")


def render_numbers(table: Markup) -> Markup:
    """A table to unfold."""
    return tag("details", tag("summary", "numbers"), table, class_="data")


def _stroke(number: int) -> Markup:
    """A sample of a line with its colour and dashes."""
    stroke = tag("line", x1=1, x2=33, y1=6, y2=6, class_=f"curve run-{number % COLOURS}")
    return tag("svg", stroke, viewBox="0 0 34 12", class_="stroke", aria_hidden="true")


def _sample_sizes(runs: Sequence[RunView], unit: str, totals: Sequence[int]) -> str:
    if len(runs) == 1:
        return count_noun(totals[0], unit)
    return ", ".join(f"{run.name}: {count_noun(total, unit)}" for run, total in zip(runs, totals, strict=True))


def _count_table(title: str, bins: Bins, runs: Sequence[RunView], unit: str, values: Sequence[Floats]) -> Markup:
    """The counts of values per bin, one column per run."""
    names = [unit] if len(runs) == 1 else [run.name for run in runs]
    rows = zip(bins.labels(), *(map(format_count, bins.counts(own)) for own in values), strict=True)
    return render_table([title, *names], rows)


def render_table(heads: Iterable[str], rows: Iterable[Iterable[str | int]]) -> Markup:
    """A table of numbers with headings."""
    head = tag("tr", *(tag("th", name, scope="col") for name in heads))
    body = join_markup(tag("tr", *(tag("td", cell) for cell in row)) for row in rows)
    return tag("table", tag("thead", head), tag("tbody", body), class_="numbers")
