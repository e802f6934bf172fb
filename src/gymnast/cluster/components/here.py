"""One job's components on this machine, without a scheduler: started in the order of their needs, ended together.

The job ends with its main component, or with the first other one that dies, by name and with the end of its log.
`python -m gymnast.cluster.components.here ORDERS JOBS` runs the job that a folder of orders describes.
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

from gymnast.cluster.components.companion.board import deaths
from gymnast.cluster.components.packing import COMPANION, read_job
from gymnast.cluster.local_keeper import Asked
from gymnast.config.environ import child_environ, job_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gymnast.cluster.components.packing import OrderedComponent

_POLL_S: Final = 0.1
_KILL_AFTER_S: Final = 10.0
_STDERR: Final = 2


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended."""

    exit_code: int
    component: str
    """The component it ended with."""
    said: str | None = None
    """Where that was not as it should be: what happened, and the end of its log."""


class _Task:
    """A companion that runs."""

    def __init__(
        self, component: OrderedComponent, task: int, orders: Path, job: Path, extra: Mapping[str, str]
    ) -> None:
        self.component = component
        self.process = subprocess.Popen(  # noqa: S603 - our own program
            [
                sys.executable,
                str(orders / COMPANION),
                *("--spec", str(orders / f"{component.name}.json")),
                *("--folder", str(job), "--task", str(task)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=_STDERR,  # what jobs say is talk; results are in files
            start_new_session=True,  # a terminal's Ctrl-C is for us, who then end them in order
            env=child_environ({"PYTHONUNBUFFERED": "1", **extra}),
        )

    @property
    def code(self) -> int | None:
        return self.process.poll()

    def end(self, grace_s: float) -> None:
        """Wait for its end; kill it if that takes too long."""
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run_here(
    orders: Path, job: Path, asked: Callable[[], bool] = lambda: False, environment: Mapping[str, str] | None = None
) -> JobEnd:
    """Run the job whose orders are in a folder; `job` is a folder of this one job. `asked` says when to end it."""
    order = read_job(orders)
    job.mkdir(parents=True, exist_ok=True)
    tasks: list[_Task] = []
    try:
        for component in order.components:
            tasks += [_Task(component, number, orders, job, environment or {}) for number in range(component.tasks)]
        first = _first_end(tasks, asked)
    finally:
        _end_all(tasks)
    return _verdict(job, first, tasks)


def _first_end(tasks: list[_Task], asked: Callable[[], bool]) -> _Task | None:
    """The task that the job ends with; None if we were asked to end it."""
    while not asked():
        for task in tasks:
            if task.code is not None and (task.component.is_main or task.code != 0):
                return task
        time.sleep(_POLL_S)
    return None


def _end_all(tasks: list[_Task]) -> None:
    """The main component first, which may still need the others while it finishes."""
    for is_main in (True, False):
        chosen = [task for task in tasks if task.component.is_main is is_main]
        for task in chosen:
            if task.code is None:
                task.process.send_signal(signal.SIGTERM)
        for task in chosen:
            task.end(task.component.stop_s + _KILL_AFTER_S)


def _verdict(job: Path, first: _Task | None, tasks: list[_Task]) -> JobEnd:
    main = next(task for task in tasks if task.component.is_main)
    main_code = main.code if main.code is not None and main.code >= 0 else 1
    if first is None or (first is main and main_code == 0):
        return JobEnd(main_code, main.component.name)
    notes = deaths(job)
    if notes:  # the earliest is the cause; others followed
        note = notes[0]
        said = f"{note['what']}\n{note['log_tail']}" if note["log_tail"] else str(note["what"])
        return JobEnd(int(note["exit_code"]) or 1, str(note["component"]), said)
    code = first.code if first.code is not None and first.code > 0 else 1
    return JobEnd(code, first.component.name, f"{first.component.name} ended (exit code {first.code})")


def main() -> int:
    """Run one job; its folder is named after the job's id."""
    parser = argparse.ArgumentParser(prog="python -m gymnast.cluster.components.here")
    parser.add_argument("orders", type=Path)
    parser.add_argument("jobs", type=Path)
    told = parser.parse_args()
    asked = Asked()
    asked.listen()
    end = run_here(told.orders, told.jobs / (job_id() or f"{time.time_ns()}"), asked)
    if end.said:
        sys.stderr.write(f"the job ended with {end.component}: {end.said}\n")
    return end.exit_code


if __name__ == "__main__":
    sys.exit(main())
