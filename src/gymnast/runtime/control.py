"""Messages between parent and child processes over a private socket, as JSON lines.

The child binds and reports its port; the parent sends the addresses of its peers; the child starts and reports that it
is ready. Nothing is passed on a command line. The end of the stream means that the other side has died.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from gymnast.config.instances import Instance, ServerRef

CONTROL_FD_FLAG: Final = "--control-fd"


class ChildSpec(msgspec.Struct, frozen=True, tag="launch"):
    """Parent to child: the instance to run."""

    instance: dict[str, Any]
    host: str
    port: int
    token: str | None
    request_debug: bool
    strict_settings: bool
    config: dict[str, Any] = {}
    """The whole configuration, for hosted servers."""


class Peers(msgspec.Struct, frozen=True, tag="peers"):
    """Parent to child: the addresses of the other instances."""

    urls: dict[str, str]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Parent to child: stop."""


class Bound(msgspec.Struct, frozen=True, tag="bound"):
    """Child to parent: the port is bound."""

    port: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Child to parent: serving."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Child to parent: cannot start."""

    what: str
    where: str | None = None
    next: str | None = None


ToChild = ChildSpec | Peers | Stop
ToParent = Bound | Ready | Failed

CHILD_DECODER: Final = msgspec.json.Decoder(ToChild)
PARENT_DECODER: Final = msgspec.json.Decoder(ToParent)


def encode_line(message: ToChild | ToParent) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def encode_instance(instance: Instance) -> dict[str, Any]:
    """An instance as JSON data, for another process."""
    return {
        "name": instance.name,
        "kind": instance.kind,
        "implementation": instance.implementation,
        "entrypoint": instance.entrypoint,
        "directory": str(instance.directory.absolute()) if instance.directory is not None else None,
        "url": instance.url,
        "host": instance.host,
        "port": instance.port,
        "runs_in": instance.runs_in,
        "settings": dict(instance.settings),
        "refs": {key: [ref.kind, ref.name] for key, ref in instance.refs.items()},
        "block": dict(instance.block),
    }


def parse_instance(data: dict[str, Any]) -> Instance:
    """An instance from another process's JSON data."""
    directory = data["directory"]
    refs = {key: ServerRef(kind, name) for key, (kind, name) in data["refs"].items()}
    return Instance(**{**data, "directory": Path(directory) if directory is not None else None, "refs": refs})
