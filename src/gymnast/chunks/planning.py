"""Planning a run in chunks: the same preparation as `collect`, then the cut into chunks. Each run is planned once.

The planner holds the lease of the `planning` folder, so of two simultaneous submits one plans. The plan file is created
once, and last. A run that has a plan is only resumed.
"""

from __future__ import annotations

import secrets
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.chunks.lease import DEFAULT_HEARTBEAT_S, DEFAULT_LEASE_S, is_current
from gymnast.chunks.partition import cut_chunks, default_chunk_rows, plan_stamp, read_plan_rows
from gymnast.chunks.reopen import reopen_failed
from gymnast.chunks.worker_spec import ConfigArguments, WorkerOptions, WorkerSpec, write_worker_spec
from gymnast.chunks.write_lease import hold_folder_lease, hold_write_lease
from gymnast.config.secrets import is_secret_key
from gymnast.errors import UserError
from gymnast.rollouts.prepare import PreparedRun, existing_run_error, prepare_run, remove_run
from gymnast.rollouts.run import bad_row_records
from gymnast.rollouts.servers import reachable_instances
from gymnast.store.atomic import atomic_writer, create_exclusive, make_folders
from gymnast.store.chunk_files import ChunkPlan, Lease
from gymnast.store.chunk_layout import ChunkFolder, ChunkLayout
from gymnast.store.chunk_state import read_chunk_plan

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.config import Config
    from gymnast.rollouts.options import RunOptions
    from gymnast.store.paths import RunPaths


@dataclass(frozen=True, slots=True)
class ChunkingOptions:
    """How a run is cut into chunks, and how its workers hold them."""

    workers: int = 1
    """About how many workers there will be: more workers get smaller chunks."""
    chunk_rows: int | None = None
    lease_s: float = DEFAULT_LEASE_S
    heartbeat_s: float = DEFAULT_HEARTBEAT_S
    linger_s: float = 2 * DEFAULT_LEASE_S
    grace_s: float = 60.0
    speculates: bool = False
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that is ready for workers."""

    paths: RunPaths
    layout: ChunkLayout
    plan: ChunkPlan
    spec: WorkerSpec
    is_new: bool
    warnings: list[str]
    notes: list[str]


def plan_run(
    options: RunOptions, config: Config, arguments: ConfigArguments, chunking: ChunkingOptions | None = None
) -> PlannedRun:
    """Plan a new run in chunks, or check one that is resumed (`existing="resume"`) as `collect --resume` does.

    `config` is what `arguments` compose to. Raises UserError if another submit holds the run, if files are in the way,
    or if inputs or settings have changed.
    """
    chunking = chunking or ChunkingOptions()
    _check_options(options, arguments)
    paths = options.paths
    layout = ChunkLayout.of(paths)
    stamp = plan_stamp(layout)  # before anything is looked at: what is planned from now on is another submit's
    if options.existing == "refuse" and paths.existing_files() and not _is_half_planned(paths, layout):
        raise existing_run_error(paths)
    _make_folder(layout.folder)
    with hold_folder_lease(layout.planning, chunking.lease_s) as held, hold_write_lease(paths.lock, layout.writing):
        is_planned_meanwhile = plan_stamp(layout) not in {None, stamp}
        if is_planned_meanwhile and options.existing != "resume":
            raise UserError("another submit planned this run just now", where=str(layout.plan), next="use --resume")
        if held.previous_holder_died and not layout.is_planned and not paths.output.exists():
            options = replace(options, existing="overwrite")  # the files that it left behind
        if layout.is_planned and options.existing == "resume":
            return _resume(options, config, arguments, chunking, layout)
        if paths.output.exists() and options.existing == "resume":
            raise UserError(
                "this run was started by collect, not in chunks",
                where=str(paths.output),
                next="finish it with gymnast collect --resume, or choose another --output",
            )
        return _plan(options, config, arguments, chunking, layout, held.lease)


def _make_folder(folder: Path) -> None:
    try:
        make_folders(folder)
    except OSError as error:
        raise UserError(f"cannot write into {folder.parent}: {error.strerror or error}", where=str(folder)) from error


def _is_half_planned(paths: RunPaths, layout: ChunkLayout) -> bool:
    """Whether a submit is planning the run, or died while it did: there is no run to protect yet."""
    return not layout.is_planned and not paths.output.exists() and layout.planning.exists()


def _plan(
    options: RunOptions,
    config: Config,
    arguments: ConfigArguments,
    chunking: ChunkingOptions,
    layout: ChunkLayout,
    lease: Lease,
) -> PlannedRun:
    _remove_chunks(layout)
    prepared = _prepare(options, config)
    try:
        spec = _make_spec(prepared, options, arguments, chunking)
        plan = _make_plan(prepared, chunking)
        layout.chunks.mkdir()
        with atomic_writer(layout.bad_rows) as out:
            for _, line in bad_row_records(prepared.bad_rows or (), time.time(), plan.run_id):
                out.write(line + b"\n")
        write_worker_spec(layout, spec)
    except BaseException:
        remove_run(prepared)
        raise
    is_ours = is_current(ChunkFolder(layout.planning), lease)
    if not is_ours or not create_exclusive(layout.plan, msgspec.json.encode(plan), lease.token):
        raise UserError("another submit planned this run meanwhile", where=str(layout.plan), next="use --resume")
    return PlannedRun(prepared.paths, layout, plan, spec, is_new=True, warnings=prepared.warnings, notes=prepared.notes)


def _resume(
    options: RunOptions, config: Config, arguments: ConfigArguments, chunking: ChunkingOptions, layout: ChunkLayout
) -> PlannedRun:
    prepared = _prepare(options, config)
    plan = read_chunk_plan(layout)
    if plan.run_id != prepared.manifest.run_id:
        raise UserError(
            f"the chunks belong to run {plan.run_id}, the manifest to run {prepared.manifest.run_id}",
            where=str(layout.folder),
            next="restore the files of one run, or start over with --overwrite",
        )
    spec = _make_spec(prepared, options, arguments, chunking)
    write_worker_spec(layout, spec)
    notes = list(prepared.notes)
    if options.retry_failed:
        reopened = reopen_failed(layout, plan)
        if reopened:
            notes.append(f"{reopened} permanently failed rollouts are retried")
            prepared.paths.done.unlink(missing_ok=True)  # what was merged is no longer complete
    return PlannedRun(prepared.paths, layout, plan, spec, is_new=False, warnings=prepared.warnings, notes=notes)


def _prepare(options: RunOptions, config: Config) -> PreparedRun:
    return prepare_run(options, config.agents, lambda agents: reachable_instances(config, agents), in_chunks=True)


def _make_plan(prepared: PreparedRun, chunking: ChunkingOptions) -> ChunkPlan:
    plan = prepared.manifest.plan
    rows = int(plan["rows"])
    chunk_rows = chunking.chunk_rows or default_chunk_rows(rows, chunking.workers)
    return ChunkPlan(
        run_id=prepared.manifest.run_id,
        rows=rows,
        size_bytes=int(plan["bytes"]),
        crc32=int(plan["crc32"]),
        requested=prepared.manifest.counts.requested,
        chunks=tuple(cut_chunks(read_plan_rows(prepared.paths.materialized_inputs), chunk_rows)),
    )


def _make_spec(
    prepared: PreparedRun, options: RunOptions, arguments: ConfigArguments, chunking: ChunkingOptions
) -> WorkerSpec:
    engine = options.engine
    return WorkerSpec(
        run_id=prepared.manifest.run_id,
        config=arguments,
        options=WorkerOptions(
            concurrency=engine.concurrency,
            processes=options.workers,
            rollout_timeout_s=engine.rollout_timeout_s,
            max_attempts=engine.retry.max_attempts,
            give_up_after_s=engine.give_up_after_s,
            lease_s=chunking.lease_s,
            heartbeat_s=chunking.heartbeat_s,
            linger_s=chunking.linger_s,
            grace_s=chunking.grace_s,
            speculates=chunking.speculates,
            telemetry=options.telemetry,
        ),
        token_form=options.token_form,
        details=chunking.details,
    )


def _check_options(options: RunOptions, arguments: ConfigArguments) -> None:
    """Raise UserError for what a run in chunks does not support."""
    if options.on_change in {"fork", "extend"}:
        raise UserError(
            f"--{options.on_change} is not supported for runs in chunks", next="choose another --output for it"
        )
    if options.engine.budget.max_cost is not None or options.engine.budget.max_tokens is not None:
        raise UserError("budgets are not supported for runs in chunks", next="use gymnast collect for it")
    for text in arguments.overrides:
        name = text.partition("=")[0].lstrip("+~")
        if is_secret_key(name.rpartition(".")[2]):
            raise UserError(
                f"the override of '{name}' would be written to a file that others can read",
                next="put it into env.yaml, or into the environment of the workers as ${oc.env:NAME}",
            )


def _remove_chunks(layout: ChunkLayout) -> None:
    """Remove an earlier run in chunks. Its plan goes first, so that workers still running find nothing to claim."""
    layout.plan.unlink(missing_ok=True)
    aside = layout.folder / f"removed.{secrets.token_hex(4)}"
    with suppress(FileNotFoundError):
        layout.chunks.rename(aside)
    for folder in (aside, layout.submissions):
        shutil.rmtree(folder, ignore_errors=True)
