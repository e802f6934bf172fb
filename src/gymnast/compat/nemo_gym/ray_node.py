"""Ray for hosted servers that use it: a cluster is joined, or a node started, before the server is ready.

Left to itself, Ray starts a node inside the first request that needs one: that blocks the event loop, replaces the
process's SIGTERM handler, and fails the request if the node takes longer than the 30 s that Ray allows. Started from a
thread, Ray leaves signals alone.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Iterator

START_FOR_S: Final = 300.0
"""How long the start of a node is retried: Ray gives up on each try after 30 s, which a busy machine exceeds."""
_log = logging.getLogger(__name__)


def uses_ray(folder: Path) -> bool:
    """Whether a module that was loaded from a server's folder has imported Ray or something of it."""
    return "ray" in sys.modules and any(_is_of_ray(value) for value in _module_values(folder))


def _module_values(folder: Path) -> Iterator[Any]:
    prefix = f"{folder.resolve()}/"
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.startswith(prefix):
            yield from vars(module).values()


def _is_of_ray(value: Any) -> bool:
    if isinstance(value, ModuleType):
        owner = value.__name__
    else:
        owner = value.__module__ if isinstance(value, type | FunctionType) else type(value).__module__
    return str(owner).partition(".")[0] == "ray"


async def join_ray(name: str, address: str | None) -> None:
    """Connect this process to the Ray cluster at an address, or to a node of its own, for a server."""
    if not import_module("ray").is_initialized():
        await asyncio.to_thread(start_ray, name, address)


def start_ray(name: str, address: str | None, start_for_s: float = START_FOR_S) -> None:
    """As `join_ray`, in the calling thread. Without an address, `RAY_ADDRESS` decides as always."""
    ray: Any = import_module("ray")
    _log.info("%s uses Ray: %s", name, f"connecting to {address}" if address else "starting a node")
    give_up_at = time.monotonic() + start_for_s
    while True:
        try:
            # A dashboard is a dozen more processes, which a node that serves one process does not need.
            ray.init(ignore_reinit_error=True, **({"address": address} if address else {"include_dashboard": False}))
        except Exception as error:
            ray.shutdown()
            _kill_node(f"{Path(ray.__file__).parent}/")
            if address or time.monotonic() >= give_up_at:
                raise _start_error(name, address, error) from error
            _log.warning("the Ray node of %s did not start, trying again: %s", name, error)
        else:
            return


def _start_error(name: str, address: str | None, error: Exception) -> StartError:
    what = f"{name} uses Ray, and its node did not start: {error}"
    if address:
        what = f"{name} could not connect to Ray at {address}: {error}"
    return StartError(
        what,
        where="ray_head_node_address" if address else "",
        next="start a cluster with `ray start --head` and set ray_head_node_address to its address",
    )


def _kill_node(package: str) -> None:
    """Kill what a failed start left behind, programs and scripts of Ray's package: it would slow down the next one."""
    psutil: Any = import_module("psutil")  # comes with the surface
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(package in word for word in process.cmdline()):
                process.kill()
