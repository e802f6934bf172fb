"""What is wrong with datasets: all of it is counted, the first few of each kind are kept to be shown."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from gymnast.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.types.json import JsonObject

SHOWN: Final = 20


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing wrong with a line of a file."""

    file: str
    line: int
    """0 where it is about the file."""
    what: str

    def __str__(self) -> str:
        return f"{self.file} line {self.line}: {self.what}" if self.line else f"{self.file}: {self.what}"


@dataclass(slots=True)
class Findings:
    """What was found, by kind."""

    counts: Counter[str] = field(default_factory=Counter)
    first: defaultdict[str, list[Finding]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, finding: Finding) -> None:
        """Note one, in the order of the files."""
        self.counts[kind] += 1
        if len(self.first[kind]) < SHOWN:
            self.first[kind].append(finding)

    def add_unordered(self, kind: str, found: Iterable[Finding]) -> None:
        """Note many that come in any order; the first in the files are kept."""
        self.first[kind] = heapq.nsmallest(
            SHOWN, [*self.first[kind], *heapq.nsmallest(SHOWN, self._counted(kind, found))]
        )

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def total(self) -> int:
        return self.counts.total()

    def refuse(self, consequence: str) -> None:
        """Raise one DataError that shows the first and counts all, if there is anything."""
        if not self:
            return
        shown = heapq.nsmallest(SHOWN, (finding for kept in self.first.values() for finding in kept))
        lines = "".join(f"\n  {finding}" for finding in shown)
        more = f"\n  … and {self.total - len(shown)} more" if self.total > len(shown) else ""
        count = f"{self.total} bad row" + ("s" if self.total > 1 else "")
        raise DataError(f"{count}; {consequence}{lines}{more}", next="fix them; gymnast data validate finds more kinds")

    def as_json(self) -> JsonObject:
        """Every kind with its count and the first few."""
        return {
            kind: {"count": count, "first": [asdict(finding) for finding in self.first[kind]]}
            for kind, count in self.counts.items()
        }

    def _counted(self, kind: str, found: Iterable[Finding]) -> Iterator[Finding]:
        for finding in found:
            self.counts[kind] += 1
            yield finding
