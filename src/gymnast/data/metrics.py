"""Statistics of a dataset: the content of `<stem>_metrics.json`.

One pass in constant memory, weighted by repeats. Metrics of several datasets can be merged.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gymnast.data.row import truncate
from gymnast.data.spill import SpillSet
from gymnast.errors import DataError
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.data.row import Row
    from gymnast.data.spill import ScratchFile
    from gymnast.types.json import JsonObject

EXAMPLES: Final = "Number of examples"
_TOOLS: Final = "Number of tools"
_WORDS: Final = "Json-dumped number of words (proxy for token count)"
_TURNS: Final = "Number of turns"
_TEMPERATURE: Final = "Temperature"
_DIGEST_BYTES: Final = 12


@dataclass(slots=True)
class RunningStats:
    """Mean, extremes and standard deviation of a stream of values (Welford), mergeable (Chan)."""

    total: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean."""
    low: float = math.inf
    high: float = -math.inf

    def observe(self, value: float, times: int = 1) -> None:
        self.merge(RunningStats(times, value, 0.0, value, value))

    def merge(self, other: RunningStats) -> None:
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
            "Average": _round(self.mean),
            "Min": _round(self.low if self.total else 0.0),
            "Max": _round(self.high if self.total else 0.0),
            "Standard deviation": _round(deviation),
        }


class FieldValues:
    """The numbers and strings that a field holds across rows."""

    def __init__(self, scratch: ScratchFile) -> None:
        self.numbers = RunningStats()
        self.strings = 0
        self.distinct = SpillSet(scratch, _DIGEST_BYTES)

    def observe(self, value: Any, times: int) -> None:
        """Count a number, boolean, string, or list of these; ignores anything else."""
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, int | float):
                self.numbers.observe(float(item), times)
            elif isinstance(item, str):
                self.strings += times
                self.distinct.add(hashlib.blake2b(item.encode(), digest_size=_DIGEST_BYTES).digest())

    def merge(self, other: FieldValues) -> None:
        self.numbers.merge(other.numbers)
        self.strings += other.strings
        self.distinct.update(other.distinct)

    def as_json(self) -> JsonObject | None:
        """None if there was nothing to count. A field with any strings is reported as strings."""
        if self.strings:
            return {"unique_count": self.distinct.count(), "total_count": self.strings}
        return self.numbers.as_json() if self.numbers.total else None


@dataclass(slots=True)
class Metrics:
    """The metrics of one dataset, or of several merged datasets."""

    scratch: ScratchFile
    examples: int = 0
    stats: dict[str, RunningStats] = field(
        default_factory=lambda: {name: RunningStats() for name in (_TOOLS, _WORDS, _TURNS, _TEMPERATURE)}
    )
    fields: defaultdict[str, FieldValues] = field(init=False)

    def __post_init__(self) -> None:
        self.fields = defaultdict(lambda: FieldValues(self.scratch))

    def observe(self, row: Row, times: int) -> None:
        """Count a row that appears `times` times in the result."""
        self.examples += times
        for name, value in _measures(row.params).items():
            self.stats[name].observe(value, times)
        for key, value in row.data.items():
            if key != PARAMS:
                self.fields[key].observe(value, times)

    def merge(self, other: Metrics) -> None:
        self.examples += other.examples
        for name, measure in other.stats.items():
            self.stats[name].merge(measure)
        for key, values in other.fields.items():
            self.fields[key].merge(values)

    def as_json(self) -> JsonObject:
        """The content of the metrics file after the dataset's header."""
        fields = {key: values.as_json() for key, values in self.fields.items()}
        return {
            EXAMPLES: self.examples,
            **{name: measure.as_json() for name, measure in self.stats.items()},
            **{key: value for key, value in fields.items() if value is not None},
        }


def _measures(params: JsonObject) -> dict[str, float]:
    """The measures of one row, without those that do not apply."""
    prompt = params["input"]
    turns = 1 if isinstance(prompt, str) else sum(item.get("role") == "user" for item in prompt)
    measures: dict[str, float] = {_WORDS: len(json.dumps(params).split())}  # relies on the spaces json.dumps writes
    if params.get("tools") is not None:
        measures[_TOOLS] = len(params["tools"])
    if turns:
        measures[_TURNS] = turns
    if params.get("temperature") is not None:
        measures[_TEMPERATURE] = params["temperature"]
    return measures


def _round(value: float) -> float:
    return round(float(value), 2 if abs(value) >= 1 else 3)


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """A metrics file to write, and how it differs from the existing one."""

    path: Path
    content: JsonObject
    differences: tuple[str, ...] = ()
    is_current: bool = False
    """True if the existing file has the same content and can stay."""

    @property
    def conflict_path(self) -> Path:
        return self.path.with_name(self.path.stem + "_conflict.json")

    @property
    def text(self) -> bytes:
        return json.dumps(self.content, indent=4).encode() + b"\n"


def compare_with_existing(path: Path, content: JsonObject, *, existing: Path | None = None) -> MetricsFile:
    """The metrics file for `content`, compared with the one at `path`, else with `existing` (for builtin datasets)."""
    old_path = existing if existing is not None and not path.exists() else path
    try:
        old: Any = json.loads(old_path.read_bytes())
    except FileNotFoundError:
        return MetricsFile(path, content)
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot read the metrics file: {error}", where=str(old_path), next="restore or delete it"
        ) from error
    changes = tuple(differences(old, content))
    return MetricsFile(path, content, changes, is_current=not changes and old.keys() == content.keys())


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """How new metrics differ from old ones. Ignores added keys and rounding differences of numbers."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            inner = f"{where}.{key}" if where else key
            if key not in new:
                yield f"{inner} is missing"
            else:
                yield from differences(value, new[key], inner)
    elif not _same(old, new):
        yield f"{where or 'the content'} was {_preview(old)} and is {_preview(new)}"


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return Counter(map(_canonical, old)) == Counter(map(_canonical, new))
    if _is_number(old) and _is_number(new):
        return math.isclose(old, new, rel_tol=0, abs_tol=5e-3 if max(abs(old), abs(new)) >= 1 else 5e-4)
    return type(old) is type(new) and bool(old == new)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _preview(value: Any) -> str:
    """A value as the file has it: NaN and text that is not valid Unicode included."""
    return truncate(json.dumps(value), 60)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
