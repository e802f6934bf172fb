"""Decodes records in batches with the same fields, into a struct made for those fields.

Records of a run have the same fields. A record with a new field, or a field with a new type, is decoded the slow way
once, and the struct is extended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import DataError
from gymnast.types.json import can_be_struct_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from gymnast.store.records import RecordFile

    Columns = Mapping[str, Sequence[Any]]
    TakeBatch = Callable[[Columns, int], None]
    FieldType = Callable[[str, bytes], Any]

_RAW_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MAX_RECORDS: Final = 4096
_MAX_BYTES: Final = 1 << 25
SCALAR: Final[Any] = int | float | bool | str | None


class SkippedObject(msgspec.Struct):
    """Any object; its content is skipped."""


class RecordBatches:
    """Collects decoded records and passes them on in batches, as columns: `take(columns, size)`.

    `field_type(name, first)` is the type of a field, from the first character of its value. A field whose types differ
    is decoded as `msgspec.Raw`. A value that a record does not have is `msgspec.UNSET`.
    """

    def __init__(self, field_type: FieldType, take: TakeBatch, *, required: Iterable[str] = ()) -> None:
        self.fields: dict[str, Any] = {}
        """The type of each field so far."""
        self._field_type = field_type
        self._take = take
        self._required = frozenset(required)
        self._decoder: msgspec.json.Decoder[Any] | _FieldDecoder | None = None
        self._are_structs = True
        self._batch: list[Any] = []
        self._batch_bytes = 0

    def read(self, records: RecordFile, before_add: Callable[[int], None] = lambda _: None) -> None:
        """Add every record of a file. `before_add` is called with the offset of each."""
        offset, path = 0, records.path
        try:
            with records.open() as stream:
                for number, line in enumerate(stream, 1):
                    if not line.isspace():
                        record = self._decode(line, path, number)
                        before_add(offset)
                        self._batch.append(record)
                        self._batch_bytes += len(line)
                        if len(self._batch) == _MAX_RECORDS or self._batch_bytes > _MAX_BYTES:
                            self.flush()
                    offset += len(line)
        except OSError as error:
            raise DataError(f"cannot read the rollouts: {error.strerror or error}", where=str(path)) from error
        self.flush()

    def flush(self) -> None:
        """Pass on what was collected."""
        if self._batch:
            rows = map(msgspec.structs.astuple, self._batch) if self._are_structs else self._batch
            columns = zip(*rows, strict=True)
            self._take(dict(zip(self.fields, columns, strict=True)), len(self._batch))
            self._batch, self._batch_bytes = [], 0

    def _decode(self, line: bytes, path: Path, number: int) -> Any:
        try:
            if self._decoder is not None:
                return self._decoder.decode(line)
        except msgspec.ValidationError:
            pass  # a new field, or a field with a new type
        except (ValueError, RecursionError) as error:  # msgspec's errors, or text that is not UTF-8
            raise _bad_record(str(error), f"{path} line {number}") from error
        where = f"{path} line {number}"
        self.flush()
        self._extend_struct(line, where)
        assert self._decoder is not None
        try:
            return self._decoder.decode(line)
        except ValueError as error:
            raise _bad_record(str(error), where) from error

    def _extend_struct(self, line: bytes, where: str) -> None:
        """Make a struct that fits this record and all before it."""
        try:
            fields = _RAW_FIELDS.decode(line)
        except (ValueError, RecursionError) as error:
            raise _bad_record(str(error), where) from error
        for name in self._required:
            if name not in fields:
                raise _bad_record(f"it has no {name}", where)
        for name, raw in fields.items():
            kind = self._field_type(name, bytes(memoryview(raw)[:1]))
            self.fields[name] = kind if self.fields.get(name, kind) == kind else msgspec.Raw
        self._are_structs = all(map(can_be_struct_field, self.fields))
        self._decoder = self._struct_decoder() if self._are_structs else _FieldDecoder(self.fields, self._required)

    def _struct_decoder(self) -> msgspec.json.Decoder[Any]:
        names = [f"f{number}" for number in range(len(self.fields))]  # records' field names may be anything
        struct = msgspec.defstruct(
            "Record",
            [
                (field, kind) if name in self._required else (field, kind, msgspec.UNSET)
                for field, (name, kind) in zip(names, self.fields.items(), strict=True)
            ],
            kw_only=True,
            rename=dict(zip(names, self.fields, strict=True)),
            forbid_unknown_fields=True,
            gc=False,
        )
        return msgspec.json.Decoder(struct)


class _FieldDecoder:
    """Decodes records with field names that a struct cannot have, into tuples. Several times slower."""

    def __init__(self, fields: Mapping[str, Any], required: frozenset[str]) -> None:
        self._decoders = {name: msgspec.json.Decoder(kind) for name, kind in fields.items()}
        self._required = required

    def decode(self, line: bytes) -> tuple[Any, ...]:
        fields = _RAW_FIELDS.decode(line)
        if not self._required <= fields.keys() <= self._decoders.keys():
            raise msgspec.ValidationError("a field is new or missing")
        return tuple(
            decoder.decode(fields[name]) if name in fields else msgspec.UNSET
            for name, decoder in self._decoders.items()
        )


def _bad_record(reason: str, where: str) -> DataError:
    return DataError(
        f"cannot read a record: {reason}", where=where, next="gymnast collect --resume repairs truncated records"
    )
