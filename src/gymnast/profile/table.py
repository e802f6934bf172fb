"""The numbers of rollouts in columns: one value per rollout, NaN where a record has none. Records are not kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gymnast.types.task import RolloutKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Column:
    """One numeric field over all rollouts."""

    values: Floats
    """NaN where a record has no number."""
    is_integer: NDArray[np.bool_]
    """Whether the record had an integer or a boolean."""
    from_usage: bool
    """Whether it is a scalar of `response.usage`."""

    def at(self, row: int) -> int | float | None:
        """The value in the record."""
        value = float(self.values[row])
        if math.isnan(value):
            return None
        return int(value) if self.is_integer[row] else value

    def select(self, rows: NDArray[Any]) -> Column:
        """The values of some rows."""
        return Column(self.values[rows], self.is_integer[rows], self.from_usage)

    def over(self, other: Column) -> Column:
        """These values, and those of the other column in the gaps."""
        gaps = np.isnan(self.values)
        values, integers = (
            np.where(gaps, other.values, self.values),
            np.where(gaps, other.is_integer, self.is_integer),
        )
        return Column(values, integers, self.from_usage)


@dataclass(frozen=True, slots=True)
class RolloutTable:
    """Scored rollouts, in the order they were read."""

    tasks: Ints
    rollouts: Ints
    agents: NDArray[np.int32]
    """Indices into `agent_names`."""
    agent_names: list[str]
    columns: dict[str, Column]
    """In the order the fields first appeared."""
    overridden: dict[str, Column]
    """Fields of records whose names are in `response.usage`, too: `columns` has the usage."""
    texts: dict[str, list[str | None]]
    """Fields requested as texts (answers, subsets)."""
    offsets: Ints
    """The offset of each record in its file."""
    sources: NDArray[np.int32]
    """The index of each record's file."""
    output_bytes: Ints
    """The length of each trajectory as JSON."""
    truncated: NDArray[np.bool_]
    """Whether a length or step limit cut it off."""

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def packed(self) -> Ints:
        return (self.tasks << 32) | self.rollouts

    @property
    def is_integer(self) -> bool:
        """Whether every column has only integers, without gaps."""
        return all(bool(column.is_integer.all()) for column in self.columns.values())

    @property
    def rewards(self) -> Floats:
        column = self.columns.get("reward")
        return column.values if column is not None else np.empty(0, np.float64)

    def key(self, row: int) -> RolloutKey:
        return RolloutKey(int(self.tasks[row]), int(self.rollouts[row]))

    def select(self, rows: NDArray[Any]) -> RolloutTable:
        if rows.dtype != np.bool_ and np.array_equal(rows, np.arange(len(self))):
            return self  # every row in order: a copy would double the memory of a large run
        columns = {name: column.select(rows) for name, column in self.columns.items()}
        overridden = {name: column.select(rows) for name, column in self.overridden.items()}
        indices = np.arange(len(self))[rows]
        texts = {name: [values[index] for index in indices] for name, values in self.texts.items()}
        return RolloutTable(
            tasks=self.tasks[rows],
            rollouts=self.rollouts[rows],
            agents=self.agents[rows],
            agent_names=self.agent_names,
            columns=columns,
            overridden=overridden,
            texts=texts,
            offsets=self.offsets[rows],
            sources=self.sources[rows],
            output_bytes=self.output_bytes[rows],
            truncated=self.truncated[rows],
        )


class TableBuilder:
    """Builds a table batch by batch, each batch as columns, ended by `finish_batch`."""

    def __init__(self, text_fields: tuple[str, ...] = ()) -> None:
        self.count = 0
        self._fixed: dict[str, list[NDArray[Any]]] = {name: [] for name in _FIXED}
        self._agent_numbers: dict[str, int] = {}
        self._columns: dict[tuple[str, bool], _ColumnBuilder] = {}
        self._texts: dict[str, list[str | None]] = {name: [] for name in text_fields}
        self._interned: dict[str, str] = {}

    def finish_batch(self, size: int, **fixed: Sequence[int]) -> None:
        """Add the columns in `_FIXED` of a batch, except for its agents, after its fields."""
        for name, values in fixed.items():
            self._fixed[name].append(np.array(values, dtype=_FIXED[name]))
        self.count += size

    def add_agents(self, names: Iterable[str]) -> None:
        numbers = self._agent_numbers
        self._fixed["agents"].append(
            np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int32)
        )

    def add_numbers(self, name: str, values: Sequence[object], *, from_usage: bool) -> None:
        """Add a field of the batch; values that are not numbers become gaps."""
        column = self._columns.get((name, from_usage))
        if column is None:
            if not any(isinstance(value, (int, float)) for value in values):
                return
            column = self._columns[name, from_usage] = _ColumnBuilder(from_usage)
        column.add(self.count, values)

    def add_texts(self, name: str, values: Iterable[str | None]) -> None:
        """Add a field of the batch as texts. Equal texts are stored once."""
        interned = self._interned
        self._texts[name] += [interned.setdefault(value, value) if value is not None else None for value in values]

    def build(self) -> RolloutTable:
        fixed = {
            name: np.concatenate(batches) if batches else np.empty(0, _FIXED[name])
            for name, batches in self._fixed.items()
        }
        built = {key: column.build(self.count) for key, column in self._columns.items()}
        names = dict.fromkeys(name for name, _ in built)
        both = {name: built[name, False] for name in names if (name, False) in built and (name, True) in built}
        columns = {
            name: built[name, True].over(both[name]) if name in both else built[name, (name, True) in built]
            for name in names
        }
        agents = list(self._agent_numbers)
        return RolloutTable(agent_names=agents, columns=columns, overridden=both, texts=self._texts, **fixed)


_FIXED: Final[dict[str, type[np.generic]]] = {
    "tasks": np.int64,
    "rollouts": np.int64,
    "agents": np.int32,
    "offsets": np.int64,
    "sources": np.int32,
    "output_bytes": np.int64,
    "truncated": np.bool_,
}


class _ColumnBuilder:
    """Builds a column; rows that are skipped become gaps."""

    __slots__ = ("_filled", "_from_usage", "_integers", "_values")

    def __init__(self, from_usage: bool) -> None:  # noqa: FBT001 - private, and a claim
        self._from_usage = from_usage
        self._filled = 0
        self._values: list[Floats] = []
        self._integers: list[NDArray[np.bool_]] = []

    def add(self, start: int, values: Sequence[object]) -> None:
        """Add the values of a batch that starts at row `start`."""
        self._fill(start)
        kinds = set(map(type, values))
        if kinds == {float}:
            self._values.append(np.array(values, dtype=np.float64))
            self._integers.append(np.zeros(len(values), dtype=np.bool_))
        elif kinds <= {int, bool}:
            self._values.append(np.array(values, dtype=np.float64))
            self._integers.append(np.ones(len(values), dtype=np.bool_))
        else:
            numbers = [value if isinstance(value, (int, float)) else math.nan for value in values]
            self._values.append(np.array(numbers, dtype=np.float64))
            self._integers.append(np.array([isinstance(value, int) for value in values], dtype=np.bool_))
        self._filled += len(values)

    def build(self, count: int) -> Column:
        self._fill(count)
        return Column(np.concatenate(self._values), np.concatenate(self._integers), self._from_usage)

    def _fill(self, end: int) -> None:
        """Add gaps up to a row."""
        if end > self._filled:
            self._values.append(np.full(end - self._filled, math.nan))
            self._integers.append(np.zeros(end - self._filled, dtype=np.bool_))
            self._filled = end
