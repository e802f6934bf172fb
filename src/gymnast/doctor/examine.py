"""From what is to be looked at to the report: read, walk the steps, apply the rules, rank. It only reads."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.doctor.facts import Facts
from gymnast.doctor.findings import Report
from gymnast.doctor.kernel import killed_by_kernel
from gymnast.doctor.ranking import ranked
from gymnast.doctor.read_failures import read_failures
from gymnast.doctor.read_logs import LOG_SUFFIXES, logs_in, read_logs
from gymnast.doctor.read_run import read_run
from gymnast.doctor.rules.registry import findings_of, notes_of
from gymnast.doctor.scheduler import read_job
from gymnast.doctor.steps import walk
from gymnast.errors import NotFoundError, UserError
from gymnast.store.keyset import KeySet
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gymnast.doctor.facts import JobFacts, ProbeFacts, RunFacts
    from gymnast.doctor.findings import Finding

_OTHERS = (
    *("_run.json", "_materialized_inputs.jsonl", "_failures.jsonl", "_aggregate_metrics.json", ".jsonl.done"),
    *("_reward_profiling.jsonl", "_agent_metrics.json", "_profile_summary.json", ".lock", ".sock"),
)
_FINISH: Final = re.compile(r"-\d+-finish\.log$")
"""The log of the job that merges what workers left."""
_AGAIN: Final = re.compile(r"(?:run )?the same (?:collect )?command (?:again )?with --resume|run again with --resume")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be looked at. Any of it may be missing."""

    run: RunPaths | None = None
    logs: tuple[Path, ...] = ()
    job: str | None = None
    data: Path | None = None
    live: dict[str, Any] | None = None
    stacks: tuple[dict[str, Any], ...] = ()
    requests: tuple[dict[str, Any], ...] = ()
    """What a serve has not answered yet, the longest wait first."""
    servers: tuple[ProbeFacts, ...] = ()
    probes: tuple[ProbeFacts, ...] = ()
    stuck_after_s: float = 60.0
    name: str = field(default="")


def subject_of(given: Path | None, logs: Iterable[Path] = (), **more: Any) -> Subject:
    """What a path means: a run by any of its files, one log file, or a folder with logs and perhaps one run."""
    log_files = [path for named in logs for path in (logs_in(named) if named.is_dir() else [named])]
    if given is None:
        return Subject(logs=tuple(log_files), **more)
    if given.is_dir():
        run = _run_in(given)
        return Subject(run, tuple(dict.fromkeys((*logs_in(given), *log_files))), name=str(given), **more)
    paths = _run_of(given)
    if paths is not None:
        return Subject(paths, tuple(dict.fromkeys((*_logs_of(paths), *log_files))), name=str(paths.output), **more)
    if given.is_file():
        _refuse_dataset(given)
        return Subject(logs=(given, *log_files), name=str(given), **more)
    beside = _logs_of(RunPaths(given))  # a command that refused to start leaves no run, but perhaps what it said
    if beside or log_files:
        return Subject(logs=tuple(dict.fromkeys((*beside, *log_files))), name=str(given), **more)
    raise NotFoundError(
        f"there is no run and no log '{given}'", next="name a run's output file, a log file, or a folder of logs"
    )


def examine(subject: Subject) -> Report:
    """Doctor's answer."""
    facts = read(subject)
    finish = tuple(path for path in _logs_to_read(subject, facts.job) if _is_finish(path))
    if finish and all(finding.is_symptom for finding in findings_of(facts)):
        facts = replace(facts, logs=read_logs(_logs_to_read(subject, facts.job)))
    if facts.run is None and not finish and not facts.logs.files and not facts.servers and facts.job is None:
        raise NotFoundError(
            facts.job_problem or f"there is nothing to look at in '{subject.name}': no run and no logs",
            next="name a run's output file, a log file, or a folder of logs",
        )
    findings = [_for_its_command(finding, facts.run) for finding in ranked(findings_of(facts), facts)]
    return Report(
        facts.subject,
        tuple(findings),
        tuple(notes_of(facts)),
        walk(facts, findings),
        _counts(facts.run),
        subject.stacks or tuple(row for row in subject.requests if row["in_stage_s"] >= subject.stuck_after_s),
    )


def read(subject: Subject) -> Facts:
    """Everything that is to be known. What a merge job said is left out: it tells of what workers left undone."""
    job = read_job(subject.job) if subject.job is not None else None
    problem = None
    if subject.job is not None and job is None:
        problem = f"job {subject.job}: neither scontrol, sacct nor squeue knows it here"
    run = read_run(subject.run, subject.data) if subject.run is not None else None
    return Facts(
        subject.name or (f"job {subject.job}" if subject.job else "what is running"),
        time.time(),
        run,
        read_logs(path for path in _logs_to_read(subject, job) if not _is_finish(path)),
        job,
        problem,
        killed_by_kernel(run) if run is not None else None,
        subject.probes,
        subject.servers,
        subject.live,
        subject.stacks,
        subject.requests,
        subject.stuck_after_s,
    )


def _logs_to_read(subject: Subject, job: JobFacts | None) -> tuple[Path, ...]:
    return tuple(dict.fromkeys((*subject.logs, *(job.log_files if job is not None else ()))))


def _is_finish(log: Path) -> bool:
    return _FINISH.search(log.name) is not None


def endpoints_of(paths: RunPaths) -> list[str]:
    """The policy endpoints that a run's failures name."""
    failures = read_failures(paths.failures, KeySet())
    models = (group for group in failures.groups if group.kind.startswith("model"))
    return list(dict.fromkeys(example.endpoint for group in models for example in group.examples if example.endpoint))


def _counts(run: RunFacts | None) -> dict[str, int]:
    if run is None:
        return {}
    missing = {"lost": 0, "owed": run.lost} if run.is_going_on else {"lost": run.lost}
    return {"requested": run.requested, "scored": run.scored, **missing, "failed attempts": run.failure_lines}


def _for_its_command(finding: Finding, run: RunFacts | None) -> Finding:
    """A run in chunks is gone on with by the command that began it."""
    if run is None or not run.is_chunked:
        return finding
    return replace(finding, action=_AGAIN.sub("run the same gymnast submit command with --resume", finding.action))


def _run_of(given: Path) -> RunPaths | None:
    for suffix in _OTHERS:
        if given.name.endswith(suffix):
            return _existing(given.with_name(given.name.removesuffix(suffix) + ".jsonl"))
    if given.suffix == ".jsonl":
        return _existing(given) if not given.is_file() or _has_records(given) else None
    return _existing(given.with_name(given.name + ".jsonl")) if not given.is_file() else None


def _has_records(output: Path) -> bool:
    """Whether a file is the output of a run: other files of one are beside it, or its first line has a reward."""
    paths = RunPaths(output)
    if any(path != output for path in paths.existing()):
        return True
    with output.open("rb") as stream:
        first = stream.readline(1 << 24)
    return not first.strip() or b'"reward"' in first


def _refuse_dataset(given: Path) -> None:
    if given.suffix == ".jsonl":
        raise UserError(
            "this is no run: its rows have no reward, and no other file of a run is beside it",
            where=str(given),
            next=f"name a run's output file; a dataset is checked with gymnast check rows {given} --against ENV",
        )


def _existing(output: Path) -> RunPaths | None:
    paths = RunPaths(output)
    return paths if paths.existing() else None


def _run_in(folder: Path) -> RunPaths | None:
    """The one run of a folder, or None."""
    marks = ("_run.json", "_materialized_inputs.jsonl")
    stems = {path.name.removesuffix(mark) for mark in marks for path in folder.glob(f"*{mark}")}
    if len(stems) > 1:
        raise UserError(
            f"the folder has {len(stems)} runs: {', '.join(sorted(stems)[:8])}",
            where=str(folder),
            next=f"name one: gymnast doctor {folder}/{min(stems)}.jsonl",
        )
    return RunPaths(folder / f"{stems.pop()}.jsonl") if stems else None


def _logs_of(paths: RunPaths) -> list[Path]:
    """The run's own log folder, and logs beside it that have its name."""
    stem = paths.output.stem
    beside = [path for path in paths.output.parent.glob(f"{stem}*") if LOG_SUFFIXES.search(path.name)]
    own = logs_in(paths.logs) if paths.logs.is_dir() else []
    return [*own, *sorted(path for path in beside if path.is_file() and not _is_events(path))]


def _is_events(path: Path) -> bool:
    """What `collect --json` prints is no log: it says of every retried attempt that it failed."""
    try:
        with path.open("rb") as stream:
            return stream.read(16).startswith(b'{"type":"run_')
    except OSError:
        return False  # reading it as a log will say why
