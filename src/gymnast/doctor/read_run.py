"""Reads a run from its files: ours, or NeMo Gym's, which has no manifest. Any file may be missing."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.doctor.facts import RunFacts, SourceFacts
from gymnast.doctor.read_failures import Failures, read_failures
from gymnast.doctor.read_records import Records, read_plan, read_records, study_repeats
from gymnast.doctor.reward_study import study_rewards, task_model_of
from gymnast.doctor.schema_diff import FieldDiff, compare, parse_refusal
from gymnast.errors import DataError
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_state import has_recent_heartbeat
from gymnast.store.keys import KeySet, key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.store.lock import is_locked
from gymnast.store.manifest import Manifest, read_manifest
from gymnast.store.row_files import read_lines
from gymnast.types.failure import FailureKind

if TYPE_CHECKING:
    from gymnast.doctor.facts import FailureGroup
    from gymnast.store.paths import RunPaths

_REJECTED: Final = (
    FailureKind.VERIFY_REJECTED,
    FailureKind.SEED_REJECTED,
    FailureKind.AGENT_REJECTED,
    FailureKind.MODEL_REJECTED,
)
_MAX_COMPARED: Final = 100_000
"""Rows of the input that are compared with each other."""


def read_run(paths: RunPaths, data: Path | None = None) -> RunFacts:
    """Read the files of a run. `data`: the input file, if the run does not name it."""
    manifest, problem = _read_manifest(paths)
    records = read_records(paths.output)
    failures = read_failures(paths.failures, records.keys if records is not None else KeySet())
    plan = read_plan(paths.materialized_inputs, records, failures.settled)
    run = RunFacts(
        paths.output,
        manifest,
        problem,
        plan,
        records.facts if records is not None else None,
        failures.groups,
        failures.lines,
        _profile_rows(paths),
        _read_source(manifest, data, paths),
        is_locked(paths.lock) or has_recent_heartbeat(ChunkLayout.of(paths), time.time()),
        _free_bytes(paths.output.parent),
        failures.first_at,
        failures.last_at,
        is_chunked=ChunkLayout.of(paths).is_planned,
    )
    _add_damage(failures, records)
    run.schema = read_rejection(paths, failures.groups, manifest)
    if records is not None:
        run.studies = study_rewards(paths, manifest, records.facts)
        run.repeats = study_repeats(paths)
    return run


def read_rejection(paths: RunPaths, groups: list[FailureGroup], manifest: Manifest | None = None) -> list[FieldDiff]:
    """The first rejected row, field by field."""
    rejected = next((group for group in groups if group.kind in _REJECTED), None)
    return _diff_row(paths, manifest or _read_manifest(paths)[0], rejected) if rejected is not None else []


def _read_manifest(paths: RunPaths) -> tuple[Manifest | None, str | None]:
    try:
        return read_manifest(paths.manifest), None
    except DataError as error:
        return None, error.what


def _add_damage(failures: Failures, records: Records | None) -> None:
    if records is not None:
        records.facts.damaged += failures.damaged


def _profile_rows(paths: RunPaths) -> int | None:
    profile = paths.output.with_name(paths.output.stem + "_reward_profiling.jsonl")
    if not profile.exists():
        return None
    return sum(1 for _, line in numbered_lines(profile) if line.strip())


def _free_bytes(folder: Path) -> int | None:
    """The free space; 0 also if no more files can be created."""
    try:
        stats = os.statvfs(folder)
    except OSError:
        return None
    return 0 if stats.f_files and not stats.f_favail else stats.f_bavail * stats.f_frsize


# --- the input file --------------------------------------------------------------------------------------------------


def _read_source(manifest: Manifest | None, data: Path | None, paths: RunPaths) -> SourceFacts | None:
    if data is None and manifest is None:
        return None
    path = data if data is not None else Path(str(manifest.source.get("path", "")) if manifest is not None else "")
    if not path.is_file():
        return SourceFacts(str(path), exists=False)
    modified_at = path.stat().st_mtime
    digest = str(manifest.source.get("digest") or "") if manifest is not None else ""
    if digest:
        current, rows, distinct = _digest(path)
        return SourceFacts(
            str(path),
            exists=True,
            changed=current != digest,
            modified_at=modified_at,
            detail="by its digest",
            rows=rows,
            distinct=distinct,
        )
    plan = paths.materialized_inputs
    if not plan.exists():
        return SourceFacts(str(path), exists=True, modified_at=modified_at)
    missing = _rows_not_in(path, plan)
    detail = f"{missing} of its rows are not in {plan.name}" if missing else "all its rows are planned"
    return SourceFacts(str(path), exists=True, changed=missing > 0, modified_at=modified_at, detail=detail)


def _digest(path: Path) -> tuple[str, int, int]:
    """A file's digest, and how many of its first rows there are and differ."""
    digest = hashlib.blake2b(digest_size=16)
    distinct: set[int] = set()
    rows = 0
    for _, line in read_lines(path):
        digest.update(line + b"\n")
        if rows < _MAX_COMPARED and line.strip():
            rows += 1
            distinct.add(hash(line))
    return digest.hexdigest(), rows, len(distinct)


def _rows_not_in(source: Path, plan: Path) -> int:
    """The number of rows that are not in the plan. Planned rows have the fields of their source row and more."""
    planned = {_identity(line) for _, line in numbered_lines(plan)}
    return sum(_identity(line) not in planned for _, line in read_lines(source) if line.strip())


def _identity(line: bytes) -> bytes:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return b""
    params = row.get("responses_create_params") if isinstance(row, dict) else None
    prompt = params.get("input") if isinstance(params, dict) else None
    own = {key: value for key, value in row.items() if not key.startswith("_ng_")} if isinstance(row, dict) else {}
    own.pop("agent_ref", None)
    own["responses_create_params"] = prompt
    return hashlib.blake2b(orjson.dumps(own, option=orjson.OPT_SORT_KEYS), digest_size=12).digest()


# --- the rejected row ------------------------------------------------------------------------------------------------


def _diff_row(paths: RunPaths, manifest: Manifest | None, rejected: FailureGroup) -> list[FieldDiff]:
    """The first rejected row, field by field: compared with the environment's task, or else from the error reply."""
    example = rejected.first
    row = _planned_row(paths.materialized_inputs, example.key)
    reported = parse_refusal(example.body, row)
    model = (
        task_model_of(manifest, example.instance)
        if rejected.kind in {FailureKind.VERIFY_REJECTED, FailureKind.SEED_REJECTED}
        else None
    )
    if row is None or model is None:
        return reported
    fields = compare(row, model)
    return fields if any(field.problem for field in fields) else reported


def _planned_row(plan: Path, key: str) -> dict[str, Any] | None:
    if not plan.exists():
        return None
    for _, line in numbered_lines(plan):
        if str(key_of_line(line)) == key:
            row: dict[str, Any] = orjson.loads(line)
            return row
    return None
