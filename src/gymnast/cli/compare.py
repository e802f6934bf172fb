"""`gymnast compare A B`: whether one run is better than another, and a gate for CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.profile.compare import Comparison
    from gymnast.profile.run_profile import LoadedRun

RunA = Annotated[
    Path, typer.Argument(metavar="RUN_A", help=f"The baseline. {shared.RUN_HELP}", parser=shared.run_output)
]
RunB = Annotated[Path, typer.Argument(metavar="RUN_B", help="The run to compare with it.", parser=shared.run_output)]
ByIndex = Annotated[
    bool, typer.Option("--by-index", help="Pair tasks by index instead of by the content of their rows.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Reject runs with rollouts that have no result.")]
FailIfWorse = Annotated[bool, typer.Option("--fail-if-worse", help="Exit 1 if B is worse than A beyond chance.")]
FailIfBelow = Annotated[
    float | None,
    typer.Option("--fail-if-below", help="Exit 1 unless B beats A by more than this (negative: is not worse by more)."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed of the resampling.")]


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
    """Compare two runs, paired by task.

    For every task in both runs: the mean reward of its rollouts in B minus that in A. The interval and the p-value are
    over tasks. Tasks in only one run are counted and left out.
    """
    from dataclasses import replace

    import msgspec

    from gymnast.profile.compare import compare, match_tasks, truncated_share
    from gymnast.profile.run_profile import load_run
    from gymnast.store.paths import RunPaths

    loaded = [
        load_run((RunPaths(run).materialized_inputs,), (run,), allow_partial=not strict) for run in (run_a, run_b)
    ]
    _require_scores(loaded)
    changes, unmatched, matched_by = match_tasks(*(run.countable() for run in loaded), by_index=by_index)
    comparison = compare(changes, unmatched=unmatched, matched_by=matched_by, seed=seed)
    shares = map(truncated_share, loaded)
    comparison = replace(comparison, truncated_a=next(shares), truncated_b=next(shares))
    if as_json:
        print(msgspec.json.encode(comparison).decode())
    else:
        for line in lines(comparison, str(run_a), str(run_b)):
            print(line)
    is_worse = fail_if_worse and comparison.verdict == "worse"
    is_below = fail_if_below is not None and not comparison.difference.low > fail_if_below
    return 1 if is_worse or is_below else 0


def _require_scores(runs: Sequence[LoadedRun]) -> None:
    from gymnast.errors import DataError

    empty = [name for name, run in zip("AB", runs, strict=True) if not len(run.countable().groups)]
    if empty:
        raise DataError(f"nothing was scored in {' and '.join(empty)}, so there is nothing to compare")


def lines(comparison: Comparison, name_a: str, name_b: str) -> Iterator[str]:
    from gymnast.cli.profile import format_estimate
    from gymnast.profile.compare import verdict_sentence

    yield f"A {name_a}\nB {name_b}"
    paired = f"{comparison.tasks} tasks in both (paired by {comparison.matched_by})"
    yield f"{paired}; left out: {comparison.only_a} only in A, {comparison.only_b} only in B"
    yield f"mean of task means   A {format_estimate(comparison.mean_a)}   B {format_estimate(comparison.mean_b)}"
    difference, resampled = comparison.difference, comparison.difference_bootstrap
    yield (
        f"B − A   {difference.value:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]"
        f"   bootstrap [{resampled.low:+.4f}, {resampled.high:+.4f}]"
    )
    if comparison.truncated_a or comparison.truncated_b:
        yield f"truncated rollouts   A {comparison.truncated_a:.1%}   B {comparison.truncated_b:.1%}"
    yield f"p = {comparison.p_value:.4g} (sign flips), {comparison.p_value_t:.4g} (t)"
    yield f"tasks won {comparison.wins}, lost {comparison.losses}, tied {comparison.ties}"
    for change in comparison.most_moved[:10]:
        yield (
            f"  task {change.task_a:<6} {change.mean_a:.3f} ({change.rollouts_a}) → {change.mean_b:.3f} "
            f"({change.rollouts_b})   {change.difference:+.3f}"
        )
    yield verdict_sentence(comparison)
