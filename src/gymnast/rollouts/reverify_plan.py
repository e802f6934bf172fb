"""Getting a re-verification ready: what is scored again, under which name, and that nothing else is touched."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import DataError, NotFoundError, UserError, suggest
from gymnast.rollouts.changes import differences
from gymnast.rollouts.identity import instance_settings
from gymnast.rollouts.prepare import Prepared, adopted, gone_on, in_the_way, new_manifest
from gymnast.rollouts.stored import StoredResponses
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.store.lock import RunLock
from gymnast.store.manifest import read_manifest, write_manifest
from gymnast.store.paths import RunPaths
from gymnast.store.replacing import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.config import Config, Instance
    from gymnast.rollouts.options import RunOptions
    from gymnast.store.manifest import Manifest

JUDGE_FAILED: Final = "judge_failed"


@dataclass(frozen=True, slots=True)
class ReverifySource:
    """The rollouts that are scored again. Where the new scores go is the output of the run's options."""

    rollouts: Path
    inputs: Path
    judge_failed_only: bool = False
    limit: int | None = None
    force: bool = False
    """Score again even where the environment does not promise the same result."""

    def responses(self) -> StoredResponses:
        """The responses that are scored again."""
        if self.judge_failed_only:
            return StoredResponses(RunPaths(self.rollouts).failures, failure_class=JUDGE_FAILED)
        return StoredResponses(self.rollouts)


def environment_of(config: Config, agent: str) -> str:
    """The environment whose verifier scored an agent's rollouts: the agent's own, else the only one there is."""
    instance = config.instances.get(agent)
    if instance is not None:
        names = [ref.name for ref in instance.refs.values() if ref.kind == "resources_servers"]
    else:
        names = [name for name, found in config.instances.items() if found.kind == "resources_servers"]
    if len(names) == 1:
        return names[0]
    raise NotFoundError(
        f"which environment scores the rollouts of '{agent}' is not clear",
        next=suggest(agent, config.instances) or "name its config: --environment or --config",
    )


def appends(source: ReverifySource, options: RunOptions) -> bool:
    """Whether the new scores are added to the run itself, which only judge-failed rollouts can be."""
    return options.output == source.rollouts and source.judge_failed_only


@contextmanager
def prepared_reverify(
    source: ReverifySource,
    options: RunOptions,
    stored: StoredResponses,
    agents: dict[str, int],
    instances: list[Instance],
) -> Iterator[Prepared]:
    """The run that the new scores go to, locked."""
    paths, is_appended = options.paths, appends(source, options)
    if not is_appended:
        _refuse_to_touch(RunPaths(source.rollouts), source.inputs, paths)
    if not len(stored):
        what = f"no {JUDGE_FAILED} record with a response" if source.judge_failed_only else "no record"
        raise DataError(f"there is {what} to score again", where=str(stored.path))
    with RunLock(paths.lock), ExitStack() as stack:
        if is_appended:
            manifest = gone_on(read_manifest(paths.manifest) or adopted(paths))
        else:
            stack.enter_context(
                RunLock(RunPaths(source.rollouts).lock)
            )  # a run that is still being written is not scored again
            is_resumed = options.existing == "resume" and paths.materialized_inputs.exists()
            manifest = (
                _resumed(source, paths, instances)
                if is_resumed
                else _planned(source, options, stored, agents, instances)
            )
        paths.done.unlink(missing_ok=True)
        write_manifest(paths.manifest, manifest)
        yield Prepared(paths, manifest, agents, instances)


def _refuse_to_touch(source: RunPaths, inputs: Path, target: RunPaths) -> None:
    theirs = {path.resolve() for path in (*source.all(), inputs)}
    if theirs & {path.resolve() for path in target.all()}:
        raise UserError(
            "re-verifying never overwrites the rollouts it starts from",
            where=str(target.output),
            next="choose another --output, or add judge-failed ones with --judge-failed-only --append",
        )


def _planned(
    source: ReverifySource,
    options: RunOptions,
    stored: StoredResponses,
    agents: dict[str, int],
    instances: list[Instance],
) -> Manifest:
    """Write the inputs of what is scored again; with it, in judge-failed mode, what was scored already."""
    paths = options.paths
    if paths.existing() and options.existing != "overwrite":
        raise in_the_way(paths)
    paths.remove()
    rows = _write_inputs(source, stored, paths)
    if not rows:
        raise DataError("no record belongs to a row of the inputs", where=f"{stored.path} and {source.inputs}")
    if source.judge_failed_only:
        shutil.copyfile(source.rollouts, paths.output)
    return new_manifest(
        paths,
        source=_source_of(source),
        plan={"rows": rows, "agents": agents},
        settings=_settings(source, instances),
        instances=instances,
        requested=rows,
    )


def _write_inputs(source: ReverifySource, stored: StoredResponses, paths: RunPaths) -> int:
    """The rows to be scored again, and those that are scored and only copied."""
    scored = StoredResponses(source.rollouts) if source.judge_failed_only else None
    rows = chosen = 0
    with ExitStack() as stack:
        copied = stack.enter_context(scored) if scored is not None else ()
        out = stack.enter_context(replaced(paths.materialized_inputs))
        for number, line in numbered_lines(source.inputs):
            key = key_of_line(line)
            if key is None:
                where = f"{source.inputs} line {number}"
                raise DataError("a materialized input has no task and rollout index", where=where)
            if key.packed in copied:
                out.write(line + b"\n")
                rows += 1
            elif key.packed in stored and (source.limit is None or chosen < source.limit):
                out.write(line + b"\n")
                rows += 1
                chosen += 1
    return rows


def _resumed(source: ReverifySource, paths: RunPaths, instances: list[Instance]) -> Manifest:
    old = read_manifest(paths.manifest)
    if old is None:
        raise DataError("there is no manifest to resume from", where=str(paths.manifest), next="use --overwrite")
    changed = differences(
        {"source": old.source, "settings": old.settings},
        {"source": _source_of(source), "settings": _settings(source, instances)},
    )
    if changed and not source.force:
        listed = "\n".join(f"  {line}" for line in changed[:10])
        raise UserError(
            f"the run is not what it was:\n{listed}",
            where=str(paths.output),
            next="--overwrite starts again, or choose another --output",
        )
    return gone_on(old, forced=bool(changed))


def _source_of(source: ReverifySource) -> dict[str, Any]:
    files = {"inputs": source.inputs, "rollouts": source.rollouts}
    return {"reverify": {name: {"path": str(path), "bytes": path.stat().st_size} for name, path in files.items()}}


def _settings(source: ReverifySource, instances: list[Instance]) -> dict[str, Any]:
    chosen = {"judge_failed_only": source.judge_failed_only, "limit": source.limit}
    return {"reverify": chosen, **instance_settings(instances)}
