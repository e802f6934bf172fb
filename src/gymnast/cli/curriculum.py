"""`gymnast curriculum`: from a profile to training data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.profile.curriculum import CurriculumSummary
    from gymnast.profile.difficulty import Bucket

Profiles = Annotated[list[Path], typer.Argument(help="Profiles: x_reward_profiling.jsonl, one or several.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="JSONL file for the training rows.")]
GroupSize = Annotated[int, typer.Option("--group-size", "-g", min=2, help="Rollouts in a trainer's group.")]
PassAt = Annotated[float, typer.Option("--pass-at", help="A rollout passes with a reward of at least this.")]
Keep = Annotated[
    str, typer.Option("--keep", help="Buckets to keep: hopeless, hard, medium, easy, saturated; with commas.")
]
Hopeless = Annotated[float, typer.Option("--hopeless-below", help="Pass rate below which a task is hopeless.")]
Saturated = Annotated[float, typer.Option("--saturated-above", help="Pass rate above which a task is saturated.")]
Confidence = Annotated[
    float, typer.Option("--confidence", min=0.0, max=1.0, help="How sure of that one must be to drop the task.")
]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Write batches for this many training steps.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Tasks in a batch.")]
Start = Annotated[float, typer.Option("--from", help="Pass rate that the first batch aims at.")]
End = Annotated[float, typer.Option("--to", help="Pass rate that the last batch aims at.")]
Width = Annotated[
    float, typer.Option("--width", min=0.001, help="How far around it tasks are drawn (a Gaussian's sigma).")
]
Blend = Annotated[
    str | None, typer.Option("--blend", help="Share of each agent in a batch: math_agent=0.7,code_agent=0.3.")
]
Seed = Annotated[int, typer.Option("--seed", help="Of drawing.")]


def command(
    profiles: Profiles,
    *,
    output: Output,
    group_size: GroupSize = 8,
    pass_at: PassAt = 0.5,
    keep: Keep = "hard,medium,easy",
    hopeless_below: Hopeless = 0.05,
    saturated_above: Saturated = 0.95,
    confidence: Confidence = 0.5,
    steps: Steps = None,
    batch: Batch = 64,
    start: Start = 0.8,
    end: End = 0.3,
    width: Width = 0.15,
    blend: Blend = None,
    seed: Seed = 0,
    as_json: shared.JsonOutput = False,
) -> int:
    """Make training data of profiles: drop tasks that teach nothing, order the rest.

    Without --steps, the tasks that are kept, in their order. With it, batches whose pass rate moves from easy to hard.
    Each row has the profile's numbers in `reward_profile`. The same seed gives the same file.
    """
    import msgspec

    from gymnast.profile.curriculum import CurriculumRequest, write_curriculum
    from gymnast.profile.difficulty import Thresholds
    from gymnast.profile.schedule import Schedule
    from gymnast.store.replacing import replaced

    request = CurriculumRequest(
        profiles=tuple(profiles),
        output=output,
        group_size=group_size,
        pass_at=pass_at,
        thresholds=Thresholds(hopeless_below=hopeless_below, saturated_above=saturated_above, confidence=confidence),
        keep=_buckets(keep),
        schedule=Schedule(steps, batch, start, end, width) if steps is not None else None,
        blend=_shares(blend) if blend is not None else None,
        seed=seed,
    )
    found = write_curriculum(request)
    summary = output.with_name(f"{output.stem}_summary.json")
    with replaced(summary) as out:
        out.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    if as_json:
        print(msgspec.json.encode(found).decode())
        return 0
    for line in lines(found):
        print(line)
    print(f"rows      {output}\nsummary   {summary}")
    return 0


def lines(found: CurriculumSummary) -> Iterator[str]:
    """What came of it, for people."""
    counts = ", ".join(f"{count} {bucket}" for bucket, count in found.buckets.items())
    yield f"{found.tasks} tasks: {counts}; {found.kept} kept, {found.rows} rows written"
    yield (
        f"groups of {found.group_size} with both passes and failures: {found.usable_signal_before:.1%} over all tasks, "
        f"{found.usable_signal_after:.1%} over those kept"
    )
    for name, buckets in found.buckets_by_agent.items():
        yield f"  {name or 'no agent'}: " + ", ".join(f"{count} {bucket}" for bucket, count in buckets.items())
    if found.steps:
        first, last = found.steps[0], found.steps[-1]
        yield (
            f"{len(found.steps)} steps: pass rate {first['pass_rate']:.2f} (aimed at {first['target']:.2f}) to "
            f"{last['pass_rate']:.2f} ({last['target']:.2f})"
        )


def _buckets(text: str) -> frozenset[Bucket]:
    from gymnast.errors import UserError, suggest
    from gymnast.profile.difficulty import BUCKETS

    names = {name.strip() for name in text.split(",") if name.strip()}
    for name in names - set(BUCKETS):
        raise UserError(f"there is no bucket '{name}'", next=suggest(name, BUCKETS))
    return frozenset(bucket for bucket in BUCKETS if bucket in names)


def _shares(text: str) -> dict[str, float]:
    from gymnast.errors import UserError

    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            found[name.strip()] = float(share)
        except ValueError:
            raise UserError(
                f"'{part}' is no share of an agent", next="for example math_agent=0.7,code_agent=0.3"
            ) from None
    if min(found.values()) < 0 or sum(found.values()) <= 0:
        raise UserError("the shares of a blend must be positive")
    return found
