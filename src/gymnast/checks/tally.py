"""Counts the rows that share a problem and keeps the first few as examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

MAX_EXAMPLES: Final = 5


@dataclass(slots=True)
class Tally:
    """A number of rows, and examples from the first of them."""

    rows: int = 0
    first: list[JsonObject] = field(default_factory=list)

    def add_example(self, example: JsonObject) -> None:
        if len(self.first) < MAX_EXAMPLES:
            self.first.append(example)

    def as_json(self) -> JsonObject:
        return {"rows": self.rows, "first": self.first}
