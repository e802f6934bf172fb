"""Cutting a plan into chunks. Deterministic: the same plan is always cut the same way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gymnast.errors import DataError
from gymnast.store.chunk_files import Chunk
from gymnast.store.keys import key_of_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.types.task import RolloutKey

_CHUNKS_PER_WORKER: Final = 6
"""So that workers of different speed finish together, and one that starts late still gets work."""
_MAX_ROWS: Final = 512
_MAX_CHUNKS: Final = 5000
"""Each chunk is a folder that every status query reads."""


def default_chunk_rows(rows: int, workers: int) -> int:
    """Rows of a chunk that keep both the tail of the run and the number of folders small."""
    target = math.ceil(rows / (max(1, workers) * _CHUNKS_PER_WORKER))
    return max(1, min(target, _MAX_ROWS), math.ceil(rows / _MAX_CHUNKS))


def cut_chunks(rows: Iterable[tuple[RolloutKey, int]], chunk_rows: int) -> Iterator[Chunk]:
    """Cut rows (key and bytes) into chunks. Rollouts of one task stay together unless that doubles a chunk."""
    number = first = offset = size = 0
    keys: list[RolloutKey] = []
    for key, row_bytes in rows:
        if len(keys) >= chunk_rows and (key.task != keys[-1].task or len(keys) >= 2 * chunk_rows):
            yield _make_chunk(number, first, keys, offset, size)
            number, first, offset = number + 1, first + len(keys), offset + size
            keys, size = [], 0
        keys.append(key)
        size += row_bytes
    if keys:
        yield _make_chunk(number, first, keys, offset, size)


def _make_chunk(number: int, first: int, keys: list[RolloutKey], offset: int, size: int) -> Chunk:
    return Chunk(
        id=f"{number:05d}",
        first_row=first,
        rows=len(keys),
        offset_bytes=offset,
        size_bytes=size,
        keys=_run_lengths(keys),
    )


def _run_lengths(keys: Iterable[RolloutKey]) -> tuple[tuple[int, int, int, int], ...]:
    """Encode keys as (task, first rollout, rollouts, tasks): equal groups of neighbouring tasks are one run."""
    groups: list[tuple[int, int, int]] = []
    for task, rollout in keys:
        if groups and groups[-1][0] == task and sum(groups[-1][1:]) == rollout:
            groups[-1] = (task, groups[-1][1], groups[-1][2] + 1)
        else:
            groups.append((task, rollout, 1))
    runs: list[tuple[int, int, int, int]] = []
    for task, first, count in groups:
        if runs and (runs[-1][0] + runs[-1][3], *runs[-1][1:3]) == (task, first, count):
            runs[-1] = (runs[-1][0], first, count, runs[-1][3] + 1)
        else:
            runs.append((task, first, count, 1))
    return tuple(runs)


def read_plan_rows(materialized: Path) -> Iterator[tuple[RolloutKey, int]]:
    """Key and bytes of every row of the materialized inputs."""
    with materialized.open("rb", buffering=1 << 20) as stream:
        for number, line in enumerate(stream, 1):
            key = key_of_line(line)
            if key is None:
                where = f"{materialized} line {number}"
                raise DataError("a materialized input has no task and rollout index", where=where)
            yield key, len(line)


def plan_stamp(layout: ChunkLayout) -> tuple[int, int] | None:
    """Identifies the plan file as it is now; None if there is none. It changes when the run is planned again."""
    try:
        stat = layout.plan.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.st_ino, stat.st_mtime_ns
