"""The top of the page: each run's mean reward with its interval, and the counts behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.report.charts import format_interval
from gymnast.report.markup import Markup, join_markup, tag
from gymnast.report.notices import notices
from gymnast.report.run_description import describe_setup
from gymnast.report.safe_text import to_one_line
from gymnast.report.scales import Scale, format_count, format_percent, format_short, reward_range
from gymnast.types.nouns import count_noun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.profile.intervals import Estimate
    from gymnast.report.run_view import RunView

_WIDTH: Final = 320
_MAX_AGENTS: Final = 20
_METHODS: Final = {
    "t": "rollouts clustered by task",
    "exact": "exact (Clopper and Pearson)",
    "bootstrap": "by bootstrap",
    "none": "no interval",
}


def render_headlines(runs: Sequence[RunView]) -> Markup:
    """One card per run, their intervals on the same scale."""
    rewards = np.concatenate([np.empty(0), *(run.rewards for run in runs)])
    low, high = reward_range(float(rewards.min(initial=0.0)), float(rewards.max(initial=1.0)))
    return join_markup(_card(run, Scale(low, high, 8, _WIDTH - 8), is_alone=len(runs) == 1) for run in runs)


def _card(run: RunView, scale: Scale, *, is_alone: bool) -> Markup:
    """A run's card. The name of a single run is the page's title instead."""
    name = None if is_alone else tag("h2", tag("span", class_=f"key run-{run.number % 6}"), run.name)
    return tag(
        "section",
        tag("div", name, tag("p", str(run.paths.output), class_="meta"), class_="name"),
        tag("div", _mean(run, scale), _facts(run), class_="hero"),
        _setup(run),
        _composition(run),
        _agents(run),
        *(tag("p", text, class_="notice") for text in notices(run)),
        class_="card headline",
        aria_label=f"Headline of {run.name}",
    )


def _setup(run: RunView) -> Markup | None:
    """How the run was made: models, sampling, environments, when."""
    rows = [tag("div", tag("dt", name), tag("dd", text, dir="auto")) for name, text in describe_setup(run)]
    return tag("dl", *rows, class_="setup", aria_label="Setup") if rows else None


def _mean(run: RunView, scale: Scale) -> Markup:
    mean = run.mean_reward
    if not len(run.rewards):
        return tag("div", tag("p", "–", class_="big"), tag("p", "nothing was scored", class_="what"), class_="mean")
    range_text = f"95% interval {mean.low:.4f} to {mean.high:.4f}" if math.isfinite(mean.low) else "no interval"
    return tag(
        "div",
        tag("p", "mean reward", class_="what"),
        tag("p", f"{mean.value:.4f}", class_="big"),
        tag("p", range_text, class_="range"),
        _interval_plot(mean, scale, f"run-{run.number % 6}"),
        tag("p", f"over {count_noun(mean.n, 'task')}, {_METHODS[mean.method]}", class_="small"),
        class_="mean",
    )


def _interval_plot(mean: Estimate, scale: Scale, colour: str) -> Markup:
    """The mean and its interval on the scale of rewards."""
    x, shapes = scale(mean.value), []
    if math.isfinite(mean.low):
        low, high = scale(mean.low), scale(mean.high)
        shapes.append(tag("rect", x=low, y=8, width=max(1.0, high - low), height=10, class_=f"interval {colour}", rx=2))
    return tag(
        "svg",
        tag("line", x1=scale.start, x2=scale.end, y1=13, y2=13, class_="axis"),
        *shapes,
        tag("line", x1=x, x2=x, y1=3, y2=23, class_=f"point {colour}"),
        *(tag("text", format_short(end), x=scale(end), y=36, class_="tick") for end in (scale.low, scale.high)),
        viewBox=f"0 0 {_WIDTH} 40",
        class_="forest",
        role="img",
        aria_label=f"Mean reward {format_interval(mean, 4)}",
    )


def _facts(run: RunView) -> Markup:
    head = run.headline
    requested, missing = (
        format_count(number) if run.has_inputs else "unknown" for number in (head.requested, head.missing)
    )
    facts = [
        ("tasks", format_count(head.tasks), None),
        ("rollouts requested", requested, None),
        ("scored", format_count(head.scored), None),
        ("failed", format_count(run.failed), "bad" if run.failed else None),
        ("excluded", format_count(run.excluded), "bad" if run.excluded else None),
        ("truncated", format_count(run.truncated), "bad" if run.truncated else None),
        ("missing", missing, "bad" if head.missing else None),
        *_estimates(run),
    ]
    rows = (tag("div", tag("dt", name), tag("dd", text), class_=class_) for name, text, class_ in facts)
    return tag("dl", *rows, class_="facts")


def _estimates(run: RunView) -> list[tuple[str, str, str | None]]:
    if not run.curve:
        return []
    name = "pass@{}" if run.is_binary else "best of {}"
    points = [run.curve[0], run.curve[-1]] if len(run.curve) > 1 and run.is_binary else run.curve[-1:]
    estimates = [(name.format(k), format_interval(estimate), "wide") for k, estimate in points]
    mixed = sum(agent.mixed_tasks for agent in run.headline.agents)
    share = mixed / max(1, sum(agent.tasks for agent in run.headline.agents))
    return [*estimates, ("tasks with different rewards", f"{format_count(mixed)} ({format_percent(share)})", "wide")]


def _composition(run: RunView) -> Markup | None:
    """A bar of the outcomes of the requested rollouts."""
    head = run.headline
    parts = [
        ("scored", head.scored),
        ("failed", run.failed),
        ("excluded", run.excluded),
        ("missing", head.missing),
    ]
    total = sum(number for _, number in parts)
    if not total or head.scored == total:
        return None
    x, shapes = 0.0, []
    for name, number in parts:
        width = 1000 * number / total
        title = tag("title", f"{name}: {format_count(number)} ({format_percent(number / total)})")
        shapes.append(tag("rect", title, x=x, y=0, width=max(width, 2.0 if number else 0.0), height=10, class_=name))
        x += width
    legend = [
        tag("span", tag("span", class_=f"swatch {name}"), f"{name} {format_percent(number / total)}")
        for name, number in parts
        if number
    ]
    bar = tag("svg", *shapes, viewBox="0 0 1000 10", preserveAspectRatio="none", role="img", aria_label="Completeness")
    return tag("div", bar, tag("p", *legend, class_="legend"), class_="composition")


def _agents(run: RunView) -> Markup | None:
    """A table of agents, if there are several."""
    if len(run.headline.agents) < 2:
        return None
    rows = [
        tag(
            "tr",
            tag("th", to_one_line(agent.agent or "(no name)", 60), scope="row"),
            tag("td", format_count(agent.tasks)),
            tag("td", format_count(agent.rollouts)),
            tag("td", format_interval(agent.mean_reward, 4)),
        )
        for agent in run.headline.agents[:_MAX_AGENTS]
    ]
    more = len(run.headline.agents) - _MAX_AGENTS
    if more > 0:
        rows.append(tag("tr", tag("th", f"and {count_noun(more, 'agent')} more", scope="row", colspan="4")))
    names = ("agent", "tasks", "rollouts", "mean reward")
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="numbers")
