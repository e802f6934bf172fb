"""A run's figures as an HTML table, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnast.report.markup import join_markup, tag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.profile.headline import AgentHeadline, Headline
    from gymnast.profile.intervals import Estimate
    from gymnast.report.markup import Child, Markup


def summary_html(name: str, summary: Headline) -> str:
    """The table of a run's agents, with its counts as the caption."""
    max_k = max((agent.pass_at[-1][0] for agent in summary.agents if agent.pass_at), default=1)
    headings = ["agent", "tasks", "rollouts", "mean reward", *([f"pass@{max_k}"] if max_k > 1 else [])]
    rows = [_cells(agent, max_k) for agent in summary.agents]
    return str(
        tag(
            "table",
            tag("caption", tag("b", name), f" — {describe_counts(summary)}"),
            tag("thead", _row("th", headings)),
            tag("tbody", join_markup(_row("td", row) for row in rows)),
        )
    )


def describe_counts(summary: Headline) -> str:
    """`30 of 32 rollouts scored, 8 tasks; without a score: 1 × model_timeout, 1 missing`."""
    text = f"{summary.scored:,} of {summary.requested:,} rollouts scored, {summary.tasks:,} tasks"
    without = [f"{count:,} × {kind}" for kind, count in summary.failed.items()]
    without += [f"{summary.missing:,} missing"] if summary.missing else []
    text += f"; without a score: {', '.join(without)}" if without else ""
    return text + (f"; {summary.excluded:,} excluded" if summary.excluded else "")


def format_estimate(estimate: Estimate) -> str:
    """`0.420 [0.315, 0.525]`, or only the value if there is no interval."""
    if estimate.n == 0:
        return "–"
    interval = f" [{estimate.low:.3f}, {estimate.high:.3f}]" if estimate.method != "none" else ""
    return f"{estimate.value:.3f}{interval}"


def _cells(agent: AgentHeadline, max_k: int) -> list[str]:
    passes = dict(agent.pass_at)
    cells = [agent.agent or "–", f"{agent.tasks:,}", f"{agent.rollouts:,}", format_estimate(agent.mean_reward)]
    return [*cells, format_estimate(passes[max_k]) if max_k in passes else "–"] if max_k > 1 else cells


def _row(cell: str, texts: Iterable[Child]) -> Markup:
    return tag("tr", join_markup(tag(cell, text) for text in texts))
