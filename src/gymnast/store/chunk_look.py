"""Looking at a chunk's folder: who holds it now, what counts of what was written, which chunks it has ceded.

The lease with the highest epoch decides. Files that are not there yet, or not any more, are no errors: others write
here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gymnast.errors import DataError
from gymnast.store.chunk_files import Beat, Ceded, Chunk, ChunkPlan, End, EndKind, Lease, Seal
from gymnast.store.chunk_layout import ChunkFolder, ChunkLayout, ChunkNames, parent_of
from gymnast.store.replacing import read_fresh

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

_Kept = TypeVar("_Kept", bound=msgspec.Struct)
_BACKWARDS = 1 << 16


def read_chunk_plan(layout: ChunkLayout) -> ChunkPlan:
    """How the run is cut. Refuses a run that was not planned in chunks."""
    try:
        return msgspec.json.decode(read_fresh(layout.plan), type=ChunkPlan)
    except FileNotFoundError as error:
        raise DataError(
            "this run is not planned in chunks", where=str(layout.plan), next="plan it with gymnast submit"
        ) from error
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(f"the plan of the chunks cannot be read: {error}", where=str(layout.plan)) from error


@dataclass(frozen=True)
class ChunkLook:
    """A chunk's folder at one moment."""

    folder: ChunkFolder
    run_id: str
    names: ChunkNames
    lease: Lease | None
    """The one that decides; None if nobody ever held it, or only workers of a run that was replaced."""
    last_epoch: int = 0

    @cached_property
    def beat(self) -> Beat | None:
        if self.lease is None:
            return None
        found = _read(self.folder.beat(self.lease.epoch), Beat, may_be_torn=True)
        return found if found is not None and found.token == self.lease.token else None

    @cached_property
    def end(self) -> End | None:
        if self.lease is None:
            return None
        found = _read(self.folder.end(self.lease.epoch), End, may_be_torn=True)
        return found if found is not None and found.token == self.lease.token else None

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.end.kind is EndKind.DONE

    @property
    def is_released(self) -> bool:
        return self.end is not None and self.end.kind is EndKind.RELEASED

    @property
    def is_held(self) -> bool:
        """Somebody holds it, alive or not."""
        return self.lease is not None and self.end is None

    def leases(self) -> list[Lease]:
        """Every lease of the chunk that was given, the one that decides last."""
        if self.lease is None:
            return []
        epochs = (epoch for epoch in self.names.epochs if epoch < self.lease.epoch)
        earlier = (_read(self.folder.lease(epoch), Lease) for epoch in epochs)
        return [*(one for one in earlier if one is not None and one.run_id == self.run_id), self.lease]

    def sealed(self) -> tuple[Seal, ...]:
        """What counts of every epoch, the last one as it is now: what the next lease will seal."""
        if self.lease is None:
            return ()
        epoch, end = self.lease.epoch, self.end
        own = Seal(
            epoch=epoch,
            scored_bytes=end.scored_bytes if end is not None else whole_lines_bytes(self.folder.scored(epoch)),
            failures_bytes=end.failures_bytes if end is not None else whole_lines_bytes(self.folder.failures(epoch)),
            children=tuple(one.child.id for one in self._ceded_now()),
        )
        return (*self.lease.seals, own)

    def children(self) -> list[Ceded]:
        """Chunks that were made of this one, and count."""
        if self.lease is None:
            return []
        kept = [self._ceded(child) for seal in self.lease.seals for child in seal.children]
        return [one for one in kept if one is not None] + self._ceded_now()

    def has_ceded(self, child_id: str) -> bool:
        """Whether a chunk is one of the children; one file instead of all of theirs."""
        if self.lease is None:
            return False
        if any(child_id in seal.children for seal in self.lease.seals):
            return True
        found = self._ceded(child_id)
        return found is not None and found.token == self.lease.token

    def _ceded_now(self) -> list[Ceded]:
        """What the last holder has ceded. Its beat may know more than a listing that a file system remembers."""
        assert self.lease is not None
        epoch, token = self.lease.epoch, self.lease.token
        listed = {self.folder.child_id(*found) for found in self.names.ceded if found[0] == epoch}
        said = self.end or self.beat
        listed.update(said.children if said is not None else ())
        found = [one for name in sorted(listed, key=_natural) if (one := self._ceded(name)) is not None]
        return [one for one in found if one.token == token]

    def _ceded(self, child_id: str) -> Ceded | None:
        parent = parent_of(child_id)
        return _read(self.folder.ceded(parent[1], parent[2]), Ceded) if parent is not None else None


def look_at_chunk(folder: ChunkFolder, run_id: str) -> ChunkLook:
    """How a chunk stands. A folder that is not there is a chunk that nobody has touched."""
    names = ChunkNames.parse(names_in(folder.path))
    last = names.epochs[-1] if names.epochs else 0
    lease = _read(folder.lease(last), Lease) if last else None
    while (newer := _read(folder.lease(last + 1), Lease)) is not None:  # listings may be remembered, names are asked
        last, lease = last + 1, newer
    return ChunkLook(folder, run_id, names, lease if lease is not None and lease.run_id == run_id else None, last)


def is_ceded(layout: ChunkLayout, chunk_id: str, run_id: str) -> bool:
    """Whether a chunk counts: planned ones do, others if the lease that decides over their parent says so."""
    parent = parent_of(chunk_id)
    if parent is None:
        return True
    look = look_at_chunk(layout.chunk(parent[0]), run_id)
    return look.has_ceded(chunk_id) and is_ceded(layout, parent[0], run_id)


def is_worked_on(layout: ChunkLayout, now: float, within_s: float = 120.0) -> bool:
    """Whether a holder of a chunk was heard of lately, as far as clocks agree."""
    if not layout.is_planned:
        return False
    held = (view.look for view in chunk_views(layout, read_chunk_plan(layout)) if view.look.is_held)
    return any(look.beat is not None and now - look.beat.at < within_s for look in held)


@dataclass(frozen=True, slots=True)
class ChunkView:
    """A chunk that counts, with how it stands."""

    chunk: Chunk
    look: ChunkLook
    attempts: dict[str, int]
    """Failed attempts that it inherited."""
    children: tuple[Ceded, ...]


def chunk_views(layout: ChunkLayout, plan: ChunkPlan) -> Iterator[ChunkView]:
    """Every chunk of a run, children after their parents, in plan order."""
    touched = set(names_in(layout.chunks))
    for chunk in plan.chunks:
        if chunk.id in touched:
            yield from views_below(layout, chunk, plan.run_id)
        else:
            yield ChunkView(chunk, ChunkLook(layout.chunk(chunk.id), plan.run_id, ChunkNames(), None), {}, ())


def views_below(
    layout: ChunkLayout,
    chunk: Chunk,
    run_id: str,
    attempts: dict[str, int] | None = None,
    *,
    skip: Container[str] = (),
) -> Iterator[ChunkView]:
    """A chunk and all that was ceded from it, but for the chunks in `skip` and what is below them."""
    look = look_at_chunk(layout.chunk(chunk.id), run_id)
    children = tuple(look.children())
    yield ChunkView(chunk, look, attempts or {}, children)
    for ceded in children:
        if ceded.child.id not in skip:
            yield from views_below(layout, ceded.child, run_id, ceded.attempts, skip=skip)


def whole_lines_bytes(path: Path) -> int:
    """How much of a file is whole lines; nothing of one that is not there."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            while size > 0:
                start = max(0, size - _BACKWARDS)
                stream.seek(start)
                found = stream.read(size - start).rfind(b"\n")
                if found >= 0:
                    return start + found + 1
                size = start
    except FileNotFoundError:
        pass
    return 0


def names_in(folder: Path) -> list[str]:
    """What a folder holds; nothing if it is not there."""
    try:
        with os.scandir(folder) as found:
            return [entry.name for entry in found]
    except FileNotFoundError:
        return []


def _read(path: Path, kind: type[_Kept], *, may_be_torn: bool = False) -> _Kept | None:
    """A small file; None if it is not there, or is torn and was not made to last (a beat, an end)."""
    try:
        return msgspec.json.decode(read_fresh(path), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if may_be_torn:
            return None
        raise DataError(f"a file of a chunk cannot be read: {error}", where=str(path)) from error


def _natural(child_id: str) -> int:
    found = parent_of(child_id)
    return found[2] if found is not None else 0
