"""The request for a batch: rows, one per rollout with a unique id, and the protocol that runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gymnast.errors import UserError
from gymnast.train.arguments import require_count, require_row, require_rows
from gymnast.types.task import ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX, RolloutKey

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from gymnast.types.json import JsonObject


class Outcome(Protocol):
    """The outcome of a rollout; `gymnast.Record` implements it."""

    @property
    def key(self) -> RolloutKey: ...

    @property
    def line(self) -> bytes: ...

    @property
    def failure_kind(self) -> str | None: ...


class Rollouts(Protocol):
    """Runs rows and yields each with its outcome as it ends; `gymnast.Collector` implements it."""

    def run(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        concurrency: int | None = None,
        max_attempts: int = 3,
        max_failed: int | str = 0,
        rollout_timeout_s: float = ...,
        give_up_after_s: float = ...,
    ) -> AsyncGenerator[tuple[JsonObject, Outcome]]: ...


@runtime_checkable
class ReportsOutages(Protocol):
    """Rollouts whose model endpoints are watched; `gymnast.Collector` implements it."""

    def outage(self) -> tuple[float, str] | None:
        """For how many seconds no endpoint could be reached, and the last error; None if all is well."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """The rows of a batch: `generations` consecutive rows per task."""

    rows: Sequence[JsonObject]
    keys: Sequence[RolloutKey]
    generations: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def groups(self) -> int:
        return len(self.rows) // self.generations

    def group_of(self, index: int) -> int:
        return index // self.generations


def make_request(tasks: Iterable[Mapping[str, Any]], generations: int, name: str) -> BatchRequest:
    """Request `generations` rollouts of each task. Raises UserError if there are none.

    A task that carries its index keeps it, so that records and errors refer to the dataset's row. Rollout ids start
    with `name`: concurrent batches share model servers, which store tokens by rollout id.
    """
    require_count("generations", generations)
    require_rows(tasks)
    rows: list[JsonObject] = []
    keys: list[RolloutKey] = []
    repeats: dict[int, int] = {}
    for position, task in enumerate(tasks):
        require_row(task, position)
        given = task.get(TASK_INDEX)
        index = given if isinstance(given, int) else position
        for _ in range(generations):
            key = RolloutKey(index, repeats.get(index, 0))
            repeats[index] = key.rollout + 1
            keys.append(key)
            rows.append({
                **task,
                ROLLOUT_ID: f"{name}-{position}-{len(rows)}",
                TASK_INDEX: key.task,
                ROLLOUT_INDEX: key.rollout,
            })  # fmt: skip
    if not rows:
        raise UserError("the batch has no tasks", next="check the dataset: an empty epoch trains nothing")
    return BatchRequest(rows, keys, generations)
