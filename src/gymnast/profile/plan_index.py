"""What was asked for: the materialized inputs, as keys, expected rollouts per task, and where each task's row is."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import orjson

from gymnast.errors import DataError
from gymnast.store.keys import INDEXES_AT_END, key_of_line
from gymnast.store.lines import LinesAt
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gymnast.profile.table import Ints
    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class PlanIndex:
    """The materialized inputs of a run, read once."""

    paths: tuple[Path, ...]
    packed: Ints
    """Keys as single numbers, in file order."""
    places: dict[int, tuple[int, int]]
    """File and offset of the first row of each task."""

    def expected(self) -> dict[int, int]:
        """Rollouts asked for, by task."""
        tasks, counts = np.unique(self.packed >> 32, return_counts=True)
        return dict(zip(tasks.tolist(), counts.tolist(), strict=True))

    def samples(self) -> Samples:
        """Access to the rows."""
        return Samples(self)


class Samples:
    """The first row of each task, read when asked for. Use as `with plan.samples() as samples`."""

    def __init__(self, plan: PlanIndex) -> None:
        self._places = plan.places
        self._lines = LinesAt(plan.paths)

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.__exit__()

    def fragment(self, task: int) -> orjson.Fragment:
        """A task's row without its two indexes, ready to be put into a line. As written, it is cut, not parsed."""
        line = self._lines.line(*self._places[task])
        end = INDEXES_AT_END.search(line)
        return orjson.Fragment(line[: end.start()] + b"}" if end is not None else orjson.dumps(self.row(task)))

    def row(self, task: int) -> JsonObject:
        """A task's row without its two indexes."""
        row: dict[str, Any] = orjson.loads(self._lines.line(*self._places[task]))
        row.pop(TASK_INDEX, None)
        row.pop(ROLLOUT_INDEX, None)
        return row


def read_plan(paths: Sequence[Path]) -> PlanIndex:
    """Read materialized inputs. Only the end of each line is looked at."""
    packed = array("q")
    places: dict[int, tuple[int, int]] = {}
    for source, path in enumerate(paths):
        offset = 0
        try:
            with path.open("rb", buffering=1 << 20) as stream:
                for number, line in enumerate(stream, 1):
                    key = key_of_line(line)
                    if key is None:
                        where = f"{path} line {number}"
                        raise DataError("a materialized input has no task and rollout index", where=where)
                    packed.append(key.packed)
                    if key.task not in places:
                        places[key.task] = (source, offset)
                    offset += len(line)
        except OSError as error:
            raise DataError(f"cannot read the inputs: {error.strerror or error}", where=str(path)) from error
    keys = np.frombuffer(packed, dtype=np.int64) if packed else np.empty(0, np.int64)
    return PlanIndex(tuple(paths), keys, places)
