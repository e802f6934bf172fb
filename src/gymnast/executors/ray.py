"""Workers on an existing Ray cluster: one detached, named actor each, placed by Ray and never restarted by it.

Leases decide which worker takes over from a lost one, so Ray's own retries are off. The state of a worker is in the
run's folder; Ray is asked only about those that have not ended there. Only Ray's public API is used.
"""

from __future__ import annotations

import logging
import secrets
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import NotFoundError, StartError, UserError
from gymnast.executors.executor import Submission, WorkerRequest, ignore_intent
from gymnast.executors.job_folder import TOUCH_INTERVAL_S, JobFolder
from gymnast.executors.ray_actor import WorkerActor
from gymnast.executors.worker_command import (
    make_intent,
    select_workers,
    submission_folder,
    worker_command,
    worker_log_path,
)
from gymnast.executors.worker_processes import STOP_GRACE_S, WorkerGroupSpec
from gymnast.types.job import JobState, JobView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_NAMESPACE: Final = "gymnast"
_CONNECT_S: Final = 10.0
_SILENT_S: Final = 4 * TOUCH_INTERVAL_S
_FIRST_ACTOR_S: Final = 30.0
"""How long a submit waits for the first actor to start, or for Ray to say why none can."""
_LOOKUPS: Final = 10
_CLIENT: Final = "ray://"
_CLIENT_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where the cluster is, and the resources of a worker."""

    address: str | None = None
    """`ray://host:10001`, `host:6379`, or None for the cluster that this node belongs to."""
    cpus: float = 1.0
    gpus: float = 0.0
    memory_mb: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom resources of the cluster, by name."""
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """Ray's runtime environment of the workers, passed on unchanged: nothing is uploaded unless it says so."""
    grace_s: float = STOP_GRACE_S


class RayExecutor:
    """Starts workers as actors. `max_running` limits how many are started: they run until nothing is left."""

    name = "ray"

    def __init__(self, options: RayOptions | None = None) -> None:
        self._options = options or RayOptions()

    def submit(
        self, request: WorkerRequest, number: int, note: Callable[[Submission], None] = ignore_intent
    ) -> Submission:
        """Start the workers. Those without room yet wait in Ray's queue."""
        count = min(request.max_running or request.count, request.count)
        request = replace(request, run=request.run.resolve(), count=count)
        folder = JobFolder(submission_folder(request.run, number))
        job = f"gymnast-{request.run.stem}-{number}-{secrets.token_hex(4)}"
        details = {"folder": str(folder.path), "address": self._options.address or "", "job": job}
        intent = make_intent(self.name, request, number, details)
        with _connect(self._options.address) as ray:
            folder.create()
            note(intent)
            self._start(ray, request, number, job)
        return _with_job(intent)

    def find(self, intent: Submission) -> Submission | None:
        """What was started for an intent. Its actors are named after it; `states` asks Ray for them."""
        return _with_job(intent)

    def states(self, submission: Submission) -> list[JobView]:
        """The jobs of its workers. Ray is asked about those whose records are not recent."""
        folder = JobFolder(Path(submission.details["folder"]))
        views = {worker: _read_recent(folder, worker) for worker in range(submission.workers)}
        silent = [worker for worker, view in views.items() if view is None]
        if silent:
            with _connect(submission.details["address"] or None) as ray:
                alive = {str(node["NodeID"]) for node in ray.nodes() if node["Alive"]}
                has_actor = {worker: get_actor(ray, _job(submission, worker)) is not None for worker in silent}
            for worker in silent:
                job = _job(submission, worker)
                views[worker] = _view_silent(folder, worker, job, alive, has_actor=has_actor[worker])
        return [view for view in views.values() if view is not None]

    def cancel(self, submission: Submission, jobs: tuple[str, ...] = ()) -> None:
        """End its workers: they hand back what they hold, and are killed if that takes too long."""
        folder = JobFolder(Path(submission.details["folder"]))
        workers = select_workers(submission.workers, submission.jobs[0], jobs)
        folder.request_stop(workers)
        with _connect(submission.details["address"] or None) as ray:
            for worker in workers:
                actor = get_actor(ray, _job(submission, worker))
                if actor is not None and folder.read(worker) is None:
                    ray.kill(actor, no_restart=True)  # still queued: it would not see the request

    def _start(self, ray: Any, request: WorkerRequest, number: int, job: str) -> None:
        options = self._options
        actors: list[Any] = []
        try:
            remote = ray.remote(WorkerActor)
            for worker in range(request.count):
                spec = WorkerGroupSpec(
                    folder=str(submission_folder(request.run, number)),
                    command=worker_command(request, die_with_parent=True),
                    workers={worker: str(worker_log_path(request, number, worker))},
                    max_running=1,
                    environment=request.environment,
                    grace_s=options.grace_s,
                )
                name = f"{job}_{worker}"
                actors.append(remote.options(**_actor_options(options, name)).remote(msgspec.json.encode(spec), name))
            _raise_if_dead(ray, actors)
        except UserError:
            raise
        except Exception as error:
            for actor in actors:
                ray.kill(actor, no_restart=True)
            raise StartError(f"Ray did not start the workers: {_message(error)}", next="see `ray status`") from error


def _with_job(intent: Submission) -> Submission:
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


def _raise_if_dead(ray: Any, actors: list[Any]) -> None:
    """Raise Ray's error if its actors cannot start, e.g. for lack of an environment. All of them may be queued."""
    started, _ = ray.wait([actor.ping.remote() for actor in actors], num_returns=1, timeout=_FIRST_ACTOR_S)
    ray.get(started)


def _read_recent(folder: JobFolder, worker: int) -> JobView | None:
    """The record of a worker in the run's folder; None if it may be outdated."""
    record = folder.read(worker)
    if record is None or not (record.state.is_over or folder.silent_s(worker) < _SILENT_S):
        return None
    return record.view()


def _view_silent(folder: JobFolder, worker: int, job: str, alive: set[str], *, has_actor: bool) -> JobView:
    """What Ray says of a worker, or its record if that was written meanwhile."""
    record = folder.read(worker)
    if record is None:
        if has_actor:
            return JobView(job=job, state=JobState.PENDING)
        if folder.is_stop_requested(worker):
            return JobView(job=job, state=JobState.CANCELLED)
        return JobView(job=job, state=JobState.UNKNOWN, reason="Ray has no such actor any more; it never started")
    if record.state.is_over or has_actor:
        return record.view()
    if record.node not in alive:
        return record.view(JobState.NODE_FAILED, f"Ray lost the node {record.node} ({record.host})")
    return record.view(JobState.FAILED, "its actor died; see Ray's logs of that node")


def _job(submission: Submission, worker: int) -> str:
    return f"{submission.jobs[0]}_{worker}"


def get_actor(ray: Any, name: str, pause_s: float = 0.2) -> Any | None:
    """An actor by its name, or None if it has ended.

    Of one that is about to end, Ray may have the name although its class is already forgotten, and says so in an
    assertion. A moment later both are gone.
    """
    for _ in range(_LOOKUPS):
        try:
            return ray.get_actor(name, namespace=_NAMESPACE)
        except ValueError:
            return None
        except AssertionError:
            time.sleep(pause_s)
    return None


@contextmanager
def _connect(address: str | None) -> Iterator[Any]:
    """Ray, connected to the cluster. A connection that this process already has is used and left open."""
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        next_step = "pip install 'gymnast[ray]', in the version that the cluster runs"
        raise NotFoundError("workers on Ray need the extra 'ray'", next=next_step) from error
    if ray.is_initialized():
        yield ray
        return
    try:
        _check_reachable(address)
        init_ray(ray, address or "auto")
    except Exception as error:
        where = f"the Ray cluster at {address}" if address else "a Ray cluster that this node belongs to"
        if _wants_token(error):
            hint = "set RAY_AUTH_MODE=token; Ray reads the token from RAY_AUTH_TOKEN, or from ~/.ray/auth_token"
            raise StartError(f"{where} requires a token", next=hint) from error
        next_step = "name it (ray://HOST:10001), or start one: ray start --head"
        raise StartError(f"cannot reach {where}: {_message(error)}", next=next_step) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _wants_token(error: BaseException | None) -> bool:
    """Whether a connection failed for want of a token, which newer versions of Ray make by themselves.

    Ray keeps the reason as text: the traceback of its last try.
    """
    while error is not None:
        if "InvalidAuthToken" in str(error):
            return True
        error = error.__cause__
    return False


def init_ray(ray: Any, address: str) -> None:
    """Connect. The server that a head starts for a client sometimes dies at once, so a client retries."""
    for left in reversed(range(_CLIENT_TRIES)):
        try:
            ray.init(address, namespace=_NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            if not address.startswith(_CLIENT):
                raise
            # Ray stays in client mode otherwise, and this process could connect to no other cluster.
            import_module("ray.util.client").ray.disconnect()
            if not left or not isinstance(error, ConnectionAbortedError):
                raise
        else:
            return


def _check_reachable(address: str | None) -> None:
    """Raise OSError immediately if no server listens there; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix(_CLIENT).rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), _CONNECT_S).close()


def _message(error: Exception) -> str:
    """The message of a Ray error, without the remote traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
