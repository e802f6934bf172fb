"""Problems in datasets: counts every one and keeps the first few of each kind to show."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from gymnast.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.types.json import JsonObject

MAX_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, order=True)
class FileProblem:
    file: str
    line: int
    """0 if the problem concerns the whole file."""
    what: str

    def __str__(self) -> str:
        return f"{self.file} line {self.line}: {self.what}" if self.line else f"{self.file}: {self.what}"


@dataclass(slots=True)
class Problems:
    counts: Counter[str] = field(default_factory=Counter)
    first: defaultdict[str, list[FileProblem]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, problem: FileProblem) -> None:
        """Record a problem. Call in file order."""
        self.counts[kind] += 1
        if len(self.first[kind]) < MAX_SHOWN:
            self.first[kind].append(problem)

    def add_unordered(self, kind: str, problems: Iterable[FileProblem]) -> None:
        """Record problems that arrive in any order; keeps the first ones in file order."""
        self.first[kind] = heapq.nsmallest(
            MAX_SHOWN, [*self.first[kind], *heapq.nsmallest(MAX_SHOWN, self._count(kind, problems))]
        )

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def total(self) -> int:
        return self.counts.total()

    def raise_if_any(self, consequence: str) -> None:
        """If there are problems, raise one DataError with the total and the first few."""
        if not self:
            return
        shown = heapq.nsmallest(MAX_SHOWN, (problem for problems in self.first.values() for problem in problems))
        lines = "".join(f"\n  {line}" for line in _group(shown))
        more = f"\n  … and {self.total - len(shown)} more" if self.total > len(shown) else ""
        count = f"{self.total} bad row" + ("s" if self.total > 1 else "")
        raise DataError(
            f"{count}; {consequence}{lines}{more}",
            next="fix them; `gymnast data validate` finds more",
        )

    def as_json(self) -> JsonObject:
        """Each kind with its count and its first few problems."""
        return {
            kind: {"count": count, "first": [asdict(problem) for problem in self.first[kind]]}
            for kind, count in self.counts.items()
        }

    def _count(self, kind: str, problems: Iterable[FileProblem]) -> Iterator[FileProblem]:
        for problem in problems:
            self.counts[kind] += 1
            yield problem


def _group(problems: Iterable[FileProblem]) -> Iterator[str]:
    """Each problem once, with its lines."""
    lines: dict[tuple[str, str], list[int]] = {}
    for problem in problems:
        lines.setdefault((problem.file, problem.what), []).append(problem.line)
    for (file, what), numbers in lines.items():
        if len(numbers) == 1:
            yield str(FileProblem(file, numbers[0], what))
        else:
            yield f"{file} lines {', '.join(map(str, numbers))}: {what}"
