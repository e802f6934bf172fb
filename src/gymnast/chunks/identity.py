"""The identity of a holder, and whether another holder is known to be dead: only where its process is visible."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Final

from gymnast.runtime.registry import process_start
from gymnast.store.chunk_files import Holder

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE: Final = Path("/proc/self/ns/pid")


def this_holder(worker: str | None = None, job: str | None = None) -> Holder:
    """This process as a holder of leases."""
    pid, host = os.getpid(), socket.gethostname()
    return Holder(
        worker=worker or f"{host}.{pid}.{secrets.token_hex(3)}",
        host=host,
        pid=pid,
        started=process_start(pid) or 0,
        pid_namespace=pid_namespace(),
        job=job,
    )


def is_dead(holder: Holder) -> bool:
    """Whether a holder's process has ended, as far as this process can see. False when in doubt."""
    is_visible = bool(holder.pid_namespace) and holder.pid_namespace == pid_namespace()
    return is_visible and process_start(holder.pid) != holder.started


def pid_namespace() -> str:
    """Equal for processes that see each other's pids: the same boot of a kernel, the same pid namespace."""
    try:
        return f"{boot_id()}.{_PID_NAMESPACE.stat().st_ino}"
    except OSError:
        return ""


def boot_id() -> str:
    """This boot of this host: pids mean nothing beyond it. Empty where the kernel does not say."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
