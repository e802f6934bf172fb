"""`ng_aggregate_rollouts`: merge the rollout files of several jobs, with metrics over all of them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gymnast.cli.options import say
from gymnast.compat.ng_arguments import Fields, NgArguments
from gymnast.errors import DataError, NotFoundError, UserError
from gymnast.store.atomic import atomic_output
from gymnast.store.keys import key_of_line
from gymnast.store.lines import LinesAt
from gymnast.store.paths import RunPaths
from gymnast.types.task import RolloutKey, agent_name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.config import Config

Duplicates = Literal["refuse", "first", "all"]


def aggregate_rollouts(arguments: NgArguments) -> int:
    """Merge shards in the order of tasks and rollouts, and write the metrics of each agent."""
    from gymnast.profile.run_profile import rollout_files

    config = arguments.config(stub_policy=True).require_valid()
    fields = Fields(config)
    patterns = [part.strip() for part in fields.text("input_glob").split(",") if part.strip()]
    target = RunPaths(Path(fields.text("output_jsonl_fpath")))
    shards = [path for path in rollout_files(patterns) if path.resolve() != target.output.resolve()]
    if not shards:
        raise NotFoundError(
            f"'{','.join(patterns)}' matches only the output file", next="set input_glob to match the shards"
        )
    keeps_rows = fields.flag("merge_shards", default=True)
    target.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=".aggregate-", dir=target.output.parent
    ) as folder:  # same file system: moved, not copied
        work = RunPaths(Path(folder) / target.output.name)
        rows = merge_shards(shards, work.output)
        agents = _agents(work.output)
        asyncio.run(_write_metrics(work, config, agents))
        if keeps_rows:
            _install(work, target, shards)
        shutil.move(work.aggregate_metrics, target.aggregate_metrics)
    if keeps_rows:
        print(f"rollouts  {target.output}  ({rows} from {len(shards)} files)")
    print(f"metrics   {target.aggregate_metrics}")
    return 0


def merge_shards(shards: Sequence[Path], target: Path, duplicates: Duplicates = "refuse") -> int:
    """Write the lines of all files to one, ordered by task and rollout; `duplicates` says what to do with repeats."""
    index: list[tuple[RolloutKey, int, int]] = []
    for shard, path in enumerate(shards):
        index += [(key, shard, offset) for key, offset in _index_lines(path)]
    index.sort()
    if duplicates == "refuse":
        _reject_duplicates(index, shards)
    elif duplicates == "first":
        index = [next(entries) for _, entries in groupby(index, itemgetter(0))]
    with LinesAt(shards) as lines, atomic_output(target) as out:
        for _, shard, offset in index:
            out.write(lines.line(shard, offset).rstrip(b"\r\n") + b"\n")
    return len(index)


def _index_lines(path: Path) -> list[tuple[RolloutKey, int]]:
    """The rollout key and the offset of each line."""
    index: list[tuple[RolloutKey, int]] = []
    offset = 0
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    key = key_of_line(line.rstrip(b"\r\n"))
                    if key is None:
                        raise DataError(
                            "a line is not a rollout record: it is truncated, or has no task and rollout index",
                            where=f"{path} line {number}",
                            next="resume that run, which repairs truncated lines",
                        )
                    index.append((key, offset))
                offset += len(line)
    except OSError as error:
        raise DataError(f"cannot read the rollouts: {error.strerror or error}", where=str(path)) from error
    return index


def _reject_duplicates(index: list[tuple[RolloutKey, int, int]], shards: Sequence[Path]) -> None:
    duplicates = [(first, second) for first, second in pairwise(index) if first[0] == second[0]]
    if duplicates:
        first, second = duplicates[0]
        raise DataError(
            f"{len(duplicates)} rollouts appear twice, for example {first[0]}",
            where=f"{shards[first[1]]} and {shards[second[1]]}",
            next="leave one of the files out, or every metric would be wrong",
        )


def _agents(path: Path) -> set[str]:
    import orjson

    from gymnast.store.lines import numbered_lines

    return {agent_name_of(orjson.loads(line)) or "" for _, line in numbered_lines(path)}


def _install(work: RunPaths, target: RunPaths, shards: Sequence[Path]) -> None:
    """Move the merged run to its target, with inputs and failures if every shard has them; keep an earlier run."""
    sources = [RunPaths(shard) for shard in shards]
    if all(source.materialized_inputs.exists() for source in sources):
        merge_shards([source.materialized_inputs for source in sources], work.materialized_inputs, "first")
    if all(source.failures.exists() for source in sources):
        merge_shards([source.failures for source in sources], work.failures, "all")
    aside = target.set_aside()
    if aside is not None:
        say(f"moved an earlier run with this name to {aside}")
    for source, destination in (
        (work.output, target.output),
        (work.materialized_inputs, target.materialized_inputs),
        (work.failures, target.failures),
    ):
        if source.exists():
            shutil.move(source, destination)


def _say_warnings(warnings: list[str]) -> None:
    for warning in warnings:
        say(f"warning: {warning}")


async def _write_metrics(paths: RunPaths, config: Config, agents: set[str]) -> None:
    """Let the agents aggregate: configured ones, or those of a running serve; if there are none, do it here."""
    from gymnast.config import read_environ
    from gymnast.kit.custom_metrics import CustomMetrics
    from gymnast.rollouts.aggregate import write_aggregate_metrics, write_local_metrics
    from gymnast.rollouts.servers import reachable_instances
    from gymnast.runtime.cell import Cell, make_cell_options
    from gymnast.runtime.remote import read_head, remote_calls
    from gymnast.wire.http_client import HttpClient

    ask = {name: name for name in agents}
    if agents <= set(config.agents):
        instances = reachable_instances(config, agents)
        async with Cell(instances, make_cell_options(config, read_environ(), log_dir=paths.logs)) as cell:
            _say_warnings(await write_aggregate_metrics(paths, ask, instances, cell.calls))
        return
    from gymnast.runtime.find_head import find_head

    try:
        async with HttpClient() as client:
            head = await read_head(client, *find_head(None, config, read_environ()))
            if agents <= set(head.agents()):
                _say_warnings(await write_aggregate_metrics(paths, ask, [], remote_calls(client, head)))
                return
    except UserError:
        pass  # no serve is running: the note below says what to do
    say(
        "note: the agents are neither configured nor running, so their custom metrics are missing; "
        "pass +config_paths=[…] or start ng_run"
    )
    write_local_metrics(paths, dict.fromkeys(agents, CustomMetrics()))
