"""`gymnast compare A B`: is one run better than the other, and may a gate rely on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.profile.compare import Comparison

RunA = Annotated[Path, typer.Argument(help="The run to compare with: its output file.")]
RunB = Annotated[Path, typer.Argument(help="The run in question.")]
ByIndex = Annotated[bool, typer.Option("--by-index", help="Pair tasks by index instead of by what their rows say.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse runs with rollouts that have no result.")]
FailIfWorse = Annotated[
    bool, typer.Option("--fail-if-worse", help="Exit 1 if B is worse than A and chance does not explain it.")
]
FailIfBelow = Annotated[
    float | None,
    typer.Option(
        "--fail-if-below", help="Exit 1 unless B is shown to be above A by this (negative: not further below)."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Of resampling.")]


def command(
    run_a: RunA,
    run_b: RunB,
    *,
    by_index: ByIndex = False,
    strict: Strict = False,
    fail_if_worse: FailIfWorse = False,
    fail_if_below: FailIfBelow = None,
    seed: Seed = 0,
    as_json: shared.JsonOutput = False,
) -> int:
    """Compare two runs of the same tasks, paired by task.

    For every task that both have: mean reward of its rollouts in B less that in A. The interval and the p-value are
    over tasks. Tasks that only one run has are counted and left out.
    """
    import msgspec

    from gymnast.profile.compare import compare, match
    from gymnast.profile.run_profile import load_run
    from gymnast.store.paths import RunPaths

    loaded = [
        load_run((RunPaths(run).materialized_inputs,), (run,), allow_partial=not strict) for run in (run_a, run_b)
    ]
    changes, only, matched_by = match(*loaded, by_index=by_index)
    found = compare(changes, only=only, matched_by=matched_by, seed=seed)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        for line in lines(found, str(run_a), str(run_b)):
            print(line)
    is_worse = fail_if_worse and found.verdict == "worse"
    is_below = fail_if_below is not None and not found.difference.low > fail_if_below
    return 1 if is_worse or is_below else 0


def lines(found: Comparison, name_a: str, name_b: str) -> Iterator[str]:
    """A comparison for people."""
    from gymnast.cli.profile import shown

    how = "by what their rows say" if found.matched_by == "content" else "by index"
    yield f"A {name_a}\nB {name_b}"
    yield f"{found.tasks} tasks in both (paired {how}); {found.only_a} only in A, {found.only_b} only in B, left out"
    yield f"mean of task means   A {shown(found.mean_a)}   B {shown(found.mean_b)}"
    resampled = found.difference_bootstrap
    yield (
        f"B − A   {found.difference.value:+.4f} [{found.difference.low:+.4f}, {found.difference.high:+.4f}]"
        f"   bootstrap [{resampled.low:+.4f}, {resampled.high:+.4f}]"
    )
    yield f"p = {found.p_value:.4g} (sign flips), {found.p_value_t:.4g} (t)"
    yield f"tasks won {found.wins}, lost {found.losses}, tied {found.ties}"
    for change in found.most_moved[:10]:
        yield (
            f"  task {change.task_a:<6} {change.mean_a:.3f} ({change.rollouts_a}) → {change.mean_b:.3f} "
            f"({change.rollouts_b})   {change.difference:+.3f}"
        )
    yield verdict(found)


def verdict(found: Comparison) -> str:
    """The comparison in one sentence."""
    if found.ties == found.tasks:
        return f"No task differs among {found.tasks}."
    if found.verdict == "no difference shown":
        reach = max(abs(found.difference.low), abs(found.difference.high))
        return f"No difference shown: one of up to {reach:.3f} could hide in {found.tasks} tasks."
    word = "better" if found.verdict == "better" else "worse"
    return f"B is {word} than A by {abs(found.difference.value):.3f} on these tasks; chance alone does not explain it."
