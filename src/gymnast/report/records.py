"""Finding single records in a run's files: scored ones by the offsets of its table, failed ones by one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.report.transcripts import decoded
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


def scored_places(run: RunView, wanted: Collection[int]) -> dict[int, int]:
    """Where the records of these rollouts begin, by packed key; those that have no score are left out."""
    packed = run.table.packed
    rows = np.flatnonzero(np.isin(packed, np.fromiter(wanted, np.int64, len(wanted))))
    return dict(zip(packed[rows].tolist(), run.table.offsets[rows].tolist(), strict=True))


def chosen_lines(run: RunView, wanted: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Packed keys and lines of these rollouts in this order, one in memory at a time."""
    places, failed = scored_places(run, wanted), failed_lines(run.failed_records, wanted)
    with run.records.open() as stream:
        for key in wanted:
            if key in places:
                stream.seek(places[key])
                yield key, stream.readline()
            elif key in failed:
                yield key, failed[key]


def failed_lines(failures: RecordFile, wanted: Collection[int]) -> dict[int, bytes]:
    """The last failed attempt of each of these rollouts."""
    found: dict[int, bytes] = {}
    if wanted and failures.exists():
        for _, line in numbered_lines(failures):
            key = key_of_line(line)
            if key is not None and key.packed in wanted:
                found[key.packed] = line
    return found


def find_record(paths: RunPaths, wanted: RolloutKey) -> bytes | None:
    """The line of one rollout: scored, or else its last failed attempt. Reads until it is found."""
    for _, line in numbered_lines(paths.output):
        if key_of_line(line) == wanted:
            return line
    return failed_lines(record_file(paths.failures), {wanted.packed}).get(wanted.packed)


class _Params(msgspec.Struct):
    input: Any = None


class _Row(msgspec.Struct):
    params: _Params | None = msgspec.field(name=PARAMS, default=None)


_ROW: Final = msgspec.json.Decoder(_Row)


def prompts(run: RunView) -> Iterator[Any]:
    """The input of each task, in the order of `run.tasks`: as it was asked, or as its first record has it."""
    places, table = run.loaded.plan.places, run.table
    firsts = dict(zip(run.groups.tasks.tolist(), run.groups.starts[:-1].tolist(), strict=True))
    source = record_file(run.paths.materialized_inputs) if run.has_inputs else run.records
    with source.open() as stream:
        for task in run.tasks.ids.tolist():
            stream.seek(places[task][1] if run.has_inputs else int(table.offsets[firsts[task]]))
            yield _input_of(stream.readline())


def _input_of(line: bytes) -> Any:
    """What a row asks; decoded the slow way where it holds half a surrogate or is nested deeply."""
    try:
        row = _ROW.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        params = (decoded(line) or {}).get(PARAMS)
        return params.get("input") if isinstance(params, dict) else None
    return row.params.input if row.params is not None else None
