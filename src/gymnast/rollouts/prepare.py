"""Getting a run ready: a new plan, or an old one that is checked before it is gone on with.

A resume plans again from the same source and compares with what is on disk, so that nobody continues a run with other
rows, other settings or another environment without saying so.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import orjson

from gymnast import __version__
from gymnast.errors import UserError
from gymnast.rollouts.changes import PlanChange, compare_plan, differences, plan_difference
from gymnast.rollouts.identity import code_digests, settings_that_matter
from gymnast.rollouts.plan import Planner, PlanOptions, PlanSummary, write_plan
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.store.manifest import Counts, Invocation, Manifest, RunState, read_manifest, write_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.task import agent_name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from gymnast.config import Instance
    from gymnast.rollouts.plan import BadRow

OnChange = Literal["refuse", "fork", "extend", "force"]
Existing = Literal["refuse", "overwrite", "set_aside", "resume"]


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is needed to get a run ready."""

    source: Path
    plan: PlanOptions
    known_agents: Collection[str] | None
    instances_for: Callable[[Iterable[str]], list[Instance]]
    """The instances that these agents need."""
    existing: Existing = "refuse"
    on_change: OnChange = "refuse"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can be worked on."""

    paths: RunPaths
    manifest: Manifest
    agents: dict[str, int]
    """Rollouts of each agent."""
    instances: list[Instance]
    bad_rows: list[BadRow] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def prepare(paths: RunPaths, wanted: Preparation) -> Prepared:
    """Plan a new run, or check an old one. The run's lock must be held."""
    there = paths.existing()
    if there and wanted.existing == "resume" and paths.materialized_inputs.exists():
        return _resumed(paths, wanted)
    warnings = _make_room(paths, wanted.existing) if there else []
    return _planned(paths, wanted, warnings)


# --- new runs --------------------------------------------------------------------------------------------------------


def _planned(paths: RunPaths, wanted: Preparation, warnings: list[str]) -> Prepared:
    summary = write_plan(wanted.source, paths.materialized_inputs, wanted.plan, wanted.known_agents)
    agents = dict(summary.rollouts_by_agent)
    instances = wanted.instances_for(agents)
    manifest = _new_manifest(paths, wanted, summary, instances)
    write_manifest(paths.manifest, manifest)
    return Prepared(paths, manifest, agents, instances, summary.bad_rows, [*warnings, *summary.warnings])


def _new_manifest(paths: RunPaths, wanted: Preparation, summary: PlanSummary, instances: list[Instance]) -> Manifest:
    now = time.time()
    requested = summary.rollouts + sum(row.rollouts for row in summary.bad_rows)
    return Manifest(
        run_id=secrets.token_hex(8),
        state=RunState.RUNNING,
        output=paths.output.name,
        created_at=now,
        updated_at=now,
        versions={"gymnast": __version__, "python": sys.version.split()[0]},
        source=_source(wanted.source, summary),
        plan=_plan(summary),
        settings=settings_that_matter(instances, wanted.plan),
        code=code_digests(instances),
        counts=Counts(requested=requested, owed=requested),
        invocations=[_invocation()],
    )


def _source(source: Path, summary: PlanSummary) -> dict[str, Any]:
    return {"path": str(source), "bytes": summary.source_bytes, "digest": summary.source_digest}


def _plan(summary: PlanSummary) -> dict[str, Any]:
    return {
        "rows": summary.rollouts,
        "tasks": summary.tasks,
        "bytes": summary.size_bytes,
        "crc32": summary.crc32,
        "agents": dict(summary.rollouts_by_agent),
        "bad_rows": len(summary.bad_rows),
    }


def _invocation(*, forced: bool = False) -> Invocation:
    return Invocation(time.time(), socket.gethostname(), os.getpid(), forced=forced)


def _make_room(paths: RunPaths, existing: Existing) -> list[str]:
    if existing == "overwrite":
        for path in paths.existing():
            path.unlink()
        return []
    if existing == "set_aside" or (existing == "resume" and not paths.materialized_inputs.exists()):
        return [f"an earlier run under this name was moved to {paths.set_aside()}"]
    names = ", ".join(path.name for path in paths.existing())
    raise UserError(
        f"an earlier run is there: {names}",
        where=str(paths.output.parent),
        next="finish it with --resume, replace it with --overwrite, or choose another --output",
    )


# --- resumed runs ----------------------------------------------------------------------------------------------------


def _resumed(paths: RunPaths, wanted: Preparation) -> Prepared:
    old = read_manifest(paths.manifest) or _adopted(paths)
    agents = {str(name): int(number) for name, number in old.plan["agents"].items()}
    instances = wanted.instances_for(agents)
    if wanted.on_change == "force":  # the old plan as it is, even if its source is gone
        return _continued(paths, old, agents, instances, PlanSummary(), forced=True)
    planner = Planner(wanted.source, wanted.plan, wanted.known_agents)
    rows = compare_plan(paths.materialized_inputs, planner)
    if not rows.is_none:
        planner = Planner(wanted.source, wanted.plan, wanted.known_agents)
        rows = plan_difference(paths.materialized_inputs, planner)
    other = _other_differences(old, wanted, instances)
    summary = planner.summary
    if rows.is_none and not other:
        return _continued(paths, old, agents, instances, summary)
    if wanted.on_change == "fork":
        return _forked(paths, wanted, carry_over=not other)
    if wanted.on_change == "extend" and rows.is_extension and not other:
        return _extended(paths, wanted, old)
    raise _refusal(paths, rows, other, wanted.on_change)


def _continued(
    paths: RunPaths,
    old: Manifest,
    agents: dict[str, int],
    instances: list[Instance],
    summary: PlanSummary,
    *,
    forced: bool = False,
) -> Prepared:
    paths.done.unlink(missing_ok=True)
    manifest = msgspec.structs.replace(
        old,
        state=RunState.RUNNING,
        updated_at=time.time(),
        versions={"gymnast": __version__, "python": sys.version.split()[0]},
        invocations=[*old.invocations, _invocation(forced=forced)],
    )
    write_manifest(paths.manifest, manifest)
    return Prepared(paths, manifest, agents, instances, summary.bad_rows, summary.warnings)


def _extended(paths: RunPaths, wanted: Preparation, old: Manifest) -> Prepared:
    """A larger plan in the place of the smaller one. What is settled stays settled."""
    summary = write_plan(wanted.source, paths.materialized_inputs, wanted.plan, wanted.known_agents)
    agents = dict(summary.rollouts_by_agent)
    instances = wanted.instances_for(agents)
    requested = summary.rollouts + sum(row.rollouts for row in summary.bad_rows)
    grown = msgspec.structs.replace(
        old,
        source=_source(wanted.source, summary),
        plan=_plan(summary),
        settings=settings_that_matter(instances, wanted.plan),
        code=code_digests(instances),
        counts=msgspec.structs.replace(old.counts, requested=requested),
    )
    return _continued(paths, grown, agents, instances, summary)


def _forked(paths: RunPaths, wanted: Preparation, *, carry_over: bool) -> Prepared:
    """A run of its own beside the old one. Where only rows changed, scored rollouts of the others are taken along."""
    number = 1
    while (fork := RunPaths(paths.output.with_name(f"{paths.output.stem}_fork_{number}.jsonl"))).existing():
        number += 1
    prepared = _planned(fork, wanted, [f"the changed run goes on as {fork.output}"])
    if carry_over:
        taken = _carry_over(paths, fork)
        prepared.warnings.append(f"{taken} scored rollouts of unchanged rows were taken along")
    return prepared


def _carry_over(old: RunPaths, new: RunPaths) -> int:
    unchanged = {line for _, line in numbered_lines(old.materialized_inputs)}
    keys = {
        key for _, line in numbered_lines(new.materialized_inputs) if line in unchanged and (key := key_of_line(line))
    }
    taken = 0
    if old.output.exists():
        with new.output.open("wb") as out:
            for _, line in numbered_lines(old.output):
                if key_of_line(line) in keys:
                    out.write(line + b"\n")
                    taken += 1
    return taken


def _adopted(paths: RunPaths) -> Manifest:
    """A manifest for a run that was written without one, e.g. by NeMo Gym."""
    agents: dict[str, int] = {}
    rows = 0
    for _, line in numbered_lines(paths.materialized_inputs):
        name = agent_name_of(orjson.loads(line)) or ""
        agents[name] = agents.get(name, 0) + 1
        rows += 1
    now = time.time()
    return Manifest(
        run_id=secrets.token_hex(8),
        state=RunState.INTERRUPTED,
        output=paths.output.name,
        created_at=now,
        updated_at=now,
        versions={},
        source={},
        plan={"rows": rows, "agents": agents},
        settings={},
        code={},
        counts=Counts(requested=rows, owed=rows),
    )


def _other_differences(old: Manifest, wanted: Preparation, instances: list[Instance]) -> list[str]:
    """Settings and code that are not what the run was begun with."""
    found = differences(old.settings, settings_that_matter(instances, wanted.plan)) if old.settings else []
    now = code_digests(instances)
    found += [f"the code of '{name}' changed" for name, digest in old.code.items() if now.get(name, digest) != digest]
    return found


def _refusal(paths: RunPaths, rows: PlanChange, other: list[str], on_change: OnChange) -> UserError:
    said = [*rows.words(), *other[:10]] + ([f"… and {len(other) - 10} more"] if len(other) > 10 else [])
    listed = "\n".join(f"  {line}" for line in said)
    ways = "--fork runs the changed plan beside the old one, --force goes on with the old plan as it is"
    if rows.is_extension and not other:
        ways = f"--extend adds what is new to this run; {ways}"
    refused = (
        "--extend only adds rollouts, but more than that changed"
        if on_change == "extend"
        else "the run is not what it was"
    )
    return UserError(f"{refused}:\n{listed}", where=str(paths.output), next=ways)


def remove_prepared(prepared: Prepared) -> None:
    """Take back a new run that could not begin, so that it does not stand in the way of the next try."""
    if len(prepared.manifest.invocations) == 1:
        for path in (prepared.paths.materialized_inputs, prepared.paths.manifest):
            path.unlink(missing_ok=True)
        shutil.rmtree(prepared.paths.logs, ignore_errors=True)
