"""Reads single records from a run's files by their offsets."""

from __future__ import annotations

import io
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
import numpy as np

from gymnast.report.transcript_items import decode_record
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.store.records import record_file
from gymnast.types.task import AGENT_REF, PARAMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.report.run_view import RunView
    from gymnast.store.paths import RunPaths
    from gymnast.store.records import RecordFile
    from gymnast.types.task import RolloutKey

_BUFFER: Final = 1 << 14


def read_lines(run: RunView, keys: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Packed keys and lines of these rollouts in this order, one line in memory at a time."""
    failed, packed = _failed_offsets(run), run.table.packed
    with ExitStack() as stack:
        scored = stack.enter_context(_open_for_seeking(run.records))
        failures = stack.enter_context(_open_for_seeking(run.failed_records)) if failed else scored
        for key in keys:
            stream, offset = (failures, failed[key]) if key in failed else (scored, run.excluded_offsets.get(key, -1))
            stream.seek(offset if offset >= 0 else int(run.table.offsets[np.searchsorted(packed, key)]))
            yield key, stream.readline()


def _open_for_seeking(records: RecordFile) -> io.BufferedReader:
    """Open a file to read single lines: with the large buffer of sequential reading, each would read a megabyte."""
    return io.BufferedReader(cast("io.BufferedReader", records.open()).detach(), _BUFFER)


def _failed_offsets(run: RunView) -> dict[int, int]:
    """The offset of the last failed attempt of each rollout without a score."""
    failed, offsets, offset = run.loaded.failures.last_kind, {}, 0
    if failed:
        with run.failed_records.open() as stream:
            for line in stream:
                key = key_of_line(line)
                if key is not None and key.packed in failed:
                    offsets[key.packed] = offset
                offset += len(line)
    return offsets


def find_record(paths: RunPaths, key: RolloutKey) -> bytes | None:
    """The line of one rollout: its scored record, or else its last failed attempt."""
    for _, line in numbered_lines(paths.output):
        if key_of_line(line) == key:
            return line
    failures = record_file(paths.failures)
    last = None
    for _, line in numbered_lines(failures) if failures.exists() else ():
        last = line if key_of_line(line) == key else last
    return last


class TaskStart(NamedTuple):
    """What a table of tasks shows of one."""

    prompt: Any
    agent: str


class _Params(msgspec.Struct):
    input: Any = None


class _AgentRef(msgspec.Struct):
    name: str = ""


class _Row(msgspec.Struct):
    params: _Params | None = msgspec.field(name=PARAMS, default=None)
    agent: _AgentRef | None = msgspec.field(name=AGENT_REF, default=None)


_ROW: Final = msgspec.json.Decoder(_Row)


def read_tasks(run: RunView) -> Iterator[TaskStart]:
    """The input and agent of each task, in the order of `run.tasks`: from its materialized input, or else a record."""
    positions, table = run.loaded.plan.positions, run.table
    first_rows = dict(zip(run.groups.tasks.tolist(), run.groups.starts[:-1].tolist(), strict=True))
    source = record_file(run.paths.materialized_inputs) if run.has_inputs else run.records
    with source.open() as stream:
        for task in run.tasks.ids.tolist():
            stream.seek(positions[task][1] if run.has_inputs else int(table.offsets[first_rows[task]]))
            yield _start_of(stream.readline())


def _start_of(line: bytes) -> TaskStart:
    """The start of a task's line; the slow decoder handles lone surrogates and deep nesting."""
    try:
        row = _ROW.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        record = decode_record(line) or {}
        params, agent = record.get(PARAMS), record.get(AGENT_REF)
        name = agent.get("name") if isinstance(agent, dict) else None
        return TaskStart(
            params.get("input") if isinstance(params, dict) else None, name if isinstance(name, str) else ""
        )
    return TaskStart(row.params.input if row.params is not None else None, row.agent.name if row.agent else "")
