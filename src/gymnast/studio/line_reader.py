"""Decodes the lines of a run's files into columns: one decode per line, into a struct made for the fields of this run.

A line of an unusual form (lone surrogates, deep nesting, fields with another type) is decoded the slow way; one that is
no record of a rollout is skipped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.report.transcript_items import decode_record
from gymnast.studio.line_columns import Places, make_lines
from gymnast.studio.record_structs import FIXED_FIELDS, SCALAR, as_kind, line_struct
from gymnast.studio.text_signature import Signer
from gymnast.types.json import can_be_struct_field
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.studio.line_columns import Lines
    from gymnast.studio.line_files import Batch

_MAX_KNOWN: Final = 400
"""Fields of a line that have a place in the struct; those beyond are skipped."""
_MAX_INDEX: Final = 2**31
_RAW_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class LineReader:
    """Decodes lines of one run. Remembers the fields that its records have."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = dict(FIXED_FIELDS)
        self._decoder: msgspec.json.Decoder[Any] = _new_decoder(self._fields)
        self._signer = Signer()
        self.skipped = 0
        """Lines that are no records of a rollout."""

    def read(self, source: int, batch: Batch, *, failures: bool) -> Lines:
        """The records in these lines of the file with this number."""
        rows, indices = self._decode_batch(batch)
        columns = self._as_columns(rows)
        if columns and not (_are_indexes(columns[TASK_INDEX]) and _are_indexes(columns[ROLLOUT_INDEX])):
            pairs = zip(columns[TASK_INDEX], columns[ROLLOUT_INDEX], strict=True)
            valid = [number for number, pair in enumerate(pairs) if _are_indexes(pair)]
            columns = {name: [values[number] for number in valid] for name, values in columns.items()}
            indices = [indices[number] for number in valid]
        starts, sizes = batch.starts, np.diff(batch.ends, prepend=0)
        whole = batch if len(indices) == len(sizes) else None
        if whole is None:
            self.skipped += len(sizes) - len(indices)
            starts, sizes = starts[indices], sizes[indices]
        raw = frozenset(name for name, kind in self._fields.items() if kind is msgspec.Raw)
        places = Places(source, starts + batch.offset, sizes)
        return make_lines(columns, places, whole, raw, self._signer, failures=failures)

    def _decode_batch(self, batch: Batch) -> tuple[list[Any], Sequence[int]]:
        """As `_decode_all`, but all lines at once if they are what most lines are."""
        if batch.has_objects:
            with suppress(ValueError, RecursionError):
                rows = self._decoder.decode_lines(batch.text)
                if len(rows) == len(batch.ends):
                    return rows, range(len(rows))
        return self._decode_all(batch.lines)

    def _decode_all(self, lines: Sequence[bytes]) -> tuple[list[Any], Sequence[int]]:
        """The lines that are JSON objects, each as a struct or a tuple of its fields, and which lines these are."""
        rows: list[Any] = []
        skipped: list[int] = []
        remaining = iter(lines)
        while len(rows) + len(skipped) < len(lines):
            with suppress(ValueError, RecursionError):
                # Up to a line that does not fit: the rows before it are in the list then.
                rows.extend(map(self._decoder.decode, remaining))
                break
            number = len(rows) + len(skipped)
            row = self._decode(lines[number])
            if row is None:
                skipped.append(number)
            else:
                rows.append(row)
        if not skipped:
            return rows, range(len(lines))
        missing = set(skipped)
        return rows, [number for number in range(len(lines)) if number not in missing]

    def _as_columns(self, rows: Sequence[Any]) -> dict[str, Sequence[Any]]:
        """Decoded rows, some of which may be from before the last fields were added, as columns."""
        if not rows:
            return {}
        width = len(self._fields)
        values = [row if type(row) is tuple else msgspec.structs.astuple(row) for row in rows]
        if len(values[0]) < width:
            values = [(*row, *(msgspec.UNSET,) * (width - len(row))) for row in values]
        return dict(zip(self._fields, zip(*values, strict=True), strict=True))

    def _decode(self, line: bytes) -> Any:
        """Decode a line that the struct of lines does not fit, or whose fields are not known yet."""
        while self._extend(line):
            try:
                return self._decoder.decode(line)
            except msgspec.ValidationError:
                continue
            except (ValueError, RecursionError):
                break
        return self._decode_slowly(line)

    def _extend(self, line: bytes) -> bool:
        """Make a struct with the fields of this line. False if there was one, so that something else is unusual."""
        try:
            fields = _RAW_FIELDS.decode(line)
        except (ValueError, RecursionError):
            fields = {}
        has_odd_names = not all(map(can_be_struct_field, fields))
        kinds = {name: bytes(memoryview(raw)[:1]) not in (b"{", b"[") for name, raw in fields.items()}
        return self._add_fields(kinds) and not has_odd_names

    def _add_fields(self, kinds: dict[str, bool]) -> bool:
        """Make a struct with these fields as well, each with whether it is a scalar. False if none is new."""
        new = [name for name in kinds if name not in self._fields and can_be_struct_field(name)]
        for name in new[: _MAX_KNOWN - len(self._fields)]:
            self._fields[name] = SCALAR if kinds[name] else msgspec.Raw
        if not new:
            return False
        self._decoder = _new_decoder(self._fields)
        return True

    def _decode_slowly(self, line: bytes) -> tuple[Any, ...] | None:
        record = decode_record(line)
        if record is None:
            return None
        self._add_fields({name: not isinstance(value, dict | list) for name, value in record.items()})
        return tuple(as_kind(record.get(name, msgspec.UNSET), kind) for name, kind in self._fields.items())


def _new_decoder(fields: dict[str, Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(line_struct(fields, forbid_unknown=len(fields) < _MAX_KNOWN))


def _are_indexes(values: Sequence[Any]) -> bool:
    """Whether all values are indexes of tasks or rollouts."""
    return set(map(type, values)) == {int} and min(values) >= 0 and max(values) < _MAX_INDEX
