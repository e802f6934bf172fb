"""`ng_viewer`: show runs in the studio, as `gymnast view` does, until interrupted."""

from __future__ import annotations

import asyncio
from typing import Final

from gymnast.cli.view import HOST, serve
from gymnast.compat.ng_arguments import FieldError, Fields, NgArguments

_LOCAL: Final = frozenset({HOST, "localhost"})


def viewer(arguments: NgArguments) -> int:
    """Serve the studio over one or more runs."""
    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    names = [part.strip() for part in fields.text("jsonl_fpath").split(",") if part.strip()]
    host = fields.optional("server_host") or HOST
    if host not in _LOCAL:
        hint = "from another machine, use ssh -L 7860:127.0.0.1:PORT, or copy the file that gymnast report writes"
        raise FieldError(f"the viewer listens on this machine only, not on {host}", next=hint)
    runs = [config.roots.require(name, "jsonl_fpath") for name in names]
    port = fields.index("server_port", 65536)
    asyncio.run(serve(runs, port=port, opens=True, read_only=False, as_json=False))
    return 0
