"""Guests: servers of another framework that bring what it takes to live in a cell, as classes of their own.

A class says so by `gymnast_guest`. Which class of an entry file is meant is said by the file itself: the one it serves
when it is run (`Name.run_webserver()`), else the only one it defines.
"""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from gymnast.config.instances import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from typing_extensions import TypeIs

    from gymnast.config import Instance
    from gymnast.errors import Problem
    from gymnast.wire.asgi import AsgiApp
    from gymnast.wire.calls import Transport
    from gymnast.wire.server import Surroundings


class Guest(Protocol):
    """A server that is hosted. `send` answers the cell's calls, `app` those that come through a port."""

    app: AsgiApp

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@runtime_checkable
class GuestClass(Protocol):
    """A class whose instances can be hosted."""

    def gymnast_guest(self, instance: Instance, surroundings: Surroundings) -> Guest:
        """The server of an instance, not started yet; also a `Transport`."""
        ...

    def gymnast_problems(self, instance: Instance) -> list[Problem]:
        """What is wrong with an instance's settings."""
        ...


def is_guest_class(found: Any) -> TypeIs[GuestClass]:
    """Whether something found in an entry file can be hosted."""
    return inspect.isclass(found) and hasattr(found, "gymnast_guest") and not inspect.isabstract(found)


def guest_class(module: ModuleType) -> GuestClass | None:
    """The class that an entry file means, or None where it defines none."""
    known = {name: found for name, found in vars(module).items() if is_guest_class(found)}
    if not known:
        return None
    served = [name for name in served_classes(inspect.getsource(module)) if name in known]
    own = [name for name, found in known.items() if getattr(found, "__module__", "") == module.__name__]
    chosen = served or own
    return known[chosen[-1]] if chosen else None


def served_classes(source: str) -> list[str]:
    """The classes that a file calls `run_webserver` of, in order."""
    return [
        node.func.value.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run_webserver"
        and isinstance(node.func.value, ast.Name)
    ]


def transport_of(guest: Guest) -> Transport:
    """A guest as the way to reach it."""
    return guest  # type: ignore[return-value] # said by the protocol's words


def with_addresses(values: Mapping[str, Any], urls: Mapping[str, str]) -> dict[str, Any]:
    """A configuration in which instances have the addresses at which they are reached."""
    found = dict(values)
    for name, url in urls.items():
        block = found.get(name)
        kind = next((kind for kind in KINDS if isinstance(block, dict) and kind in block), None)
        if block is None or kind is None:
            continue
        address = urlsplit(url)
        inner = {
            implementation: {**settings, "host": address.hostname, "port": address.port}
            for implementation, settings in block[kind].items()
        }
        found[name] = {**block, kind: inner}
    return found
