"""The script of a job, as text that people can read, check and submit by hand. Pure.

User input is quoted; what is known only inside the job (its hosts, its number) is resolved there.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.errors import UserError
from gymnast.executors.slurm.directives import directives
from gymnast.executors.slurm.job import Job, ShellText, Step
from gymnast.executors.slurm.steps import format_command, hosts_variable, nodes_of, step_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.sidecars.component import Component

JOB_FOLDER: Final = ShellText('"$job"')
"""The folder of the running job: one for each array element and each requeue."""
_PID_FILE: Final = ShellText('"$job/main.pid"')
_WITH_PID: Final = 'echo "$$" >"$0" && exec "$@"'
_LITERAL: Final = "# shellcheck disable=SC2016,SC2317,SC2329 # quoted dollar signs are literal; a trap calls drain"

_IDENTITY: Final = """\
# One name for this job in every log and lease.
export GYMNAST_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}\""""

_JOIN_HOSTS: Final = """\
join_hosts() { # HOST…
  local IFS=,
  echo "$*"
}"""

_START: Final = """\
declare -A pids=()
start() { # NAME COMMAND…
  local name=$1
  shift
  "$@" </dev/null &
  pids[$name]=$!
}"""


_DRAIN: Final = """\
# Shortly before the time limit: finish what is in flight, hand the rest back. Slurm itself would signal every process
# of a step, and kill what the worker has started.
drained=
drain() {
  drained=yes
  local pid
  pid=$(<"$job/main.pid")
  if grep -qszFx "GYMNAST_JOB_ID=$GYMNAST_JOB_ID" "/proc/$pid/environ"; then
    kill -USR1 "$pid"
  else
    scancel --signal=USR1 "$GYMNAST_JOB_ID"
  fi
}
trap drain USR1
trap : TERM # scancel signals the steps, too: wait for them"""


def render(job: Job) -> str:
    if not job.steps:
        raise UserError("a job needs at least one step")
    parts = [
        "\n".join(["#!/bin/bash", *(f"# {line}" for line in job.description.splitlines()), *directives(job)]),
        _LITERAL,
        *_preamble(job),
        "set -euo pipefail"
        if job.is_sequential
        else "set -uo pipefail",  # after the site's lines, which may not support it
        _IDENTITY,
        *(_run_sequentially(job) if job.is_sequential else _run_together(job)),
    ]
    return "\n\n".join(parts) + "\n"


def _preamble(job: Job) -> Iterator[str]:
    if job.environment:
        yield "\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(job.environment.items()))
    if job.setup:
        # A file that these lines source would otherwise see the script's arguments, by which Slurm lists the job.
        yield "\n".join(["# From the cluster file.", "set --", *job.setup])


def _run_sequentially(job: Job) -> Iterator[str]:
    for step in job.steps:
        yield f"# {step.component.name}\n{format_command(step_command(job, step))}"


def _run_together(job: Job) -> Iterator[str]:
    """Start every component; wait for the main one, or for the first other one that ends."""
    yield (
        "# Where the components of this job find each other.\n"
        f'job={shlex.quote(job.folder)}/"$GYMNAST_JOB_ID.${{SLURM_RESTART_COUNT:-0}}"\n'
        'mkdir -p "$job"'
    )
    yield from _hosts(job)
    yield _START
    if job.drain_s is not None:
        yield _DRAIN
    for step in job.steps:
        recorded = _record_pid(step) if job.drain_s is not None and step.component is job.main else step
        yield f"start {step.component.name} {format_command(step_command(job, recorded))}"
    yield _wait(job)
    if job.requeue:
        yield _requeue(job.requeue)
    yield 'exit "$code"'


def _record_pid(step: Step) -> Step:
    """The step, writing its pid first: the script runs on the same node and can then signal that process alone."""
    return replace(step, words=("sh", "-c", _WITH_PID, _PID_FILE, *step.words))


def _hosts(job: Job) -> Iterator[str]:
    """Host names of those parts of the job of which a component uses only some nodes."""
    variables: dict[str, Component] = {}
    for step in job.steps:
        if step.component.nodes < nodes_of(job, step.component):
            variables.setdefault(hosts_variable(step.component), step.component)
    if not variables:
        return
    lines = ["# Host names of this job."]
    for name, component in variables.items():
        group = "" if component.het_group is None else f"_HET_GROUP_{component.het_group}"
        lines.append(f'mapfile -t {name} < <(scontrol show hostnames "$SLURM_JOB_NODELIST{group}")')
    yield "\n".join(lines)
    yield _JOIN_HOSTS


def _wait(job: Job) -> str:
    main = job.main.name
    others = [step.component.name for step in job.steps if step.component is not job.main]
    lines = _wait_for_any(main, others) if others else _wait_for(main)
    if job.drain_s is not None:
        lines.append(f'[[ -z $drained ]] || echo "gymnast: the time limit was near: {main} was asked to stop" >&2')
    return "\n".join(lines)


def _wait_for(main: str) -> list[str]:
    return [
        f"# The job ends with {main}. A signal interrupts a wait, not the process.",
        f'while kill -0 "${{pids[{main}]}}" 2>/dev/null; do',
        f'  wait "${{pids[{main}]}}"',
        "done",
        f'wait "${{pids[{main}]}}"',
        "code=$?",
    ]


def _wait_for_any(main: str, others: list[str]) -> list[str]:
    return [
        f"# The job ends with {main}, or with the first other component that does.",
        "ended=",
        "while [[ -z $ended ]]; do",
        "  sleep 1 &",
        "  wait $! # unlike sleep itself, this returns on a signal",
        f"  for name in {' '.join([main, *others])}; do",
        '    kill -0 "${pids[$name]}" 2>/dev/null || { ended=$name && break; }',
        "  done",
        "done",
        'wait "${pids[$ended]}"',
        "code=$?",
        f"if [[ $ended != {main} ]]; then",
        f'  echo "gymnast: component $ended ended (exit code $code) before {main} did" >&2',
        "  [[ $code -ne 0 ]] || code=1",
        "fi",
        'kill "${pids[@]}" 2>/dev/null || true',
        "wait",
    ]


def _requeue(times: int) -> str:
    return f"""\
# It reached its time limit with work left: requeue it, at most {times} time{"s" if times > 1 else ""}.
if [[ -n $drained && $code -eq {os.EX_TEMPFAIL} && ${{SLURM_RESTART_COUNT:-0}} -lt {times} ]]; then
  echo "gymnast: back into the queue (${{SLURM_RESTART_COUNT:-0}} of {times} times so far)" >&2
  scontrol requeue "$GYMNAST_JOB_ID" && sleep 60 # it ends here
fi"""
