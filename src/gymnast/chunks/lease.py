"""Leases of chunks: claim, heartbeat, end, cede. Synchronous and small; time and names are passed in.

Invariants:
- Leases of a chunk are numbered by epoch, and each epoch is created once: of several claimers, one wins.
- A lease seals every earlier epoch: it records how many bytes of what earlier holders wrote count. Whatever a holder
  writes after its lease was taken over is never read, so claiming is safe even while the holder is alive.
- The lease with the highest epoch is current. A holder has ended (done or released), or it holds the chunk.
- Whether to claim a held chunk is a question of cost, not of safety. `LeaseMonitor` decides it by the claimer's own
  monotonic clock; clocks of different hosts are never compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.chunks.settlement import Settlement, settle
from gymnast.store.atomic import atomic_write, create_exclusive, sync_folder
from gymnast.store.chunk_files import CededChunk, Chunk, Heartbeat, Holder, Lease, LeaseEnd, Seal
from gymnast.store.chunk_state import FolderState, is_ceded, list_names, read_folder_state

if TYPE_CHECKING:
    from gymnast.store.chunk_layout import ChunkFolder, ChunkLayout

DEFAULT_LEASE_S: Final = 60.0
DEFAULT_HEARTBEAT_S: Final = 10.0

IsDead = Callable[[Holder], bool]
"""Whether a holder is known to be dead. False when in doubt."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease that was won, and what its sealed epochs settled."""

    lease: Lease
    settled: Settlement
    children: tuple[CededChunk, ...]


def claim(
    folder_state: FolderState, *, holder: Holder, token: str, at: float = 0.0, reopen: bool = False
) -> Claim | None:
    """Take the next epoch of a chunk; None if another claimer was first.

    With `reopen`, rollouts that failed permanently in earlier epochs are owed again.
    """
    folder = folder_state.folder
    _make_folder(folder)
    seals = folder_state.current_seals()
    if reopen:
        seals = tuple(msgspec.structs.replace(seal, reopened=True) for seal in seals)
    if folder_state.is_held:
        _sync_records(folder, seals[-1].epoch)
    settled = settle(folder, seals)
    last = folder_state.end or folder_state.heartbeat
    if last is not None:
        settled.tally.set_durations(last.progress.agents)
    lease = Lease(
        run_id=folder_state.run_id,
        chunk=folder.chunk_id,
        epoch=folder_state.last_epoch + 1,
        token=token,
        holder=holder,
        seals=tuple(seal for seal in seals if not _is_empty(seal)),
        before=settled.progress(),
        at=at,
    )
    if not create_exclusive(folder.lease(lease.epoch), msgspec.json.encode(lease), token):
        return None
    return Claim(lease, settled, tuple(_sealed_children(folder_state, seals)))


def _make_folder(folder: ChunkFolder) -> None:
    """The folder of a chunk. If the run was deleted, its parent is missing, and the claim fails."""
    folder.path.mkdir(exist_ok=True)
    sync_folder(folder.path.parent)  # also if it exists: its creator may have died before it could


def _sealed_children(folder_state: FolderState, seals: tuple[Seal, ...]) -> list[CededChunk]:
    """The cessions that the new lease lists. Others do not count."""
    listed = {child for seal in seals for child in seal.children}
    return [ceded for ceded in folder_state.children() if ceded.child.id in listed]


def _sync_records(folder: ChunkFolder, epoch: int) -> None:
    """Sync what is about to be sealed: its holder may have fallen silent before it could."""
    for path in (folder.scored_records(epoch), folder.failures(epoch)):
        with suppress(FileNotFoundError), path.open("rb") as stream:
            os.fsync(stream.fileno())


def _is_empty(seal: Seal) -> bool:
    return not (seal.scored_bytes or seal.failures_bytes or seal.children)


def is_current(folder: ChunkFolder, lease: Lease) -> bool:
    """Whether no later lease exists."""
    folder_state = read_folder_state(folder, lease.run_id)
    return folder_state.lease is not None and (folder_state.lease.epoch, folder_state.lease.token) == (
        lease.epoch,
        lease.token,
    )


def is_valid(layout: ChunkLayout, lease: Lease) -> bool:
    """Whether a lease is current and its chunk still counts."""
    return is_current(layout.chunk(lease.chunk), lease) and is_ceded(layout, lease.chunk, lease.run_id)


def write_heartbeat(folder: ChunkFolder, lease: Lease, heartbeat: Heartbeat) -> None:
    """Show that the holder is alive."""
    atomic_write(folder.heartbeat(lease.epoch), msgspec.json.encode(heartbeat), sync=False)


def write_end(folder: ChunkFolder, lease: Lease, end: LeaseEnd) -> None:
    """Record how the holder ended. Records must be on disk; this file need not be, the chunk is then reclaimed."""
    atomic_write(folder.end(lease.epoch), msgspec.json.encode(end), sync=False)
    with suppress(OSError):
        for name in list_names(folder.path):
            if name.startswith(f"ask.{lease.epoch}."):
                (folder.path / name).unlink(missing_ok=True)


def request_rows(folder: ChunkFolder, lease: Lease, worker: str) -> None:
    """Ask the holder to cede rows that it has not started, for an idle worker."""
    with suppress(FileNotFoundError):  # the run, and with it the chunk's folder, was deleted
        folder.row_request(lease.epoch, worker).touch()


def pending_row_requests(folder_state: FolderState, epoch: int) -> list[str]:
    """The idle workers that wait for rows of this chunk."""
    return [worker for request_epoch, worker in folder_state.names.row_requests if request_epoch == epoch]


def clear_row_requests(folder: ChunkFolder, lease: Lease, workers: list[str]) -> None:
    """Remove requests that were served."""
    for worker in workers:
        with suppress(OSError):
            folder.row_request(lease.epoch, worker).unlink(missing_ok=True)


def cede(folder: ChunkFolder, lease: Lease, number: int, child: Chunk, attempts: dict[str, int]) -> None:
    """Move rows into a new chunk. After an OSError the outcome is unknown: call it again."""
    ceded = CededChunk(token=lease.token, child=child, attempts=attempts)
    # Only the holder uses this name: a file that exists already is from its earlier try.
    create_exclusive(folder.ceded_chunk(lease.epoch, number), msgspec.json.encode(ceded), lease.token)


@dataclass(slots=True)
class _Observation:
    token: str
    counter: int
    since: float


class LeaseMonitor:
    """Which chunks may be claimed, by one observer's own clock."""

    def __init__(self, lease_s: float = DEFAULT_LEASE_S, is_dead: IsDead = lambda _: False) -> None:
        self.lease_s = lease_s
        self._is_dead = is_dead
        self._observations: dict[str, _Observation] = {}

    def may_claim(self, folder_state: FolderState, now: float) -> bool:
        """Whether a chunk is free, its holder is dead, or has been silent for `lease_s` of our time."""
        if folder_state.is_done:
            return False
        if folder_state.lease is None or folder_state.is_released or self._is_dead(folder_state.lease.holder):
            return True
        return self.silent_s(folder_state, now) >= self.lease_s

    def has_advanced(self, folder_state: FolderState) -> bool:
        """Whether the holder sent a heartbeat since we first observed it. True where there is no holder."""
        if not folder_state.is_held or folder_state.lease is None:
            return True
        observed = self._observations.get(folder_state.lease.chunk)
        return observed is not None and (observed.token, observed.counter) != _last_heartbeat(folder_state)

    def silent_s(self, folder_state: FolderState, now: float) -> float:
        """How long we have observed a holder without a heartbeat from it."""
        assert folder_state.lease is not None
        observed = self._observations.get(folder_state.lease.chunk)
        if observed is None or (observed.token, observed.counter) != _last_heartbeat(folder_state):
            observed = self._observations[folder_state.lease.chunk] = _Observation(*_last_heartbeat(folder_state), now)
        return now - observed.since


def _last_heartbeat(folder_state: FolderState) -> tuple[str, int]:
    """The holder's token and its heartbeat counter."""
    assert folder_state.lease is not None
    return folder_state.lease.token, folder_state.heartbeat.counter if folder_state.heartbeat is not None else -1
