"""`gymnast merge RUN`: merge the chunks of a submitted run into one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.store.paths import RunPaths
    from gymnast.types.totals import AgentStats


def command(
    run: shared.Run,
    *,
    partial: Annotated[
        bool, typer.Option("--allow-partial", help="Merge the finished rollouts although others are still owed.")
    ] = False,
    remove_chunks: Annotated[
        bool, typer.Option("--remove-chunks", help="Delete the chunks afterwards, which leaves an ordinary run.")
    ] = False,
    no_aggregate: shared.NoAggregate = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Merge the chunks of a submitted run into one.

    Writes x.jsonl and x_failures.jsonl in the order of the plan. The same records always give the same bytes. Rollouts
    that are not settled, or settled twice, are listed and nothing is merged; --allow-partial leaves owed ones out. Exit
    code 0 if every rollout is settled.
    """
    import shutil

    import msgspec

    from gymnast.chunks.merge import merge
    from gymnast.cli.progress import print_summary
    from gymnast.store.paths import RunPaths

    paths = RunPaths(run)
    counts = merge(paths, partial=partial)
    if not no_aggregate and counts.scored:
        _aggregate(paths)
    if remove_chunks and not counts.owed:
        shutil.rmtree(paths.chunks)
    agents = read_stats(paths)
    if as_json:
        print(msgspec.json.encode({**msgspec.to_builtins(counts), "agents": agents}).decode())
    else:
        print_summary(agents)
        print(f"rollouts  {paths.output}  ({counts.scored} of {counts.requested})")
        for kind, number in counts.failed.items():
            print(f"  {number} × {kind}")
        if counts.owed:
            shared.say(f"{counts.owed} rollouts are still owed")
    return 0 if not counts.owed else 1


def read_stats(paths: RunPaths) -> dict[str, AgentStats]:
    """The statistics of each agent of a merged run."""
    from gymnast.rollouts.tally import stats_of
    from gymnast.store.manifest import read_manifest

    manifest = read_manifest(paths.manifest)
    return stats_of(manifest.agents) if manifest is not None else {}


def _aggregate(paths: RunPaths) -> None:
    """Write the metrics of built-in agents. Other agents compute their own, and none is running here."""
    from gymnast.chunks.worker_context import compose_config
    from gymnast.chunks.worker_spec import read_worker_spec
    from gymnast.config import read_environ
    from gymnast.errors import UserError
    from gymnast.rollouts.aggregate import local_metrics, write_local_metrics
    from gymnast.store.chunk_layout import ChunkLayout

    try:
        config = compose_config(read_worker_spec(ChunkLayout.of(paths)), read_environ())
        metrics = {name: local_metrics(config.instance(name), config.instances) for name in config.agents}
    except UserError as error:
        shared.say(f"note: no aggregate metrics: the configuration cannot be loaded here: {error.what}")
        return
    write_local_metrics(paths, {name: custom for name, custom in metrics.items() if custom is not None})
