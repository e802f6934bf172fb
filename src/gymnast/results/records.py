"""The records, failures and inputs of a run, read lazily, also while the run is being written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import orjson

from gymnast.errors import DataError
from gymnast.profile.failures import decode_failure
from gymnast.rollouts.record import Record
from gymnast.store.complete_records import complete_records
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gymnast.types.json import JsonObject

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Lines(Generic[Item]):
    """The items of a JSONL file. Each iteration reads the file again, line by line; nothing is kept in memory."""

    path: Path
    _decode: Callable[[bytes, str], Item]

    def __iter__(self) -> Iterator[Item]:
        records = complete_records(self.path)
        for number, line in numbered_lines(records) if records.exists() else ():
            if line and not line.isspace():
                yield self._decode(line, f"{self.path} line {number}")

    def __repr__(self) -> str:
        return f"<the lines of {self.path}>"


def decode_rollout(line: bytes, where: str) -> Record:
    """A scored record."""
    key = key_of_line(line)
    if key is None:
        raise DataError("not a record: it has no task and rollout index", where=where)
    return Record(key, line)


def decode_failed_attempt(line: bytes, where: str) -> Record:
    """The record of a failed attempt."""
    failure = decode_failure(line, where)
    return Record(failure.key, line, failure.kind)


def decode_row(line: bytes, where: str) -> JsonObject:
    """Any row."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} at column {error.colno}", where=where) from error
    if not isinstance(row, dict):
        raise DataError("the row is not a JSON object", where=where)
    return row
