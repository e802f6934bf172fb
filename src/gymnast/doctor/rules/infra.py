"""Rules about scheduler, processes and clocks: what happened to the run from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding, Note
from gymnast.doctor.rules.rule import rule, run_rule
from gymnast.store.manifest import RunState
from gymnast.types.failure import Layer
from gymnast.types.nouns import count_noun

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts, JobFacts, RunFacts
    from gymnast.doctor.rules.rule import NoteRule
    from gymnast.store.manifest import Invocation

CONSEQUENCES: Final = frozenset(
    {
        *("endpoint_down", "environment_down", "agent_down", "process_killed", "process_crashed", "collector_killed"),
        *("fewer_than_requested", "missing_keys", "torn_line", "partial_output", "task_refused", "job_failed"),
        *("not_ready", "engine_dead", "job_cancelled", "stopped_with_error", "stopped_by_hand"),
    }
)
"""What follows when the machine takes a resource away."""
_SKEW_S: Final = 120.0
_MIN_FREE_BYTES: Final = 256 << 10
_NORMAL_REASONS: Final = frozenset({"Resources", "Priority", "None", "Dependency", "BeginTime", "JobArrayTaskLimit"})
_NEVER_SATISFIED: Final = "DependencyNeverSatisfied"
"""Such a job waits forever, or Slurm cancels it (kill-on-invalid-dep)."""
_RESUME: Final = "run the same collect command with --resume"
_STATES: Final = {
    "OUT_OF_MEMORY": ("oom_kill", "the job was killed because memory ran out", "sbatch --mem"),
    "TIMEOUT": ("time_limit", "the job reached its time limit", "sbatch --time"),
    "DEADLINE": ("time_limit", "the job reached its deadline", "sbatch --time"),
    "PREEMPTED": ("time_limit", "the job was preempted", "a partition without preemption"),
    "NODE_FAIL": ("time_limit", "the job's node failed", "sbatch --exclude"),
    "CANCELLED": ("job_cancelled", "the job was cancelled", "sacct -j ID --format=State,ExitCode shows the user"),
}


@rule(Layer.INFRA, 1, "Read the end of the job's log.", name="job_failed")
def job_ended(facts: Facts) -> Finding | None:
    """Slurm says FAILED: the job's program ended with an error.

    Other ends of a job are reported under other names.
    """
    job = facts.job
    if job is None or facts.is_complete or job.reason == _NEVER_SATISFIED:
        return None
    known = next((row for state, row in _STATES.items() if job.state.startswith(state)), None)
    if known is not None:
        name, symptom, hint = known
        action = f"resubmit it ({hint}) and finish the run: {_RESUME}"
        return _job_finding(facts, job, name, symptom, action)
    if not job.state.startswith(("FAILED", "BOOT_FAIL", "LAUNCH")):
        return None
    if job.exit_code.startswith("137") or job.exit_code.endswith(":9"):
        action = "if it was memory (sacct -j ID --format=State,MaxRSS), request more with sbatch --mem; then " + _RESUME
        return _job_finding(facts, job, "process_killed", "a process of the job was killed (SIGKILL)", action)
    logs = ", ".join(map(str, job.log_files)) or "the job's log"
    failed = _job_finding(facts, job, "job_failed", "the job's program ended with an error", f"read the end of {logs}")
    return Finding(
        failed.id, failed.layer, failed.symptom, failed.cause, failed.action, failed.evidence, is_symptom=True
    )


def _job_finding(facts: Facts, job: JobFacts, name: str, symptom: str, action: str) -> Finding:
    state = f"JobState={job.state} Reason={job.reason} ExitCode={job.exit_code}"
    limits = {"TimeLimit", "RunTime", "Timelimit", "Elapsed", "MaxRSS", "ReqMem", "NodeList"}
    resources = " ".join(f"{key}={value}" for key, value in job.fields.items() if key in limits)
    evidence = (Evidence(f"job {job.id}: {job.source}", quote=f"{state} {resources}".strip()),)
    cause = f"Slurm ended job {job.id} as {job.state}"
    lost = facts.unexplained
    return Finding(name, Layer.INFRA, symptom, cause, action, evidence, lost=lost, weight=99, explains=CONSEQUENCES)


@rule(Layer.INFRA, 1, "Correct its request.", name="job_pending")
def job_cannot_start(facts: Facts) -> Finding | None:
    """A job waits for something that will never happen."""
    job = facts.job
    if (
        job is None
        or job.reason in _NORMAL_REASONS
        or not (job.state.startswith("PENDING") or job.reason == _NEVER_SATISFIED)
    ):
        return None
    evidence = Evidence(f"job {job.id}: {job.source}", quote=f"JobState={job.state} Reason={job.reason}")
    return Finding(
        "job_pending",
        Layer.INFRA,
        f"the job does not start ({job.reason})",
        "it requests something that the partition does not have, or not now",
        f"correct its request (scontrol show job {job.id}, sinfo -l), or release it: scontrol release {job.id}",
        (evidence,),
        weight=90,
    )


@rule(Layer.INFRA, 1, "Request more memory.", name="oom_kill")
def killed_for_memory(facts: Facts) -> Finding | None:
    """The kernel log says that the collecting process was killed."""
    if facts.kernel is None:
        return None
    return Finding(
        "oom_kill",
        Layer.INFRA,
        f"the kernel killed the collecting process because memory ran out ({count_noun(facts.lost, 'rollout')} lost)",
        "the host, or the memory limit of its job or container, has less memory than the run needs",
        f"request more memory (sbatch --mem) or lower --concurrency; scored rollouts are safe: {_RESUME}",
        (Evidence("kernel log (dmesg)", quote=facts.kernel),),
        lost=facts.unexplained,
        weight=100,
        explains=CONSEQUENCES,
    )


@run_rule(Layer.INFRA, 1, "Free space.", name="disk_full")
def disk_has_no_room(run: RunFacts) -> Finding | None:
    """The disk of an incomplete run is full."""
    if not run.lost or run.free_bytes is None or run.free_bytes >= _MIN_FREE_BYTES:
        return None
    where = run.output.absolute().parent
    return Finding(
        "disk_full",
        Layer.INFRA,
        f"the run's disk has no free space ({count_noun(run.lost, 'rollout')} lost)",
        f"the disk that holds {where} is full",
        "free space (df -h, df -i) or move the run's files, then run again with --resume",
        (Evidence(f"{run.free_bytes} bytes are free", str(where)),),
        lost=run.unexplained,
        weight=98,
        explains=CONSEQUENCES,
    )


@rule(Layer.INFRA, 1, "`--resume`: scored rollouts are safe.")
def collector_killed(facts: Facts) -> Finding | None:
    """The manifest says `running`, but no process holds the run's lock."""
    run = facts.run
    manifest = run.manifest if run is not None else None
    if run is None or manifest is None or run.is_active or manifest.state is not RunState.RUNNING:
        return None
    last = manifest.invocations[-1] if manifest.invocations else None
    process = f"pid {last.pid} on {last.host}" if last is not None else "its process"
    return Finding(
        "collector_killed",
        Layer.INFRA,
        f"the collecting process died without a message ({count_noun(run.lost, 'rollout')} lost)",
        f"{process} was killed (kill -9, memory, a lost node) and could not report it",
        f"find out what killed it ({_where_to_look(last, facts)}); scored rollouts are safe: {_RESUME}",
        (Evidence(f'state "running", but no process holds the lock; {process}', f"{run.output.stem}_run.json"),),
        Confidence.MEDIUM,
        run.unexplained,
        weight=60,
        explains=frozenset({"fewer_than_requested", "missing_keys", "torn_line", "partial_output"}),
    )


def _where_to_look(last: Invocation | None, facts: Facts) -> str:
    """Where to look. On this host, the kernel log has already been checked without result."""
    on_host = f" on {last.host}" if last is not None else ""
    return f"dmesg -T{on_host}; sacct -j ID; " + ("a log of the job: --job ID" if facts.job is None else "its log")


@rule(Layer.INFRA, 1, "Correct the hosts' clocks.")
def clock_skew(facts: Facts) -> Finding | None:
    """Timestamps in the run's files are impossible."""
    run = facts.run
    manifest = run.manifest if run is not None else None
    if run is None or manifest is None:
        return None
    odd: list[str] = []
    if manifest.updated_at > facts.now + _SKEW_S:
        odd.append(f"the manifest was written {manifest.updated_at - facts.now:.0f} s in the future")
    if run.first_failure_at is not None and run.first_failure_at < manifest.created_at - _SKEW_S:
        odd.append(f"an attempt started {manifest.created_at - run.first_failure_at:.0f} s before the run")
    if run.last_failure_at is not None and run.last_failure_at > max(manifest.updated_at, facts.now) + _SKEW_S:
        odd.append(f"an attempt started {run.last_failure_at - manifest.updated_at:.0f} s after the run's last update")
    odd += [
        f"an invocation ended {invocation.started_at - invocation.ended_at:.0f} s before it started"
        for invocation in manifest.invocations
        if invocation.ended_at is not None and invocation.ended_at < invocation.started_at - _SKEW_S
    ]
    if not odd:
        return None
    evidence = tuple(Evidence(text, f"{run.output.stem}_run.json") for text in odd)
    return Finding(
        "clock_skew",
        Layer.INFRA,
        "timestamps in the run's files are impossible",
        "the clocks of the run's hosts differ, or one was changed during the run",
        "compare the hosts' clocks (chronyc tracking) and correct them; this run's deadlines and timestamps are off",
        evidence,
        Confidence.HIGH,
        affected=run.scored,
        weight=30,
    )


def job_waits(facts: Facts) -> Note | None:
    """A normally pending job is not a fault."""
    job = facts.job
    if job is not None and job.state.startswith("PENDING") and job.reason in _NORMAL_REASONS:
        return Note("job_waits", f"job {job.id} is pending ({job.reason}), which is normal")
    if facts.job_problem:
        return Note("job_unknown", facts.job_problem)
    return None


RULES: Final = (job_ended, job_cannot_start, killed_for_memory, disk_has_no_room, collector_killed, clock_skew)
NOTES: Final[tuple[NoteRule, ...]] = (job_waits,)
