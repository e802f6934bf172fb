"""Stored responses, looked up by rollout key on disk instead of in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import orjson

from gymnast.errors import DataError
from gymnast.store.keys import key_of_line
from gymnast.types.task import FAILURE_CLASS

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.types.task import RolloutKey


class StoredResponses:
    """The responses in a file of records. Use as `with StoredResponses(path) as stored`."""

    def __init__(self, path: Path, *, failure_class: str | None = None) -> None:
        """With `failure_class`, only records of failures of that class, the last one of each rollout."""
        self.path = path
        self._class = failure_class
        self._offsets: dict[int, int] = {}

    def __enter__(self) -> Self:
        try:
            self._stream = self.path.open("rb")
        except OSError as error:
            raise DataError(f"cannot read the records: {error.strerror or error}", where=str(self.path)) from error
        offset = 0
        for number, line in enumerate(self._stream, 1):
            if self._class is None or f'"{self._class}"'.encode() in line:
                self._add(number, line, offset)
            offset += len(line)
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __contains__(self, packed: object) -> bool:
        return packed in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def record(self, key: RolloutKey) -> Any:
        """The stored record of a rollout; it has a response."""
        self._stream.seek(self._offsets[key.packed])
        return orjson.loads(self._stream.readline())

    def _add(self, number: int, line: bytes, offset: int) -> None:
        key = key_of_line(line.rstrip(b"\r\n"))
        if key is None:
            raise DataError(
                "a record has no task and rollout index",
                where=f"{self.path} line {number}",
                next="finish the run with --resume, which repairs torn lines",
            )
        if self._class is not None:
            record = orjson.loads(line)
            if record.get(FAILURE_CLASS) != self._class or not isinstance(record.get("response"), dict):
                return
        self._offsets[key.packed] = offset
