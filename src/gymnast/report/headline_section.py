"""The top of the page: for each run the mean reward with its interval, and what it is made of."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.report.charts import interval_text
from gymnast.report.markup import Markup, joined, tag
from gymnast.report.notices import notices
from gymnast.report.scales import Scale, count, percent, short, some, span
from gymnast.report.visible import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.profile.intervals import Estimate
    from gymnast.report.run_view import RunView

_WIDTH: Final = 320
_AGENTS: Final = 20
_METHODS: Final = {
    "t": "rollouts clustered by task",
    "exact": "exact (Clopper and Pearson)",
    "bootstrap": "by bootstrap",
    "none": "no interval",
}


def headlines(runs: Sequence[RunView]) -> Markup:
    """One card for each run, their intervals on one scale."""
    rewards = [run.rewards for run in runs if len(run.rewards)]
    everything = np.concatenate(rewards) if rewards else np.empty(0)
    low, high = span(float(everything.min(initial=0.0)), float(everything.max(initial=1.0)))
    return joined(_card(run, Scale(low, high, 8, _WIDTH - 8), is_alone=len(runs) == 1) for run in runs)


def _card(run: RunView, scale: Scale, *, is_alone: bool) -> Markup:
    """A run's card. The name of a run that is alone is the page's title."""
    name = None if is_alone else tag("h2", tag("span", class_=f"key run-{run.number % 6}"), run.name)
    return tag(
        "section",
        tag("div", name, tag("p", " · ".join(_about(run)), class_="meta"), class_="name"),
        tag("div", _mean(run, scale), _facts(run), class_="hero"),
        _composition(run),
        _agents(run),
        *(tag("p", text, class_="notice") for text in notices(run)),
        class_="card headline",
        aria_label=f"Headline of {run.name}",
    )


def _about(run: RunView) -> list[str]:
    agents = [one_line(name, 60) for name in run.table.agent_names if name]
    about = [", ".join(agents[:3]) + (" …" if len(agents) > 3 else "")] if agents else []
    if run.manifest is not None:
        day = datetime.fromtimestamp(run.manifest.updated_at, UTC)
        about += [f"{run.manifest.state.value} {day:%Y-%m-%d %H:%M} UTC"]
    return [*about, str(run.paths.output)]


def _mean(run: RunView, scale: Scale) -> Markup:
    mean = run.mean_reward
    if not len(run.rewards):
        return tag("div", tag("p", "–", class_="big"), tag("p", "nothing is scored", class_="what"), class_="mean")
    range_text = f"95% interval {mean.low:.4f} to {mean.high:.4f}" if math.isfinite(mean.low) else "no interval"
    return tag(
        "div",
        tag("p", "mean reward", class_="what"),
        tag("p", f"{mean.value:.4f}", class_="big"),
        tag("p", range_text, class_="range"),
        _interval_plot(mean, scale, f"run-{run.number % 6}"),
        tag("p", f"over {some(mean.n, 'task')}, {_METHODS[mean.method]}", class_="small"),
        class_="mean",
    )


def _interval_plot(mean: Estimate, scale: Scale, colour: str) -> Markup:
    """The mean and its interval on the scale of rewards."""
    at, shapes = scale(mean.value), []
    if math.isfinite(mean.low):
        low, high = scale(mean.low), scale(mean.high)
        shapes.append(tag("rect", x=low, y=8, width=max(1.0, high - low), height=10, class_=f"interval {colour}", rx=2))
    return tag(
        "svg",
        tag("line", x1=scale.start, x2=scale.end, y1=13, y2=13, class_="axis"),
        *shapes,
        tag("line", x1=at, x2=at, y1=3, y2=23, class_=f"point {colour}"),
        *(tag("text", short(one), x=scale(one), y=36, class_="tick") for one in (scale.low, scale.high)),
        viewBox=f"0 0 {_WIDTH} 40",
        class_="forest",
        role="img",
        aria_label=f"Mean reward {interval_text(mean, 4)}",
    )


def _facts(run: RunView) -> Markup:
    head = run.headline
    asked = count(head.requested) if run.has_inputs else "not known"
    pairs = [
        ("tasks", count(head.tasks), None),
        ("rollouts asked for", asked, None),
        ("scored", count(head.scored), None),
        ("failed", count(run.failed), "bad" if run.failed else None),
        ("excluded", count(run.excluded), "bad" if run.excluded else None),
        ("missing", count(head.missing) if run.has_inputs else "not known", "bad" if head.missing else None),
        *_estimates(run),
    ]
    return tag("dl", *(_fact(*pair) for pair in pairs), class_="facts")


def _estimates(run: RunView) -> list[tuple[str, str, str | None]]:
    if not run.curve:
        return []
    name = "pass@{}" if run.is_binary else "best of {}"
    shown = [run.curve[0], run.curve[-1]] if len(run.curve) > 1 and run.is_binary else run.curve[-1:]
    found = [(name.format(k), interval_text(estimate), "wide") for k, estimate in shown]
    mixed = sum(agent.mixed_tasks for agent in run.headline.agents)
    share = mixed / max(1, sum(agent.tasks for agent in run.headline.agents))
    return [*found, ("tasks with different rewards", f"{count(mixed)} ({percent(share)})", "wide")]


def _fact(name: str, value: str, class_: str | None) -> Markup:
    return tag("div", tag("dt", name), tag("dd", value), class_=class_)


def _composition(run: RunView) -> Markup | None:
    """A bar of what became of the rollouts that were asked for."""
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
    at, shapes = 0.0, []
    for name, number in parts:
        width = 1000 * number / total
        title = tag("title", f"{name}: {count(number)} ({percent(number / total)})")
        shapes.append(tag("rect", title, x=at, y=0, width=max(width, 2.0 if number else 0.0), height=10, class_=name))
        at += width
    legend = [
        tag("span", tag("span", class_=f"swatch {name}"), f"{name} {percent(number / total)}")
        for name, number in parts
        if number
    ]
    bar = tag("svg", *shapes, viewBox="0 0 1000 10", preserveAspectRatio="none", role="img", aria_label="Completeness")
    return tag("div", bar, tag("p", *legend, class_="legend"), class_="composition")


def _agents(run: RunView) -> Markup | None:
    """Each agent by itself, where there are several."""
    if len(run.headline.agents) < 2:
        return None
    rows = [
        tag(
            "tr",
            tag("th", one_line(one.agent or "(no name)", 60), scope="row"),
            *(tag("td", text) for text in (count(one.tasks), count(one.rollouts), interval_text(one.mean_reward, 4))),
        )
        for one in run.headline.agents[:_AGENTS]
    ]
    more = len(run.headline.agents) - _AGENTS
    if more > 0:
        rows.append(tag("tr", tag("th", f"and {some(more, 'agent')} more", scope="row", colspan="4")))
    names = ("agent", "tasks", "rollouts", "mean reward")
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="numbers")
