"""Results of the conformance suite: problems (what, where, next), measured figures, and whether each check passed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gymnast.errors import Problem
    from gymnast.types.json import JsonObject

_MAX_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class CheckResult:
    check: str
    claim: str
    """What holds of the environment if there are no problems."""
    problems: tuple[Problem, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    skipped: str | None = None
    """Why the check does not apply."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_json(self) -> JsonObject:
        return {
            "check": self.check,
            "claim": self.claim,
            "findings": tuple(asdict(problem) for problem in self.problems),
            "figures": dict(self.figures),
            "skipped": self.skipped,
            "seconds": self.seconds,
            "ok": self.ok,
        }

    def lines(self) -> Iterator[str]:
        mark = "skip" if self.skipped else "ok" if self.ok else "FAIL"
        figures = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        yield f"  {mark:<4}  {self.check:<12} {self.skipped or self.claim}" + (f" ({figures})" if figures else "")
        for problem in self.problems[:_MAX_SHOWN]:
            yield f"          {problem.what}"
            yield f"            where: {problem.where}"
            yield f"            next:  {problem.next}"
        if len(self.problems) > _MAX_SHOWN:
            yield f"          … and {len(self.problems) - _MAX_SHOWN} more"


@dataclass(frozen=True, slots=True)
class EnvironmentResult:
    environment: str
    instance: str
    results: Sequence[CheckResult]

    @property
    def ok(self) -> bool:
        return all(result.ok for result in self.results)

    @property
    def problems(self) -> list[Problem]:
        return [problem for result in self.results for problem in result.problems]

    def result(self, check: str) -> CheckResult:
        return next(result for result in self.results if result.check == check)

    def as_json(self) -> JsonObject:
        checks = [result.as_json() for result in self.results]
        return {"environment": self.environment, "instance": self.instance, "ok": self.ok, "checks": checks}

    def lines(self) -> Iterator[str]:
        yield f"{self.environment} (instance {self.instance})"
        for result in self.results:
            yield from result.lines()
        failed = sum(not result.ok for result in self.results)
        passed = sum(result.ok and result.skipped is None for result in self.results)
        yield f"{failed} of {len(self.results)} checks failed" if failed else f"{passed} checks passed"

    def __str__(self) -> str:
        return "\n".join(self.lines())
