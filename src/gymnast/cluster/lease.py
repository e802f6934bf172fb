"""Leases of chunks: claiming, beating, ending, ceding. Synchronous and small; time and names are passed in.

Claiming is always safe, also from a holder that lives: the new lease seals what counts of all before it. When it is
sensible is for `Watch` to say, by the claimer's own clock alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.cluster.settling import Settlement, settle
from gymnast.store.chunk_files import Beat, Ceded, Chunk, End, Holder, Lease, Seal
from gymnast.store.chunk_look import ChunkLook, is_ceded, look_at_chunk, names_in
from gymnast.store.replacing import create_once, write_replacing

if TYPE_CHECKING:
    from gymnast.store.chunk_layout import ChunkFolder, ChunkLayout

DEFAULT_LEASE_S: Final = 60.0
DEFAULT_HEARTBEAT_S: Final = 10.0

IsGone = Callable[[Holder], bool]
"""Whether a holder is known to be dead. In doubt it is not."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A lease that was won, and what its sealed epochs settled."""

    lease: Lease
    settled: Settlement
    children: tuple[Ceded, ...]


def claim(look: ChunkLook, *, holder: Holder, token: str, at: float = 0.0, forgive: bool = False) -> Claimed | None:
    """Take the next epoch of a chunk; None if somebody else was first.

    With `forgive`, what failed for good in earlier epochs is owed again.
    """
    folder = look.folder
    folder.path.mkdir(exist_ok=True)
    seals = look.sealed()
    if forgive:
        seals = tuple(msgspec.structs.replace(seal, forgiven=True) for seal in seals)
    if look.is_held:
        _make_last(folder, seals[-1].epoch)
    settled = settle(folder, seals)
    lease = Lease(
        run_id=look.run_id,
        chunk=folder.chunk_id,
        epoch=look.last_epoch + 1,
        token=token,
        holder=holder,
        seals=tuple(seal for seal in seals if not _is_empty(seal)),
        before=settled.progress(),
        at=at,
    )
    if not create_once(folder.lease(lease.epoch), msgspec.json.encode(lease), token):
        return None
    return Claimed(lease, settled, tuple(_ceded_before(look, seals)))


def _ceded_before(look: ChunkLook, seals: tuple[Seal, ...]) -> list[Ceded]:
    """The cessions that the new lease keeps: those it has listed, no others."""
    kept = {child for seal in seals for child in seal.children}
    return [one for one in look.children() if one.child.id in kept]


def _make_last(folder: ChunkFolder, epoch: int) -> None:
    """What a holder wrote before it fell silent may not be on disk yet; what is sealed must be."""
    for path in (folder.scored(epoch), folder.failures(epoch)):
        with suppress(FileNotFoundError), path.open("rb") as stream:
            os.fsync(stream.fileno())


def _is_empty(seal: Seal) -> bool:
    return not (seal.scored_bytes or seal.failures_bytes or seal.children)


def decides(folder: ChunkFolder, lease: Lease) -> bool:
    """Whether no later lease has been given."""
    look = look_at_chunk(folder, lease.run_id)
    return look.lease is not None and (look.lease.epoch, look.lease.token) == (lease.epoch, lease.token)


def holds(layout: ChunkLayout, lease: Lease) -> bool:
    """Whether a lease still decides over its chunk, and the chunk still counts."""
    return decides(layout.chunk(lease.chunk), lease) and is_ceded(layout, lease.chunk, lease.run_id)


def write_beat(folder: ChunkFolder, lease: Lease, beat: Beat) -> None:
    """Say that the holder lives."""
    write_replacing(folder.beat(lease.epoch), msgspec.json.encode(beat), sync=False)


def write_end(folder: ChunkFolder, lease: Lease, end: End) -> None:
    """The holder's last word. What it wrote must be on disk; this need not be: a chunk without one is taken again."""
    write_replacing(folder.end(lease.epoch), msgspec.json.encode(end), sync=False)
    with suppress(OSError):
        for name in names_in(folder.path):
            if name.startswith(f"ask.{lease.epoch}."):
                (folder.path / name).unlink(missing_ok=True)


def ask_for_rows(folder: ChunkFolder, lease: Lease, worker: str) -> None:
    """An idle worker asks the holder for rows that it has not begun."""
    with suppress(FileNotFoundError):  # the chunk's folder went with its run
        folder.ask(lease.epoch, worker).touch()


def asks_of(look: ChunkLook, epoch: int) -> list[str]:
    """The idle workers that wait for rows of this chunk."""
    return [worker for asked, worker in look.names.asks if asked == epoch]


def cede(folder: ChunkFolder, lease: Lease, number: int, child: Chunk, attempts: dict[str, int]) -> None:
    """Give rows to a chunk of their own. After an OSError it is not known whether that happened: do it again."""
    ceded = Ceded(token=lease.token, child=child, attempts=attempts)
    # The name is the holder's alone, so that a file which is there already is one that it made before.
    create_once(folder.ceded(lease.epoch, number), msgspec.json.encode(ceded), lease.token)


def forget_asks(folder: ChunkFolder, lease: Lease, workers: list[str]) -> None:
    """They were answered."""
    for worker in workers:
        with suppress(OSError):
            folder.ask(lease.epoch, worker).unlink(missing_ok=True)


@dataclass(slots=True)
class _Seen:
    token: str
    counter: int
    since: float


class Watch:
    """Which chunks may be claimed, by one observer's own clock. Other clocks are never compared with it."""

    def __init__(self, lease_s: float = DEFAULT_LEASE_S, is_gone: IsGone = lambda _: False) -> None:
        self.lease_s = lease_s
        self._is_gone = is_gone
        self._seen: dict[str, _Seen] = {}

    def may_claim(self, look: ChunkLook, now: float) -> bool:
        """Nobody holds it, or its holder is gone, or has not been heard of for `lease_s` of our time."""
        if look.is_done:
            return False
        if look.lease is None or look.is_released or self._is_gone(look.lease.holder):
            return True
        return self.silent_s(look, now) >= self.lease_s

    def has_moved(self, look: ChunkLook) -> bool:
        """Whether we have seen a holder before, and it has been heard of since. True where there is none."""
        if not look.is_held or look.lease is None:
            return True
        seen = self._seen.get(look.lease.chunk)
        return seen is not None and (seen.token, seen.counter) != _heard(look)

    def silent_s(self, look: ChunkLook, now: float) -> float:
        """How long we have watched a holder without hearing of it."""
        assert look.lease is not None
        seen = self._seen.get(look.lease.chunk)
        if seen is None or (seen.token, seen.counter) != _heard(look):
            seen = self._seen[look.lease.chunk] = _Seen(*_heard(look), now)
        return now - seen.since


def _heard(look: ChunkLook) -> tuple[str, int]:
    """The holder, and its last beat."""
    assert look.lease is not None
    return look.lease.token, look.beat.counter if look.beat is not None else -1
