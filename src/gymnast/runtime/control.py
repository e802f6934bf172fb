"""What parent and child processes say to each other over a private socket: one JSON object a line.

The child binds first and reports its port; the parent then tells it where its peers are; the child starts and says so.
Nothing of this is on a command line. The end of the stream is the end of the other side.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from gymnast.config.instances import Instance, ServerRef

CONTROL_FD_FLAG: Final = "--control-fd"


class Launch(msgspec.Struct, frozen=True, tag="launch"):
    """Parent to child: what to be."""

    instance: dict[str, Any]
    host: str
    port: int
    token: str | None
    request_debug: bool
    strict_settings: bool
    config: dict[str, Any] = {}
    """The whole configuration, for guests."""


class Peers(msgspec.Struct, frozen=True, tag="peers"):
    """Parent to child: where the other instances are."""

    urls: dict[str, str]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Parent to child: finish."""


class Bound(msgspec.Struct, frozen=True, tag="bound"):
    """Child to parent: the port is mine."""

    port: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Child to parent: serving."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Child to parent: cannot start."""

    what: str
    where: str | None = None
    next: str | None = None


ToChild = Launch | Peers | Stop
ToParent = Bound | Ready | Failed

to_child: Final = msgspec.json.Decoder(ToChild)
to_parent: Final = msgspec.json.Decoder(ToParent)


def line(message: ToChild | ToParent) -> bytes:
    """A message as a line."""
    return msgspec.json.encode(message) + b"\n"


def instance_data(instance: Instance) -> dict[str, Any]:
    """An instance as data, for another process."""
    return {
        "name": instance.name,
        "kind": instance.kind,
        "implementation": instance.implementation,
        "entrypoint": instance.entrypoint,
        "directory": str(instance.directory) if instance.directory is not None else None,
        "url": instance.url,
        "host": instance.host,
        "port": instance.port,
        "runs_in": instance.runs_in,
        "settings": dict(instance.settings),
        "refs": {key: [ref.kind, ref.name] for key, ref in instance.refs.items()},
        "block": dict(instance.block),
    }


def instance_from(data: dict[str, Any]) -> Instance:
    """The instance that another process described."""
    directory = data["directory"]
    refs = {key: ServerRef(kind, name) for key, (kind, name) in data["refs"].items()}
    return Instance(**{**data, "directory": Path(directory) if directory is not None else None, "refs": refs})
