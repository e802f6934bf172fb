"""Who a worker is, and whether another one is known to be dead: only where one process can see the other."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Final

from gymnast.cluster.job_folder import boot_id
from gymnast.runtime.registry import process_start
from gymnast.store.chunk_files import Holder

_NAMESPACE: Final = Path("/proc/self/ns/pid")


def this_holder(worker: str | None = None, job: str | None = None) -> Holder:
    """This process as a holder of leases."""
    pid, host = os.getpid(), socket.gethostname()
    return Holder(
        worker=worker or f"{host}.{pid}.{secrets.token_hex(3)}",
        host=host,
        pid=pid,
        started=process_start(pid) or 0,
        place=place(),
        job=job,
    )


def place() -> str:
    """The same for processes that see each other's numbers: this boot of this kernel, this namespace of processes."""
    try:
        return f"{boot_id()}.{_NAMESPACE.stat().st_ino}"
    except OSError:
        return ""


def is_gone(holder: Holder) -> bool:
    """Whether a holder's process has ended, as far as that can be known from here. In doubt it has not."""
    return bool(holder.place) and holder.place == place() and process_start(holder.pid) != holder.started
