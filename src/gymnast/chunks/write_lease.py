"""The right to write a run's files: held by one process at a time, across hosts.

Normally it is the run's lock file, which the kernel releases. Where the file system has no locks (Lustre without
`flock`, some NFS), a lease of a folder takes its place. Such a lease can be lost: a process that sends no heartbeat for
the length of a lease may find another one writing. `WriteLease.check` raises in that case.
"""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.chunks.heartbeat import keep_heartbeat
from gymnast.chunks.identity import is_dead, this_holder
from gymnast.chunks.lease import DEFAULT_LEASE_S, LeaseMonitor, claim, is_current, write_end
from gymnast.errors import UserError
from gymnast.store.chunk_files import EndKind, Lease, LeaseEnd
from gymnast.store.chunk_layout import ChunkFolder
from gymnast.store.chunk_state import FolderState, read_folder_state
from gymnast.store.lock import LOCK_TIMEOUT_S, NoLocksError, RunLock, run_locked_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_POLL_S: Final = 0.2
_HEARTBEATS_PER_LEASE: Final = 6


@dataclass(frozen=True, slots=True)
class FolderLease:
    lease: Lease
    previous_holder_died: bool
    """Whether the previous holder died while it held the lease."""


@dataclass(frozen=True, slots=True)
class WriteLease:
    """The right to write a run."""

    mark: str = ""
    """A suffix for temporary files, unique to this process where the lease can be lost."""
    check: Callable[[], None] = lambda: None
    """Raises UserError if another process has the lease now."""


@contextmanager
def hold_write_lease(lock: Path, folder: Path, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[WriteLease]:
    """Hold a run's lock; where files cannot be locked, a lease of the folder, which all hosts must share."""
    with ExitStack() as stack:
        try:
            stack.enter_context(RunLock(lock, timeout_s))
            write_lease = WriteLease()
        except NoLocksError:
            held = stack.enter_context(hold_folder_lease(folder, timeout_s=timeout_s))
            write_lease = WriteLease(f".{held.lease.token}", lambda: _raise_if_lost(folder, held.lease))
        yield write_lease


def _raise_if_lost(folder: Path, lease: Lease) -> None:
    if not is_current(ChunkFolder(folder), lease):
        raise UserError(
            "this process lost its write lease to another process",
            where=str(folder),
            next="check the run with gymnast status RUN, then repeat the command if it is still needed",
        )


@contextmanager
def hold_folder_lease(
    folder: Path, lease_s: float = DEFAULT_LEASE_S, timeout_s: float | None = None
) -> Iterator[FolderLease]:
    """Hold the lease of a folder. Waits for a live holder, forever or up to `timeout_s`."""
    monitor, started, is_alive = LeaseMonitor(lease_s, is_dead), time.monotonic(), False
    while True:
        folder_state, now = read_folder_state(ChunkFolder(folder), folder.name), time.monotonic()
        is_alive = is_alive or (folder_state.is_held and monitor.has_advanced(folder_state))
        if folder_state.end is not None or monitor.may_claim(folder_state, now):
            won = claim(folder_state, holder=this_holder(folder.name), token=secrets.token_hex(8), at=time.time())
            if won is not None:
                break
        elif timeout_s is not None and is_alive and now - started >= timeout_s:  # a dead holder is outwaited
            raise _held_by_other_error(folder_state)
        time.sleep(_POLL_S)
    with ExitStack() as stack:
        stack.callback(_release, folder_state, won.lease)
        stack.enter_context(keep_heartbeat(folder_state.folder, won.lease, lease_s / _HEARTBEATS_PER_LEASE))
        yield FolderLease(won.lease, previous_holder_died=folder_state.is_held)


def _held_by_other_error(folder_state: FolderState) -> UserError:
    assert folder_state.lease is not None
    holder = folder_state.lease.holder
    return run_locked_error(f"pid {holder.pid} on {holder.host}", folder_state.folder.path)


def _release(folder_state: FolderState, lease: Lease) -> None:
    with suppress(OSError):
        write_end(folder_state.folder, lease, LeaseEnd(token=lease.token, kind=EndKind.RELEASED, at=time.time()))
