"""A job's components on this machine, without a scheduler: started in the order of their needs, ended together.

The job ends with its main component, or with the first other one that dies, which the result names with its log's tail.
`python -m gymnast.sidecars.local_job SPECS JOBS` runs the job that a folder of specs describes.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.config.environ import child_environ, job_id
from gymnast.sidecars.packing import SIDECAR_FILE, JobComponent, read_job_spec
from gymnast.sidecars.sidecar.job_registry import read_death_notes
from gymnast.sidecars.stop_request import stop_on_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_POLL_S: Final = 0.1
_KILL_AFTER_S: Final = 10.0
_STDERR: Final = 2


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended."""

    exit_code: int
    component: str
    """The component it ended with."""
    message: str | None = None
    """If it failed: what happened, and the tail of the component's log."""


class _Task:
    """A running sidecar."""

    def __init__(
        self, component: JobComponent, task: int, specs: Path, job: Path, environment: Mapping[str, str]
    ) -> None:
        self.component = component
        self.process = subprocess.Popen(  # noqa: S603 - our own program
            [
                sys.executable,
                str(specs / SIDECAR_FILE),
                *("--spec", str(specs / f"{component.name}.json")),
                *("--folder", str(job), "--task", str(task)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=_STDERR,  # the output of jobs is log output; results are in files
            start_new_session=True,  # a terminal's Ctrl-C reaches only us, and we end them in order
            env=child_environ({"PYTHONUNBUFFERED": "1", **environment}),
        )

    @property
    def code(self) -> int | None:
        return self.process.poll()

    def wait_or_kill(self, grace_s: float) -> None:
        """Wait for its end; kill it if that takes too long."""
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run_local_job(
    specs: Path,
    job: Path,
    is_stop_requested: Callable[[], bool] = lambda: False,
    environment: Mapping[str, str] | None = None,
) -> JobResult:
    """Run the job that a folder of specs describes. `job`: a folder of this one job."""
    spec = read_job_spec(specs)
    job.mkdir(parents=True, exist_ok=True)
    tasks: list[_Task] = []
    try:
        for component in spec.components:
            tasks += [_Task(component, number, specs, job, environment or {}) for number in range(component.tasks)]
        first = _wait_for_first_end(tasks, is_stop_requested)
    finally:
        _end_all(tasks)
    return _make_result(job, first, tasks)


def _wait_for_first_end(tasks: list[_Task], is_stop_requested: Callable[[], bool]) -> _Task | None:
    """The task that the job ends with; None if a stop was requested."""
    while not is_stop_requested():
        for task in tasks:
            if task.code is not None and (task.component.is_main or task.code != 0):
                return task
        time.sleep(_POLL_S)
    return None


def _end_all(tasks: list[_Task]) -> None:
    """End the main component first: it may need the others while it finishes."""
    for is_main in (True, False):
        ending = [task for task in tasks if task.component.is_main is is_main]
        for task in ending:
            if task.code is None:
                task.process.send_signal(signal.SIGTERM)
        for task in ending:
            task.wait_or_kill(task.component.stop_s + _KILL_AFTER_S)


def _make_result(job: Path, first: _Task | None, tasks: list[_Task]) -> JobResult:
    main = next(task for task in tasks if task.component.is_main)
    main_code = main.code if main.code is not None and main.code >= 0 else 1
    if first is None or (first is main and main_code == 0):
        return JobResult(main_code, main.component.name)
    notes = read_death_notes(job)
    if notes:  # the earliest is the cause of the others
        note = notes[0]
        message = f"{note['what']}\n{note['log_tail']}" if note["log_tail"] else str(note["what"])
        return JobResult(int(note["exit_code"]) or 1, str(note["component"]), message)
    code = first.code if first.code is not None and first.code > 0 else 1
    return JobResult(code, first.component.name, f"{first.component.name} ended (exit code {first.code})")


def main() -> int:
    """Run one job; its folder is named after the job's id."""
    parser = argparse.ArgumentParser(prog="python -m gymnast.sidecars.local_job")
    parser.add_argument("specs", type=Path)
    parser.add_argument("jobs", type=Path)
    arguments = parser.parse_args()
    job = arguments.jobs / (job_id() or f"{time.time_ns()}")
    with stop_on_signals() as is_stop_requested:
        result = run_local_job(arguments.specs, job, is_stop_requested)
    if result.message:
        sys.stderr.write(f"the job ended with {result.component}: {result.message}\n")
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
