"""Which bytes of which files are a chunked run's records at this moment. What lies beyond a seal is not among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gymnast.store.chunk_look import chunk_views, read_chunk_plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.chunk_look import ChunkView


@dataclass(frozen=True, slots=True)
class Piece:
    """The beginning of a file."""

    path: Path
    size_bytes: int
    is_vouched: bool = False
    """Its writer has said how much it wrote, so that every line is whole."""
    is_forgiven: bool = False
    """What failed for good in it is owed again."""
    index: bytes = b""
    """What its writer said of its lines, where it is all of what was written (see `End.index`)."""


@dataclass(frozen=True, slots=True)
class RecordPieces:
    """The records of a chunk, or of a run."""

    scored: tuple[Piece, ...]
    failures: tuple[Piece, ...]


def pieces_of(view: ChunkView) -> RecordPieces:
    """The records of one chunk, without those of what it has ceded, oldest epoch first."""
    look, scored, failures = view.look, [], []
    for seal in look.sealed():
        end = look.end if look.lease is not None and seal.epoch == look.lease.epoch else None
        is_vouched = end is not None
        if seal.scored_bytes:
            index = end.index if end is not None else b""
            scored.append(Piece(look.folder.scored(seal.epoch), seal.scored_bytes, is_vouched, index=index))
        if seal.failures_bytes:
            piece = Piece(look.folder.failures(seal.epoch), seal.failures_bytes, is_vouched, seal.forgiven)
            failures.append(piece)
    return RecordPieces(tuple(scored), tuple(failures))


def pieces_of_run(layout: ChunkLayout) -> RecordPieces:
    """All records of a run, in plan order of its chunks."""
    found = list(_all_pieces(layout))
    bad = layout.bad_rows
    skipped = (Piece(bad, bad.stat().st_size, is_vouched=True),) if bad.exists() else ()
    scored = tuple(piece for one in found for piece in one.scored)
    return RecordPieces(scored, (*skipped, *(piece for one in found for piece in one.failures)))


def _all_pieces(layout: ChunkLayout) -> Iterator[RecordPieces]:
    for view in chunk_views(layout, read_chunk_plan(layout)):
        yield pieces_of(view)
