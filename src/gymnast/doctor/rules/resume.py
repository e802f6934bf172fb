"""Rules about caches and resumes: changed inputs, files of different runs, lines torn by a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding, Note
from gymnast.doctor.rules.rule import record_rule, run_rule
from gymnast.store.manifest import RunState
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts, RecordFacts, RunFacts
    from gymnast.doctor.rules.rule import NoteRule

_LAYER: Final = Layer.CACHE_RESUME


@run_rule(_LAYER, 5, "Collect into another output, or `--resume --fork`.")
def stale_inputs(run: RunFacts) -> Finding | None:
    """The input file changed after planning, and the run was resumed."""
    if run.source is None or not run.source.changed or run.plan is None:
        return None
    was_forced = run.manifest is None or any(invocation.forced for invocation in run.manifest.invocations)
    if not was_forced and (run.lost == 0 or run.is_running):
        return None
    source = run.source
    later = source.modified_at - run.plan.modified_at
    when = f"{later:.0f} s after the plan" if later > 0 else "before the plan"
    evidence = (
        Evidence(f"changed ({source.detail}); last written {when}", source.path),
        Evidence(f"{run.plan.rows} planned rows", f"{run.output.stem}_materialized_inputs.jsonl"),
    )
    return Finding(
        "stale_inputs",
        _LAYER,
        "the input file is not the one that the run was planned from",
        "the data changed, and the run was resumed from its cached plan: the results are for the old rows",
        "collect the new rows into another --output (or --resume --fork); if rows were only added: --resume --extend",
        evidence,
        Confidence.HIGH,
        affected=run.scored,
        lost=0,
        weight=55,
    )


@run_rule(_LAYER, 5, "Restore the run's own file.")
def plan_changed(run: RunFacts) -> Finding | None:
    """The materialized inputs do not match the manifest."""
    manifest = run.manifest
    if manifest is None or run.plan is None:
        return None
    rows, crc = manifest.plan.get("rows"), manifest.plan.get("crc32")
    if rows == run.plan.rows and (crc is None or crc == run.plan.crc32):
        return None
    file = f"{run.output.stem}_materialized_inputs.jsonl"
    return Finding(
        "plan_changed",
        _LAYER,
        "the materialized inputs do not belong to this run",
        f"{file} was edited, truncated or replaced: it has {run.plan.rows} rows, but {rows} were planned",
        "restore the run's own file; if it is lost, collect into another --output",
        (Evidence(f"{run.plan.rows} rows, crc32 {run.plan.crc32}; planned: {rows} rows, crc32 {crc}", file),),
        affected=run.scored,
        weight=56,
        explains=frozenset({"missing_keys", "unplanned_records"}),
    )


@record_rule(_LAYER, 6, "Keep the first of each.")
def duplicate_keys(run: RunFacts, records: RecordFacts) -> Finding | None:
    """Several records of one (task, rollout)."""
    if not records.duplicates:
        return None
    return Finding(
        "duplicate_keys",
        _LAYER,
        f"{records.duplicates} records are duplicates of the same rollouts",
        "files were concatenated manually, or two processes wrote the same output",
        "keep the first record of each (task, rollout), then run gymnast profile again; never append to a run manually",
        (Evidence("more than one record", str(run.output), None, tuple(records.duplicate_keys)),),
        affected=records.duplicates,
        weight=45,
    )


@record_rule(_LAYER, 6, "Restore the file, or delete `.done` and `--resume`.")
def missing_keys(run: RunFacts, records: RecordFacts) -> Finding | None:
    """A complete run whose output has lost records."""
    if run.manifest is None or run.manifest.state is not RunState.COMPLETE:
        return None
    lost = run.manifest.counts.scored - records.scored
    if lost <= 0:
        return None
    return Finding(
        "missing_keys",
        _LAYER,
        f"{lost} scored rollouts are no longer in the output",
        "the output was edited, truncated or replaced after the run was complete",
        "restore the file; or collect the missing rollouts: delete the .done file and run again with --resume",
        (Evidence("planned, without a record", str(run.output), None, tuple(records.missing_keys), lost),),
        lost=lost,
        weight=46,
        explains=frozenset({"fewer_than_requested"}),
    )


@record_rule(_LAYER, 6, "Restore matching files of one run.")
def unplanned_records(run: RunFacts, records: RecordFacts) -> Finding | None:
    """Records of rollouts that are not in the plan."""
    if run.plan is None or not records.unplanned:
        return None
    return Finding(
        "unplanned_records",
        _LAYER,
        f"{records.unplanned} records belong to rollouts that were not planned",
        "output and materialized inputs are from different runs",
        "restore matching files of one run, or choose another --output",
        (Evidence("records without a planned row", str(run.output), count=records.unplanned),),
        affected=records.unplanned,
        weight=44,
    )


@record_rule(_LAYER, 6, "`--resume` moves them aside and collects their rollouts again.")
def torn_line(run: RunFacts, records: RecordFacts) -> Finding | None:
    """Lines of the output are not records."""
    if run.is_running or not (records.damaged or records.is_torn):
        return None
    number, problem = records.damaged[0] if records.damaged else (records.lines, "the last line is incomplete")
    return Finding(
        "torn_line",
        _LAYER,
        f"{max(1, len(records.damaged))} lines of the output are not records",
        "a crash or a full disk interrupted writing them",
        "run again with --resume, which moves such lines aside and collects their rollouts again",
        (Evidence(problem, str(run.output), number),),
        lost=min(run.unexplained, max(1, len(records.damaged))),
        weight=35,
    )


@run_rule(_LAYER, 6, "Restore it, or delete it and `--resume`.")
def damaged_manifest(run: RunFacts) -> Finding | None:
    """`x_run.json` cannot be read."""
    if run.manifest_problem is None:
        return None
    return Finding(
        "damaged_manifest",
        _LAYER,
        "the run's manifest cannot be read",
        "it was edited or damaged, or a newer Gymnast wrote it",
        "restore it from a copy; or delete it and run again with --resume, which counts the existing records",
        (Evidence(run.manifest_problem, f"{run.output.stem}_run.json"),),
        weight=48,
        lost=run.unexplained,
    )


def source_moved_on(facts: Facts) -> Note | None:
    """A finished run is not affected if its input file changes later."""
    run = facts.run
    if run is None or run.source is None or run.manifest is None or stale_inputs.apply(facts) is not None:
        return None
    if run.source.changed:
        return Note("source_changed_later", f"{run.source.path} changed after this run; --resume would be rejected")
    if not run.source.exists:
        return Note("source_gone", f"{run.source.path} is missing; the materialized inputs have all its rows")
    return None


def repaired(facts: Facts) -> Note | None:
    """A resume moved torn lines aside and collected their rollouts again."""
    records = facts.run.records if facts.run is not None else None
    if records is not None and records.repaired:
        text = f"a resume moved {records.repaired} torn lines aside and collected their rollouts again"
        return Note("repaired", text)
    return None


def resumed(facts: Facts) -> Note | None:
    """Several invocations are normal."""
    run: RunFacts | None = facts.run
    if run is not None and run.manifest is not None and len(run.manifest.invocations) > 1 and not run.lost:
        return Note("resumed", f"{len(run.manifest.invocations)} invocations worked on this run")
    return None


RULES: Final = (
    stale_inputs,
    plan_changed,
    duplicate_keys,
    missing_keys,
    unplanned_records,
    torn_line,
    damaged_manifest,
)
NOTES: Final[tuple[NoteRule, ...]] = (source_moved_on, repaired, resumed)
