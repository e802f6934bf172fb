"""`gymnast profile`: per-task statistics over repeated rollouts, and the headline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.profile.headline import AgentHeadline, Headline
    from gymnast.profile.intervals import Estimate
    from gymnast.profile.run_profile import ProfileRequest

Rollouts = Annotated[
    list[str], typer.Argument(help="Scored rollouts: a run's output file, or several (shards), also as patterns.")
]
Inputs = Annotated[
    list[str] | None, typer.Option("--inputs", help="Materialized inputs; the files beside the rollouts if not given.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Name the files after this instead of after the rollouts.")
]
AllowPartial = Annotated[
    bool, typer.Option("--allow-partial", help="Profile what is there; tasks without any result are dropped.")
]
AnswerKey = Annotated[
    str | None, typer.Option("--answer-key", help="Field with the extracted answer, for majority@k and no_answer.")
]
SubsetKey = Annotated[str | None, typer.Option("--subset-key", help="Field that names a task's subset.")]
RolloutTableFile = Annotated[
    Path | None, typer.Option("--table", help="Also write a CSV with a row for each rollout: reward, tokens, length.")
]
FailuresAs = Annotated[
    str,
    typer.Option(
        "--failures-as",
        help="Rollouts without a score: excluded (default), zero, or bounds. Only what is printed changes.",
    ),
]


def command(
    rollouts: Rollouts,
    *,
    inputs: Inputs = None,
    output: Output = None,
    allow_partial: AllowPartial = False,
    answer_key: AnswerKey = None,
    subset_key: SubsetKey = None,
    failures_as: FailuresAs = "excluded",
    table: RolloutTableFile = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Profile a run: statistics per task and agent, pass@k, intervals.

    Strict: every rollout asked for must have one result. Failures are never zeros; --failures-as shows what would be.
    """
    from gymnast.profile.run_profile import ProfileRequest, rollout_files
    from gymnast.store.paths import RunPaths

    if failures_as not in {"excluded", "zero", "bounds"}:
        raise typer.BadParameter("--failures-as is excluded, zero or bounds")
    files = rollout_files(rollouts)
    if len(files) > 1 and output is None:
        raise typer.BadParameter("give an --output to name the profile of several files")
    request = ProfileRequest(
        inputs=tuple(map(Path, inputs or [])) or tuple(RunPaths(one).materialized_inputs for one in files),
        rollouts=files,
        output=output or files[0],
        allow_partial=allow_partial,
        answer_key=answer_key,
        subset_key=subset_key,
        table=table,
    )
    return run(request, failures_as=failures_as, as_json=as_json)


def run(request: ProfileRequest, *, failures_as: str = "excluded", as_json: bool = False) -> int:
    """Profile and print."""
    import msgspec

    from gymnast.profile.run_profile import ProfilePaths, profile

    found = profile(request)
    if as_json:
        print(msgspec.json.encode(found).decode())
        return 0
    for line in lines(found, failures_as):
        print(line)
    paths = ProfilePaths(request.output)
    for name, path in (("tasks", paths.tasks), ("agents", paths.agents), ("summary", paths.summary)):
        print(f"{name:<9} {path}")
    return 0


def lines(found: Headline, failures_as: str = "excluded") -> Iterator[str]:
    """The headline for people."""
    percent = 100 * found.scored / found.requested if found.requested else 0.0
    yield f"{found.scored}/{found.requested} rollout rows ({percent:.2f}%)"
    yield (
        f"input rows: {found.tasks} in all, {found.complete_tasks} complete, {found.partial_tasks} partial, "
        f"{found.dropped_tasks} without rollouts"
    )
    failed = ", ".join(f"{count} × {kind}" for kind, count in found.failed.items())
    listed = f" ({failed})" if failed else ""
    yield f"without a score: {sum(found.failed.values())} failed{listed}, {found.missing} missing"
    if found.excluded:
        yield f"excluded below, because masked by their agents or without a reward: {found.excluded}"
    for agent in found.agents:
        yield from _agent_lines(agent)
    effect = found.failure_effect
    if failures_as == "zero":
        yield f"with rollouts without a score as 0: mean reward {shown(effect.zero)}"
    elif failures_as == "bounds":
        yield (
            f"whatever rollouts without a score would have had: mean reward between {effect.lowest:.4f} and "
            f"{effect.highest:.4f}"
        )


def _agent_lines(agent: AgentHeadline) -> Iterator[str]:
    yield f"{agent.agent or 'all'}: {agent.tasks} tasks, {agent.rollouts} rollouts"
    resampled = _range(agent.mean_reward_bootstrap)
    yield f"  mean reward  {shown(agent.mean_reward)}  (clustered by task; bootstrap {resampled})"
    yield from _curve_lines("pass@", agent.pass_at, agent.pass_at_bootstrap)
    yield from _curve_lines("majority@", agent.majority_at, agent.majority_at_bootstrap)
    for name, ranges in agent.reward_by.items():
        if len(ranges) > 1:
            listed = ", ".join(
                f"{one.low:.0f}–{one.high:.0f}: {one.mean_reward:.3f} (n {one.rollouts})" for one in ranges
            )
            yield f"  mean reward by {name}: {listed}"
    yield f"  tasks with different rewards among their rollouts: {agent.mixed_tasks} of {agent.tasks}"


def _curve_lines(name: str, curve: list[tuple[int, Estimate]], resampled: list[tuple[int, Estimate]]) -> Iterator[str]:
    """Powers of two and the largest."""
    for (k, estimate), (_, again) in zip(curve, resampled, strict=True):
        if k & (k - 1) == 0 or k == curve[-1][0]:
            yield f"  {f'{name}{k}':<12} {shown(estimate)}  ({estimate.method}; bootstrap {_range(again)})"


def shown(estimate: Estimate) -> str:
    """0.4200 [0.3151, 0.5249]"""
    return f"{estimate.value:.4f} {_range(estimate)}"


def _range(estimate: Estimate) -> str:
    return f"[{estimate.low:.4f}, {estimate.high:.4f}]" if estimate.method != "none" else "(one task: no interval)"
