"""Where a stream's tasks come from: in order, by what training learns from them, or from several environments.

A source is told what became of every task it gave out (`settle`), and its state can be saved between any two calls:
`resume` continues exactly there and returns the tasks whose groups were not delivered.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import orjson

from gymnast.errors import UserError
from gymnast.train.arguments import (
    is_number,
    require_count,
    require_fraction,
    require_function,
    require_row,
    require_rows,
)
from gymnast.train.sequences import mean_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gymnast.train.samples import Group
    from gymnast.types.json import JsonObject


class DrawnTask(NamedTuple):
    """A task that a source gave out."""

    environment: str
    """Its name in a mixture; empty otherwise."""
    row: int
    """Its position in its dataset."""
    task: Mapping[str, Any]


@runtime_checkable
class TaskSource(Protocol):
    """Gives out tasks."""

    def next(self) -> DrawnTask | None:
        """The next task; None if there is none now."""

    def settle(self, drawn: DrawnTask, group: Group | None, *, is_delivered: bool) -> None:
        """Take note of a task's group, delivered or dropped by a filter, or of a task dropped without one (None)."""

    def state(self) -> JsonObject:
        """Everything that `resume` needs, as JSON."""

    def resume(self, state: JsonObject, owed: Sequence[tuple[str, int]]) -> list[DrawnTask]:
        """Continue from a state. Returns the owed tasks (environment, row) in order; UserError if tasks differ."""

    def figures(self) -> dict[str, float]:
        """Metrics of the source."""


def as_source(tasks: Iterable[Mapping[str, Any]] | TaskSource) -> TaskSource:
    """Tasks as a source: an iterable is taken in order, once."""
    if isinstance(tasks, TaskSource):
        return tasks
    require_rows(tasks)
    return OrderedTasks(tasks)


class OrderedTasks:
    """Tasks in order, each once; keeps a digest of those taken."""

    def __init__(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        self._tasks = iter(tasks)
        self._digest = hashlib.blake2b(digest_size=16)
        self._taken = 0

    def next(self) -> DrawnTask | None:
        for task in self._tasks:
            self._digest.update(_encode(task, self._taken))
            self._taken += 1
            return DrawnTask("", self._taken - 1, task)
        return None

    def settle(self, drawn: DrawnTask, group: Group | None, *, is_delivered: bool) -> None:
        """The order does not depend on what became of a task."""

    def state(self) -> JsonObject:
        return {"taken": self._taken, "digest": self._digest.hexdigest()}

    def resume(self, state: JsonObject, owed: Sequence[tuple[str, int]]) -> list[DrawnTask]:
        taken = int(state["taken"])
        rows = {row for _, row in owed}
        pending: dict[int, DrawnTask] = {}
        while self._taken < taken:
            drawn = self.next()
            if drawn is None:
                break
            if drawn.row in rows:
                pending[drawn.row] = drawn
        if self._taken < taken or self._digest.hexdigest() != state["digest"]:
            raise other_tasks(taken)
        return [pending[row] for _, row in owed]

    def figures(self) -> dict[str, float]:
        return {}


def signal_of(group: Group) -> float:
    """How much a group's rewards vary, from 0 to 1: four times their variance, which is 1 if half of them are 0 and
    half are 1."""
    rewards = [sample.reward for sample in group.samples if sample.is_trainable and sample.reward is not None]
    mean = mean_of(rewards)
    return min(4 * mean_of([(reward - mean) ** 2 for reward in rewards]), 1.0)


class Curriculum:
    """Draws tasks in proportion to what training last learned from them.

    Every task has a value, at first 1; each of its groups, delivered or dropped by a filter, moves it towards the
    group's score by `rate`. `floor` is the weight of a task with value 0: it is still drawn now and then, because the
    policy changes. A task is not drawn while a group of it is in flight.
    """

    def __init__(
        self,
        tasks: Sequence[Mapping[str, Any]],
        *,
        seed: int = 0,
        rate: float = 0.5,
        floor: float = 0.05,
        limit: int | None = None,
        score: Callable[[Group], float] = signal_of,
    ) -> None:
        """`limit`: the number of tasks to draw; None is no limit. `score`: what training sees in a group, 0 to 1."""
        if not (hasattr(tasks, "__len__") and hasattr(tasks, "__getitem__")):
            raise UserError(
                f"a curriculum draws its tasks from a list, got {type(tasks).__name__}", next="pass list(tasks)"
            )
        if isinstance(tasks, (Mapping, str)):
            require_rows(tasks)
        if not len(tasks):
            raise UserError("the curriculum has no tasks", next="check the dataset")
        require_fraction("rate", rate)
        require_fraction("floor", floor)
        require_function("score", score)
        if limit is not None:
            require_count("limit", limit)
        self._tasks = tasks
        self._seed, self._rate, self._floor, self._limit, self._score = seed, rate, floor, limit, score
        self._values = np.ones(len(tasks))
        self._groups = np.zeros(len(tasks), dtype=np.int64)
        self._digests: dict[int, str] = {}
        """Of the tasks drawn so far, by row: a resume with other tasks is an error."""
        self._in_flight: set[int] = set()
        self._draws = 0

    def next(self) -> DrawnTask | None:
        if self._limit is not None and self._draws >= self._limit:
            return None
        weights = self._floor + (1 - self._floor) * self._values
        weights[list(self._in_flight)] = 0.0
        sums = np.cumsum(weights)
        if not len(sums) or sums[-1] <= 0:
            return None
        # the draw depends on its number only, so that a resumed curriculum draws what it would have drawn
        at = random.Random(f"{self._seed}/{self._draws}").random() * sums[-1]  # noqa: S311 - not a secret
        row = int(np.searchsorted(sums, at, side="right"))
        self._draws += 1
        self._in_flight.add(row)
        task = self._tasks[row]
        if row not in self._digests:
            self._digests[row] = _digest(task, row)
        return DrawnTask("", row, task)

    def settle(self, drawn: DrawnTask, group: Group | None, *, is_delivered: bool) -> None:
        self._in_flight.discard(drawn.row)
        if group is not None:
            score = self._score(group)
            if not isinstance(score, Real) or not math.isfinite(score):
                raise UserError(f"the score of a group must be a finite number, got {score!r}")
            score = min(max(score, 0.0), 1.0)
            self._values[drawn.row] += self._rate * (score - self._values[drawn.row])
            self._groups[drawn.row] += 1

    def state(self) -> JsonObject:
        drawn = [
            [row, float(self._values[row]), int(self._groups[row]), digest] for row, digest in self._digests.items()
        ]
        return {"draws": self._draws, "tasks": len(self._tasks), "drawn": drawn}

    def resume(self, state: JsonObject, owed: Sequence[tuple[str, int]]) -> list[DrawnTask]:
        if state["tasks"] != len(self._tasks) or any(
            _digest(self._tasks[row], row) != digest for row, _, _, digest in state["drawn"]
        ):
            raise other_tasks(int(state["draws"]))
        self._draws = int(state["draws"])
        for row, value, groups, digest in state["drawn"]:
            self._values[row], self._groups[row], self._digests[row] = value, groups, digest
        self._in_flight = {row for _, row in owed}
        return [DrawnTask("", row, self._tasks[row]) for _, row in owed]

    def figures(self) -> dict[str, float]:
        seen = self._groups > 0
        return {
            "curriculum/seen": int(seen.sum()),
            "curriculum/value": float(self._values[seen].mean()) if seen.any() else 1.0,
            "curriculum/draws": self._draws,
        }


@dataclass(slots=True)
class _Share:
    source: TaskSource
    weight: float
    groups: int = 0
    """Groups delivered or under way."""


class TaskMixture:
    """Tasks of several environments, mixed so that the delivered groups have the given weights.

        TaskMixture({"math": (math_tasks, 2.0), "shop": (Curriculum(shop_tasks), 1.0)})

    A dropped group gives its place back to its environment. When an environment has no more tasks, the others continue.
    """

    def __init__(self, environments: Mapping[str, tuple[Iterable[Mapping[str, Any]] | TaskSource, float]]) -> None:
        given: object = environments
        if not isinstance(given, Mapping) or not given:
            raise UserError("a mixture needs environments by name", next='pass {"math": (tasks, 1.0), …}')
        for name, value in given.items():
            if not isinstance(name, str):
                raise UserError(f"the name of an environment must be a string, got {name!r}")
            if not name:
                raise UserError("an environment of a mixture has no name")
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise UserError(f"expected tasks and a weight for '{name}', e.g. (tasks, 1.0)")
            tasks, weight = value
            if not is_number(weight) or not 0 < float(weight) < math.inf:
                raise UserError(f"the weight of '{name}' must be above 0 and finite, got {weight!r}")
            if isinstance(tasks, TaskMixture):
                raise UserError(f"'{name}' is a mixture itself", next="name all environments in one mixture")
        self._shares = {name: _Share(as_source(tasks), weight) for name, (tasks, weight) in environments.items()}

    def next(self) -> DrawnTask | None:
        for name, share in sorted(self._shares.items(), key=lambda item: (item[1].groups + 1) / item[1].weight):
            drawn = share.source.next()
            if drawn is not None:
                share.groups += 1
                return drawn._replace(environment=name)
        return None

    def settle(self, drawn: DrawnTask, group: Group | None, *, is_delivered: bool) -> None:
        share = self._shares[drawn.environment]
        share.groups -= not is_delivered
        share.source.settle(drawn._replace(environment=""), group, is_delivered=is_delivered)

    def state(self) -> JsonObject:
        return {name: {"groups": share.groups, **share.source.state()} for name, share in self._shares.items()}

    def resume(self, state: JsonObject, owed: Sequence[tuple[str, int]]) -> list[DrawnTask]:
        if not all(isinstance(value, dict) for value in state.values()):
            raise TypeError("not the state of a mixture")
        if list(state) != list(self._shares):
            raise UserError(
                f"the stream mixed {', '.join(state)}, and now {', '.join(self._shares)}",
                next="use the same environments in the same order, or a new state file to start over",
            )
        pending: dict[tuple[str, int], DrawnTask] = {}
        for name, share in self._shares.items():
            share.groups = int(state[name]["groups"])
            own = [("", row) for environment, row in owed if environment == name]
            pending |= {
                (name, drawn.row): drawn._replace(environment=name) for drawn in share.source.resume(state[name], own)
            }
        return [pending[item] for item in owed]

    def figures(self) -> dict[str, float]:
        return {
            f"environment/{name}/{key}": value
            for name, share in self._shares.items()
            for key, value in share.source.figures().items()
        }


def _encode(task: Mapping[str, Any], row: int) -> bytes:
    require_row(task, row)
    try:
        return orjson.dumps(task)
    except TypeError as error:
        raise UserError(f"task {row} cannot be written as JSON: {error}") from error


def _digest(task: Mapping[str, Any], row: int) -> str:
    return hashlib.blake2b(_encode(task, row), digest_size=6).hexdigest()


def other_tasks(taken: int) -> UserError:
    """The error of a stream that resumes with other tasks."""
    return UserError(
        f"the first {taken} tasks differ from those of the earlier stream",
        next="use the same tasks in the same order, or a new state file to start over",
    )
