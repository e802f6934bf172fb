"""Makes the diagnosis: reads facts, applies the rules, ranks the findings and lists the steps. Read-only."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.doctor.facts import Facts
from gymnast.doctor.findings import Diagnosis
from gymnast.doctor.log_files import LOG_NAME, find_logs
from gymnast.doctor.ranking import rank
from gymnast.doctor.read_failures import read_failures
from gymnast.doctor.read_logs import read_logs
from gymnast.doctor.read_run import read_run
from gymnast.doctor.rules.registry import apply_rules, collect_notes
from gymnast.doctor.scheduler import find_kernel_kill, read_job
from gymnast.doctor.standing import first_line, without_incidental
from gymnast.doctor.steps import make_steps
from gymnast.doctor.waits import patience_s
from gymnast.errors import NotFoundError, UserError
from gymnast.store.find_run import OUTPUT_SUFFIX, RUN_FILE_SUFFIXES, only_run_in, runs_in
from gymnast.store.keys import KeySet
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gymnast.doctor.facts import EndpointActivity, JobFacts, LogFacts, ProbeFacts, ProcessFacts, RunFacts
    from gymnast.doctor.findings import Finding

_MERGE_LOG: Final = re.compile(r"-\d+-finish\.log$")
"""The log of the job that merges the workers' output."""
_LOG_TIME: Final = re.compile(rb'"(?:ts|time|timestamp|@timestamp|asctime|date)"\s*:')
_LOG_FIELD: Final = re.compile(rb'"(?:level|levelname|severity|lvl|msg|status|status_code)"\s*:')
_RESUME_COMMAND: Final = re.compile(
    r"(?:run )?the same (?:collect )?command (?:again )?with --resume|run again with --resume"
)


@dataclass(frozen=True, slots=True)
class Target:
    """What to examine. Every part is optional."""

    run: RunPaths | None = None
    logs: tuple[Path, ...] = ()
    job: str | None = None
    data: Path | None = None
    live: dict[str, Any] | None = None
    stacks: tuple[dict[str, Any], ...] = ()
    requests: tuple[dict[str, Any], ...] = ()
    """Open requests of a `serve`, the longest wait first."""
    servers: tuple[ProbeFacts, ...] = ()
    probes: tuple[ProbeFacts, ...] = ()
    stuck_after_s: float | None = None
    """None: 60 s, or longer where nothing shows that such a wait is unusual."""
    processes: tuple[ProcessFacts, ...] = ()
    activity: tuple[EndpointActivity, ...] = ()
    unresponsive: str = ""
    name: str = field(default="")


def find_target(path: Path | None, logs: Iterable[Path] = (), **options: Any) -> Target:
    """Resolve a path: a run by any of its files, a log file, or a folder with logs and at most one run."""
    log_files = [path for named in logs for path in (find_logs(named) if named.is_dir() else [named])]
    if path is None:
        return Target(logs=tuple(log_files), **options)
    if path.is_dir():
        run = _run_in(path)
        return Target(run, tuple(dict.fromkeys((*find_logs(path), *log_files))), name=str(path), **options)
    paths = _run_of(path)
    if paths is not None:
        return Target(paths, tuple(dict.fromkeys((*_logs_of(paths), *log_files))), name=str(paths.output), **options)
    if path.is_file():
        if not _is_log(path):
            _reject_dataset(path)
        return Target(logs=(path, *log_files), name=str(path), **options)
    siblings = _logs_of(RunPaths(path))  # a command that failed to start leaves no run, but perhaps its output
    if siblings or log_files:
        return Target(logs=tuple(dict.fromkeys((*siblings, *log_files))), name=str(path), **options)
    raise NotFoundError(
        f"no run and no log at '{path}'", next="name a run's output file, a log file, or a folder of logs"
    )


def examine(target: Target) -> Diagnosis:
    facts = read(target)
    merge_logs = tuple(path for path in _logs_to_read(target, facts.job) if _is_merge_log(path))
    if merge_logs and all(finding.is_symptom for finding in apply_rules(facts)):
        facts = replace(facts, logs=_read_logs_of(_logs_to_read(target, facts.job), facts.run))
    if facts.run is None and not merge_logs and not facts.logs.files and not facts.servers and facts.job is None:
        raise NotFoundError(
            facts.job_problem or f"nothing to examine in '{target.name}': no run and no logs",
            next="name a run's output file, a log file, or a folder of logs",
        )
    findings = [_name_command(finding, facts.run) for finding in rank(apply_rules(facts), facts)]
    return Diagnosis(
        facts.target,
        tuple(findings),
        tuple(collect_notes(facts)),
        make_steps(facts, findings),
        _counts(facts.run),
        target.stacks or tuple(row for row in target.requests if row["in_stage_s"] >= patience_s(target.stuck_after_s)),
        facts.logs.lines,
    )


def read(target: Target) -> Facts:
    """Read all facts. Leaves out the logs of merge jobs, which only report what workers left undone."""
    job = read_job(target.job) if target.job is not None else None
    problem = None
    if target.job is not None and job is None:
        problem = f"job {target.job} is unknown to scontrol, sacct and squeue on this host"
    run = read_run(target.run, target.data) if target.run is not None else None
    logs = _read_logs_of((path for path in _logs_to_read(target, job) if not _is_merge_log(path)), run)
    return Facts(
        target.name or (f"job {target.job}" if target.job else "what is running"),
        time.time(),
        run,
        _forget_incidental(logs) if run is None and job is None else logs,
        job,
        problem,
        find_kernel_kill(run) if run is not None else None,
        target.probes,
        target.servers,
        target.live,
        target.stacks,
        target.requests,
        target.stuck_after_s,
        target.processes,
        target.activity,
        target.unresponsive,
    )


def _read_logs_of(paths: Iterable[Path], run: RunFacts | None) -> LogFacts:
    return read_logs(paths, has_records=run is not None and bool(run.failures))


def _forget_incidental(logs: LogFacts) -> LogFacts:
    """Logs without the errors that their programs got over. Of a run and of a job, its records and state say more."""
    if logs.user_errors or logs.deaths:
        return logs
    kept, overcome = without_incidental(logs)
    lines = sorted({first_line(traced) for traced in overcome})
    return replace(kept, overcome=tuple(f"{file}:{line} {text}" for file, line, text in lines))


def _logs_to_read(target: Target, job: JobFacts | None) -> tuple[Path, ...]:
    return tuple(dict.fromkeys((*target.logs, *(job.log_files if job is not None else ()))))


def _is_merge_log(log: Path) -> bool:
    return _MERGE_LOG.search(log.name) is not None


def endpoints_of(paths: RunPaths) -> list[str]:
    """The policy endpoints named in a run's failures."""
    failures = read_failures(paths.failures, KeySet())
    models = (group for group in failures.groups if group.kind.startswith("model"))
    return list(dict.fromkeys(example.endpoint for group in models for example in group.examples if example.endpoint))


def _counts(run: RunFacts | None) -> dict[str, int]:
    if run is None:
        return {}
    missing = {"lost": 0, "owed": run.lost} if run.is_active else {"lost": run.lost}
    return {"requested": run.requested, "scored": run.scored, **missing, "failed attempts": run.failure_lines}


def _name_command(finding: Finding, run: RunFacts | None) -> Finding:
    """A run in chunks is resumed with the command that started it."""
    if run is None or not run.is_chunked:
        return finding
    return replace(
        finding, action=_RESUME_COMMAND.sub("run the same gymnast submit command with --resume", finding.action)
    )


def _run_of(path: Path) -> RunPaths | None:
    for suffix in RUN_FILE_SUFFIXES:
        if suffix != OUTPUT_SUFFIX and path.name.endswith(suffix):
            return _find_run(path.with_name(path.name.removesuffix(suffix) + ".jsonl"))
    if path.suffix == ".jsonl":
        return _find_run(path) if not path.is_file() or _has_records(path) else None
    return _find_run(path.with_name(path.name + OUTPUT_SUFFIX)) if not path.is_file() else None


def _has_records(output: Path) -> bool:
    """True if a file is the output of a run: it has sibling files of a run, or its first line has a reward."""
    paths = RunPaths(output)
    if any(path != output for path in paths.existing_files()):
        return True
    with output.open("rb") as stream:
        first = stream.readline(1 << 24)
    return not first.strip() or b'"reward"' in first


def _is_log(path: Path) -> bool:
    """True for a log in JSON lines: records with a time, and a level, a message or a status."""
    with path.open("rb") as stream:
        first = stream.readline(1 << 16)
    return _LOG_TIME.search(first) is not None and _LOG_FIELD.search(first) is not None


def _reject_dataset(path: Path) -> None:
    if path.suffix == ".jsonl":
        raise UserError(
            "not a run: its rows have no reward, and there are no sibling files of a run",
            where=str(path),
            next=f"name a run's output file; to check a dataset: gymnast check rows {path} --against ENV",
        )


def _find_run(output: Path) -> RunPaths | None:
    paths = RunPaths(output)
    return paths if paths.existing_files() else None


def _run_in(folder: Path) -> RunPaths | None:
    """The only run in a folder, or None."""
    runs = runs_in(folder)
    if len(runs) > 1:
        return only_run_in(folder)  # an error that lists them
    return runs[0] if runs else None


def _logs_of(paths: RunPaths) -> list[Path]:
    """The logs in the run's log folder, and sibling logs with its name."""
    stem = paths.output.stem
    siblings = [path for path in paths.output.parent.glob(f"{stem}*") if LOG_NAME.search(path.name)]
    own = find_logs(paths.logs) if paths.logs.is_dir() else []
    return [*own, *sorted(path for path in siblings if path.is_file() and not _is_events(path))]


def _is_events(path: Path) -> bool:
    """True for the output of `collect --json`, which is not a log: it reports every retried attempt as failed."""
    try:
        with path.open("rb") as stream:
            return stream.read(16).startswith(b'{"type":"run_')
    except OSError:
        return False  # reading it as a log will report why
