"""`python3 sidecar.pyz --spec FILE --folder JOB [--task N]`: run one task of one component of a job."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gymnast.sidecars.sidecar import host_environment
from gymnast.sidecars.sidecar.job_registry import JobRegistry, read_addresses, read_death_notes
from gymnast.sidecars.sidecar.port_lease import lease_port
from gymnast.sidecars.sidecar.spec import SidecarSpec, read_sidecar_spec
from gymnast.sidecars.sidecar.stop_signals import StopSignals
from gymnast.sidecars.sidecar.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SET_CHILD_SUBREAPER = 36
_MIN_POLL_S = 0.25
_MAX_POLL_S = 5.0
EXIT_DEPENDENCY_FAILED = 70
"""The exit code of a component that never started because another one died or was not ready in time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a component; returns its exit code."""
    parser = argparse.ArgumentParser(description="Run one task of one component of a job.")
    parser.add_argument("--spec", type=Path, required=True, help="the component's file")
    parser.add_argument("--folder", type=Path, help="the job's folder (default: the folder of --spec)")
    parser.add_argument("--task", type=int, help="which task of the component (default: SLURM_PROCID, or 0)")
    options = parser.parse_args(arguments)
    spec = read_sidecar_spec(options.spec)
    folder = (options.folder or options.spec.parent).resolve()
    registry = JobRegistry(folder, spec.name, host_environment.task_number(options.task))
    log = make_logger(spec.name, registry.task)
    stop_signals = StopSignals()
    stop_signals.listen()
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # adopt what a killed guard leaves behind, to end it
    registry.clear()
    problem = wait_for_needs(spec, registry, stop_signals)
    if problem is not None:
        log(problem)
        return 0 if stop_signals.is_requested else EXIT_DEPENDENCY_FAILED
    try:
        values = placeholder_values(spec, registry, stop_signals)
        return Supervisor(spec, registry, values, stop_signals, log).run()
    except (OSError, ValueError) as error:
        what = f"{spec.name} cannot be started: {error}"
        note = {"component": spec.name, "task": registry.task, "what": what, "exit_code": 1, "log_tail": ""}
        registry.write_death_note({**note, "log": str(registry.log), "at": time.time()})
        log(what)
        return 1


def wait_for_needs(spec: SidecarSpec, registry: JobRegistry, stop_signals: StopSignals) -> str | None:
    """Wait for the components that this one needs. Returns the problem if one of them does not get ready."""
    deadline, pause_s = time.monotonic() + spec.needs_deadline_s, _MIN_POLL_S
    for name, number in spec.needs.items():
        while len(read_addresses(registry.folder, name)) < number:
            notes = [note for note in read_death_notes(registry.folder) if note["component"] in spec.needs]
            if notes:
                return f"{spec.name} is not started: {notes[0]['what']}"
            if stop_signals.is_requested:
                return f"{spec.name} was stopped while it waited for {name}"
            if time.monotonic() > deadline:
                ready = len(read_addresses(registry.folder, name))
                return f"{spec.name} waited {spec.needs_deadline_s:g} s for {name}: {ready} of {number} are ready"
            stop_signals.wait(pause_s)
            pause_s = min(1.5 * pause_s, _MAX_POLL_S)
    return None


def placeholder_values(spec: SidecarSpec, registry: JobRegistry, stop_signals: StopSignals) -> dict[str, str]:
    """Values that are known before the component starts: all except its own port."""
    values = {"host": spec.bind, "task": str(registry.task), "folder": str(registry.folder), "gpus": ""}
    if spec.gpus_per_task:
        share = host_environment.gpu_share(
            host_environment.visible_gpus(),
            host_environment.local_rank(registry.task, spec.tasks_per_node),
            spec.gpus_per_task,
            spec.tasks_per_node,
            bound=host_environment.is_bound_by_slurm(),
        )
        values["gpus"] = ",".join(share)
    for name in spec.needs:
        values[f"addresses:{name}"] = f"addresses://{registry.folder}/addresses/{name}"
        for address in read_addresses(registry.folder, name)[:1]:
            values.update({f"{key}:{name}": str(address[key]) for key in ("host", "port", "url")})
    if spec.is_multi_node:
        head = _find_head(spec, registry, stop_signals)
        values.update(head=str(head["host"]), head_port=str(head["port"]))
    return values


def _find_head(spec: SidecarSpec, registry: JobRegistry, stop_signals: StopSignals) -> dict[str, object]:
    """The host and port that the first task of a multi-node program publishes."""
    if registry.task == 0:
        lease = lease_port("0.0.0.0")  # noqa: S104 - the other nodes have to reach it
        lease.unbind()
        names = host_environment.host_names() if spec.bind != "127.0.0.1" else ["127.0.0.1"]
        registry.publish_head({"host": names[0], "port": lease.port})
    deadline = time.monotonic() + spec.needs_deadline_s
    while time.monotonic() < deadline and not stop_signals.is_requested:
        head = registry.read_head(spec.name, 0)
        if head is not None:
            return head
        stop_signals.wait(_MIN_POLL_S)
    raise ValueError(f"the first task of {spec.name} did not publish its address")


def make_logger(name: str, task: int) -> Callable[[str], None]:
    """Log to standard error, with the name of the component before each line."""

    def log(text: str) -> None:
        with contextlib.suppress(OSError):  # an unwritable job log is no reason to end the component
            for line in text.splitlines():
                sys.stderr.write(f"[{name}.{task}] {line}\n")
            sys.stderr.flush()

    return log


if __name__ == "__main__":
    sys.exit(main())
