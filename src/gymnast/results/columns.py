"""Which columns the data frames of a run have, and how records become them.

A column has the name of the record's field. `agent_ref` becomes `agent`; the scalars of `response.usage` and `failure`
become columns of their own; those of `_ng_model_usage` keep its name as a prefix. Other lists and objects are JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from gymnast.errors import NotFoundError, suggest
from gymnast.profile.reading import AgentRef
from gymnast.profile.record_batches import SCALAR, RecordBatches, SkippedObject
from gymnast.types.task import AGENT_REF, ATTEMPT_INDEX, PARAMS, ROLLOUT_INDEX, TASK_INDEX
from gymnast.types.tokens import LEDGER
from gymnast.types.usage import MODEL_USAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.profile.record_batches import Columns
    from gymnast.store.records import RecordFile

TRANSCRIPT: Final = (PARAMS, "response", LEDGER)
"""Fields that are left out unless they are named: they can be a thousand times as large as the rest."""
AGENT: Final = "agent"
_RESPONSE: Final = "response"
_FAILURE: Final = "failure"
_FIRST: Final = (TASK_INDEX, ROLLOUT_INDEX, AGENT, "reward")
_INDEXES: Final = (TASK_INDEX, ROLLOUT_INDEX, AGENT)
EMPTY: Final = {
    "rollouts": _FIRST,
    "failures": (*_INDEXES, ATTEMPT_INDEX, "kind", "layer", "stage", "message"),
    "inputs": _INDEXES,
}
"""The columns of tables without rows."""
_SPLIT: Final = frozenset({_RESPONSE, _FAILURE, MODEL_USAGE})
_OBJECT: Final[Any] = dict[str, Any] | None


class _Response(msgspec.Struct):
    usage: dict[str, Any] | None = None


class Table(Protocol):
    """Receives columns batch by batch."""

    def add(self, name: str, values: Sequence[Any]) -> None:
        """Add values to a column; those of earlier batches are missing if it is new."""

    def finish_batch(self, size: int) -> None:
        """End a batch: columns that were not added are missing in it."""

    @property
    def names(self) -> list[str]:
        """The columns so far."""


def read_columns(records: RecordFile, table: Table, columns: Sequence[str] | None = None) -> list[str]:
    """Read records into a table in one pass; returns its columns in their order. `columns` selects some."""
    reader = _Reader(table, columns)
    if records.exists():
        reader.batches.read(records)
    return reader.order_columns()


class _Reader:
    def __init__(self, table: Table, columns: Sequence[str] | None) -> None:
        self.batches = RecordBatches(self._field_type, self._take)
        self._table = table
        self._columns = list(columns) if columns is not None else None
        self._decode_response = msgspec.json.Decoder(_Response).decode

    def order_columns(self) -> list[str]:
        if self._columns is None:
            names = self._table.names
            return [*(name for name in _FIRST if name in names), *(name for name in names if name not in _FIRST)]
        known = dict.fromkeys([*self._table.names, *(name for name in self.batches.fields if name != AGENT_REF)])
        for name in self._columns:
            if name not in known and known:
                raise NotFoundError(f"no record has a field '{name}'", next=suggest(name, known))
        return self._columns

    def _is_wanted(self, name: str) -> bool:
        return name not in TRANSCRIPT if self._columns is None else name in self._columns

    def _field_type(self, name: str, first: bytes) -> Any:
        if name == AGENT_REF:
            return AgentRef | None
        if name in (_FAILURE, MODEL_USAGE) and not (self._columns and name in self._columns):
            return _OBJECT
        if name == _RESPONSE:
            return msgspec.Raw if self._is_wanted(name) else _Response | None
        if first in (b"{", b"["):
            return msgspec.Raw if self._is_wanted(name) or first == b"[" else SkippedObject
        return SCALAR

    def _take(self, columns: Columns, size: int) -> None:
        added: set[str] = set()
        for name in sorted(columns, key=_SPLIT.__contains__):  # a record's own field goes before one of `usage`
            for column, own in self._split(name, columns[name]):
                if column not in added and (self._columns is None or column in self._columns):
                    self._table.add(column, own)
                    added.add(column)
        self._table.finish_batch(size)

    def _split(self, name: str, values: Sequence[Any]) -> Iterable[tuple[str, Sequence[Any]]]:
        """The columns that a field becomes."""
        kind = self.batches.fields[name]
        if name == AGENT_REF:
            yield AGENT, [value.name if isinstance(value, AgentRef) else None for value in values]
        elif name == _RESPONSE:
            if kind is msgspec.Raw:
                yield name, values
                values = [self._decode_response(value) if _is_object(value) else None for value in values]
            yield from _flatten([value.usage if isinstance(value, _Response) else None for value in values], "")
        elif kind is _OBJECT:
            yield from _flatten(values, f"{name}." if name == MODEL_USAGE else "")
        elif self._is_wanted(name):
            yield name, values


def _flatten(values: Sequence[Any], prefix: str) -> Iterable[tuple[str, list[Any]]]:
    """The scalars of objects by name."""
    objects = [value if isinstance(value, dict) else {} for value in values]
    for name in dict.fromkeys(name for value in objects for name in value):
        column = [value.get(name) for value in objects]
        if not any(isinstance(value, (dict, list)) for value in column):
            yield prefix + name, column


def _is_object(value: Any) -> bool:
    return value is not msgspec.UNSET and memoryview(value)[0] == ord("{")
