"""Finds the run that a path names: its output file, its folder, or any other file of the run. Reads no records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.errors import NotFoundError, UserError, suggest
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from pathlib import Path

_MANIFEST: Final = "_run.json"
_PLAN: Final = "_chunks/plan.json"
_INPUTS: Final = "_materialized_inputs.jsonl"
OUTPUT_SUFFIX: Final = ".jsonl"
RUN_FILE_SUFFIXES: Final = (
    _MANIFEST,
    _INPUTS,
    "_failures.jsonl",
    "_reward_profiling.jsonl",
    "_aggregate_metrics.json",
    "_agent_metrics.json",
    "_profile_summary.json",
    "_report.html",
    "_bundle.tar.gz",
    "_chunks",
    "_logs",
    ".jsonl.done",
    ".lock",
    ".sock",
    OUTPUT_SUFFIX,
)
"""The ends of the names of a run's files and folders."""
_MAX_LISTED: Final = 8


def find_run(path: Path) -> RunPaths:
    """The run named by its output file, its folder, another of its files, or without `.jsonl`.

    An existing file without any other file of a run counts as an output file: other tools write those, too.
    """
    run = _named_run(path) or _run_around(path)
    if run is not None:
        return run
    if path.is_dir():
        return only_run_in(path)
    if path.is_file() and path.suffix == ".jsonl":
        return RunPaths(path)
    if path.is_file():
        where, next_step = str(path), "name the run's output file (x.jsonl), its folder, or another of its files"
        raise UserError("not a file of a run", where=where, next=next_step)
    known = [str(run.output) for run in runs_in(path.parent)] if path.parent.is_dir() else []
    next_step = suggest(str(path), known) or "name the run's output file, its folder or one of its files"
    raise NotFoundError(f"there is no run '{path}'", next=next_step)


def only_run_in(folder: Path) -> RunPaths:
    """The run in a folder; an error unless there is exactly one."""
    runs = runs_in(folder)
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise NotFoundError("there is no run in this folder", where=str(folder), next="name the run's output file")
    names = [str(run.output) for run in runs]
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    listed = ", ".join(names[:_MAX_LISTED])
    raise UserError(f"the folder has {len(names)} runs", where=str(folder), next=f"name one: {listed}{more}")


def runs_in(folder: Path) -> list[RunPaths]:
    """The runs whose files are directly in a folder, by name."""
    stems = {
        str(path.relative_to(folder)).removesuffix(mark)
        for mark in (_MANIFEST, _PLAN, _INPUTS)
        for path in folder.glob(f"*{mark}")
    }
    return [RunPaths(_output_of(folder / stem)) for stem in sorted(stems)]


def _output_of(stem: Path) -> Path:
    """The output file of a run, usually x.jsonl; one that was called just x has that name."""
    usual = stem.with_name(f"{stem.name}{OUTPUT_SUFFIX}")
    return stem if stem.is_file() and not usual.exists() else usual


def _named_run(path: Path) -> RunPaths | None:
    """The run that `path` is a file of, or would be with a suffix; None if there is none."""
    if path.suffix and _is_run(RunPaths(path)):
        usual = path.with_suffix(OUTPUT_SUFFIX)
        return RunPaths(usual if usual.exists() else path)
    for suffix in RUN_FILE_SUFFIXES:
        stem = path.name.removesuffix(suffix)
        if stem and stem != path.name and _has_files(run := RunPaths(_output_of(path.with_name(stem)))):
            return run
    whole = RunPaths(_output_of(path)) if path.name else None
    return whole if whole is not None and _is_run(whole) else None


def _run_around(path: Path) -> RunPaths | None:
    """The run in whose chunks or logs a path is."""
    for folder in path.parents:
        for suffix in ("_chunks", "_logs"):
            stem = folder.name.removesuffix(suffix)
            if stem and stem != folder.name and _is_run(run := RunPaths(_output_of(folder.with_name(stem)))):
                return run
    return None


def _is_run(paths: RunPaths) -> bool:
    """Whether a file shows that this is a run, not just some rows."""
    marks = (paths.manifest, paths.materialized_inputs, paths.chunks / "plan.json")
    return any(mark.exists() for mark in marks)


def _has_files(paths: RunPaths) -> bool:
    return bool(paths.existing_files()) or paths.materialized_inputs.exists() or paths.logs.is_dir()
