"""The whole script of a job, as text that people can read, check and submit by hand. Pure.

Words of others are quoted; what is known only inside the job (its hosts, its number) is resolved there.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.cluster.slurm.directives import directives
from gymnast.cluster.slurm.job import InJob
from gymnast.cluster.slurm.steps import hosts_variable, nodes_of, shown, step_command
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.cluster.components.spec import Component
    from gymnast.cluster.slurm.job import Job, Step

JOB_FOLDER: Final = InJob('"$job"')
"""The folder of the job that runs, one for each element of an array and each time it is queued again."""
_PID_FILE: Final = InJob('"$job/main.pid"')
_WITH_PID: Final = 'echo "$$" >"$0" && exec "$@"'
_LITERAL: Final = "# shellcheck disable=SC2016,SC2317,SC2329 # quoted dollar signs are literal; a trap calls drain"

_IDENTITY: Final = """\
# One name for this job in every log and lease.
export GYMNAST_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}\""""

_LISTED: Final = """\
listed() { # HOST…
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
# Before the time is up: finish what is in flight, hand the rest back. Slurm itself would signal every process of a
# step, and what the worker has started would die of it.
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
trap : TERM # who cancels the job signals its steps, too: wait for them"""


def render(job: Job) -> str:
    """The script."""
    if not job.steps:
        raise UserError("a job without a step does nothing")
    parts = [
        "\n".join(["#!/bin/bash", *(f"# {line}" for line in job.about.splitlines()), *directives(job)]),
        _LITERAL,
        *_surroundings(job),
        "set -euo pipefail" if job.in_order else "set -uo pipefail",  # after what others wrote, which may not bear it
        _IDENTITY,
        *(_in_order(job) if job.in_order else _together(job)),
    ]
    return "\n\n".join(parts) + "\n"


def _surroundings(job: Job) -> Iterator[str]:
    if job.environment:
        yield "\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(job.environment.items()))
    if job.setup:
        # A file that these lines source would take the script's words, by which Slurm knows the job, for its own.
        yield "\n".join(["# From the cluster's file.", "set --", *job.setup])


def _in_order(job: Job) -> Iterator[str]:
    for step in job.steps:
        yield f"# {step.component.name}\n{shown(step_command(job, step))}"


def _together(job: Job) -> Iterator[str]:
    """Start every component, wait for the main one or for the first other one that dies."""
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
        known = _known(step) if job.drain_s is not None and step.component is job.main else step
        yield f"start {step.component.name} {shown(step_command(job, known))}"
    yield _wait(job)
    if job.requeue:
        yield _requeue(job.requeue)
    yield 'exit "$code"'


def _known(step: Step) -> Step:
    """The step, saying which process it is; the script runs on the same node and can then signal that one alone."""
    return replace(step, words=("sh", "-c", _WITH_PID, _PID_FILE, *step.words))


def _hosts(job: Job) -> Iterator[str]:
    """Host names of those parts of the job of which a component uses only some nodes."""
    wanted: dict[str, Component] = {}
    for step in job.steps:
        if step.component.nodes < nodes_of(job, step.component):
            wanted.setdefault(hosts_variable(step.component), step.component)
    if not wanted:
        return
    lines = ["# Host names, as they are in this job."]
    for name, component in wanted.items():
        group = "" if component.het_group is None else f"_HET_GROUP_{component.het_group}"
        lines.append(f'mapfile -t {name} < <(scontrol show hostnames "$SLURM_JOB_NODELIST{group}")')
    yield "\n".join(lines)
    yield _LISTED


def _wait(job: Job) -> str:
    main = job.main.name
    others = [step.component.name for step in job.steps if step.component is not job.main]
    lines = _wait_for_any(main, others) if others else _wait_for(main)
    if job.drain_s is not None:
        lines.append(f'[[ -z $drained ]] || echo "gymnast: the job\'s time was almost up: {main} was told to end" >&2')
    return "\n".join(lines)


def _wait_for(main: str) -> list[str]:
    return [
        f"# The job ends with {main}. A signal ends a wait, not what is waited for.",
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
        "  wait $! # unlike sleep itself, this lets a signal through at once",
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
# Its time was up with work left: into the queue again, at most {times} time{"s" if times > 1 else ""}.
if [[ -n $drained && $code -eq {os.EX_TEMPFAIL} && ${{SLURM_RESTART_COUNT:-0}} -lt {times} ]]; then
  echo "gymnast: back into the queue (${{SLURM_RESTART_COUNT:-0}} of {times} times so far)" >&2
  scontrol requeue "$GYMNAST_JOB_ID" && sleep 60 # it ends here
fi"""
