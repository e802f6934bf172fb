"""Workers on an existing Ray cluster: one detached, named actor each, placed by Ray, never started again by Ray.

Leases decide who goes on with what a lost worker held, so Ray's own retries are off. How a worker stands is in the
run's folder; Ray is asked only about those that have not ended there. Only public parts of Ray are used.
"""

from __future__ import annotations

import logging
import secrets
import socket
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.cluster.executor import JobState, JobView, Submission, unnoted
from gymnast.cluster.job_folder import TOUCHED_EVERY_S, JobFolder
from gymnast.cluster.kept import END_GRACE_S, Keeping
from gymnast.cluster.ray_actor import WorkerActor
from gymnast.cluster.worker_command import chosen, intended, job_folder, worker_command, worker_log
from gymnast.errors import NotFoundError, StartError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gymnast.cluster.executor import WorkersWanted

_NAMESPACE: Final = "gymnast"
_LISTEN_S: Final = 10.0
_SILENT_S: Final = 4 * TOUCHED_EVERY_S
_FIRST_LOOK_S: Final = 30.0
"""How long a submit waits for the first actor that starts, or for Ray to say why none can."""


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where the cluster is and what a worker takes of it."""

    address: str | None = None
    """`ray://host:10001`, `host:6379`, or None for the cluster that this node belongs to."""
    cpus: float = 1.0
    gpus: float = 0.0
    memory_mb: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    """Resources of the cluster's own, by name."""
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """Ray's runtime environment of the workers; nothing is added to it and nothing is uploaded unless it says so."""
    grace_s: float = END_GRACE_S


class RayExecutor:
    """Starts workers as actors. `at_once` limits how many are started at all: they work until nothing is left."""

    name = "ray"

    def __init__(self, options: RayOptions | None = None) -> None:
        self._options = options or RayOptions()

    def submit(self, wanted: WorkersWanted, number: int, note: Callable[[Submission], None] = unnoted) -> Submission:
        """Start the workers; those for which there is no room yet wait in Ray's queue."""
        wanted = replace(wanted, run=wanted.run.resolve(), count=min(wanted.at_once or wanted.count, wanted.count))
        folder = JobFolder(job_folder(wanted.run, number))
        job = f"gymnast-{wanted.run.stem}-{number}-{secrets.token_hex(4)}"
        details = {"folder": str(folder.path), "address": self._options.address or "", "job": job}
        intent = intended(self.name, wanted, number, details)
        with _connected(self._options.address) as ray:
            folder.create()
            note(intent)
            self._start(ray, wanted, number, job)
        return _begun(intent)

    def find(self, intent: Submission) -> Submission | None:
        """What was started for an intent. Its actors have their names from it; `states` asks Ray for them."""
        return _begun(intent)

    def states(self, submission: Submission) -> list[JobView]:
        """How its workers stand. Ray is asked about those of which nothing was heard lately."""
        folder = JobFolder(Path(submission.details["folder"]))
        found = {worker: _heard(folder, worker) for worker in range(submission.workers)}
        silent = [worker for worker, view in found.items() if view is None]
        if silent:
            with _connected(submission.details["address"] or None) as ray:
                alive = {str(node["NodeID"]) for node in ray.nodes() if node["Alive"]}
                has_actor = {worker: _actor(ray, _job(submission, worker)) is not None for worker in silent}
            for worker in silent:
                found[worker] = _asked(folder, worker, _job(submission, worker), alive, has_actor=has_actor[worker])
        return [view for view in found.values() if view is not None]

    def cancel(self, submission: Submission, jobs: tuple[str, ...] = ()) -> None:
        """End its workers: they hand back what they hold, and are killed if that takes long."""
        folder = JobFolder(Path(submission.details["folder"]))
        workers = chosen(submission.workers, submission.jobs[0], jobs)
        folder.ask_end(workers)
        with _connected(submission.details["address"] or None) as ray:
            for worker in workers:
                actor = _actor(ray, _job(submission, worker))
                if actor is not None and folder.read(worker) is None:
                    ray.kill(actor, no_restart=True)  # it waits for room: nobody is there who would hear

    def _start(self, ray: Any, wanted: WorkersWanted, number: int, job: str) -> None:
        options = self._options
        started: list[Any] = []
        try:
            remote = ray.remote(WorkerActor)
            for worker in range(wanted.count):
                keeping = Keeping(
                    folder=str(job_folder(wanted.run, number)),
                    command=worker_command(wanted, tethered=True),
                    workers={worker: str(worker_log(wanted, number, worker))},
                    at_once=1,
                    environment=wanted.environment,
                    grace_s=options.grace_s,
                )
                name = f"{job}_{worker}"
                started.append(
                    remote.options(**_actor_options(options, name)).remote(msgspec.json.encode(keeping), name)
                )
            _refuse_if_dead(ray, started)
        except UserError:
            raise
        except Exception as error:
            for actor in started:
                ray.kill(actor, no_restart=True)
            raise StartError(f"Ray did not start the workers: {_words(error)}", next="see `ray status`") from error


def _begun(intent: Submission) -> Submission:
    return msgspec.structs.replace(intent, jobs=(intent.details["job"],))


def _actor_options(options: RayOptions, name: str) -> dict[str, Any]:
    memory = {} if options.memory_mb is None else {"memory": options.memory_mb << 20}
    return {
        "name": name,
        "namespace": _NAMESPACE,
        "lifetime": "detached",
        "num_cpus": options.cpus,
        "num_gpus": options.gpus,
        "resources": dict(options.resources) or None,
        "runtime_env": dict(options.runtime_env) or None,
        "max_restarts": 0,
        "max_task_retries": 0,
        "scheduling_strategy": "SPREAD",
        **memory,
    }


def _refuse_if_dead(ray: Any, actors: list[Any]) -> None:
    """Raise what Ray says if its actors cannot live, e.g. for want of an environment. They may all wait for room."""
    answered, _ = ray.wait([actor.is_there.remote() for actor in actors], num_returns=1, timeout=_FIRST_LOOK_S)
    ray.get(answered)


def _heard(folder: JobFolder, worker: int) -> JobView | None:
    """What the run's folder says of a worker; None where that may be too old."""
    record = folder.read(worker)
    if record is None or not (record.state.is_over or folder.heard_s(worker) < _SILENT_S):
        return None
    return record.view()


def _asked(folder: JobFolder, worker: int, job: str, alive: set[str], *, has_actor: bool) -> JobView:
    """What Ray says of a worker, or what its record says if that came meanwhile."""
    record = folder.read(worker)
    if record is None:
        if has_actor:
            return JobView(job=job, state=JobState.PENDING)
        if folder.is_asked_to_end(worker):
            return JobView(job=job, state=JobState.CANCELLED)
        return JobView(job=job, state=JobState.UNKNOWN, reason="Ray has no such actor any more; it never started")
    if record.state.is_over or has_actor:
        return record.view()
    if record.node not in alive:
        return record.view(JobState.NODE_FAILED, f"Ray lost the node {record.node} ({record.host})")
    return record.view(JobState.FAILED, "its actor died; see Ray's logs of that node")


def _job(submission: Submission, worker: int) -> str:
    return f"{submission.jobs[0]}_{worker}"


def _actor(ray: Any, name: str) -> Any | None:
    try:
        return ray.get_actor(name, namespace=_NAMESPACE)
    except ValueError:
        return None


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Ray, connected to the cluster. A connection that this process has already is used and left alone."""
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        next_step = "pip install 'gymnast[ray]', in the version that the cluster runs"
        raise NotFoundError("workers on Ray need the extra 'ray'", next=next_step) from error
    if ray.is_initialized():
        yield ray
        return
    try:
        _refuse_if_nobody_listens(address)
        ray.init(address or "auto", namespace=_NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        where = f"the Ray cluster at {address}" if address else "a Ray cluster that this node belongs to"
        next_step = "name it (ray://HOST:10001), or start one: ray start --head"
        raise StartError(f"cannot reach {where}: {_words(error)}", next=next_step) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _refuse_if_nobody_listens(address: str | None) -> None:
    """Raise OSError at once; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), _LISTEN_S).close()


def _words(error: Exception) -> str:
    """What an error of Ray says, without its traceback of the other side."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
