"""What a dataset is made of, in numbers: the content of `<stem>_metrics.json`.

One pass, weighted by repeats, in memory that does not grow with the rows; metrics of several datasets can be merged.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gymnast.data.spill import SpillSet
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from gymnast.data.row import Row
    from gymnast.data.spill import Scratch
    from gymnast.types.json import JsonObject

EXAMPLES: Final = "Number of examples"
_TOOLS: Final = "Number of tools"
_WORDS: Final = "Json-dumped number of words (proxy for token count)"
_TURNS: Final = "Number of turns"
_TEMPERATURE: Final = "Temperature"
_DIGEST_BYTES: Final = 12


@dataclass(slots=True)
class Spread:
    """Mean, extremes and standard deviation of values seen one at a time (Welford), mergeable (Chan)."""

    total: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """The sum of squared distances from the mean."""
    low: float = math.inf
    high: float = -math.inf

    def observe(self, value: float, times: int = 1) -> None:
        self.merge(Spread(times, value, 0.0, value, value))

    def merge(self, other: Spread) -> None:
        total = self.total + other.total
        if not other.total:
            return
        distance = other.mean - self.mean
        self.squares += other.squares + distance * distance * self.total * other.total / total
        self.mean += distance * other.total / total
        self.total = total
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)

    def as_json(self) -> JsonObject:
        deviation = math.sqrt(self.squares / (self.total - 1)) if self.total > 1 else 0.0
        return {
            "Total # non-null values": self.total,
            "Average": _rounded(self.mean),
            "Min": _rounded(self.low if self.total else 0.0),
            "Max": _rounded(self.high if self.total else 0.0),
            "Standard deviation": _rounded(deviation),
        }


class FieldValues:
    """The numbers and texts that a field of the rows has."""

    def __init__(self, scratch: Scratch) -> None:
        self.numbers = Spread()
        self.texts = 0
        self.different = SpillSet(scratch, _DIGEST_BYTES)

    def observe(self, value: Any, times: int) -> None:
        """A number, a truth value, a text, or a list of these; anything else says nothing."""
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, int | float):
                self.numbers.observe(float(item), times)
            elif isinstance(item, str):
                self.texts += times
                self.different.add(hashlib.blake2b(item.encode(), digest_size=_DIGEST_BYTES).digest())

    def merge(self, other: FieldValues) -> None:
        self.numbers.merge(other.numbers)
        self.texts += other.texts
        self.different.update(other.different)

    def as_json(self) -> JsonObject | None:
        """None where there was nothing to count. A field with texts is counted as text, whatever else it holds."""
        if self.texts:
            return {"unique_count": self.different.count(), "total_count": self.texts}
        return self.numbers.as_json() if self.numbers.total else None


@dataclass(slots=True)
class Metrics:
    """The metrics of one dataset, or of several merged."""

    scratch: Scratch
    examples: int = 0
    spreads: dict[str, Spread] = field(
        default_factory=lambda: {name: Spread() for name in (_TOOLS, _WORDS, _TURNS, _TEMPERATURE)}
    )
    fields: defaultdict[str, FieldValues] = field(init=False)

    def __post_init__(self) -> None:
        self.fields = defaultdict(lambda: FieldValues(self.scratch))

    def observe(self, row: Row, times: int) -> None:
        """Count a row that stands `times` times in the result."""
        self.examples += times
        for name, value in _measures(row.params).items():
            self.spreads[name].observe(value, times)
        for key, value in row.data.items():
            if key != PARAMS:
                self.fields[key].observe(value, times)

    def merge(self, other: Metrics) -> None:
        self.examples += other.examples
        for name, spread in other.spreads.items():
            self.spreads[name].merge(spread)
        for key, values in other.fields.items():
            self.fields[key].merge(values)

    def as_json(self) -> JsonObject:
        """As the metrics file has them, after the dataset's own entry."""
        fields = {key: values.as_json() for key, values in self.fields.items()}
        return {
            EXAMPLES: self.examples,
            **{name: spread.as_json() for name, spread in self.spreads.items()},
            **{key: value for key, value in fields.items() if value is not None},
        }


def _measures(params: JsonObject) -> dict[str, float]:
    """The numbers of one row; those it does not have are left out."""
    given = params["input"]
    turns = 1 if isinstance(given, str) else sum(item.get("role") == "user" for item in given)
    found: dict[str, float] = {_WORDS: len(json.dumps(params).split())}  # its spaces are what is counted
    if params.get("tools") is not None:
        found[_TOOLS] = len(params["tools"])
    if turns:
        found[_TURNS] = turns
    if params.get("temperature") is not None:
        found[_TEMPERATURE] = params["temperature"]
    return found


def _rounded(value: float) -> float:
    return round(float(value), 2 if abs(value) >= 1 else 3)
