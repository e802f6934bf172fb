"""Reading rollouts into columns: one pass, every numeric field whatever it is called, nothing else decoded.

Records of a run have the same fields, so they are decoded into a structure made for those fields; a record with a
field that was not there before is decoded the slow way, once, and the structure grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import DataError
from gymnast.profile.table import TableBuilder
from gymnast.store.records import record_file
from gymnast.types.task import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gymnast.profile.table import RolloutTable
    from gymnast.store.records import RecordFile

_INDEXES: Final = frozenset({TASK_INDEX, ROLLOUT_INDEX})
_NUMBER_STARTS: Final = frozenset(b"-0123456789tf")


class _Response(msgspec.Struct):
    usage: dict[str, Any] | None = None
    output: msgspec.Raw = msgspec.Raw()


class _AgentRef(msgspec.Struct):
    name: str = ""


class _Object(msgspec.Struct):
    """Any object; nothing of it is kept."""


_TYPED: Final[dict[str, Any]] = {
    "response": _Response | None,
    AGENT_REF: _AgentRef | None,
    TASK_INDEX: int,
    ROLLOUT_INDEX: int,
}
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY: Final = msgspec.json.Decoder()
_BATCH: Final = 4096


def read_rollouts(paths: Sequence[Path | RecordFile], *, texts: Iterable[str] = ()) -> RolloutTable:
    """All records of these files. `texts`: fields to keep as texts besides the numbers."""
    reader = _Reader(tuple(texts))
    for source, path in enumerate(paths):
        reader.read(record_file(path), source)
    return reader.builder.table()


class _Reader:
    """Decodes records and hands them on in batches of one shape."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.builder = TableBuilder(texts)
        self._texts = texts
        self._known: dict[str, Any] = {}
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._batch: list[Any] = []
        self._offsets: list[int] = []

    def read(self, records: RecordFile, source: int) -> None:
        offset, path = 0, records.path
        try:
            with records.open() as stream:
                for number, line in enumerate(stream, 1):
                    if not line.isspace():
                        self._take(line, source, path, number)
                        self._offsets.append(offset)
                        if len(self._offsets) == _BATCH:
                            self._flush(source)
                    offset += len(line)
        except OSError as error:
            raise DataError(f"cannot read the rollouts: {error.strerror or error}", where=str(path)) from error
        self._flush(source)

    def _take(self, line: bytes, source: int, path: Path, number: int) -> None:
        try:
            if self._decoder is not None:
                self._batch.append(self._decoder.decode(line))
                return
        except msgspec.ValidationError:
            pass  # a field or a form that was not there before
        except (msgspec.DecodeError, RecursionError) as error:
            raise _damaged(str(error), f"{path} line {number}") from error
        where = f"{path} line {number}"
        self._flush(source)
        self._learn(line, where)
        assert self._decoder is not None
        try:
            self._batch.append(self._decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise _damaged(str(error), where) from error

    def _learn(self, line: bytes, where: str) -> None:
        """Make a structure that fits this record and all before it."""
        try:
            fields = _FIELDS.decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise _damaged(str(error), where) from error
        for name in _INDEXES:
            if name not in fields:
                raise _damaged(f"it has no {name}", where)
        for name, raw in fields.items():
            if name in _TYPED:
                self._known[name] = _TYPED[name]
            else:
                self._known[name] = _kind(raw, self._known.get(name))
        names = [f"f{number}" for number in range(len(self._known))]  # field names of records may be anything
        shape = msgspec.defstruct(
            "Record",
            [
                (field, kind) if name in _INDEXES else (field, kind, msgspec.UNSET)
                for field, (name, kind) in zip(names, self._known.items(), strict=True)
            ],
            kw_only=True,
            rename=dict(zip(names, self._known, strict=True)),
            forbid_unknown_fields=True,
            gc=False,
        )
        self._decoder = msgspec.json.Decoder(shape)

    def _flush(self, source: int) -> None:
        """Hand the batch on, column by column."""
        if not self._batch:
            return
        columns = dict(zip(self._known, zip(*map(msgspec.structs.astuple, self._batch), strict=True), strict=True))
        size = len(self._batch)
        responses = columns.get("response", [None] * size)
        builder = self.builder
        for name, values in columns.items():
            if name not in _TYPED and self._known[name] is not _Object:
                numbers = [_number(raw) for raw in values] if self._known[name] is msgspec.Raw else values
                builder.numbers(name, numbers, from_usage=False)
        self._put_usage([one.usage if isinstance(one, _Response) else None for one in responses])
        for name in self._texts:
            builder.texts(name, [_text(value) for value in columns.get(name, [None] * size)])
        refs = columns.get(AGENT_REF, [None] * size)
        builder.agents([ref.name if isinstance(ref, _AgentRef) else "" for ref in refs])
        builder.add(
            size,
            tasks=columns[TASK_INDEX],
            rollouts=columns[ROLLOUT_INDEX],
            offsets=self._offsets,
            sources=[source] * size,
            output_bytes=[memoryview(one.output).nbytes if isinstance(one, _Response) else 0 for one in responses],
        )
        self._batch, self._offsets = [], []

    def _put_usage(self, usages: list[dict[str, Any] | None]) -> None:
        for name in dict.fromkeys(name for usage in usages if usage for name in usage):
            values = [usage.get(name) if usage else None for usage in usages]
            self.builder.numbers(name, values, from_usage=True)


def _kind(raw: msgspec.Raw, before: Any) -> Any:
    """A type for a field that fits its value here and before. What is only skipped is not decoded."""
    starts = bytes(memoryview(raw)[:1])
    found: Any = _Object if starts == b"{" else msgspec.Raw if starts == b"[" else int | float | bool | str | None
    return found if before is None or before == found else msgspec.Raw


def _number(raw: Any) -> float | None:
    """The number in an undecoded value, which may also be something else."""
    if raw is msgspec.UNSET or memoryview(raw)[0] not in _NUMBER_STARTS:
        return None
    found: float = _ANY.decode(raw)
    return found


def _text(value: Any) -> str | None:
    if value is None or value is msgspec.UNSET:
        return None
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return value if isinstance(value, str) else str(value)


def _damaged(what: str, where: str) -> DataError:
    return DataError(
        f"a record cannot be read: {what}", where=where, next="gymnast collect --resume repairs what a crash tore"
    )
