"""What runs on a Ray node: an actor that keeps one worker process, records how it stands, and goes when it is over.

An actor and not a task: it has a name under which other processes find it, and it outlives whoever submitted it.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

import msgspec

from gymnast.cluster.kept import Keeping, keep


class WorkerActor:
    """Made an actor by `RayExecutor`. Its work is done in a thread: a call from its owner would end with its owner."""

    def __init__(self, keeping: bytes, job: str) -> None:
        told = msgspec.json.decode(keeping, type=Keeping)
        # The interpreter of this node's environment, wherever that is.
        self._keeping = msgspec.structs.replace(told, command=(sys.executable, *told.command[1:]))
        self._job = job
        self._ray: Any = import_module("ray")
        context = self._ray.get_runtime_context()
        self._node: str = context.get_node_id()
        self._itself: Any = context.current_actor
        threading.Thread(target=self._work, name="worker", daemon=True).start()

    def is_there(self) -> bool:
        """Answers once it has started."""
        return True

    def _work(self) -> None:
        try:
            keep(self._keeping, lambda _: self._job, lambda: False, node=self._node)
        finally:
            self._ray.kill(self._itself, no_restart=True)
