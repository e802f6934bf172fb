"""Prepares a re-verification: what is scored again, under which name, without touching anything else.

Stored responses are looked up by rollout key on disk, not in memory.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from gymnast.errors import DataError, NotFoundError, UserError, suggest
from gymnast.rollouts.changes import diff_values
from gymnast.rollouts.identity import instance_settings
from gymnast.rollouts.prepare import PreparedRun, adopt_run, existing_run_error, new_manifest, resume_manifest
from gymnast.store.atomic import atomic_output
from gymnast.store.keys import key_of_line, require_key
from gymnast.store.lines import numbered_lines
from gymnast.store.lock import RunLock
from gymnast.store.manifest import read_manifest, write_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.failure import FailureKind
from gymnast.types.task import FAILURE_CLASS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.config import Config, Instance
    from gymnast.rollouts.options import RunOptions
    from gymnast.store.manifest import Manifest
    from gymnast.types.task import RolloutKey

JUDGE_FAILED: Final = FailureKind.JUDGE_FAILED.value


@dataclass(frozen=True, slots=True)
class ReverifySource:
    """The rollouts that are scored again. The new scores go to the output in the run's options."""

    rollouts: Path
    inputs: Path
    judge_failed_only: bool = False
    limit: int | None = None
    force: bool = False
    """Score again even if the environment does not guarantee the same result."""

    def responses(self) -> StoredResponses:
        """The responses that are scored again."""
        if self.judge_failed_only:
            return StoredResponses(RunPaths(self.rollouts).failures, failure_class=JUDGE_FAILED)
        return StoredResponses(self.rollouts)


def environment_of(config: Config, agent: str) -> str:
    """The environment whose verifier scored an agent's rollouts: the agent's own, else the only one configured."""
    instance = config.instances.get(agent)
    if instance is not None:
        names = instance.environments
    else:
        names = [name for name, server in config.instances.items() if server.kind == "resources_servers"]
    if len(names) == 1:
        return names[0]
    raise NotFoundError(
        f"cannot tell which environment scores the rollouts of '{agent}'",
        next=suggest(agent, config.instances) or "name its configuration: --environment or --config",
    )


def appends(source: ReverifySource, options: RunOptions) -> bool:
    """Whether the new scores are added to the run itself; only possible for judge-failed rollouts."""
    return options.output == source.rollouts and source.judge_failed_only


@contextmanager
def prepare_reverify(
    source: ReverifySource,
    options: RunOptions,
    stored: StoredResponses,
    agents: dict[str, int],
    instances: list[Instance],
) -> Iterator[PreparedRun]:
    """Prepare the run that the new scores go to, and hold its lock."""
    paths, is_appended = options.paths, appends(source, options)
    if not is_appended:
        _check_untouched(RunPaths(source.rollouts), source.inputs, paths)
    if not len(stored):
        what = f"{JUDGE_FAILED} record with a response" if source.judge_failed_only else "record"
        raise DataError(f"no {what} to score again", where=str(stored.path))
    with RunLock(paths.lock), ExitStack() as stack:
        if is_appended:
            manifest = resume_manifest(read_manifest(paths.manifest) or adopt_run(paths))
        else:
            stack.enter_context(RunLock(RunPaths(source.rollouts).lock))  # refuses a run that is still being written
            is_resumed = options.existing == "resume" and paths.materialized_inputs.exists()
            manifest = (
                _resume(source, paths, instances) if is_resumed else _plan(source, options, stored, agents, instances)
            )
        paths.done.unlink(missing_ok=True)
        write_manifest(paths.manifest, manifest)
        yield PreparedRun(paths, manifest, agents, instances)


def _check_untouched(source: RunPaths, inputs: Path, target: RunPaths) -> None:
    protected = {path.resolve() for path in (*source.all(), inputs)}
    if protected & {path.resolve() for path in target.all()}:
        raise UserError(
            "re-verification never overwrites the rollouts it reads",
            where=str(target.output),
            next="choose another --output, or add judge-failed ones with --judge-failed-only --append",
        )


def _plan(
    source: ReverifySource,
    options: RunOptions,
    stored: StoredResponses,
    agents: dict[str, int],
    instances: list[Instance],
) -> Manifest:
    """Write the inputs to score again and, in judge-failed mode, copy what is scored already."""
    paths = options.paths
    if paths.existing_files() and options.existing != "overwrite":
        raise existing_run_error(paths)
    paths.remove()
    rows = _write_inputs(source, stored, paths)
    if not rows:
        raise DataError("no record matches a row of the inputs", where=f"{stored.path} and {source.inputs}")
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
    """Write the rows to score again, and those that are scored already and only copied."""
    scored = StoredResponses(source.rollouts) if source.judge_failed_only else None
    rows = chosen = 0
    with ExitStack() as stack:
        copied = stack.enter_context(scored) if scored is not None else ()
        out = stack.enter_context(atomic_output(paths.materialized_inputs))
        for number, line in numbered_lines(source.inputs):
            key = require_key(line, source.inputs, number)
            if key.packed in copied:
                out.write(line + b"\n")
                rows += 1
            elif key.packed in stored and (source.limit is None or chosen < source.limit):
                out.write(line + b"\n")
                rows += 1
                chosen += 1
    return rows


def _resume(source: ReverifySource, paths: RunPaths, instances: list[Instance]) -> Manifest:
    old = read_manifest(paths.manifest)
    if old is None:
        raise DataError("no manifest to resume from", where=str(paths.manifest), next="use --overwrite")
    changed = diff_values(
        {"source": old.source, "settings": old.settings},
        {"source": _source_of(source), "settings": _settings(source, instances)},
    )
    if changed and not source.force:
        listed = "\n".join(f"  {line}" for line in changed[:10])
        raise UserError(
            f"inputs or settings changed since this run started:\n{listed}",
            where=str(paths.output),
            next="start over with --overwrite, or choose another --output",
        )
    return resume_manifest(old, forced=bool(changed))


def _source_of(source: ReverifySource) -> dict[str, Any]:
    files = {"inputs": source.inputs, "rollouts": source.rollouts}
    return {"reverify": {name: {"path": str(path), "bytes": path.stat().st_size} for name, path in files.items()}}


def _settings(source: ReverifySource, instances: list[Instance]) -> dict[str, Any]:
    chosen = {"judge_failed_only": source.judge_failed_only, "limit": source.limit}
    return {"reverify": chosen, **instance_settings(instances)}


class StoredResponses:
    """The responses in a file of records. Use as `with StoredResponses(path) as stored`."""

    def __init__(self, path: Path, *, failure_class: str | None = None) -> None:
        """With `failure_class`, only records of failures of that class, the last one of each rollout."""
        self.path = path
        self._class = failure_class
        self._offsets: dict[int, int] = {}

    def __enter__(self) -> Self:
        try:
            self._stream = self.path.open("rb")
        except OSError as error:
            raise DataError(f"cannot read the records: {error.strerror or error}", where=str(self.path)) from error
        offset = 0
        for number, line in enumerate(self._stream, 1):
            if self._class is None or f'"{self._class}"'.encode() in line:
                self._add(number, line, offset)
            offset += len(line)
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __contains__(self, packed: object) -> bool:
        return packed in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def record(self, key: RolloutKey) -> Any:
        self._stream.seek(self._offsets[key.packed])
        return orjson.loads(self._stream.readline())

    def _add(self, number: int, line: bytes, offset: int) -> None:
        key = key_of_line(line.rstrip(b"\r\n"))
        if key is None:
            raise DataError(
                "a record has no task and rollout index",
                where=f"{self.path} line {number}",
                next="finish the run with --resume, which repairs torn lines",
            )
        if self._class is not None:
            record = orjson.loads(line)
            if record.get(FAILURE_CLASS) != self._class or not isinstance(record.get("response"), dict):
                return
        self._offsets[key.packed] = offset
