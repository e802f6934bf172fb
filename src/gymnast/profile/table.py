"""The numbers of rollouts in columns: one value a rollout, gaps where a record has none. Flat: no record is kept."""

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
    """NaN where a record has no number there."""
    is_integer: NDArray[np.bool_]
    """Whether the record had a whole number (or a truth value)."""
    from_usage: bool
    """Whether it is a scalar of `response.usage`."""

    def at(self, row: int) -> int | float | None:
        """The value as the record had it."""
        value = float(self.values[row])
        if math.isnan(value):
            return None
        return int(value) if self.is_integer[row] else value


@dataclass(frozen=True, slots=True)
class RolloutTable:
    """Scored rollouts, in the order in which they were read."""

    tasks: Ints
    rollouts: Ints
    agents: NDArray[np.int32]
    """Number of the agent in `agent_names`."""
    agent_names: list[str]
    columns: dict[str, Column]
    """In the order in which fields first appeared."""
    texts: dict[str, list[str | None]]
    """Fields that were asked for by name, as texts (answers, subsets)."""
    offsets: Ints
    """Where each record begins."""
    sources: NDArray[np.int32]
    """Which of the files it is in."""
    output_bytes: Ints
    """How long each trajectory is, as JSON."""

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def packed(self) -> Ints:
        """Keys as single numbers."""
        return (self.tasks << 32) | self.rollouts

    @property
    def is_integer(self) -> bool:
        """Whether every column is whole numbers without a gap."""
        return all(bool(column.is_integer.all()) for column in self.columns.values())

    @property
    def rewards(self) -> Floats:
        column = self.columns.get("reward")
        return column.values if column is not None else np.empty(0, np.float64)

    def key(self, row: int) -> RolloutKey:
        return RolloutKey(int(self.tasks[row]), int(self.rollouts[row]))

    def chosen(self, rows: NDArray[Any]) -> RolloutTable:
        """A table of some rows."""
        columns = {
            name: Column(column.values[rows], column.is_integer[rows], column.from_usage)
            for name, column in self.columns.items()
        }
        numbers = np.arange(len(self))[rows]
        texts = {name: [values[number] for number in numbers] for name, values in self.texts.items()}
        return RolloutTable(
            tasks=self.tasks[rows],
            rollouts=self.rollouts[rows],
            agents=self.agents[rows],
            agent_names=self.agent_names,
            columns=columns,
            texts=texts,
            offsets=self.offsets[rows],
            sources=self.sources[rows],
            output_bytes=self.output_bytes[rows],
        )


class TableBuilder:
    """Takes rollouts batch by batch, each batch as columns."""

    def __init__(self, text_fields: tuple[str, ...] = ()) -> None:
        self.count = 0
        self._fixed: dict[str, list[NDArray[Any]]] = {name: [] for name in _FIXED}
        self._agent_numbers: dict[str, int] = {}
        self._columns: dict[str, _Growing] = {}
        self._texts: dict[str, list[str | None]] = {name: [] for name in text_fields}
        self._seen_texts: dict[str, str] = {}

    def add(self, size: int, **fixed: Sequence[int]) -> None:
        """A batch of rollouts: `tasks`, `rollouts`, `offsets`, `sources`, `output_bytes`; their fields come before."""
        for name, values in fixed.items():
            self._fixed[name].append(np.array(values, dtype=_FIXED[name]))
        self.count += size

    def agents(self, names: Iterable[str]) -> None:
        """The agents of the batch."""
        numbers = self._agent_numbers
        self._fixed["agents"].append(
            np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int32)
        )

    def numbers(self, name: str, values: Sequence[object], *, from_usage: bool) -> None:
        """A field of the batch; what is no number is a gap."""
        column = self._columns.get(name)
        if column is None:
            if not any(isinstance(value, (int, float)) for value in values):
                return
            column = self._columns[name] = _Growing(from_usage)
        column.put(self.count, values)

    def texts(self, name: str, values: Iterable[str | None]) -> None:
        """A field of the batch as texts. Equal ones are kept once."""
        seen = self._seen_texts
        self._texts[name] += [seen.setdefault(value, value) if value is not None else None for value in values]

    def table(self) -> RolloutTable:
        """Everything that was added."""
        fixed = {
            name: np.concatenate(found) if found else np.empty(0, _FIXED[name]) for name, found in self._fixed.items()
        }
        columns = {name: column.finished(self.count) for name, column in self._columns.items()}
        return RolloutTable(agent_names=list(self._agent_numbers), columns=columns, texts=self._texts, **fixed)


_FIXED: Final[dict[str, type[np.generic]]] = {
    "tasks": np.int64,
    "rollouts": np.int64,
    "agents": np.int32,
    "offsets": np.int64,
    "sources": np.int32,
    "output_bytes": np.int64,
}


class _Growing:
    """A column under construction."""

    __slots__ = ("_filled", "_from_usage", "_integers", "_values")

    def __init__(self, from_usage: bool) -> None:  # noqa: FBT001 - private, and a claim
        self._from_usage = from_usage
        self._filled = 0
        self._values: list[Floats] = []
        self._integers: list[NDArray[np.bool_]] = []

    def put(self, start: int, values: Sequence[object]) -> None:
        """The values of a batch that begins at row `start`."""
        self._fill(start)
        kinds = set(map(type, values))
        if kinds == {float}:
            self._values.append(np.array(values, dtype=np.float64))
            self._integers.append(np.zeros(len(values), dtype=np.bool_))
        elif kinds <= {int, bool}:
            self._values.append(np.array(values, dtype=np.float64))
            self._integers.append(np.ones(len(values), dtype=np.bool_))
        else:
            is_number = [isinstance(value, (int, float)) for value in values]
            self._values.append(
                np.array([value if there else math.nan for value, there in zip(values, is_number, strict=True)], float)
            )
            self._integers.append(np.array([isinstance(value, int) for value in values], dtype=np.bool_))
        self._filled += len(values)

    def finished(self, count: int) -> Column:
        self._fill(count)
        return Column(np.concatenate(self._values), np.concatenate(self._integers), self._from_usage)

    def _fill(self, until: int) -> None:
        """Gaps up to a row."""
        if until > self._filled:
            self._values.append(np.full(until - self._filled, math.nan))
            self._integers.append(np.zeros(until - self._filled, dtype=np.bool_))
            self._filled = until
