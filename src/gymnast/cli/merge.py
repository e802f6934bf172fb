"""`gymnast merge RUN`: one run out of the chunks that many worked on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.store.paths import RunPaths


def command(
    run: Annotated[Path, typer.Argument(help="The run: its output file.")],
    *,
    partial: Annotated[
        bool, typer.Option("--partial", help="Merge what there is, although rollouts are owed.")
    ] = False,
    remove_chunks: Annotated[
        bool, typer.Option("--remove-chunks", help="Afterwards delete the chunks: a run like any other is left.")
    ] = False,
    no_aggregate: Annotated[
        bool, typer.Option("--disable-aggregation", help="Do not write x_aggregate_metrics.json.")
    ] = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Write x.jsonl and x_failures.jsonl out of the chunks of a run, in the order of its plan.

    The same records give the same bytes, whoever wrote them and when. Rollouts that are not settled, or settled twice,
    are named and nothing is merged; --partial leaves owed ones out. Exit code 0 if every rollout is settled.
    """
    import shutil

    import msgspec

    from gymnast.cluster.merge import merge
    from gymnast.rollouts.inspect_run import run_paths

    paths = run_paths(run)
    counts = merge(paths, partial=partial)
    if not no_aggregate and counts.scored:
        _aggregate(paths)
    if remove_chunks and not counts.owed:
        shutil.rmtree(paths.chunks)
    if as_json:
        print(msgspec.json.encode(counts).decode())
    else:
        print(f"rollouts  {paths.output}  ({counts.scored} of {counts.requested})")
        for kind, number in counts.failed.items():
            print(f"  {number} × {kind}")
        if counts.owed:
            shared.say(f"{counts.owed} rollouts are still owed")
    return 0 if not counts.owed else 1


def _aggregate(paths: RunPaths) -> None:
    """The metrics of agents that are summed up the usual way. Others would have to be asked, and none runs here."""
    from gymnast.cluster.order import read_order
    from gymnast.cluster.workplace import compose_for
    from gymnast.config import read_environ
    from gymnast.errors import UserError
    from gymnast.rollouts.aggregate import write_summed_metrics
    from gymnast.runtime.loader import is_native
    from gymnast.store.chunk_layout import ChunkLayout

    try:
        config = compose_for(read_order(ChunkLayout.of(paths)), read_environ())
        ours = {name for name in config.agents if is_native(config.instance(name))}
    except UserError as error:
        shared.say(f"note: no aggregate metrics, the configuration is not here: {error.what}")
        return
    write_summed_metrics(paths, ours)
