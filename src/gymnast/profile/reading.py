"""Reads rollouts into columns in one pass: every numeric field, whatever its name; nothing else is decoded.

Records of a run have the same fields, so they are decoded into a struct made for those fields. A record with a new
field is decoded the slow way once, and the struct is extended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import DataError
from gymnast.profile.table import TableBuilder
from gymnast.store.records import record_file
from gymnast.types.task import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX
from gymnast.types.truncation import truncation_of_episode, truncation_of_output, truncation_of_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gymnast.profile.table import RolloutTable
    from gymnast.store.records import RecordFile

_INDEXES: Final = frozenset({TASK_INDEX, ROLLOUT_INDEX})
_EPISODE: Final = ("terminated", "truncated")
_NUMBER_STARTS: Final = frozenset(b"-0123456789tf")


class _Response(msgspec.Struct):
    usage: dict[str, Any] | None = None
    incomplete_details: Any = None
    output: msgspec.Raw = msgspec.Raw()


class _AgentRef(msgspec.Struct):
    name: str = ""


class _Object(msgspec.Struct):
    """Any object; its content is skipped."""


_TYPED: Final[dict[str, Any]] = {
    "response": _Response | None,
    AGENT_REF: _AgentRef | None,
    TASK_INDEX: int,
    ROLLOUT_INDEX: int,
}
_RAW_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY: Final = msgspec.json.Decoder()
_BATCH: Final = 4096


def read_rollouts(paths: Sequence[Path | RecordFile], *, texts: Iterable[str] = ()) -> RolloutTable:
    """Read all records of these files. `texts`: fields to read as texts, besides the numbers."""
    reader = _Reader(tuple(texts))
    for source, path in enumerate(paths):
        reader.read(record_file(path), source)
    return reader.builder.build()


class _Reader:
    """Decodes records and adds them to a table in batches with the same fields."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.builder = TableBuilder(texts)
        self._texts = texts
        self._fields: dict[str, Any] = {}
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._batch: list[Any] = []
        self._offsets: list[int] = []

    def read(self, records: RecordFile, source: int) -> None:
        offset, path = 0, records.path
        try:
            with records.open() as stream:
                for number, line in enumerate(stream, 1):
                    if not line.isspace():
                        self._decode(line, source, path, number)
                        self._offsets.append(offset)
                        if len(self._offsets) == _BATCH:
                            self._flush(source)
                    offset += len(line)
        except OSError as error:
            raise DataError(f"cannot read the rollouts: {error.strerror or error}", where=str(path)) from error
        self._flush(source)

    def _decode(self, line: bytes, source: int, path: Path, number: int) -> None:
        try:
            if self._decoder is not None:
                self._batch.append(self._decoder.decode(line))
                return
        except msgspec.ValidationError:
            pass  # a new field, or a field with a new type
        except (msgspec.DecodeError, RecursionError) as error:
            raise _bad_record(str(error), f"{path} line {number}") from error
        where = f"{path} line {number}"
        self._flush(source)
        self._extend_struct(line, where)
        assert self._decoder is not None
        try:
            self._batch.append(self._decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise _bad_record(str(error), where) from error

    def _extend_struct(self, line: bytes, where: str) -> None:
        """Make a struct that fits this record and all before it."""
        try:
            fields = _RAW_FIELDS.decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise _bad_record(str(error), where) from error
        for name in _INDEXES:
            if name not in fields:
                raise _bad_record(f"it has no {name}", where)
        for name, raw in fields.items():
            self._fields[name] = _TYPED[name] if name in _TYPED else _field_type(raw, self._fields.get(name))
        names = [f"f{number}" for number in range(len(self._fields))]  # records' field names may be anything
        struct = msgspec.defstruct(
            "Record",
            [
                (field, kind) if name in _INDEXES else (field, kind, msgspec.UNSET)
                for field, (name, kind) in zip(names, self._fields.items(), strict=True)
            ],
            kw_only=True,
            rename=dict(zip(names, self._fields, strict=True)),
            forbid_unknown_fields=True,
            gc=False,
        )
        self._decoder = msgspec.json.Decoder(struct)

    def _flush(self, source: int) -> None:
        """Add the batch to the table, column by column."""
        if not self._batch:
            return
        columns = dict(zip(self._fields, zip(*map(msgspec.structs.astuple, self._batch), strict=True), strict=True))
        size = len(self._batch)
        responses = columns.get("response", [None] * size)
        builder = self.builder
        for name, values in columns.items():
            if name not in _TYPED and self._fields[name] is not _Object:
                numbers = [_number(raw) for raw in values] if self._fields[name] is msgspec.Raw else values
                builder.add_numbers(name, numbers, from_usage=False)
        self._add_usage([response.usage if isinstance(response, _Response) else None for response in responses])
        for name in self._texts:
            builder.add_texts(name, [_text(value) for value in columns.get(name, [None] * size)])
        refs = columns.get(AGENT_REF, [None] * size)
        builder.add_agents([ref.name if isinstance(ref, _AgentRef) else "" for ref in refs])
        outputs = [response.output if isinstance(response, _Response) else b"" for response in responses]
        builder.finish_batch(
            size,
            tasks=columns[TASK_INDEX],
            rollouts=columns[ROLLOUT_INDEX],
            offsets=self._offsets,
            sources=[source] * size,
            output_bytes=[memoryview(output).nbytes for output in outputs],
            truncated=list(map(_is_truncated, responses, *(columns.get(name, [None] * size) for name in _EPISODE))),
        )
        self._batch, self._offsets = [], []

    def _add_usage(self, usages: list[dict[str, Any] | None]) -> None:
        for name in dict.fromkeys(name for usage in usages if usage for name in usage):
            values = [usage.get(name) if usage else None for usage in usages]
            self.builder.add_numbers(name, values, from_usage=True)


def _is_truncated(response: Any, terminated: Any, truncated: Any) -> bool:
    """Whether the record with these fields is of a truncated rollout."""
    if truncation_of_episode(_boolean(terminated), _boolean(truncated)) is not None:
        return True
    if not isinstance(response, _Response):
        return False
    reason = truncation_of_reason(response.incomplete_details)
    return (reason or truncation_of_output(response.output)) is not None


def _boolean(value: Any) -> Any:
    """The value of a field, which is raw if some records have an object or a list there."""
    return _ANY.decode(value) if isinstance(value, msgspec.Raw) else value


def _field_type(raw: msgspec.Raw, previous: Any) -> Any:
    """A type that fits a field's value here and before. Skipped values are not decoded."""
    first = bytes(memoryview(raw)[:1])
    kind: Any = _Object if first == b"{" else msgspec.Raw if first == b"[" else int | float | bool | str | None
    return kind if previous is None or previous == kind else msgspec.Raw


def _number(raw: Any) -> float | None:
    """The number in a raw value, if it is one."""
    if raw is msgspec.UNSET or memoryview(raw)[0] not in _NUMBER_STARTS:
        return None
    number: float = _ANY.decode(raw)
    return number


def _text(value: Any) -> str | None:
    if value is None or value is msgspec.UNSET:
        return None
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return value if isinstance(value, str) else str(value)


def _bad_record(reason: str, where: str) -> DataError:
    return DataError(
        f"cannot read a record: {reason}", where=where, next="gymnast collect --resume repairs truncated records"
    )
