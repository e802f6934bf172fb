"""Ray for hosted servers that use it: a cluster is joined, or a node started, before the server is ready.

Left to itself, Ray starts a node inside the first request that needs one: that blocks the event loop, replaces the
process's SIGTERM handler, and fails the request if the node takes longer than the 30 s that Ray allows. Started from a
thread, Ray leaves signals alone.

Its worker processes import what this process imports: the surface, modules of checkouts and of servers' folders.
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

from gymnast.config.instances import SERVER_KINDS
from gymnast.errors import StartError
from gymnast.runtime.loader import HOSTED_PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

START_FOR_S: Final = 300.0
"""How long the start of a node is retried: Ray gives up on each try after 30 s, which a busy machine exceeds."""
_CLIENT: Final = "ray://"
"""Addresses of Ray's client, which cannot send functions as part of a runtime environment."""
_SETUP: Final = "worker_process_setup_hook"
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
    _send_entry_files_by_value()
    if not import_module("ray").is_initialized():
        await asyncio.to_thread(start_ray, name, address)


def start_ray(name: str, address: str | None, start_for_s: float = START_FOR_S) -> None:
    """As `join_ray`, in the calling thread. Without an address, `RAY_ADDRESS` decides as always."""
    ray: Any = import_module("ray")
    _log.info("%s uses Ray: %s", name, f"connecting to {address}" if address else "starting a node")
    where = {"address": address} if address else {"include_dashboard": False}
    workers = {} if (address or "").startswith(_CLIENT) else {"runtime_env": add_worker_setup(None)}
    give_up_at = time.monotonic() + start_for_s
    while True:
        try:
            # A dashboard is a dozen more processes, which a node that serves one process does not need.
            ray.init(ignore_reinit_error=True, **where, **workers)
        except Exception as error:
            ray.shutdown()
            _kill_node(f"{Path(ray.__file__).parent}/")
            if address or time.monotonic() >= give_up_at:
                raise _start_error(name, address, error) from error
            _log.warning("the Ray node of %s did not start, trying again: %s", name, error)
        else:
            return


def add_worker_setup(runtime_env: Mapping[str, Any] | None) -> dict[str, Any]:
    """A runtime environment of Ray whose workers import what this process imports. `RAY_RUNTIME_ENV_HOOK` may name it.

    Without it, a function fails there if it uses a module of a checkout, and a checkout's own `nemo_gym` is imported.
    """
    return {_SETUP: _worker_setup(_checkout_paths()), **(runtime_env or {})}


def _worker_setup(paths: list[str]) -> Callable[[], None]:
    """Nested, so that Ray sends its code: a node without Gymnast still runs functions that do not need it."""

    def prepare_worker() -> None:
        import sys  # noqa: PLC0415 - it runs elsewhere
        from contextlib import suppress  # noqa: PLC0415

        with suppress(ImportError):
            from gymnast.runtime.surface_import import import_surface  # noqa: PLC0415

            import_surface()
            import nemo_gym  # noqa: F401, PLC0415 - now: Ray puts the driver's folder first later
        sys.path += [path for path in paths if path not in sys.path]

    return prepare_worker


def _checkout_paths() -> list[str]:
    """What this process has on its path of checkouts, and the folders of the servers that were loaded from them."""
    loaded = [module for name, module in sys.modules.items() if name.startswith(f"{HOSTED_PACKAGE}.")]
    folders = [str(path) for module in loaded for path in getattr(module, "__path__", ())]
    return list(dict.fromkeys(path for path in (*folders, *sys.path) if path and _is_of_checkout(Path(path))))


def _is_of_checkout(path: Path) -> bool:
    return path.parent.name in SERVER_KINDS or any((path / kind).is_dir() for kind in SERVER_KINDS)


def _send_entry_files_by_value() -> None:
    """Send Ray the code of entry files, as it does with a script's: no worker can import them by their names here."""
    package = sys.modules.get(HOSTED_PACKAGE)
    if package is not None:
        import_module("ray.cloudpickle").register_pickle_by_value(package)


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
