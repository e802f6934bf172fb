"""What a conformance check says: findings with what, where and next, the figures it measured, and whether it passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class Finding:
    """Something an environment does that it must not."""

    what: str
    where: str
    next: str


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found."""

    check: str
    claim: str
    """What holds of the environment if nothing was found."""
    findings: tuple[Finding, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    skipped: str | None = None
    """Why the check does not apply here."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.findings


@dataclass(frozen=True, slots=True)
class Report:
    """All results for one environment."""

    environment: str
    instance: str
    results: Sequence[Result]

    @property
    def ok(self) -> bool:
        return all(result.ok for result in self.results)

    @property
    def findings(self) -> list[Finding]:
        return [finding for result in self.results for finding in result.findings]

    def result(self, check: str) -> Result:
        """The result of the check of that name."""
        return next(result for result in self.results if result.check == check)

    def as_json(self) -> JsonObject:
        """The report as data."""
        listed = [{**asdict(result), "ok": result.ok} for result in self.results]
        return {"environment": self.environment, "instance": self.instance, "ok": self.ok, "checks": listed}

    def lines(self) -> Iterator[str]:
        """The report for people."""
        yield f"{self.environment} (instance {self.instance})"
        for result in self.results:
            yield from _told(result)
        failed = sum(not result.ok for result in self.results)
        passed = sum(result.ok and result.skipped is None for result in self.results)
        yield f"{failed} of {len(self.results)} checks failed" if failed else f"{passed} checks passed"

    def __str__(self) -> str:
        return "\n".join(self.lines())


_MOST_TOLD = 8


def _told(result: Result) -> Iterator[str]:
    mark = "skip" if result.skipped else "ok" if result.ok else "FAIL"
    figures = ", ".join(f"{name} {value}" for name, value in result.figures.items())
    said = result.skipped or result.claim
    yield f"  {mark:<4}  {result.check:<12} {said}" + (f" ({figures})" if figures else "")
    for finding in result.findings[:_MOST_TOLD]:
        yield f"          {finding.what}"
        yield f"            where: {finding.where}"
        yield f"            next:  {finding.next}"
    if len(result.findings) > _MOST_TOLD:
        yield f"          … and {len(result.findings) - _MOST_TOLD} more"
