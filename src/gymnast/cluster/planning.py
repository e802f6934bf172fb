"""Planning a run that many work on: the same preparation as `collect`, then the cut into chunks. Once, whoever asks.

Whoever plans holds the lease of the `planning` folder, so that of two submits at the same moment one plans; the plan's
own file is created once, and last. A run that has a plan is only gone on with.
"""

from __future__ import annotations

import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.cluster.chunks import cut, default_chunk_rows, plan_rows
from gymnast.cluster.lease import DEFAULT_HEARTBEAT_S, DEFAULT_LEASE_S, decides
from gymnast.cluster.order import ConfigNames, WorkOptions, WorkOrder, write_order
from gymnast.cluster.reopening import reopen_failed
from gymnast.cluster.turns import leased, one_writer
from gymnast.config.secrets import is_secret_key
from gymnast.errors import UserError
from gymnast.rollouts.prepare import in_the_way, prepare_run, remove_prepared
from gymnast.rollouts.run import bad_row_records
from gymnast.rollouts.servers import reachable
from gymnast.store.chunk_files import ChunkPlan
from gymnast.store.chunk_layout import ChunkFolder, ChunkLayout
from gymnast.store.chunk_look import read_chunk_plan
from gymnast.store.replacing import create_once, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.config import Config
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.prepare import Prepared
    from gymnast.store.chunk_files import Lease
    from gymnast.store.paths import RunPaths


@dataclass(frozen=True, slots=True)
class InChunks:
    """How a run is cut, and how its workers hold what they take."""

    workers: int = 1
    """About how many will work on it: smaller chunks for more."""
    chunk_rows: int | None = None
    lease_s: float = DEFAULT_LEASE_S
    heartbeat_s: float = DEFAULT_HEARTBEAT_S
    linger_s: float = 2 * DEFAULT_LEASE_S
    grace_s: float = 60.0
    speculates: bool = False
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that workers can work on."""

    paths: RunPaths
    layout: ChunkLayout
    plan: ChunkPlan
    order: WorkOrder
    is_new: bool
    warnings: list[str]


def plan_run(options: RunOptions, config: Config, names: ConfigNames, how: InChunks | None = None) -> PlannedRun:
    """Plan a new run in chunks, or check one that is gone on with (`existing="resume"`) as `collect --resume` does.

    `config` is what `names` compose to. Raises UserError where another submit holds the run, or what stands there is
    in the way or has changed.
    """
    how = how or InChunks()
    _refuse_what_many_cannot_do(options, names)
    paths = options.paths
    layout = ChunkLayout.of(paths)
    if options.existing == "refuse" and paths.existing() and not _is_half_planned(paths, layout):
        raise in_the_way(paths)
    _make(layout.folder)
    with _planning(layout, how.lease_s) as turn, one_writer(paths.lock, layout.writing):
        if turn.was_too_late and options.existing != "resume":
            raise UserError("another submit planned this run just now", where=str(layout.plan), next="use --resume")
        if turn.after_a_dead_one and not layout.is_planned and not paths.output.exists():
            options = replace(options, existing="overwrite")  # what it has left behind
        if layout.is_planned and options.existing == "resume":
            return _gone_on_with(options, config, names, how, layout)
        if paths.output.exists() and options.existing == "resume":
            raise UserError(
                "this run was begun by collect, not in chunks",
                where=str(paths.output),
                next="finish it with gymnast collect --resume, or choose another --output",
            )
        return _planned(options, config, names, how, layout, turn.lease)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write into {folder.parent}: {error.strerror or error}", where=str(folder)) from error


def _is_half_planned(paths: RunPaths, layout: ChunkLayout) -> bool:
    """A submit is planning it, or died while doing so: what is there is no run yet."""
    return not layout.is_planned and not paths.output.exists() and layout.planning.exists()


def _planned(
    options: RunOptions, config: Config, names: ConfigNames, how: InChunks, layout: ChunkLayout, lease: Lease
) -> PlannedRun:
    _remove_chunks(layout)
    prepared = _prepared(options, config)
    try:
        order = _order(prepared, options, names, how)
        plan = _cut(prepared, how)
        layout.chunks.mkdir()
        with replacing(layout.bad_rows) as out:
            for _, line in bad_row_records(prepared.bad_rows or (), time.time(), plan.run_id):
                out.write(line + b"\n")
        write_order(layout, order)
    except BaseException:
        remove_prepared(prepared)
        raise
    is_ours = decides(ChunkFolder(layout.planning), lease)
    if not is_ours or not create_once(layout.plan, msgspec.json.encode(plan), lease.token):
        raise UserError("another submit planned this run meanwhile", where=str(layout.plan), next="use --resume")
    return PlannedRun(prepared.paths, layout, plan, order, is_new=True, warnings=prepared.warnings)


def _gone_on_with(
    options: RunOptions, config: Config, names: ConfigNames, how: InChunks, layout: ChunkLayout
) -> PlannedRun:
    prepared = _prepared(options, config)
    plan = read_chunk_plan(layout)
    if plan.run_id != prepared.manifest.run_id:
        raise UserError(
            f"the chunks are of another run ({plan.run_id}) than the manifest ({prepared.manifest.run_id})",
            where=str(layout.folder),
            next="bring the run's files together again, or start over with --overwrite",
        )
    order = _order(prepared, options, names, how)
    write_order(layout, order)
    warnings = list(prepared.warnings)
    if options.retry_failed:
        reopened = reopen_failed(layout, plan)
        if reopened:
            warnings.append(f"{reopened} rollouts that failed for good are tried again")
            prepared.paths.done.unlink(missing_ok=True)  # what was merged is not the whole any more
    return PlannedRun(prepared.paths, layout, plan, order, is_new=False, warnings=warnings)


def _prepared(options: RunOptions, config: Config) -> Prepared:
    return prepare_run(options, config.agents, lambda agents: reachable(config, agents), in_chunks=True)


def _cut(prepared: Prepared, how: InChunks) -> ChunkPlan:
    found = prepared.manifest.plan
    rows = int(found["rows"])
    size = how.chunk_rows or default_chunk_rows(rows, how.workers)
    return ChunkPlan(
        run_id=prepared.manifest.run_id,
        rows=rows,
        size_bytes=int(found["bytes"]),
        crc32=int(found["crc32"]),
        requested=prepared.manifest.counts.requested,
        chunks=tuple(cut(plan_rows(prepared.paths.materialized_inputs), size)),
    )


def _order(prepared: Prepared, options: RunOptions, names: ConfigNames, how: InChunks) -> WorkOrder:
    engine = options.engine
    return WorkOrder(
        run_id=prepared.manifest.run_id,
        config=names,
        work=WorkOptions(
            concurrency=engine.concurrency,
            processes=options.workers,
            rollout_timeout_s=engine.rollout_timeout_s,
            max_attempts=engine.retry.max_attempts,
            give_up_after_s=engine.give_up_after_s,
            lease_s=how.lease_s,
            heartbeat_s=how.heartbeat_s,
            linger_s=how.linger_s,
            grace_s=how.grace_s,
            speculates=how.speculates,
        ),
        token_form=options.token_form,
        details=how.details,
    )


def _refuse_what_many_cannot_do(options: RunOptions, names: ConfigNames) -> None:
    if options.on_change in {"fork", "extend"}:
        raise UserError(
            f"a run in chunks cannot be changed with --{options.on_change}", next="choose another --output for it"
        )
    if options.engine.budget.max_cost is not None or options.engine.budget.max_tokens is not None:
        raise UserError(
            "a budget cannot be kept by workers that do not know of each other", next="use gymnast collect for it"
        )
    for text in names.overrides:
        name = text.partition("=")[0].lstrip("+~")
        if is_secret_key(name.rpartition(".")[2]):
            raise UserError(
                f"the override of '{name}' would stand in a file that many read",
                next="put it into env.yaml, or into the environment of the workers as ${oc.env:NAME}",
            )


def _remove_chunks(layout: ChunkLayout) -> None:
    """What is left of an earlier run in chunks. Its plan goes first: workers that still run find nothing to claim."""
    layout.plan.unlink(missing_ok=True)
    aside = layout.folder / f"removed.{secrets.token_hex(4)}"
    with suppress(FileNotFoundError):
        layout.chunks.rename(aside)
    for folder in (aside, layout.submissions):
        shutil.rmtree(folder, ignore_errors=True)


# --- one planner at a time -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Planning:
    lease: Lease
    after_a_dead_one: bool
    """Whoever planned before died while doing so."""
    was_too_late: bool
    """Somebody else planned the run while we waited."""


@contextmanager
def _planning(layout: ChunkLayout, lease_s: float) -> Iterator[_Planning]:
    """Hold the right to plan; waits for whoever holds it."""
    known = _stamp(layout)
    with leased(layout.planning, lease_s) as held:
        was_too_late = _stamp(layout) not in {None, known}
        yield _Planning(held.lease, after_a_dead_one=held.after_a_dead_one, was_too_late=was_too_late)


def _stamp(layout: ChunkLayout) -> tuple[int, int] | None:
    try:
        found = layout.plan.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
