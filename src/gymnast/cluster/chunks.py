"""Cutting a plan into chunks. Pure: rows in, chunks out; the same plan is always cut the same way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gymnast.errors import DataError
from gymnast.store.chunk_files import Chunk
from gymnast.store.keys import key_of_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gymnast.types.task import RolloutKey

_CHUNKS_PER_WORKER: Final = 6
"""So that workers of different speed end together, and one that starts late finds something to do."""
_MOST_ROWS: Final = 512
_MOST_CHUNKS: Final = 5000
"""Each is a folder, and is looked at by whoever asks how the run stands."""


def default_chunk_rows(rows: int, workers: int) -> int:
    """Rows of a chunk, so that the end of the run is short and its folder small."""
    wanted = math.ceil(rows / (max(1, workers) * _CHUNKS_PER_WORKER))
    return max(1, min(wanted, _MOST_ROWS), math.ceil(rows / _MOST_CHUNKS))


def cut(rows: Iterable[tuple[RolloutKey, int]], chunk_rows: int) -> Iterator[Chunk]:
    """Chunks of rows, given by key and bytes. Rollouts of one task stay together unless that doubles a chunk."""
    number = first = offset = size = 0
    keys: list[RolloutKey] = []
    for key, row_bytes in rows:
        if len(keys) >= chunk_rows and (key.task != keys[-1].task or len(keys) >= 2 * chunk_rows):
            yield _chunk(number, first, keys, offset, size)
            number, first, offset = number + 1, first + len(keys), offset + size
            keys, size = [], 0
        keys.append(key)
        size += row_bytes
    if keys:
        yield _chunk(number, first, keys, offset, size)


def _chunk(number: int, first: int, keys: list[RolloutKey], offset: int, size: int) -> Chunk:
    return Chunk(
        id=f"{number:05d}",
        first_row=first,
        rows=len(keys),
        offset_bytes=offset,
        size_bytes=size,
        keys=_key_runs(keys),
    )


def _key_runs(keys: Iterable[RolloutKey]) -> tuple[tuple[int, int, int, int], ...]:
    """Keys in a row as (task, first rollout, rollouts, tasks): equal groups of neighbouring tasks are one run."""
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


def plan_rows(materialized: Path) -> Iterator[tuple[RolloutKey, int]]:
    """Key and bytes of every row of the materialized inputs."""
    with materialized.open("rb", buffering=1 << 20) as stream:
        for number, line in enumerate(stream, 1):
            key = key_of_line(line)
            if key is None:
                where = f"{materialized} line {number}"
                raise DataError("a materialized input has no task and rollout index", where=where)
            yield key, len(line)
