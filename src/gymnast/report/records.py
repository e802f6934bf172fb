"""Reads single records from a run's files: scored ones by their offsets, failed ones in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.report.transcript_items import decode_record
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.store.records import record_file
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gymnast.report.run_view import RunView
    from gymnast.store.paths import RunPaths
    from gymnast.store.records import RecordFile
    from gymnast.types.task import RolloutKey


def scored_offsets(run: RunView, keys: Collection[int]) -> dict[int, int]:
    """The offsets of the records of these rollouts, by packed key; rollouts without a score are left out."""
    packed = run.table.packed
    rows = np.flatnonzero(np.isin(packed, np.fromiter(keys, np.int64, len(keys))))
    return dict(zip(packed[rows].tolist(), run.table.offsets[rows].tolist(), strict=True))


def read_lines(run: RunView, keys: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Packed keys and lines of these rollouts in this order, one line in memory at a time."""
    offsets, failed = scored_offsets(run, keys), read_failed_lines(run.failed_records, keys)
    with run.records.open() as stream:
        for key in keys:
            if key in offsets:
                stream.seek(offsets[key])
                yield key, stream.readline()
            elif key in failed:
                yield key, failed[key]


def read_failed_lines(failures: RecordFile, keys: Collection[int]) -> dict[int, bytes]:
    """The last failed attempt of each of these rollouts."""
    lines: dict[int, bytes] = {}
    if keys and failures.exists():
        for _, line in numbered_lines(failures):
            key = key_of_line(line)
            if key is not None and key.packed in keys:
                lines[key.packed] = line
    return lines


def find_record(paths: RunPaths, key: RolloutKey) -> bytes | None:
    """The line of one rollout: its scored record, or else its last failed attempt."""
    for _, line in numbered_lines(paths.output):
        if key_of_line(line) == key:
            return line
    return read_failed_lines(record_file(paths.failures), {key.packed}).get(key.packed)


class _Params(msgspec.Struct):
    input: Any = None


class _Row(msgspec.Struct):
    params: _Params | None = msgspec.field(name=PARAMS, default=None)


_ROW: Final = msgspec.json.Decoder(_Row)


def read_prompts(run: RunView) -> Iterator[Any]:
    """The input of each task, in the order of `run.tasks`: from the materialized inputs, or else its first record."""
    positions, table = run.loaded.plan.positions, run.table
    first_rows = dict(zip(run.groups.tasks.tolist(), run.groups.starts[:-1].tolist(), strict=True))
    source = record_file(run.paths.materialized_inputs) if run.has_inputs else run.records
    with source.open() as stream:
        for task in run.tasks.ids.tolist():
            stream.seek(positions[task][1] if run.has_inputs else int(table.offsets[first_rows[task]]))
            yield _input_of(stream.readline())


def _input_of(line: bytes) -> Any:
    """The input in a line; the slow decoder handles lone surrogates and deep nesting."""
    try:
        row = _ROW.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        params = (decode_record(line) or {}).get(PARAMS)
        return params.get("input") if isinstance(params, dict) else None
    return row.params.input if row.params is not None else None
