"""`gymnast curriculum`: training data from profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.profile.curriculum import CurriculumSummary
    from gymnast.profile.difficulty import Bucket

Profiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        help="A run that has been profiled: any of its files, or its folder. Repeatable.",
        show_default=False,
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="JSONL file for the training rows.")]
GroupSize = Annotated[
    int, typer.Option("--group-size", "-g", min=2, max=100_000, help="Rollouts per group of the trainer.")
]
PassThreshold = Annotated[float, typer.Option("--pass-threshold", help="Minimum reward of a rollout that passes.")]
Keep = Annotated[
    str, typer.Option("--keep", help="Comma-separated buckets to keep: hopeless, hard, medium, easy, saturated.")
]
Hopeless = Annotated[
    float, typer.Option("--hopeless-below", min=0, max=1, help="Pass rate below which a task is hopeless.")
]
Saturated = Annotated[
    float, typer.Option("--saturated-above", min=0, max=1, help="Pass rate above which a task is saturated.")
]
Confidence = Annotated[
    float,
    typer.Option("--confidence", min=0.5, max=1, help="Probability from which a task counts as hopeless or saturated."),
]
MaxTruncated = Annotated[
    float,
    typer.Option("--max-truncated", min=0, max=1, help="Drop tasks with a larger share of truncated rollouts."),
]
Steps = Annotated[
    int | None, typer.Option("--steps", min=1, max=1_000_000, help="Write batches for this many training steps.")
]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, max=1_000_000, help="Tasks per batch.")]
Start = Annotated[float, typer.Option("--start-pass-rate", min=0, max=1, help="Target pass rate of the first batch.")]
End = Annotated[float, typer.Option("--end-pass-rate", min=0, max=1, help="Target pass rate of the last batch.")]
Width = Annotated[
    float, typer.Option("--width", min=0.001, help="Spread of pass rates around the target (a Gaussian's sigma).")
]
Blend = Annotated[
    str | None, typer.Option("--blend", help="Share of each agent in a batch: math_agent=0.7,code_agent=0.3.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]


def command(
    profiles: Profiles,
    *,
    output: Output,
    group_size: GroupSize = 8,
    pass_at: PassThreshold = 0.5,
    keep: Keep = "hard,medium,easy",
    hopeless_below: Hopeless = 0.05,
    saturated_above: Saturated = 0.95,
    confidence: Confidence = 0.5,
    max_truncated: MaxTruncated = 1.0,
    steps: Steps = None,
    batch: BatchSize = 64,
    start: Start = 0.8,
    end: End = 0.3,
    width: Width = 0.15,
    blend: Blend = None,
    seed: Seed = 0,
    label: shared.Label = None,
    not_label: shared.NotLabel = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Build training data from profiles, easy to hard.

    Drops tasks that are too hard or too easy to learn from. Without --steps, writes the remaining tasks in their order;
    with it, batches whose pass rate moves from easy to hard. Each row has the profile's numbers in `reward_profile`.
    --label and --not-label choose the rollouts that count, by labels given in the studio. The same seed gives the same
    file.
    """
    import msgspec

    from gymnast.profile.curriculum import CurriculumRequest, write_curriculum
    from gymnast.profile.difficulty import Thresholds
    from gymnast.profile.run_profile import profile_of
    from gymnast.profile.schedule import Schedule
    from gymnast.store.atomic import atomic_output
    from gymnast.store.labels import LabelFilter

    if hopeless_below >= saturated_above:
        raise typer.BadParameter("--hopeless-below must be less than --saturated-above")
    request = CurriculumRequest(
        profiles=tuple(map(profile_of, profiles)),
        output=output,
        group_size=group_size,
        pass_at=pass_at,
        thresholds=Thresholds(hopeless_below=hopeless_below, saturated_above=saturated_above, confidence=confidence),
        keep=_buckets(keep),
        max_truncated=max_truncated,
        schedule=Schedule(steps, batch, start, end, width) if steps is not None else None,
        blend=_shares(blend) if blend is not None else None,
        seed=seed,
        by_label=LabelFilter(tuple(label or ()), tuple(not_label or ())),
    )
    summary = write_curriculum(request)
    summary_path = output.with_name(f"{output.stem}_summary.json")
    with atomic_output(summary_path) as out:
        out.write(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    if as_json:
        print(msgspec.json.encode(summary).decode())
        return 0
    for line in lines(summary):
        print(line)
    print(f"rows      {output}\nsummary   {summary_path}")
    return 0


def lines(summary: CurriculumSummary) -> Iterator[str]:
    counts = ", ".join(f"{count} {bucket}" for bucket, count in summary.buckets.items())
    yield f"{summary.tasks} tasks: {counts}; {summary.kept} kept, {summary.rows} rows written"
    if summary.dropped_truncated:
        yield f"{summary.dropped_truncated} tasks dropped: too many of their rollouts were truncated"
    if summary.dropped_labels:
        yield f"{summary.dropped_labels} tasks dropped: labels leave none of their rollouts"
    yield (
        f"groups of {summary.group_size} with both passes and failures: {summary.usable_signal_before:.1%} over all "
        f"tasks, {summary.usable_signal_after:.1%} over those kept"
    )
    for name, buckets in summary.buckets_by_agent.items():
        yield f"  {name or 'no agent'}: " + ", ".join(f"{count} {bucket}" for bucket, count in buckets.items())
    if summary.steps:
        first, last = summary.steps[0], summary.steps[-1]
        yield (
            f"{len(summary.steps)} steps: pass rate {first['pass_rate']:.2f} (target {first['target']:.2f}) to "
            f"{last['pass_rate']:.2f} (target {last['target']:.2f})"
        )


def _buckets(text: str) -> frozenset[Bucket]:
    from gymnast.errors import UserError, suggest
    from gymnast.profile.difficulty import BUCKETS

    names = {name.strip() for name in text.split(",") if name.strip()}
    for name in names - set(BUCKETS):
        raise UserError(f"unknown bucket '{name}'", next=suggest(name, BUCKETS))
    return frozenset(bucket for bucket in BUCKETS if bucket in names)


def _shares(text: str) -> dict[str, float]:
    from gymnast.errors import UserError

    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError:
            raise UserError(
                f"--blend expects AGENT=SHARE, got '{part}'", next="for example math_agent=0.7,code_agent=0.3"
            ) from None
    if not all(0 <= share <= 1e9 for share in shares.values()) or not any(shares.values()):
        raise UserError(
            "the shares of --blend must be positive numbers", next="for example math_agent=0.7,code_agent=0.3"
        )
    return shares
