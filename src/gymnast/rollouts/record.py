"""A record: the persisted outcome of a rollout, and what callers of the library receive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.types.task import RolloutKey


@dataclass(frozen=True, slots=True)
class Record:
    """The outcome of a rollout: its one scored record, or the record of its last failure."""

    key: RolloutKey
    line: bytes
    """The line of the run's file."""
    failure_kind: str | None = None

    @property
    def is_scored(self) -> bool:
        return self.failure_kind is None

    @property
    def data(self) -> JsonObject:
        """The record's fields."""
        data: JsonObject = orjson.loads(self.line)
        return data

    @property
    def reward(self) -> float | None:
        """None for a failure: it has no reward."""
        return float(self.data["reward"]) if self.is_scored else None
