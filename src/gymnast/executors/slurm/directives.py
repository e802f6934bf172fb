"""The `#SBATCH` lines of a job. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.executors.site import Resources
    from gymnast.executors.slurm.job import Job, Step


def directives(job: Job) -> list[str]:
    """The lines, one option each. Parts of a heterogeneous job are separated by `hetjob`."""
    lines = [*_job_options(job)]
    for number, resources in enumerate(job.resources):
        if number:
            lines.append("#SBATCH hetjob")
        steps = [step for step in job.steps if (step.component.het_group or 0) == number]
        lines += [_line(option) for option in _part_options(resources, steps, is_sequential=job.is_sequential)]
    return lines


def _job_options(job: Job) -> Iterator[str]:
    """Options of the whole job."""
    yield _line(f"--job-name={job.name}")
    yield _line(f"--output={job.log}")
    yield _line("--open-mode=append")  # a requeued job continues its log
    if job.array is not None:
        limit = f"%{job.array.max_running}" if job.array.max_running is not None else ""
        yield _line(f"--array=0-{job.array.count - 1}{limit}")
    if job.after:
        yield _line(f"--dependency={','.join(job.after)}")
        yield _line("--kill-on-invalid-dep=yes")  # otherwise it would wait forever
    if job.drain_s is not None:
        yield _line(f"--signal=B:USR1@{job.drain_s}")
    yield _line("--requeue" if job.requeue else "--no-requeue")


def _part_options(resources: Resources, steps: list[Step], *, is_sequential: bool) -> Iterator[str]:
    """What one part of the job requests: as configured, else as much as its components need together."""
    options = {
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "time": resources.time,
        "nodes": resources.nodes or max((step.component.nodes for step in steps), default=1),
        "ntasks-per-node": 1,  # of the job; each step sets its own
        "cpus-per-task": resources.cpus_per_task or _cpus(steps, is_sequential=is_sequential),
        "mem": resources.memory or _memory(steps),
        "gres": resources.gres,
        "gpus-per-node": resources.gpus_per_node or (None if resources.gres else _gpus(steps)),
        "comment": resources.comment,
        "mail-user": resources.mail_user,
        "mail-type": resources.mail_type,
    }
    yield from (f"--{name}={value}" for name, value in options.items() if value not in (None, ""))
    if resources.exclusive:
        yield "--exclusive"
    yield from resources.extra_sbatch


def _cpus(steps: list[Step], *, is_sequential: bool) -> int | None:
    """CPUs per node for all components that share it; None if one is enough."""
    counts = [(step.component.cpus_per_task or 1) * step.component.tasks_per_node for step in steps]
    total = max(counts, default=1) if is_sequential else sum(counts)
    return total if total > 1 else None


def _gpus(steps: list[Step]) -> int | None:
    return sum(step.component.gpus_per_task * step.component.tasks_per_node for step in steps) or None


def _memory(steps: list[Step]) -> str | None:
    sizes = [step.component.memory_mb for step in steps]
    total = sum(size for size in sizes if size)
    return f"{total}M" if total and all(sizes) else None


def _line(option: str) -> str:
    if "\n" in option:
        raise UserError(f"an sbatch option must be one line, got {option!r}")
    name, equals, value = option.partition("=")
    return f"#SBATCH {name}{equals}{shlex.quote(value) if equals else ''}"
