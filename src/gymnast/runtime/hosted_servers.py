"""Hosted servers: NeMo-Gym-style server classes that run in a cell.

Such a class has a `gymnast_hosted` method. If an entry file has several, the one that it serves when run as a script
(`Name.run_webserver()`) is used, else the last one that it defines.
"""

from __future__ import annotations

import ast
import functools
import inspect
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from gymnast.config.instances import SERVER_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from typing_extensions import TypeIs

    from gymnast.config import Instance
    from gymnast.errors import Problem
    from gymnast.wire.asgi import AsgiApp
    from gymnast.wire.calls import Transport
    from gymnast.wire.server import ServerContext


class HostedServer(Protocol):
    """A hosted server. `send` answers the cell's calls, `app` those that come through a port."""

    app: AsgiApp

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@runtime_checkable
class HostableClass(Protocol):
    """A class whose instances can be hosted."""

    def gymnast_hosted(self, instance: Instance, context: ServerContext) -> HostedServer:
        """Create the server of an instance, not started yet. It is also a `Transport`."""
        ...

    def gymnast_problems(self, instance: Instance) -> list[Problem]:
        """The problems of an instance's settings."""
        ...


def is_hostable(member: Any) -> TypeIs[HostableClass]:
    """Whether a member of an entry file is a class that can be hosted."""
    return inspect.isclass(member) and hasattr(member, "gymnast_hosted") and not inspect.isabstract(member)


def find_hostable_class(module: ModuleType) -> HostableClass | None:
    """The class to host from an entry file, or None if it has none."""
    known = {name: member for name, member in vars(module).items() if is_hostable(member)}
    if not known:
        return None
    served = [name for name in served_classes(inspect.getsource(module)) if name in known]
    own = [name for name, member in known.items() if getattr(member, "__module__", "") == module.__name__]
    chosen = served or own
    return known[chosen[-1]] if chosen else None


@functools.cache
def served_classes(source: str) -> tuple[str, ...]:
    """The classes on which a file calls `run_webserver`, in order."""
    if "run_webserver" not in source:
        return ()
    return tuple(
        node.func.value.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run_webserver"
        and isinstance(node.func.value, ast.Name)
    )


def transport_of(hosted: HostedServer) -> Transport:
    return hosted  # type: ignore[return-value] # stated in the protocol's docstring


def with_addresses(values: Mapping[str, Any], urls: Mapping[str, str]) -> dict[str, Any]:
    """The configuration with the actual addresses of its instances."""
    addressed = dict(values)
    for name, url in urls.items():
        block = addressed.get(name)
        kind = next((kind for kind in SERVER_KINDS if isinstance(block, dict) and kind in block), None)
        if block is None or kind is None:
            continue
        address = urlsplit(url)
        inner = {
            implementation: {**settings, "host": address.hostname, "port": address.port}
            for implementation, settings in block[kind].items()
        }
        addressed[name] = {**block, kind: inner}
    return addressed
