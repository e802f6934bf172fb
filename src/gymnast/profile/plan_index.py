"""An index of the materialized inputs: keys, expected rollouts per task, and the position of each task's row."""

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
    """The index of a run's materialized inputs."""

    paths: tuple[Path, ...]
    packed: Ints
    """Packed keys, in file order."""
    positions: dict[int, tuple[int, int]]
    """File and offset of the first row of each task."""

    def count_requested(self) -> dict[int, int]:
        """The number of requested rollouts, by task."""
        tasks, counts = np.unique(self.packed >> 32, return_counts=True)
        return dict(zip(tasks.tolist(), counts.tolist(), strict=True))

    def samples(self) -> Samples:
        """Access to the rows."""
        return Samples(self)


class Samples:
    """The first row of each task, read on demand. Use as `with plan.samples() as samples`."""

    def __init__(self, plan: PlanIndex) -> None:
        self._positions = plan.positions
        self._lines = LinesAt(plan.paths)

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.__exit__()

    def fragment(self, task: int) -> orjson.Fragment:
        """A task's row without its two indexes, as a JSON fragment: cut from the line, parsed only if necessary."""
        line = self._lines.line(*self._positions[task])
        end = INDEXES_AT_END.search(line)
        return orjson.Fragment(line[: end.start()] + b"}" if end is not None else orjson.dumps(self.row(task)))

    def row(self, task: int) -> JsonObject:
        """A task's row without its two indexes."""
        row: dict[str, Any] = orjson.loads(self._lines.line(*self._positions[task]))
        row.pop(TASK_INDEX, None)
        row.pop(ROLLOUT_INDEX, None)
        return row


def read_plan(paths: Sequence[Path]) -> PlanIndex:
    """Index materialized inputs. Reads only the end of each line."""
    packed = array("q")
    positions: dict[int, tuple[int, int]] = {}
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
                    if key.task not in positions:
                        positions[key.task] = (source, offset)
                    offset += len(line)
        except OSError as error:
            raise DataError(f"cannot read the inputs: {error.strerror or error}", where=str(path)) from error
    keys = np.frombuffer(packed, dtype=np.int64) if packed else np.empty(0, np.int64)
    return PlanIndex(tuple(paths), keys, positions)
