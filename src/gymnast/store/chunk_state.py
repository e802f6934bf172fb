"""Reads the folder of a chunk: who holds it, how much of what was written counts, which chunks it has ceded.

The lease with the highest epoch is current. A missing file is never an error: others write here at the same time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gymnast.errors import DataError
from gymnast.store.atomic import read_fresh
from gymnast.store.chunk_files import CededChunk, Chunk, ChunkPlan, EndKind, Heartbeat, Lease, LeaseEnd, Seal
from gymnast.store.chunk_layout import ChunkFolder, ChunkLayout, ChunkNames, parent_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

_File = TypeVar("_File", bound=msgspec.Struct)
_READ_BACK_BYTES = 1 << 16
_RECENT_S = 120.0


def read_chunk_plan(layout: ChunkLayout) -> ChunkPlan:
    """How the run is split into chunks. Raises DataError for a run that is not."""
    try:
        return msgspec.json.decode(read_fresh(layout.plan), type=ChunkPlan)
    except FileNotFoundError as error:
        raise DataError(
            "this run is not split into chunks", where=str(layout.plan), next="plan it with gymnast submit"
        ) from error
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(f"cannot read the plan of the chunks: {error}", where=str(layout.plan)) from error


@dataclass(frozen=True)
class FolderState:
    """The state of a chunk's folder at one moment."""

    folder: ChunkFolder
    run_id: str
    names: ChunkNames
    lease: Lease | None
    """The current one; None if no worker of this run ever held the chunk."""
    last_epoch: int = 0

    @cached_property
    def heartbeat(self) -> Heartbeat | None:
        if self.lease is None:
            return None
        heartbeat = _read(self.folder.heartbeat(self.lease.epoch), Heartbeat, may_be_torn=True)
        return heartbeat if heartbeat is not None and heartbeat.token == self.lease.token else None

    @cached_property
    def end(self) -> LeaseEnd | None:
        if self.lease is None:
            return None
        end = _read(self.folder.end(self.lease.epoch), LeaseEnd, may_be_torn=True)
        return end if end is not None and end.token == self.lease.token else None

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.end.kind is EndKind.DONE

    @property
    def is_released(self) -> bool:
        return self.end is not None and self.end.kind is EndKind.RELEASED

    @property
    def is_held(self) -> bool:
        """A worker holds it, alive or not."""
        return self.lease is not None and self.end is None

    def leases(self) -> list[Lease]:
        """Every lease of the chunk in this run, the current one last."""
        if self.lease is None:
            return []
        epochs = (epoch for epoch in self.names.epochs if epoch < self.lease.epoch)
        earlier = (_read(self.folder.lease(epoch), Lease) for epoch in epochs)
        return [*(lease for lease in earlier if lease is not None and lease.run_id == self.run_id), self.lease]

    def current_seals(self) -> tuple[Seal, ...]:
        """What counts of every epoch, including the current one: what the next lease will seal."""
        if self.lease is None:
            return ()
        epoch, end = self.lease.epoch, self.end
        scored, failures = self.folder.scored_records(epoch), self.folder.failures(epoch)
        own = Seal(
            epoch=epoch,
            scored_bytes=end.scored_bytes if end is not None else complete_lines_bytes(scored),
            failures_bytes=end.failures_bytes if end is not None else complete_lines_bytes(failures),
            children=tuple(ceded.child.id for ceded in self._current_children()),
        )
        return (*self.lease.seals, own)

    def children(self) -> list[CededChunk]:
        """The chunks ceded from this one that count."""
        if self.lease is None:
            return []
        earlier = [self._child(child) for seal in self.lease.seals for child in seal.children]
        return [ceded for ceded in earlier if ceded is not None] + self._current_children()

    def has_ceded(self, child_id: str) -> bool:
        """Whether a chunk is one of the children. Reads one file instead of all."""
        if self.lease is None:
            return False
        if any(child_id in seal.children for seal in self.lease.seals):
            return True
        ceded = self._child(child_id)
        return ceded is not None and ceded.token == self.lease.token

    def _current_children(self) -> list[CededChunk]:
        """What the current holder has ceded. Its heartbeat may be newer than a cached listing."""
        assert self.lease is not None
        epoch, token = self.lease.epoch, self.lease.token
        names = {self.folder.child_id(*entry) for entry in self.names.ceded if entry[0] == epoch}
        latest = self.end or self.heartbeat
        names.update(latest.children if latest is not None else ())
        ceded = (self._child(name) for name in sorted(names, key=_child_number))
        return [entry for entry in ceded if entry is not None and entry.token == token]

    def _child(self, child_id: str) -> CededChunk | None:
        parent = parent_of(child_id)
        return _read(self.folder.ceded_chunk(parent[1], parent[2]), CededChunk) if parent is not None else None


def read_folder_state(folder: ChunkFolder, run_id: str) -> FolderState:
    """The current state of a chunk's folder. A missing folder is a chunk that was never claimed."""
    names = ChunkNames.parse(list_names(folder.path))
    last = names.epochs[-1] if names.epochs else 0
    lease = _read(folder.lease(last), Lease) if last else None
    while (
        newer := _read(folder.lease(last + 1), Lease)
    ) is not None:  # a listing may be cached, a lookup by name is not
        last, lease = last + 1, newer
    return FolderState(folder, run_id, names, lease if lease is not None and lease.run_id == run_id else None, last)


def is_ceded(layout: ChunkLayout, chunk_id: str, run_id: str) -> bool:
    """Whether a chunk counts: planned ones do, others if their parent's current lease has ceded them."""
    parent = parent_of(chunk_id)
    if parent is None:
        return True
    folder_state = read_folder_state(layout.chunk(parent[0]), run_id)
    return folder_state.has_ceded(chunk_id) and is_ceded(layout, parent[0], run_id)


def has_recent_heartbeat(layout: ChunkLayout, now: float) -> bool:
    """Whether any holder sent a heartbeat lately, as far as clocks agree."""
    if not layout.is_planned:
        return False
    held = (view.folder_state for view in walk_chunks(layout, read_chunk_plan(layout)) if view.folder_state.is_held)
    return any(
        folder_state.heartbeat is not None and now - folder_state.heartbeat.at < _RECENT_S for folder_state in held
    )


@dataclass(frozen=True, slots=True)
class ChunkView:
    """A chunk that counts, with the state of its folder."""

    chunk: Chunk
    folder_state: FolderState
    attempts: dict[str, int]
    """Failed attempts inherited from its parent."""
    children: tuple[CededChunk, ...]


def walk_chunks(layout: ChunkLayout, plan: ChunkPlan) -> Iterator[ChunkView]:
    """Every chunk of a run, children after their parents, in plan order."""
    claimed = set(list_names(layout.chunks))
    for chunk in plan.chunks:
        if chunk.id in claimed:
            yield from walk_chunk(layout, chunk, plan.run_id)
        else:
            yield ChunkView(chunk, FolderState(layout.chunk(chunk.id), plan.run_id, ChunkNames(), None), {}, ())


def walk_chunk(
    layout: ChunkLayout,
    chunk: Chunk,
    run_id: str,
    attempts: dict[str, int] | None = None,
    *,
    skip: Container[str] = (),
) -> Iterator[ChunkView]:
    """A chunk and everything ceded from it, except the chunks in `skip` and what they ceded."""
    folder_state = read_folder_state(layout.chunk(chunk.id), run_id)
    children = tuple(folder_state.children())
    yield ChunkView(chunk, folder_state, attempts or {}, children)
    for ceded in children:
        if ceded.child.id not in skip:
            yield from walk_chunk(layout, ceded.child, run_id, ceded.attempts, skip=skip)


def complete_lines_bytes(path: Path) -> int:
    """The size of a file up to its last newline; 0 if it does not exist."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            while size > 0:
                start = max(0, size - _READ_BACK_BYTES)
                stream.seek(start)
                newline = stream.read(size - start).rfind(b"\n")
                if newline >= 0:
                    return start + newline + 1
                size = start
    except FileNotFoundError:
        pass
    return 0


def list_names(folder: Path) -> list[str]:
    """The names in a folder; empty if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except FileNotFoundError:
        return []


def _read(path: Path, kind: type[_File], *, may_be_torn: bool = False) -> _File | None:
    """Read a small file. None if it does not exist, or is torn and was not synced (a heartbeat, an end)."""
    try:
        return msgspec.json.decode(read_fresh(path), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if may_be_torn:
            return None
        raise DataError(f"cannot read a chunk's file: {error}", where=str(path)) from error


def _child_number(child_id: str) -> int:
    parent = parent_of(child_id)
    return parent[2] if parent is not None else 0
