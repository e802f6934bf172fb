"""What runs on a Ray node: an actor that supervises one worker process, records its state, and ends with it.

An actor and not a task: other processes find it by name, and it outlives the process that submitted it.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

import msgspec

from gymnast.executors.worker_processes import WorkerGroupSpec, supervise_workers


class WorkerActor:
    """Made an actor by `RayExecutor`. It works in a thread: a remote call would end with its caller."""

    def __init__(self, encoded_spec: bytes, job: str) -> None:
        spec = msgspec.json.decode(encoded_spec, type=WorkerGroupSpec)
        # The interpreter of this node's environment may be elsewhere.
        self._spec = msgspec.structs.replace(spec, command=(sys.executable, *spec.command[1:]))
        self._job = job
        self._ray: Any = import_module("ray")
        context = self._ray.get_runtime_context()
        self._node: str = context.get_node_id()
        self._handle: Any = context.current_actor
        threading.Thread(target=self._run, name="worker", daemon=True).start()

    def ping(self) -> bool:
        """Answers once the actor has started."""
        return True

    def _run(self) -> None:
        try:
            supervise_workers(self._spec, lambda _: self._job, lambda: False, node=self._node)
        finally:
            self._ray.kill(self._handle, no_restart=True)
