"""Data frames of a run: Arrow tables built batch by batch, and pandas and polars frames made from them.

Each needs an extra of the same name. Texts are shared between the three, not copied.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ANY: Final = msgspec.json.Decoder()
_NUMBERS: Final = ("bool", "int64", "double")
"""From the narrowest to the widest."""


class ArrowTable:
    """Builds an Arrow table. A column whose batches have different types gets one that holds them all."""

    def __init__(self) -> None:
        self._arrow = import_package("pyarrow", "arrow")
        self._columns: dict[str, list[Any]] = {}
        self._rows: dict[str, int] = {}
        self._count = 0

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    def add(self, name: str, values: Sequence[Any]) -> None:
        """Add the values of a batch to a column."""
        self._fill(name)
        self._columns[name].append(self._to_array(values))
        self._rows[name] += len(values)

    def finish_batch(self, size: int) -> None:
        """End a batch."""
        self._count += size

    def build(self, names: Sequence[str]) -> Any:
        """The table with these columns. Takes the columns apart: it can be called once."""
        arrays = []
        for name in names:
            self._fill(name)
            chunks = self._columns.pop(name)
            arrays.append(self._arrow.chunked_array([], self._arrow.null()) if not chunks else self._unify(chunks))
        return self._arrow.table(arrays, names=list(names))

    def _fill(self, name: str) -> None:
        """Add nulls for the batches that a column was not in."""
        chunks = self._columns.setdefault(name, [])
        missing = self._count - self._rows.setdefault(name, 0)
        if missing:
            chunks.append(self._arrow.nulls(missing))
            self._rows[name] = self._count

    def _to_array(self, values: Sequence[Any]) -> Any:
        kinds = set(map(type, values))
        if not kinds.isdisjoint({msgspec.Raw, type(msgspec.UNSET)}):
            values = [_plain(value) for value in values]
            kinds = set(map(type, values))
        kinds.discard(type(None))
        if not kinds:
            return self._arrow.nulls(len(values))
        if kinds == {int}:
            return self._integers(values)
        if kinds == {bool}:
            return self._arrow.array(values, self._arrow.bool_())
        if kinds <= {int, float, bool}:
            numbers = [float(value) if value is not None else None for value in values]
            return self._arrow.array(numbers, self._arrow.float64(), from_pandas=False)
        texts = [value if isinstance(value, str) or value is None else _to_json(value) for value in values]
        return self._arrow.array(texts, self._arrow.large_string())

    def _integers(self, values: Sequence[Any]) -> Any:
        try:
            return self._arrow.array(values, self._arrow.int64())
        except OverflowError:
            return self._arrow.array([float(value) if value is not None else None for value in values])

    def _unify(self, chunks: list[Any]) -> Any:
        kinds = {str(chunk.type) for chunk in chunks} - {"null"}
        if not kinds:
            return self._arrow.chunked_array(chunks)
        kind = max(kinds, key=_NUMBERS.index) if kinds <= set(_NUMBERS) else "large_string"
        target = {
            "bool": self._arrow.bool_(),
            "int64": self._arrow.int64(),
            "double": self._arrow.float64(),
            "large_string": self._arrow.large_string(),
        }[kind]
        for index, chunk in enumerate(chunks):
            chunks[index] = chunk if chunk.type == target else chunk.cast(target, safe=False)
        return self._arrow.chunked_array(chunks, target)


def to_pandas(table: Any) -> Any:
    """A pandas frame. Numbers are NumPy's; texts stay in Arrow's memory."""
    pandas = import_package("pandas", "pandas")
    arrow = import_package("pyarrow", "pandas")
    kinds = {arrow.large_string(): pandas.StringDtype("pyarrow"), arrow.bool_(): pandas.BooleanDtype()}
    return table.to_pandas(types_mapper=kinds.get, split_blocks=True, self_destruct=True)


def to_polars(table: Any) -> Any:
    """A polars frame."""
    return import_package("polars", "polars").from_arrow(table)


def import_package(name: str, extra: str) -> Any:
    """An optional package. Raises UserError with the command that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"this needs the package {name}: {error}", next=f"pip install 'gymnast[{extra}]'") from error


def _plain(value: Any) -> Any:
    """A decoded value: scalars as they are, lists and objects as JSON texts."""
    if value is msgspec.UNSET:
        return None
    if not isinstance(value, msgspec.Raw):
        return value
    text = bytes(value)
    return text.decode() if text[:1] in (b"{", b"[") else _ANY.decode(text)


def _to_json(value: Any) -> str:
    return orjson.dumps(value).decode()
