"""`gymnast profile`: statistics per task over repeated rollouts, and the headline."""

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
    list[str],
    typer.Argument(
        metavar="RUN",
        help=f"{shared.RUN_HELP} Several are shards of one run; patterns are allowed.",
        show_default=False,
    ),
]
Inputs = Annotated[
    list[str] | None, typer.Option("--inputs", help="Materialized inputs. [default: the files next to the rollouts]")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Name the files after this. [default: the run's output file]")
]
AllowPartial = Annotated[
    bool, typer.Option("--allow-partial", help="Profile an incomplete run; drop tasks without any result.")
]
AnswerKey = Annotated[
    str | None, typer.Option("--answer-key", help="Field with the extracted answer, for majority@k and no_answer.")
]
SubsetKey = Annotated[str | None, typer.Option("--subset-key", help="Field that names a task's subset.")]
RolloutTableFile = Annotated[
    Path | None, typer.Option("--table", help="Also write a CSV with a row per rollout: reward, tokens, length.")
]
FailureTreatment = Annotated[
    str,
    typer.Option(
        "--failures-as",
        help="How to count rollouts without a score: excluded, zero or bounds. Changes only the printed numbers.",
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
    failures_as: FailureTreatment = "excluded",
    table: RolloutTableFile = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Summarize rewards per task and agent, with pass@k.

    Every requested rollout must have exactly one result. Failures never count as zero; --failures-as shows the mean if
    they did.
    """
    from gymnast.profile.run_profile import ProfileRequest, rollout_files
    from gymnast.store.paths import RunPaths

    if failures_as not in {"excluded", "zero", "bounds"}:
        raise typer.BadParameter("expected excluded, zero or bounds", param_hint="--failures-as")
    files = rollout_files(rollouts)
    if len(files) > 1 and output is None:
        raise typer.BadParameter("several files need an --output to name the profile")
    request = ProfileRequest(
        inputs=tuple(map(Path, inputs or [])) or tuple(RunPaths(file).materialized_inputs for file in files),
        rollouts=files,
        output=output or files[0],
        allow_partial=allow_partial,
        answer_key=answer_key,
        subset_key=subset_key,
        table=table,
    )
    return run(request, failures_as=failures_as, as_json=as_json)


def run(request: ProfileRequest, *, failures_as: str = "excluded", as_json: bool = False) -> int:
    import msgspec

    from gymnast.profile.run_profile import ProfilePaths, profile

    headline = profile(request)
    if as_json:
        print(msgspec.json.encode(headline).decode())
        return 0
    for line in lines(headline, failures_as):
        print(line)
    paths = ProfilePaths(request.output)
    for name, path in (("tasks", paths.tasks), ("agents", paths.agents), ("summary", paths.summary)):
        print(f"{name:<9} {path}")
    return 0


def lines(headline: Headline, failures_as: str = "excluded") -> Iterator[str]:
    percent = 100 * headline.scored / headline.requested if headline.requested else 0.0
    yield f"{headline.scored}/{headline.requested} rollout rows ({percent:.2f}%)"
    yield (
        f"input rows: {headline.tasks} in all, {headline.complete_tasks} complete, {headline.partial_tasks} partial, "
        f"{headline.dropped_tasks} without rollouts"
    )
    failed = ", ".join(f"{count} × {kind}" for kind, count in headline.failed.items())
    listed = f" ({failed})" if failed else ""
    yield f"without a score: {sum(headline.failed.values())} failed{listed}, {headline.missing} missing"
    if headline.truncated:
        share = headline.truncated / max(1, headline.scored)
        yield f"truncated by a length or step limit: {headline.truncated} ({share:.1%})"
    if headline.excluded:
        yield f"excluded below (masked, or without a reward): {headline.excluded}"
    for agent in headline.agents:
        yield from _agent_lines(agent)
    effect = headline.failure_effect
    if failures_as == "zero":
        yield f"rollouts without a score counted as 0: mean reward {format_estimate(effect.zero)}"
    elif failures_as == "bounds":
        yield f"bounds over all rewards of rollouts without a score: {effect.lowest:.4f} to {effect.highest:.4f}"


def _agent_lines(agent: AgentHeadline) -> Iterator[str]:
    truncated = f", {agent.truncated} truncated" if agent.truncated else ""
    yield f"{agent.agent or 'all'}: {agent.tasks} tasks, {agent.rollouts} rollouts{truncated}"
    resampled = _range(agent.mean_reward_bootstrap)
    yield f"  mean reward  {format_estimate(agent.mean_reward)}  (clustered by task; bootstrap {resampled})"
    yield from _curve_lines("pass@", agent.pass_at, agent.pass_at_bootstrap)
    yield from _curve_lines("majority@", agent.majority_at, agent.majority_at_bootstrap)
    for name, ranges in agent.reward_by.items():
        if len(ranges) > 1:
            listed = ", ".join(
                f"{_whole_range(group.low, group.high)}: {group.mean_reward:.3f} (n {group.rollouts})"
                for group in ranges
            )
            yield f"  mean reward by {name}: {listed}"
    yield f"  tasks with different rewards among their rollouts: {agent.mixed_tasks} of {agent.tasks}"


def _whole_range(low: float, high: float) -> str:
    """23–26, or 5 if that is all."""
    first, last = f"{low:.0f}", f"{high:.0f}"
    return first if first == last else f"{first}–{last}"


def _curve_lines(name: str, curve: list[tuple[int, Estimate]], resampled: list[tuple[int, Estimate]]) -> Iterator[str]:
    """The values at powers of two and at the largest k."""
    for (k, estimate), (_, again) in zip(curve, resampled, strict=True):
        if k & (k - 1) == 0 or k == curve[-1][0]:
            yield f"  {f'{name}{k}':<12} {format_estimate(estimate)}  ({estimate.method}; bootstrap {_range(again)})"


def format_estimate(estimate: Estimate) -> str:
    """0.4200 [0.3151, 0.5249]"""
    return f"{estimate.value:.4f} {_range(estimate)}"


def _range(estimate: Estimate) -> str:
    return f"[{estimate.low:.4f}, {estimate.high:.4f}]" if estimate.method != "none" else "(one task: no interval)"
