"""The `#SBATCH` lines of a job. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.cluster.site import Resources
    from gymnast.cluster.slurm.job import Job, Step


def directives(job: Job) -> list[str]:
    """The lines, one option each; the parts of a heterogeneous job are separated as Slurm wants it."""
    lines = [*_whole(job)]
    for number, resources in enumerate(job.resources):
        if number:
            lines.append("#SBATCH hetjob")
        steps = [step for step in job.steps if (step.component.het_group or 0) == number]
        lines += [_line(option) for option in _part(resources, steps, in_order=job.in_order)]
    return lines


def _whole(job: Job) -> Iterator[str]:
    """What is said once for all parts."""
    yield _line(f"--job-name={job.name}")
    yield _line(f"--output={job.log}")
    yield _line("--open-mode=append")  # a job that runs again goes on with its log
    if job.array is not None:
        limit = f"%{job.array.at_once}" if job.array.at_once is not None else ""
        yield _line(f"--array=0-{job.array.count - 1}{limit}")
    if job.after:
        yield _line(f"--dependency={','.join(job.after)}")
        yield _line("--kill-on-invalid-dep=yes")  # otherwise it waits for ever for what cannot happen any more
    if job.drain_s is not None:
        yield _line(f"--signal=B:USR1@{job.drain_s}")
    yield _line("--requeue" if job.requeue else "--no-requeue")


def _part(resources: Resources, steps: list[Step], *, in_order: bool) -> Iterator[str]:
    """What one part of the job asks for: as it was told, else as much as its components need together."""
    named = {
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "time": resources.time,
        "nodes": resources.nodes or max((step.component.nodes for step in steps), default=1),
        "ntasks-per-node": 1,  # the job's own count; each step says how many tasks it has
        "cpus-per-task": resources.cpus_per_task or _cpus(steps, in_order=in_order),
        "mem": resources.memory or _memory(steps),
        "gres": resources.gres,
        "gpus-per-node": resources.gpus_per_node or (None if resources.gres else _gpus(steps)),
        "comment": resources.comment,
        "mail-user": resources.mail_user,
        "mail-type": resources.mail_type,
    }
    yield from (f"--{name}={value}" for name, value in named.items() if value not in (None, ""))
    if resources.exclusive:
        yield "--exclusive"
    yield from resources.extra_sbatch


def _cpus(steps: list[Step], *, in_order: bool) -> int | None:
    """Processors of a node for all components that share it; None where one is enough."""
    counts = [(step.component.cpus_per_task or 1) * step.component.tasks_per_node for step in steps]
    wanted = max(counts, default=1) if in_order else sum(counts)
    return wanted if wanted > 1 else None


def _gpus(steps: list[Step]) -> int | None:
    return sum(step.component.gpus_per_task * step.component.tasks_per_node for step in steps) or None


def _memory(steps: list[Step]) -> str | None:
    known = [step.component.memory_mb for step in steps]
    total = sum(megabytes for megabytes in known if megabytes)
    return f"{total}M" if total and all(known) else None


def _line(option: str) -> str:
    if "\n" in option:
        raise UserError(f"an option of sbatch is one line, not {option!r}")
    name, equals, value = option.partition("=")
    return f"#SBATCH {name}{equals}{shlex.quote(value) if equals else ''}"
