"""Getting a run ready: a new plan, or an old one that is checked before it is gone on with.

A resume plans again from the same source and compares with what is on disk, so that nobody continues a run with other
rows, other settings or another environment without saying so.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from gymnast import __version__
from gymnast.errors import DataError, NotFoundError, UserError, suggest
from gymnast.rollouts.changes import PlanChange, compare_plan, differences, plan_difference
from gymnast.rollouts.identity import code_digests, settings_that_matter
from gymnast.rollouts.plan import Planner, PlanSummary, write_plan
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.store.manifest import Counts, Invocation, Manifest, RunState, read_manifest, write_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.task import agent_name_of, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable
    from pathlib import Path

    from gymnast.config import Instance
    from gymnast.rollouts.options import Existing, RunOptions
    from gymnast.rollouts.plan import BadRow
    from gymnast.types.task import RolloutKey


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A run that is to be prepared, and where its agents and instances are known."""

    options: RunOptions
    agents: Collection[str]
    instances_for: Callable[[Iterable[str]], list[Instance]]
    in_chunks: bool

    @property
    def source(self) -> Path:
        assert self.options.source is not None, "a run in memory is not prepared"
        return self.options.source


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can be worked on."""

    paths: RunPaths
    manifest: Manifest
    agents: dict[str, int]
    """Rollouts of each agent."""
    instances: list[Instance]
    bad_rows: list[BadRow] | None = None
    """Rows that are skipped; None where they are what the run recorded."""
    warnings: list[str] = field(default_factory=list)
    is_new: bool = False


def prepare_run(
    options: RunOptions,
    agents: Collection[str],
    instances_for: Callable[[Iterable[str]], list[Instance]],
    *,
    in_chunks: bool = False,
) -> Prepared:
    """Plan a new run, or check an earlier one. The run's lock must be held.

    `agents` are those that rows can name, `instances_for` gives the instances that some of them need; `in_chunks`: many
    workers will share it.
    """
    agent, paths = options.plan.agent, options.paths
    if agent is not None and agent not in agents:
        raise NotFoundError(f"there is no agent '{agent}'", next=suggest(agent, agents))
    wanted = _Wanted(options, agents, instances_for, in_chunks)
    earlier = paths.existing()
    if earlier and options.existing == "resume" and paths.materialized_inputs.exists():
        if paths.chunks in earlier and not in_chunks:
            raise _worked_on_by_many(paths)
        return _resumed(paths, wanted)
    if earlier and options.existing == "refuse":
        raise in_the_way(paths)
    return _planned(paths, wanted)


def in_the_way(paths: RunPaths) -> UserError:
    """An earlier run under the same name that nobody said may go."""
    return UserError(
        f"an earlier run is there: {', '.join(path.name for path in paths.existing())}",
        where=str(paths.output.parent),
        next="finish it with --resume, replace it with --overwrite, or choose another --output",
    )


def _worked_on_by_many(paths: RunPaths) -> UserError:
    """A run whose records are in chunks: here they would look owed."""
    return UserError(
        "this run is worked on in chunks",
        where=str(paths.chunks),
        next="add workers with gymnast submit --resume, or make one run of it: gymnast merge RUN --remove-chunks",
    )


# --- new runs --------------------------------------------------------------------------------------------------------


def _planned(paths: RunPaths, wanted: _Wanted) -> Prepared:
    """A new run. What stood under its name gives way only when the new plan is there."""
    target = paths.materialized_inputs
    temporary = target.with_name(target.name + ".planned")
    try:
        summary = write_plan(wanted.source, temporary, wanted.options.plan, wanted.agents)
        agents = dict(summary.rollouts_by_agent)
        instances = wanted.instances_for(agents)
        warnings = _make_room(paths, wanted.options.existing)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    manifest = new_manifest(
        paths,
        source=_source(wanted.source, summary),
        plan=_plan(summary),
        settings=settings_that_matter(instances, wanted.options.plan),
        instances=instances,
        requested=summary.requested,
    )
    write_manifest(paths.manifest, manifest)
    said = [*warnings, *summary.warnings]
    return Prepared(paths, manifest, agents, instances, summary.bad_rows, said, is_new=True)


def new_manifest(
    paths: RunPaths,
    *,
    source: dict[str, Any],
    plan: dict[str, Any],
    settings: dict[str, Any],
    instances: Iterable[Instance],
    requested: int,
) -> Manifest:
    """The manifest of a run that begins now."""
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
        invocations=[invocation()],
    )


def gone_on(old: Manifest, *, forced: bool = False) -> Manifest:
    """The manifest of a run that is worked on again from now on."""
    return msgspec.structs.replace(
        old,
        state=RunState.RUNNING,
        updated_at=time.time(),
        versions=_versions(),
        invocations=[*old.invocations, invocation(forced=forced)],
    )


def _versions() -> dict[str, str]:
    return {"gymnast": __version__, "python": sys.version.split()[0]}


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


def invocation(*, forced: bool = False) -> Invocation:
    return Invocation(time.time(), socket.gethostname(), os.getpid(), forced=forced)


def _make_room(paths: RunPaths, existing: Existing) -> list[str]:
    if existing == "overwrite":
        paths.remove()
    folder = paths.set_aside()
    return [f"an earlier run under this name was moved to {folder}"] if folder is not None else []


# --- resumed runs ----------------------------------------------------------------------------------------------------


def _resumed(paths: RunPaths, wanted: _Wanted) -> Prepared:
    known = read_manifest(paths.manifest)
    old = known or adopted(paths)
    agents = {str(name): int(number) for name, number in old.plan["agents"].items()}
    instances = wanted.instances_for(agents)
    if known is None:  # what it was begun with is not known: from now on it is what it is now
        settings, code = settings_that_matter(instances, wanted.options.plan), code_digests(instances)
        old = msgspec.structs.replace(old, settings=settings, code=code)
    if wanted.options.on_change == "force":  # the old plan as it is, even if its source is gone
        return _continued(paths, old, agents, instances, None, forced=True)
    planner = Planner(wanted.source, wanted.options.plan, wanted.agents)
    rows = compare_plan(paths.materialized_inputs, planner)
    if not rows.is_none:
        planner = Planner(wanted.source, wanted.options.plan, wanted.agents)
        rows = plan_difference(paths.materialized_inputs, planner)
    other = _other_differences(old, wanted, instances)
    summary = planner.summary
    if rows.is_none and not other:
        return _continued(paths, old, agents, instances, summary)
    if wanted.options.on_change == "fork":
        return _forked(paths, wanted, carry_over=not other)
    if wanted.options.on_change == "extend" and rows.is_extension and not other:
        return _extended(paths, wanted, old)
    raise _refusal(paths, rows, other, wanted)


def _continued(
    paths: RunPaths,
    old: Manifest,
    agents: dict[str, int],
    instances: list[Instance],
    summary: PlanSummary | None,
    *,
    forced: bool = False,
) -> Prepared:
    paths.done.unlink(missing_ok=True)
    if summary is not None:  # a crash between the two leaves a manifest that is older than its plan
        old = msgspec.structs.replace(old, plan=_plan(summary), counts=_recounted(old.counts, summary.requested))
    manifest = gone_on(old, forced=forced)
    write_manifest(paths.manifest, manifest)
    if summary is None:
        return Prepared(paths, manifest, agents, instances)
    return Prepared(paths, manifest, agents, instances, summary.bad_rows, summary.warnings)


def _extended(paths: RunPaths, wanted: _Wanted, old: Manifest) -> Prepared:
    """A larger plan in the place of the smaller one. What is settled stays settled."""
    summary = write_plan(wanted.source, paths.materialized_inputs, wanted.options.plan, wanted.agents)
    agents = dict(summary.rollouts_by_agent)
    instances = wanted.instances_for(agents)
    grown = msgspec.structs.replace(
        old,
        source=_source(wanted.source, summary),
        settings=settings_that_matter(instances, wanted.options.plan),
        code=code_digests(instances),
    )
    return _continued(paths, grown, agents, instances, summary)


def _recounted(counts: Counts, requested: int) -> Counts:
    owed = requested - counts.scored - sum(counts.failed.values())
    return msgspec.structs.replace(counts, requested=requested, owed=owed)


def _forked(paths: RunPaths, wanted: _Wanted, *, carry_over: bool) -> Prepared:
    """A run of its own beside the old one. Where only rows changed, scored rollouts of the others are taken along."""
    number = 1
    while (fork := RunPaths(paths.output.with_name(f"{paths.output.stem}_fork_{number}.jsonl"))).existing():
        number += 1
    prepared = _planned(fork, wanted)
    prepared.warnings.insert(0, f"the changed run goes on as {fork.output}")
    if carry_over:
        taken = _carry_over(paths, fork)
        prepared.warnings.append(f"{taken} scored rollouts of unchanged rows were taken along")
    return prepared


def _carry_over(old: RunPaths, new: RunPaths) -> int:
    unchanged = {_digest(line) for _, line in numbered_lines(old.materialized_inputs)}
    keys = {
        key
        for _, line in numbered_lines(new.materialized_inputs)
        if _digest(line) in unchanged and (key := key_of_line(line))
    }
    taken = 0
    if old.output.exists():
        with new.output.open("wb") as out:
            for _, line in numbered_lines(old.output):
                if key_of_line(line) in keys:
                    out.write(line + b"\n")
                    taken += 1
    return taken


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=16).digest()


def adopted(paths: RunPaths) -> Manifest:
    """A manifest for a run that was written without one, e.g. by NeMo Gym."""
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
    _refuse_strangers(paths, planned)
    plan = {"rows": len(planned), "agents": agents}
    found = new_manifest(paths, source={}, plan=plan, settings={}, instances=(), requested=len(planned))
    return msgspec.structs.replace(found, state=RunState.INTERRUPTED, versions={}, invocations=[])


def _refuse_strangers(paths: RunPaths, planned: Container[RolloutKey]) -> None:
    """Records that belong to no planned rollout would make every count wrong."""
    lines = numbered_lines(paths.output) if paths.output.exists() else ()
    strangers = [key for _, line in lines if (key := key_of_line(line)) is not None and key not in planned]
    if strangers:
        shown = ", ".join(map(str, strangers[:5])) + (", …" if len(strangers) > 5 else "")
        raise DataError(
            f"{len(strangers)} records are of rollouts that are not in the materialized inputs: {shown}",
            where=str(paths.output),
            next="the two files are not of one run: bring them together again, or choose another --output",
        )


def _other_differences(old: Manifest, wanted: _Wanted, instances: list[Instance]) -> list[str]:
    """Settings and code that are not what the run was begun with."""
    return changes_since(old, old.settings, settings_that_matter(instances, wanted.options.plan), instances)


def changes_since(
    old: Manifest, before: dict[str, Any], after: dict[str, Any], instances: Iterable[Instance]
) -> list[str]:
    """What differs between settings, and in the instances' code, from what a run was begun with. In words."""
    found = differences(before, orjson.loads(msgspec.json.encode(after)))  # JSON has no dates and no infinities
    now = code_digests(instances)
    found += [f"the code of '{name}' changed" for name, digest in old.code.items() if now.get(name, digest) != digest]
    return found


def _refusal(paths: RunPaths, rows: PlanChange, other: list[str], wanted: _Wanted) -> UserError:
    said = [*rows.words(), *other[:10]] + ([f"… and {len(other) - 10} more"] if len(other) > 10 else [])
    listed = "\n".join(f"  {line}" for line in said)
    ways = "--fork runs the changed plan beside the old one, --force goes on with the old plan as it is"
    if rows.is_extension and not other:
        ways = f"--extend adds what is new to this run; {ways}"
    if wanted.in_chunks:
        ways = "submit it as it was, start over with --overwrite, or choose another --output"
    refused = (
        "--extend only adds rollouts, but more than that changed"
        if wanted.options.on_change == "extend"
        else "the run is not what it was"
    )
    return UserError(f"{refused}:\n{listed}", where=str(paths.output), next=ways)


def remove_prepared(prepared: Prepared) -> None:
    """Take back a new run that could not begin, so that it does not stand in the way of the next try."""
    if prepared.is_new:
        paths = prepared.paths
        for path in (paths.materialized_inputs, paths.manifest, paths.output):
            path.unlink(missing_ok=True)
        shutil.rmtree(paths.logs, ignore_errors=True)
