"""Prepares a run: plans a new one, or checks an earlier one before it is resumed.

A resume plans again from the same source and compares with the plan on disk, so that a run never continues with other
rows, settings or environments unless that was requested.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast import __version__
from gymnast.errors import DataError, NotFoundError, UserError, suggest
from gymnast.rollouts.changes import PlanChange, compare_plan, diff_plan, diff_values
from gymnast.rollouts.identity import code_digests, comparable_settings
from gymnast.rollouts.plan import Planner, PlanSummary, line_digest, write_plan
from gymnast.rollouts.tool_modes import SETTING as TOOLS
from gymnast.rollouts.tool_modes import restore_tool_modes, warn_about_tools
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.store.manifest import Counts, Invocation, Manifest, RunState, read_manifest, write_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.encoding import printable
from gymnast.types.task import agent_name_of, key_of

if TYPE_CHECKING:
    from collections.abc import Collection, Container
    from pathlib import Path

    from gymnast.config import Instance
    from gymnast.rollouts.options import Existing, RunOptions
    from gymnast.rollouts.plan import BadRow
    from gymnast.types.task import RolloutKey


_MAX_NAME_BYTES: Final = 255

InstancesFor = Callable[[Iterable[str]], "list[Instance]"]
"""Finds the instances that some agents need."""


@dataclass(frozen=True, slots=True)
class _RunRequest:
    """A run to prepare, the agents that rows may name, and how to find the instances they need."""

    options: RunOptions
    agents: Collection[str]
    instances_for: InstancesFor
    in_chunks: bool

    @property
    def source(self) -> Path:
        assert self.options.source is not None, "a run in memory is not prepared"
        return self.options.source


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready to be worked on."""

    paths: RunPaths
    manifest: Manifest
    agents: dict[str, int]
    """The number of rollouts of each agent."""
    instances: list[Instance]
    bad_rows: list[BadRow] | None = None
    """Rows that are skipped; None if they are as recorded."""
    warnings: list[str] = field(default_factory=list)
    is_new: bool = False
    notes: list[str] = field(default_factory=list)
    """What was done as requested."""


def prepare_run(
    options: RunOptions,
    agents: Collection[str],
    instances_for: InstancesFor,
    *,
    in_chunks: bool = False,
) -> PreparedRun:
    """Plan a new run, or check an earlier one. The run's lock must be held.

    `agents` are those that rows may name; `instances_for` returns the instances that some of them need. With
    `in_chunks`, many workers will share the run.
    """
    agent, paths = options.plan.agent, options.paths
    if agent is not None and agent not in agents:
        raise NotFoundError(f"no agent '{agent}'", next=suggest(agent, agents))
    check_names(options.source, paths)
    request = _RunRequest(options, agents, instances_for, in_chunks)
    earlier = paths.existing_files()
    if earlier and options.existing in {"resume", "resume_if_planned"}:
        if paths.materialized_inputs.exists():
            if paths.chunks in earlier and not in_chunks:
                raise _chunked_run_error(paths)
            return _resume(paths, request)
        if options.existing == "resume" and _has_records(paths):
            raise _lost_plan_error(paths)
    if earlier and options.existing == "refuse":
        raise existing_run_error(paths)
    return _plan_new(paths, request)


def check_names(source: Path | None, paths: RunPaths) -> None:
    """Raise if a run's files cannot have their names: JSON files hold them, and file systems limit their length."""
    for path in (paths.output, *([source] if source is not None else [])):
        if printable(str(path)) != str(path):
            raise UserError("the name is not valid UTF-8", where=printable(str(path)), next="rename the file or folder")
    longest = len(f"{paths.materialized_inputs.name}.planned".encode())
    if longest > _MAX_NAME_BYTES:
        room = _MAX_NAME_BYTES - (longest - len(paths.output.stem.encode()))
        raise UserError(
            f"the output's name is too long: {paths.output.name[:40]}…",
            where=str(paths.output.parent),
            next=f"choose at most {room} bytes before the suffix: other files of the run add to the name",
        )


def _has_records(paths: RunPaths) -> bool:
    return any(path.exists() and path.stat().st_size for path in (paths.output, paths.failures))


def _lost_plan_error(paths: RunPaths) -> UserError:
    """The error for a run whose plan is gone: which rollouts its records are of is unknown."""
    return UserError(
        f"cannot resume: {paths.materialized_inputs.name} is missing, and without it every rollout would run again",
        where=str(paths.output),
        next=f"restore {paths.materialized_inputs.name}, start over with --overwrite, or choose another --output",
    )


def existing_run_error(paths: RunPaths) -> UserError:
    """The error for an earlier run under the same name."""
    return UserError(
        f"an earlier run exists: {', '.join(path.name for path in paths.existing_files())}",
        where=str(paths.output.parent),
        next="finish it with --resume, replace it with --overwrite, or choose another --output "
        "(in Python: resume=True, overwrite=True, or another output)",
    )


def _chunked_run_error(paths: RunPaths) -> UserError:
    """The error for a run whose records are in chunks: outside of them they would seem owed."""
    return UserError(
        "this run is split into chunks",
        where=str(paths.chunks),
        next="add workers with gymnast submit --resume, or merge it first: gymnast merge RUN --remove-chunks",
    )


# --- new runs --------------------------------------------------------------------------------------------------------


def _plan_new(paths: RunPaths, request: _RunRequest) -> PreparedRun:
    """Plan a new run. An earlier one under its name is replaced only once the new plan is complete."""
    target = paths.materialized_inputs
    temporary = target.with_name(target.name + ".planned")
    try:
        summary = write_plan(request.source, temporary, request.options.plan, request.agents)
        agents = dict(summary.rollouts_by_agent)
        instances = request.instances_for(agents)
        notes = _make_room(paths, request.options.existing)
        temporary.replace(target)  # the manifest, which is written next, makes the name safe
    finally:
        temporary.unlink(missing_ok=True)
    manifest = new_manifest(
        paths,
        source=_source_info(request, summary),
        plan=_plan_info(summary),
        settings=comparable_settings(instances, request.options),
        instances=instances,
        requested=summary.requested,
    )
    write_manifest(paths.manifest, manifest)
    warnings = [*summary.warnings, *warn_about_tools(instances, summary)]
    return PreparedRun(paths, manifest, agents, instances, summary.bad_rows, warnings, is_new=True, notes=notes)


def new_manifest(
    paths: RunPaths,
    *,
    source: dict[str, Any],
    plan: dict[str, Any],
    settings: dict[str, Any],
    instances: Iterable[Instance],
    requested: int,
) -> Manifest:
    """The manifest of a run that starts now."""
    now = time.time()
    return Manifest(
        run_id=secrets.token_hex(8),
        state=RunState.RUNNING,
        output=paths.output.name,
        created_at=now,
        updated_at=now,
        versions=_versions(),
        source=source,
        plan=plan,
        settings=settings,
        code=code_digests(instances),
        counts=Counts(requested=requested, owed=requested),
        invocations=[new_invocation()],
    )


def resume_manifest(old: Manifest, *, forced: bool = False) -> Manifest:
    """The manifest of a run that is resumed now."""
    return msgspec.structs.replace(
        old,
        state=RunState.RUNNING,
        updated_at=time.time(),
        versions=_versions(),
        invocations=[*old.invocations, new_invocation(forced=forced)],
    )


def _versions() -> dict[str, str]:
    return {"gymnast": __version__, "python": sys.version.split()[0]}


def _source_info(request: _RunRequest, summary: PlanSummary) -> dict[str, Any]:
    origin = request.options.source_origin
    return {
        "path": str(request.source),
        "bytes": summary.source_bytes,
        "digest": summary.source_digest,
        **({"origin": origin} if origin is not None else {}),
    }


def _plan_info(summary: PlanSummary) -> dict[str, Any]:
    return {
        "rows": summary.rollouts,
        "tasks": summary.tasks,
        "bytes": summary.size_bytes,
        "crc32": summary.crc32,
        "agents": dict(summary.rollouts_by_agent),
        "bad_rows": len(summary.bad_rows),
    }


def new_invocation(*, forced: bool = False) -> Invocation:
    return Invocation(time.time(), socket.gethostname(), os.getpid(), forced=forced)


def _make_room(paths: RunPaths, existing: Existing) -> list[str]:
    if existing == "overwrite":
        paths.remove()
    folder = paths.set_aside()
    return [f"an earlier run under this name was moved to {folder}"] if folder is not None else []


# --- resumed runs ----------------------------------------------------------------------------------------------------


def _resume(paths: RunPaths, request: _RunRequest) -> PreparedRun:
    known = read_manifest(paths.manifest)
    old = known or adopt_run(paths)
    agents = {str(name): int(number) for name, number in old.plan["agents"].items()}
    instances = restore_tool_modes(request.instances_for(agents), old.settings)
    if known is None:  # what it started with is unknown: from now on, what it is resumed with counts
        settings, code = comparable_settings(instances, request.options), code_digests(instances)
        old = msgspec.structs.replace(old, settings=settings, code=code)
    if request.options.on_change == "force":  # the old plan unchanged, even if its source is gone
        return _continue(paths, old, agents, instances, None, forced=True)
    plan = replace(request.options.plan, row_check=None)  # what does not fit has failed, or was planned by request
    planner = Planner(request.source, plan, request.agents)
    rows = compare_plan(paths.materialized_inputs, planner)
    if not rows.is_empty:
        planner = Planner(request.source, plan, request.agents)
        rows = diff_plan(paths.materialized_inputs, planner)
    other = _other_differences(old, request, instances)
    summary = planner.summary
    if rows.is_empty and not other:
        return _continue(paths, old, agents, instances, summary)
    if request.options.on_change == "fork":
        return _fork(paths, request, carry_over=not other)
    if request.options.on_change == "extend" and rows.is_extension and not other:
        return _extend(paths, request, old)
    raise _changed_run_error(paths, rows, other, request)


def _continue(
    paths: RunPaths,
    old: Manifest,
    agents: dict[str, int],
    instances: list[Instance],
    summary: PlanSummary | None,
    *,
    forced: bool = False,
) -> PreparedRun:
    paths.done.unlink(missing_ok=True)
    if summary is not None:  # a crash between the two leaves a manifest that is older than its plan
        old = msgspec.structs.replace(
            old, plan=_plan_info(summary), counts=_with_requested(old.counts, summary.requested)
        )
    manifest = resume_manifest(old, forced=forced)
    write_manifest(paths.manifest, manifest)
    if summary is None:
        return PreparedRun(paths, manifest, agents, instances)
    return PreparedRun(paths, manifest, agents, instances, summary.bad_rows, summary.warnings)


def _extend(paths: RunPaths, request: _RunRequest, old: Manifest) -> PreparedRun:
    """Replace the plan by a larger one. What is settled stays settled."""
    plan = replace(request.options.plan, row_check=None)
    summary = write_plan(request.source, paths.materialized_inputs, plan, request.agents)
    agents = dict(summary.rollouts_by_agent)
    instances = restore_tool_modes(request.instances_for(agents), old.settings)
    grown = msgspec.structs.replace(
        old,
        source=_source_info(request, summary),
        settings=comparable_settings(instances, request.options),
        code=code_digests(instances),
    )
    return _continue(paths, grown, agents, instances, summary)


def _with_requested(counts: Counts, requested: int) -> Counts:
    owed = requested - counts.scored - sum(counts.failed.values())
    return msgspec.structs.replace(counts, requested=requested, owed=owed)


def _fork(paths: RunPaths, request: _RunRequest, *, carry_over: bool) -> PreparedRun:
    """Plan a new run next to the old one. If only rows changed, scored rollouts of unchanged rows are carried over."""
    number = 1
    while (fork := RunPaths(paths.output.with_name(f"{paths.output.stem}_fork_{number}.jsonl"))).existing_files():
        number += 1
    prepared = _plan_new(fork, request)
    prepared.notes.append(f"the changed run continues as {fork.output}")
    if carry_over:
        count = _carry_over(paths, fork)
        prepared.notes.append(f"{count} scored rollouts of unchanged rows were carried over")
    return prepared


def _carry_over(old: RunPaths, new: RunPaths) -> int:
    unchanged = {line_digest(line) for _, line in numbered_lines(old.materialized_inputs)}
    keys = {
        key
        for _, line in numbered_lines(new.materialized_inputs)
        if line_digest(line) in unchanged and (key := key_of_line(line))
    }
    count = 0
    if old.output.exists():
        with new.output.open("wb") as out:
            for _, line in numbered_lines(old.output):
                if key_of_line(line) in keys:
                    out.write(line + b"\n")
                    count += 1
    return count


def adopt_run(paths: RunPaths) -> Manifest:
    """Make a manifest for a run without one, e.g. of NeMo Gym."""
    agents: dict[str, int] = {}
    planned: set[RolloutKey] = set()
    for number, line in numbered_lines(paths.materialized_inputs):
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            where = f"{paths.materialized_inputs} line {number}"
            raise DataError(f"a materialized input is not JSON: {error.msg}", where=where) from error
        key, name = key_of(row), agent_name_of(row) or ""
        if key is not None:
            planned.add(key)
            agents[name] = agents.get(name, 0) + 1
    _check_all_planned(paths, planned)
    plan = {"rows": len(planned), "agents": agents}
    manifest = new_manifest(paths, source={}, plan=plan, settings={}, instances=(), requested=len(planned))
    return msgspec.structs.replace(manifest, state=RunState.INTERRUPTED, versions={}, invocations=[])


def _check_all_planned(paths: RunPaths, planned: Container[RolloutKey]) -> None:
    """Raise if records belong to rollouts that were never planned: every count would be wrong."""
    lines = numbered_lines(paths.output) if paths.output.exists() else ()
    unplanned = [key for _, line in lines if (key := key_of_line(line)) is not None and key not in planned]
    if unplanned:
        shown = ", ".join(map(str, unplanned[:5])) + (", …" if len(unplanned) > 5 else "")
        raise DataError(
            f"{len(unplanned)} records are of rollouts that are not in the materialized inputs: {shown}",
            where=str(paths.output),
            next="the two files belong to different runs: restore the right ones, or choose another --output",
        )


def _other_differences(old: Manifest, request: _RunRequest, instances: list[Instance]) -> list[str]:
    """Settings and code that changed since the run started."""
    settings = comparable_settings(instances, request.options)
    if TOOLS not in old.settings.get("plan", {}):  # older than the setting: it continues as it started
        settings["plan"].pop(TOOLS)
    return changes_since(old, old.settings, settings, instances)


def changes_since(
    old: Manifest, before: dict[str, Any], after: dict[str, Any], instances: Iterable[Instance]
) -> list[str]:
    """How settings, and the code of instances, differ from what the run started with. Lines for people."""
    changes = diff_values(before, orjson.loads(msgspec.json.encode(after)))  # JSON has no dates and no infinities
    now = code_digests(instances)
    changes += [f"the code of '{name}' changed" for name, digest in old.code.items() if now.get(name, digest) != digest]
    return changes


def _changed_run_error(paths: RunPaths, rows: PlanChange, other: list[str], request: _RunRequest) -> UserError:
    changes = [*rows.describe(), *other[:10]] + ([f"… and {len(other) - 10} more"] if len(other) > 10 else [])
    listed = "\n".join(f"  {line}" for line in changes)
    choices = "--fork runs the changed plan as a new run, --force continues with the old plan unchanged"
    if rows.is_extension and not other:
        choices = f"--extend adds what is new to this run; {choices}"
    if request.in_chunks:
        choices = "submit it unchanged, start over with --overwrite, or choose another --output"
    problem = (
        "--extend only adds rollouts, but more than that changed"
        if request.options.on_change == "extend"
        else "inputs or settings changed since this run started"
    )
    return UserError(f"{problem}:\n{listed}", where=str(paths.output), next=choices)


def remove_run(prepared: PreparedRun) -> None:
    """Remove a new run that could not start, so that it does not block the next try. Logs stay: errors name them."""
    if prepared.is_new:
        paths = prepared.paths
        for path in (paths.materialized_inputs, paths.manifest, paths.output):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there are logs, or nothing
            paths.logs.rmdir()
