"""What is asked for: rows of a batch, each a rollout with a name of its own, and who runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gymnast.errors import UserError
from gymnast.types.task import ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX, RolloutKey

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from gymnast.types.json import JsonObject


class Outcome(Protocol):
    """What became of a rollout: `gymnast.Record` is one."""

    @property
    def key(self) -> RolloutKey: ...

    @property
    def line(self) -> bytes: ...

    @property
    def failure_kind(self) -> str | None: ...


class Rollouts(Protocol):
    """Runs rows and yields each with its outcome in the order in which they end: `gymnast.Collector` does."""

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


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows of a batch: `generations` one after the other for each task."""

    rows: Sequence[JsonObject]
    keys: Sequence[RolloutKey]
    generations: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def groups(self) -> int:
        return len(self.rows) // self.generations

    def group_of(self, place: int) -> int:
        return place // self.generations


def ask(tasks: Iterable[Mapping[str, Any]], generations: int, name: str) -> Asked:
    """Each task as many rollouts. Raises UserError when there is nothing to ask for.

    A task that names its index keeps it, so that records and errors speak of the dataset's row. Rollouts have ids that
    begin with `name`: batches that overlap in time share model servers, and those keep tokens by that id.
    """
    if generations < 1:
        raise UserError(f"{generations} generations for each task are none", next="ask for at least 1")
    rows: list[JsonObject] = []
    keys: list[RolloutKey] = []
    made: dict[int, int] = {}
    for place, task in enumerate(tasks):
        own = task.get(TASK_INDEX)
        index = own if isinstance(own, int) else place
        for _ in range(generations):
            key = RolloutKey(index, made.get(index, 0))
            made[index] = key.rollout + 1
            keys.append(key)
            rows.append({
                **task,
                ROLLOUT_ID: f"{name}-{place}-{len(rows)}",
                TASK_INDEX: key.task,
                ROLLOUT_INDEX: key.rollout,
            })  # fmt: skip
    if not rows:
        raise UserError("a batch of no tasks was asked for", next="check the dataset: an empty epoch trains nothing")
    return Asked(rows, keys, generations)
