"""Which bytes of which files are the current records of a chunked run. Bytes beyond a seal are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gymnast.store.chunk_state import read_chunk_plan, walk_chunks

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.chunk_state import ChunkView


@dataclass(frozen=True, slots=True)
class FilePrefix:
    """The first bytes of a file."""

    path: Path
    size_bytes: int
    is_verified: bool = False
    """Its writer declared this size, so every line is complete."""
    is_reopened: bool = False
    """Its permanently failed rollouts are owed again."""
    index: bytes = b""
    """The writer's index of its lines, if it covers all of them (see `LeaseEnd.index`)."""


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """The files with the records of a chunk or a run."""

    scored: tuple[FilePrefix, ...]
    failures: tuple[FilePrefix, ...]


def chunk_record_files(view: ChunkView) -> RecordFiles:
    """The record files of one chunk, without those of chunks it has ceded, oldest epoch first."""
    folder_state, scored, failures = view.folder_state, [], []
    for seal in folder_state.current_seals():
        end = folder_state.end if folder_state.lease is not None and seal.epoch == folder_state.lease.epoch else None
        is_verified = end is not None
        if seal.scored_bytes:
            index = end.index if end is not None else b""
            path = folder_state.folder.scored_records(seal.epoch)
            scored.append(FilePrefix(path, seal.scored_bytes, is_verified, index=index))
        if seal.failures_bytes:
            path = folder_state.folder.failures(seal.epoch)
            failures.append(FilePrefix(path, seal.failures_bytes, is_verified, seal.reopened))
    return RecordFiles(tuple(scored), tuple(failures))


def run_record_files(layout: ChunkLayout) -> RecordFiles:
    """All record files of a run, in plan order of its chunks."""
    chunks = [chunk_record_files(view) for view in walk_chunks(layout, read_chunk_plan(layout))]
    bad = layout.bad_rows
    skipped = (FilePrefix(bad, bad.stat().st_size, is_verified=True),) if bad.exists() else ()
    scored = tuple(prefix for chunk in chunks for prefix in chunk.scored)
    return RecordFiles(scored, (*skipped, *(prefix for chunk in chunks for prefix in chunk.failures)))
