"""`ng_aggregate_rollouts`: files of rollouts that several jobs wrote, as one, and the metrics over all of them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gymnast.cli.options import say
from gymnast.compat.ng_asked import Asked, Fields
from gymnast.errors import DataError, NotFoundError, UserError
from gymnast.store.keys import key_of_line
from gymnast.store.lines import LinesAt
from gymnast.store.paths import RunPaths
from gymnast.store.replacing import replaced
from gymnast.types.task import RolloutKey, agent_name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.config import Config

Twice = Literal["refuse", "first", "all"]


def aggregate_rollouts(asked: Asked) -> int:
    """Put shards together in the order of tasks and rollouts, and write the metrics of each agent."""
    from gymnast.profile.run_profile import rollout_files

    config = asked.config(stub_policy=True).checked()
    fields = Fields(config)
    patterns = [part.strip() for part in fields.text("input_glob").split(",") if part.strip()]
    target = RunPaths(Path(fields.text("output_jsonl_fpath")))
    shards = [path for path in rollout_files(patterns) if path.resolve() != target.output.resolve()]
    if not shards:
        raise NotFoundError(f"only the output itself matches '{','.join(patterns)}'", next="name the shards")
    keeps_rows = fields.flag("merge_shards", default=True)
    target.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".aggregate-", dir=target.output.parent) as folder:  # moved, not copied
        work = RunPaths(Path(folder) / target.output.name)
        rows = merge_shards(shards, work.output)
        agents = _agents(work.output)
        asyncio.run(_write_metrics(work, config, agents))
        if keeps_rows:
            _move_in(work, target, shards)
        shutil.move(work.aggregate_metrics, target.aggregate_metrics)
    if keeps_rows:
        print(f"rollouts  {target.output}  ({rows} from {len(shards)} files)")
    print(f"metrics   {target.aggregate_metrics}")
    return 0


def merge_shards(shards: Sequence[Path], target: Path, twice: Twice = "refuse") -> int:
    """Write the lines of all files to one, ordered by task and rollout. `twice`: what of a rollout's further lines."""
    found: list[tuple[RolloutKey, int, int]] = []
    for number, path in enumerate(shards):
        found += [(key, number, offset) for key, offset in _places(path)]
    found.sort()
    if twice == "refuse":
        _refuse_twice(found, shards)
    elif twice == "first":
        found = [next(lines) for _, lines in groupby(found, itemgetter(0))]
    with LinesAt(shards) as lines, replaced(target) as out:
        for _, number, offset in found:
            out.write(lines.line(number, offset).rstrip(b"\r\n") + b"\n")
    return len(found)


def _places(path: Path) -> list[tuple[RolloutKey, int]]:
    """Which rollout each line is of, and where it begins."""
    found: list[tuple[RolloutKey, int]] = []
    offset = 0
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    key = key_of_line(line.rstrip(b"\r\n"))
                    if key is None:
                        raise DataError(
                            "a line is no record of a rollout: it is torn, or has no task and rollout index",
                            where=f"{path} line {number}",
                            next="finish that run with resume, which repairs torn lines",
                        )
                    found.append((key, offset))
                offset += len(line)
    except OSError as error:
        raise DataError(f"cannot read the rollouts: {error.strerror or error}", where=str(path)) from error
    return found


def _refuse_twice(found: list[tuple[RolloutKey, int, int]], shards: Sequence[Path]) -> None:
    twice = [(one, other) for one, other in pairwise(found) if one[0] == other[0]]
    if twice:
        first, second = twice[0]
        raise DataError(
            f"{len(twice)} rollouts are there twice, for example {first[0]}",
            where=f"{shards[first[1]]} and {shards[second[1]]}",
            next="leave one of the files out: counting a rollout twice would shift every metric",
        )


def _agents(path: Path) -> set[str]:
    import orjson

    from gymnast.store.lines import numbered_lines

    return {agent_name_of(orjson.loads(line)) or "" for _, line in numbered_lines(path)}


def _move_in(work: RunPaths, target: RunPaths, shards: Sequence[Path]) -> None:
    """The merged run in its place, with inputs and failures where every shard has them; an earlier one is kept."""
    sources = [RunPaths(shard) for shard in shards]
    if all(source.materialized_inputs.exists() for source in sources):
        merge_shards([source.materialized_inputs for source in sources], work.materialized_inputs, "first")
    if all(source.failures.exists() for source in sources):
        merge_shards([source.failures for source in sources], work.failures, "all")
    aside = target.set_aside()
    if aside is not None:
        say(f"an earlier run under this name was moved to {aside}")
    for path, place in (
        (work.output, target.output),
        (work.materialized_inputs, target.materialized_inputs),
        (work.failures, target.failures),
    ):
        if path.exists():
            shutil.move(path, place)


async def _write_metrics(paths: RunPaths, config: Config, agents: set[str]) -> None:
    """As the agents sum up: those of the configuration, else those of a running serve, else the usual way."""
    from gymnast.config import read_environ
    from gymnast.rollouts.aggregate import write_aggregate_metrics, write_summed_metrics
    from gymnast.rollouts.servers import reachable
    from gymnast.runtime.cell import Cell, options_from
    from gymnast.runtime.remote import read_head, remote_calls
    from gymnast.wire.http_client import HttpClient

    ask = {name: name for name in agents}
    if agents <= set(config.agents):
        instances = reachable(config, agents)
        async with Cell(instances, options_from(config, read_environ(), log_dir=paths.logs)) as cell:
            await write_aggregate_metrics(paths, ask, instances, cell.calls)
        return
    from gymnast.config import read_environ
    from gymnast.runtime.heads import find_head

    try:
        async with HttpClient() as client:
            head = await read_head(client, *find_head(None, config, read_environ()))
            if agents <= set(head.agents()):
                await write_aggregate_metrics(paths, ask, [], remote_calls(client, head))
                return
    except UserError:
        pass  # no serve runs here; what is said below says what to do
    say(
        "note: the agents are neither configured nor running, so metrics of their own are not among the metrics; "
        "give +config_paths=[…] or start ng_run"
    )
    write_summed_metrics(paths, agents)
