"""Finds the runs below a folder and describes each in one row: state, counts, reward, cost. Reads no records.

Nothing outside of the folder is read: symbolic links to folders are not followed, and a run whose files are links that
lead out of it is left out.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.chunks.status import read_run_status
from gymnast.errors import NotFoundError, UserError
from gymnast.rollouts.tally import overall_stats
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.find_run import find_run
from gymnast.store.lock import is_locked
from gymnast.store.manifest import RunState, read_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.encoding import printable
from gymnast.types.usage import ModelUsage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.chunks.status import RunStatus
    from gymnast.store.manifest import Manifest
    from gymnast.types.json import JsonObject
    from gymnast.types.totals import AgentTotals

_MANIFEST: Final = "_run.json"
_INPUTS: Final = "_materialized_inputs.jsonl"
_CHUNKS: Final = "_chunks"
CURVE: Final = "curve.json"
"""The learning curve that the training recipes write."""
_NOT_SEARCHED: Final = (_CHUNKS, "_logs")
_MAX_DEPTH: Final = 12
_MAX_RUNS: Final = 5000
_MAX_FOLDERS: Final = 50_000
_MAX_NAMES: Final = 20
_CHUNK_STATUS_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class RunSource:
    """A run below the folder."""

    id: str
    """Its path below the folder, without `.jsonl`."""
    paths: RunPaths
    curve: Path | None = None
    """Of a training run."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The runs that were found, by id."""

    runs: dict[str, RunSource]
    left_out: int = 0
    """Runs beyond the limit, and runs whose files lead out of the folder."""


class RunFolders:
    """The folders and runs that the studio was started with."""

    def __init__(self, targets: Sequence[Path]) -> None:
        self.folders: list[Path] = []
        self.named: list[RunPaths] = []
        for target in targets:
            if target.is_dir():
                self.folders.append(target.resolve())
                continue
            paths = find_run(target)
            self.named.append(RunPaths(paths.output.resolve() if not paths.output.is_symlink() else paths.output))
        roots = [*self.folders, *(paths.output.parent.resolve() for paths in self.named)]
        self.root = Path(os.path.commonpath(roots)) if roots else Path.cwd()

    def only_run_id(self) -> str | None:
        """The run, if the studio was started for exactly one."""
        if self.folders or len(self.named) != 1:
            return None
        return self._id(RunSource("", self.named[0]))

    def scan(self) -> Scan:
        """Find the runs. A run that was named belongs to it even if its files are gone for a moment."""
        runs: dict[str, RunSource] = {}
        left_out = 0
        for folder in self.folders:
            for source in _walk(folder):
                if len(runs) >= _MAX_RUNS or not _is_inside(source, folder):
                    left_out += 1
                else:
                    runs[self._id(source)] = RunSource(self._id(source), source.paths, source.curve)
        for paths in self.named:
            source = RunSource("", paths)
            if _exists(paths):
                runs[self._id(source)] = RunSource(self._id(source), paths)
        return Scan(runs, left_out)

    def _id(self, source: RunSource) -> str:
        path = source.curve.parent if source.curve is not None else source.paths.output
        name = os.path.relpath(path, self.root)
        name = name.removesuffix(".jsonl") if source.curve is None else f"{name}/training"
        return printable(os.fsencode(name).decode(errors="replace"))


def _walk(root: Path) -> Iterator[RunSource]:
    folders = [(root, 0)]
    visited = 0
    while folders and visited < _MAX_FOLDERS:
        folder, depth = folders.pop()
        visited += 1
        try:
            with os.scandir(folder) as entries:
                listed = list(entries)
        except OSError:
            continue  # removed, or not ours to read
        below = [entry for entry in listed if _is_folder(entry)]
        if depth < _MAX_DEPTH:
            searched = (own for own in below if own.name[0] != "." and not own.name.endswith(_NOT_SEARCHED))
            folders += [(Path(own.path), depth + 1) for own in searched]
        yield from _runs_in(folder, {entry.name for entry in listed}, {entry.name for entry in below})


def _runs_in(folder: Path, names: set[str], below: set[str]) -> Iterator[RunSource]:
    """The runs whose files are directly in a folder with these names, of which those `below` are folders."""
    stems = {name.removesuffix(mark) for mark in (_MANIFEST, _INPUTS) for name in names if name.endswith(mark)}
    chunked = (name for name in below if name.endswith(_CHUNKS) and (folder / name / "plan.json").exists())
    stems |= {name.removesuffix(_CHUNKS) for name in chunked}
    for stem in sorted(stems - {""}):
        is_plain = stem in names - below and f"{stem}.jsonl" not in names  # an output file without a suffix
        yield RunSource("", RunPaths(folder / (stem if is_plain else f"{stem}.jsonl")))
    if CURVE in names and not (folder / CURVE).is_symlink():
        yield RunSource("", RunPaths(folder / "rollouts.jsonl"), folder / CURVE)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.is_dir(follow_symlinks=False)
    return False


def _files(paths: RunPaths) -> tuple[Path, ...]:
    return (*paths.all(), paths.chunks, paths.logs, paths.socket, paths.lock)


def _is_inside(source: RunSource, folder: Path) -> bool:
    """Whether every file of a run is below a folder, also where it is a symbolic link."""
    for path in _files(source.paths):
        with suppress(OSError):
            if stat.S_ISLNK(path.lstat().st_mode) and not Path(os.path.realpath(path)).is_relative_to(folder):
                return False
    return True


def _exists(paths: RunPaths) -> bool:
    return any(path.exists() for path in (paths.output, paths.manifest, paths.materialized_inputs, paths.chunks))


def stamp(source: RunSource) -> tuple[Any, ...]:
    """What changes whenever a run's files do: sizes and times, nothing is read."""
    paths = source.paths
    files: list[Path] = [paths.output, paths.failures, paths.manifest, paths.done, paths.socket]
    if source.curve is not None:
        files = [source.curve]
    stamps: list[Any] = []
    for path in files:
        try:
            info = path.stat()
            stamps.append((info.st_size, info.st_mtime_ns, info.st_ino))
        except OSError:
            stamps.append(None)
    if ChunkLayout.of(paths).is_planned and not paths.done.exists():
        stamps.append(int(time.time() / _CHUNK_STATUS_S))  # its state is in many files: look again every few seconds
    return tuple(stamps)


# --- the row of a run ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RunFacts:
    """What the small files of a run say."""

    row: JsonObject
    manifest: Manifest | None = None
    chunks: RunStatus | None = None
    agents: dict[str, AgentTotals] = field(default_factory=dict)
    spent: ModelUsage = field(default_factory=ModelUsage)
    is_live: bool = False


def read_facts(source: RunSource) -> RunFacts:
    """Read a run's manifest and the state of its chunks. Problems are part of the row."""
    row = _empty_row(source)
    facts = RunFacts(row)
    if source.curve is not None:
        row.update(kind="training", state="complete", **_read_curve_row(source.curve))
        return facts
    try:
        facts.manifest = read_manifest(source.paths.manifest)
        if ChunkLayout.of(source.paths).is_planned:
            row["kind"] = "chunked"
            if not source.paths.done.exists():
                facts.chunks = read_run_status(ChunkLayout.of(source.paths))
    except (UserError, OSError, msgspec.MsgspecError) as error:
        row["problem"] = getattr(error, "what", None) or str(error)
    if facts.manifest is not None:
        _add_manifest(facts, source, facts.manifest)
    if facts.chunks is not None:
        _add_chunks(facts, facts.chunks)
    if facts.agents:
        stats = overall_stats(facts.agents)
        if stats.mean_reward is not None:
            row["mean_reward"] = {"value": stats.mean_reward, "low": None, "high": None, "n": None}
        row["truncated"] = stats.truncated
    _add_usage(row, facts.spent)
    return facts


def _empty_row(source: RunSource) -> JsonObject:
    output = source.paths.output
    folder, _, name = source.id.rpartition("/")
    size, updated = 0, 0.0
    for path in (source.curve,) if source.curve is not None else (output, source.paths.failures, source.paths.manifest):
        with suppress(OSError):
            info = path.stat()
            size, updated = size + info.st_size, max(updated, info.st_mtime)
    return {
        "id": source.id,
        "name": name,
        "folder": folder,
        "state": "unknown",
        "kind": "run",
        "models": [],
        "environments": [],
        "agents": [],
        "requested": None,
        "scored": 0,
        "failed": 0,
        "owed": 0,
        "in_flight": None,
        "tasks": None,
        "failures": {},
        "mean_reward": None,
        "truncated": None,
        "cost": None,
        "input_tokens": 0,
        "output_tokens": 0,
        "started_at": None,
        "updated_at": updated or None,
        "seconds": None,
        "size_bytes": size,
        "note": None,
        "is_live": False,
        "problem": None,
    }


def _add_manifest(facts: RunFacts, source: RunSource, manifest: Manifest) -> None:
    facts.is_live = is_locked(source.paths.lock)
    state = manifest.state
    if state is RunState.RUNNING and not facts.is_live and facts.chunks is None:
        state = RunState.INTERRUPTED  # its process died
    elif facts.is_live and state is not RunState.RUNNING:
        state = RunState.RUNNING
    facts.agents, facts.spent = manifest.agents, manifest.spent
    counts = manifest.counts
    facts.row.update(
        state=state.value,
        is_live=facts.is_live,
        models=model_names(manifest),
        environments=environment_names(manifest),
        agents=[printable(name) for name in _strings(manifest.plan.get("agents"))][:_MAX_NAMES],
        requested=counts.requested,
        scored=counts.scored,
        failed=sum(counts.failed.values()),
        failures=counts.failed,
        owed=counts.owed,
        tasks=manifest.plan.get("tasks") if isinstance(manifest.plan.get("tasks"), int) else None,
        started_at=manifest.created_at,
        updated_at=manifest.updated_at,
        seconds=_duration(manifest, is_live=facts.is_live),
        note=manifest.note,
    )


def _add_chunks(facts: RunFacts, status: RunStatus) -> None:
    facts.agents, facts.spent = status.totals, status.spent
    held = status.states.get("held", 0)
    facts.is_live = held > 0
    state = "complete" if not status.unsettled else "running" if held else "interrupted"
    facts.row.update(
        state=state,
        is_live=facts.is_live,
        requested=status.requested,
        scored=status.scored,
        failed=sum(status.failed.values()),
        failures=status.failed,
        owed=status.owed + status.unknown,
        in_flight=status.in_flight,
        # The process that submitted it ended at once; how long its workers took is known while they work.
        seconds=time.time() - facts.row["started_at"] if facts.is_live and facts.row["started_at"] else None,
    )


def _add_usage(row: JsonObject, spent: ModelUsage) -> None:
    if spent.calls:
        row.update(cost=spent.cost, input_tokens=spent.input_tokens, output_tokens=spent.output_tokens)


def _duration(manifest: Manifest, *, is_live: bool) -> float | None:
    """The seconds that processes worked on the run."""
    total, known = 0.0, False
    for number, invocation in enumerate(manifest.invocations, 1):
        end = invocation.ended_at
        if end is None and number == len(manifest.invocations):
            end = time.time() if is_live else manifest.updated_at
        if end is not None:
            total, known = total + max(0.0, end - invocation.started_at), True
    return round(total, 3) if known else None


def model_names(manifest: Manifest) -> list[str]:
    """The models that the run's settings name."""
    names = []
    for instance in manifest.settings.values():
        settings = instance.get("settings") if isinstance(instance, dict) else None
        for key in ("model", "model_name", "policy_model_name", "openai_model"):
            name = settings.get(key) if isinstance(settings, dict) else None
            if isinstance(name, str) and name and name not in names:
                names.append(printable(name)[:200])
    return names[:_MAX_NAMES]


def environment_names(manifest: Manifest) -> list[str]:
    """The implementations of the environments in the run's settings."""
    names = []
    for instance in manifest.settings.values():
        implementation = str(instance.get("implementation") or "") if isinstance(instance, dict) else ""
        folder, _, name = implementation.rpartition("/")
        if folder.endswith("resources_servers") and name not in names:
            names.append(printable(name)[:200])
    return names[:_MAX_NAMES]


def _strings(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, dict | list) else []


# --- training --------------------------------------------------------------------------------------------------------


def read_curve(path: Path) -> JsonObject:
    """The learning curve of a training run: held-out points, and what each step says."""
    try:
        data = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise NotFoundError(f"cannot read the learning curve: {error}", where=str(path)) from error
    points = data.get("points", data.get("curve")) if isinstance(data, dict) else data
    held_out, steps = [], []
    for point in points if isinstance(points, list) else ():
        if not isinstance(point, dict):
            continue
        step, parts = point.get("step"), point.get("parts")
        held_out.append(
            {
                "step": step,
                "seconds": point.get("seconds"),
                "reward": point.get("reward"),
                "parts": parts if isinstance(parts, dict) else {},
            }
        )
    listed = data.get("steps") if isinstance(data, dict) else None
    for number, own in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(own, dict):
            numbers = {name: value for name, value in own.items() if isinstance(value, int | float)}
            steps.append({**{name: numbers.pop(name, None) for name in _STEP}, "values": numbers, "number": number})
    return {"steps": steps, "held_out": held_out}


_STEP: Final = ("step", "at", "seconds", "reward", "groups", "rollouts", "mixed_groups")


def _read_curve_row(path: Path) -> JsonObject:
    try:
        curve = read_curve(path)
    except NotFoundError as error:
        return {"problem": error.what}
    points = [point for point in curve["held_out"] if isinstance(point["reward"], int | float)]
    if not points:
        return {}
    seconds = points[-1]["seconds"]
    return {
        "mean_reward": {"value": points[-1]["reward"], "low": None, "high": None, "n": None},
        "seconds": seconds if isinstance(seconds, int | float) else None,
        "note": f"held-out reward after {points[-1]['step']} steps",
    }
