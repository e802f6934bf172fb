"""A run: its headline, how it was made, and the commands that go on from here."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.errors import UserError
from gymnast.report.run_description import describe_setup
from gymnast.rollouts.tally import stats_of
from gymnast.studio.library import describe_estimate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.report.run_view import RunView
    from gymnast.studio.library import Entry
    from gymnast.types.json import JsonObject


def run_page(entry: Entry) -> JsonObject:
    """The headline of a run, how it was made, and what its processes did."""
    manifest, facts = entry.facts.manifest, entry.facts
    headline, problem, setup = None, None, []
    if entry.source.curve is None:
        try:
            view, problem = entry.view()
            setup = [list(pair) for pair in describe_setup(view)]
            headline = describe_headline(view) if len(view.table) else None
        except (UserError, OSError) as error:
            problem = getattr(error, "what", None) or str(error)
    output = shlex.quote(str(entry.source.paths.output))
    logs = entry.source.paths.logs
    return {
        "run": entry.row(),
        "setup": setup,
        "headline": headline,
        "headline_problem": problem,
        "invocations": [msgspec.to_builtins(own) for own in manifest.invocations] if manifest is not None else [],
        "usage": msgspec.to_builtins(facts.spent),
        "agents": msgspec.to_builtins(stats_of(facts.agents)),
        "files": {"output": str(entry.source.paths.output), "logs": str(logs) if logs.is_dir() else None},
        "commands": {
            "report": f"gymnast report {output}",
            "doctor": f"gymnast doctor {output}",
            "status": f"gymnast status {output}",
            "view": f"gymnast view {output}",
        },
    }


def describe_headline(view: RunView) -> JsonObject:
    """The figures of a run, as the report shows them."""
    headline = view.headline
    return {
        "mean_reward": describe_estimate(view.mean_reward),
        "requested": headline.requested,
        "scored": headline.scored,
        "failed": headline.failed,
        "missing": headline.missing,
        "excluded": view.excluded,
        "truncated": view.truncated,
        "tasks": headline.tasks,
        "complete_tasks": headline.complete_tasks,
        "partial_tasks": headline.partial_tasks,
        "dropped_tasks": headline.dropped_tasks,
        "mixed_tasks": sum(agent.mixed_tasks for agent in headline.agents),
        "pass_at": describe_curve(view.curve),
        "is_binary": view.is_binary,
        "if_failures_score_zero": describe_estimate(headline.failure_effect.zero),
        "agents": [
            {
                "agent": agent.agent,
                "tasks": agent.tasks,
                "rollouts": agent.rollouts,
                "mean_reward": describe_estimate(agent.mean_reward),
                "pass_at": describe_curve(agent.pass_at),
                "truncated": agent.truncated,
                "mixed_tasks": agent.mixed_tasks,
            }
            for agent in headline.agents
        ],
    }


def describe_curve(points: Iterable[tuple[int, Any]]) -> list[JsonObject]:
    """A curve of estimates over k."""
    return [{"k": k, **describe_estimate(estimate)} for k, estimate in points]
