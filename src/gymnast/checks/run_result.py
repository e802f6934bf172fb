"""The result of `check run`: one line for each thing that a run needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject

RunCheckStatus = Literal["pass", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class RunCheck:
    name: str
    status: RunCheckStatus
    observed: str
    next: str = ""

    def as_json(self) -> JsonObject:
        return {"name": self.name, "status": self.status, "observed": self.observed, "next": self.next or None}

    def lines(self) -> Iterator[str]:
        yield f"{self.status:<6}{self.name}: {self.observed}"
        if self.next:
            yield f"{'':<6}next: {self.next}"


@dataclass(slots=True)
class RunCheckResult:
    """What will work in a run, and what will not."""

    checks: list[RunCheck] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(check.status != "fail" for check in self.checks)

    def add(self, name: str, status: RunCheckStatus, observed: str, step: str = "") -> None:
        self.checks.append(RunCheck(name, status, observed, "" if status == "pass" else step))

    def has_failed(self, *names: str) -> bool:
        failed = {check.name for check in self.checks if check.status == "fail"}
        return failed.issuperset(names)

    def downgrade(self, prefix: str) -> None:
        """Make warnings of failures that turned out to be harmless."""
        self.checks = [
            replace(check, status="warn") if check.name.startswith(prefix) and check.status == "fail" else check
            for check in self.checks
        ]

    def as_json(self) -> JsonObject:
        return {"ok": self.ok, "checks": [check.as_json() for check in self.checks]}

    def lines(self) -> Iterator[str]:
        for check in self.checks:
            yield from check.lines()
        failed = sum(check.status == "fail" for check in self.checks)
        yield "ready to collect" if self.ok else f"not ready: {failed} of {len(self.checks)} checks failed"
