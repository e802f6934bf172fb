"""The process that supervises the workers of a local submission: it outlives the shell that submitted them.

Started by `LocalExecutor`, which passes the spec on standard input and reads the supervisor's name from its output.
"""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from gymnast.executors.worker_processes import WorkerGroupSpec, supervise_workers
from gymnast.runtime.registry import process_start
from gymnast.sidecars.stop_request import stop_on_signals


def supervisor_name(pid: int) -> str:
    """A name for a supervisor that no other process of this boot has."""
    return f"{pid}-{process_start(pid)}"


def job_name(supervisor: str, worker: int) -> str:
    """The job id of a supervisor's worker."""
    return f"{supervisor}_{worker}"


def main() -> None:
    """Go to the background, report our name, and supervise the workers."""
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerGroupSpec)
    child = os.fork()
    if child:
        sys.stdout.write(supervisor_name(child))
        sys.stdout.flush()
        os._exit(0)  # the child runs the handlers and flushes the buffers that were copied by the fork
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    name = supervisor_name(os.getpid())
    with stop_on_signals() as is_stop_requested:
        supervise_workers(spec, lambda worker: job_name(name, worker), is_stop_requested)


if __name__ == "__main__":
    main()
