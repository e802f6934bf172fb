"""The generations parsed last: the bridge to the next turn needs what the end of this one was parsed to."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.tokens.families.family import ParseResult

_MAX_IDS: Final = 200_000
"""Ids of all kept generations together, some 10 MB at most."""

_Key = tuple[bool, tuple[int, ...]]


class ParsedTurns:
    """Parsed generations, by their ids and whether the prompt had opened a thought."""

    def __init__(self, max_ids: int = _MAX_IDS) -> None:
        self._max_ids = max_ids
        self._ids = 0
        self._turns: OrderedDict[_Key, ParseResult] = OrderedDict()

    def add(self, ids: Sequence[int], result: ParseResult, *, in_thought: bool) -> None:
        """Keep a result until others have used up the room."""
        key = (in_thought, tuple(ids))
        if key not in self._turns:
            self._ids += len(ids)
        self._turns[key] = result
        while self._ids > self._max_ids:
            (_, oldest), _ = self._turns.popitem(last=False)
            self._ids -= len(oldest)

    def get(self, ids: Sequence[int], *, in_thought: bool) -> ParseResult | None:
        """The result for these ids, if it is still here."""
        return self._turns.get((in_thought, tuple(ids)))
