"""The plots of the page, each with a title, what it is made of, and its numbers in a table to unfold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gymnast.report.bins import reward_bins, reward_by_tokens
from gymnast.report.charts import interval_text, pass_at_k_curve, pass_rates, reward_histogram
from gymnast.report.failure_chart import failed_kinds, failure_bars
from gymnast.report.markup import Markup, joined, tag
from gymnast.report.scales import count, some
from gymnast.report.token_chart import reward_versus_tokens
from gymnast.report.visible import one_line
from gymnast.types.failure import kind_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.report.run_view import RunView

COLOURS: Final = 6
"""Of lines; further ones begin again."""


def figures(runs: Sequence[RunView]) -> Markup:
    """All plots that these runs have data for."""
    scored = [run for run in runs if len(run.rewards)]
    cards = [_rewards(scored), _rates(scored), _curve(scored), _tokens(scored)] if scored else []
    return joined([tag("div", *cards, class_="figures") if cards else None, _failures(runs)])


def _rewards(runs: Sequence[RunView]) -> Markup:
    bins = reward_bins([run.rewards for run in runs])
    rows = zip(bins.labels(), *(bins.counts(run.rewards) for run in runs), strict=True)
    cells = ((label, *(count(number) for number in numbers)) for label, *numbers in rows)
    return _figure(
        "Rewards",
        _made_of(runs, "rollout", [len(run.rewards) for run in runs]),
        reward_histogram(runs),
        runs,
        numbers=table(["reward", *_names(runs, "rollouts")], cells),
    )


def _rates(runs: Sequence[RunView]) -> Markup:
    what = "Pass rate per task" if all(run.is_binary for run in runs) else "Mean reward per task"
    made_of = _made_of(runs, "task", [len(run.groups) for run in runs])
    hint = " Click a task to open it." if len(runs) == 1 else ""
    means = [run.tasks.mean[run.tasks.scored > 0] for run in runs]
    bins = reward_bins(means)
    rows = zip(bins.labels(), *(bins.counts(mine) for mine in means), strict=True)
    cells = ((label, *(count(number) for number in numbers)) for label, *numbers in rows)
    return _figure(
        what,
        f"{made_of}; the band is each task's 95% interval.{hint}",
        pass_rates(runs),
        runs,
        numbers=table([what.lower(), *_names(runs, "tasks")], cells),
    )


def _curve(runs: Sequence[RunView]) -> Markup:
    binary = all(run.is_binary for run in runs)
    what = "pass@k" if binary else "Best of k"
    made_of = _made_of(runs, "task", [run.curve[0][1].n for run in runs])
    most = max(run.curve[-1][0] for run in runs)
    only = " Tasks have one rollout each, so there is only pass@1." if most == 1 else ""
    rows = ((run.name, k, interval_text(found, 4), count(found.n)) for run in runs for k, found in run.curve)
    return _figure(
        what,
        f"{made_of}; the band is the 95% interval.{only}",
        pass_at_k_curve(runs),
        runs,
        numbers=table(["run", "k", what + " with 95% interval", "tasks"], rows),
    )


def _tokens(runs: Sequence[RunView]) -> Markup:
    known = [run for run in runs if run.token_field is not None]
    if not known:
        return _figure("Reward and tokens", "No record has usage, so there is nothing to plot.", None, runs)
    totals = [sum(1 for one in run.tokens.tolist() if math.isfinite(one)) for run in known]
    rows = (
        (run.name, f"{count(int(one.low))} to {count(int(one.high))}", count(one.rollouts), interval_text(one.reward))
        for run in known
        for one in reward_by_tokens(run.table, run.tokens)
    )
    return _figure(
        "Reward and tokens",
        _made_of(known, "rollout", totals) + "; the line is the mean at similar length, with 95% intervals.",
        reward_versus_tokens(known),
        known,
        numbers=table(["run", "tokens", "rollouts", "mean reward with 95% interval"], rows),
    )


def _failures(runs: Sequence[RunView]) -> Markup:
    kinds = failed_kinds(runs)
    if not kinds:
        is_known = all(run.has_failures_file for run in runs)
        text = "No attempt failed." if is_known else "There is no failures file: no failed attempt is on record."
        return _figure("Failures", text, None, runs, class_="card wide")
    rows = ((one_line(kind, 40), kind_named(kind).layer.value, kind_named(kind).hint) for kind in kinds)
    text = "Full colour: rollouts without a score, by their last failure. Light: all failed attempts."
    plots = tag("div", failure_bars(runs), table(["kind", "layer", "next step"], rows), class_="beside")
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
    unfolded = tag("details", tag("summary", "numbers"), numbers, class_="data") if numbers is not None else None
    return tag(
        "figure",
        tag("figcaption", tag("h3", title), tag("p", text)),
        legend(runs) if plot is not None and len(runs) > 1 else None,
        plot,
        unfolded,
        class_=class_,
    )


def legend(runs: Sequence[RunView]) -> Markup:
    """Which colour is which run."""
    return legend_of((run.number, run.name) for run in runs)


def legend_of(names: Iterable[tuple[int, str]]) -> Markup:
    """Which line is which: its number and its name."""
    return tag("p", *(tag("span", _stroke(number), name) for number, name in names), class_="legend")


def _stroke(number: int) -> Markup:
    """A piece of a line: its colour and its dashes."""
    stroke = tag("line", x1=1, x2=33, y1=6, y2=6, class_=f"curve run-{number % COLOURS}")
    return tag("svg", stroke, viewBox="0 0 34 12", class_="stroke", aria_hidden="true")


def _made_of(runs: Sequence[RunView], what: str, totals: Iterable[int]) -> str:
    found = list(totals)
    if len(runs) == 1:
        return some(found[0], what)
    return ", ".join(f"{run.name}: {some(total, what)}" for run, total in zip(runs, found, strict=True))


def _names(runs: Sequence[RunView], alone: str) -> list[str]:
    return [alone] if len(runs) == 1 else [run.name for run in runs]


def table(heads: Iterable[str], rows: Iterable[Iterable[str | int]]) -> Markup:
    """Numbers under their headings."""
    head = tag("tr", *(tag("th", name, scope="col") for name in heads))
    body = joined(tag("tr", *(tag("td", cell) for cell in row)) for row in rows)
    return tag("table", tag("thead", head), tag("tbody", body), class_="numbers")
