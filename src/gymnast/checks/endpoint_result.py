"""Options and results of `check endpoint`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject

Status = Literal["pass", "fail", "unsupported"]
CHECKS: Final = (
    *("models", "answer", "usage", "tools_auto", "tools_forced"),
    *("streaming", "logprobs", "token_ids", "context", "latency"),
    *("tools_parallel", "json_schema", "reasoning", "images"),
)


@dataclass(frozen=True, slots=True)
class EndpointCheck:
    name: str
    status: Status
    observed: str
    means: str = ""
    next: str = ""
    seconds: float | None = None
    needed: bool = False

    def as_json(self) -> JsonObject:
        return {("said" if name == "observed" else name): value for name, value in asdict(self).items()}

    def lines(self) -> Iterator[str]:
        seconds = f" ({self.seconds:.2f} s)" if self.seconds is not None else ""
        need = " [needed]" if self.needed and self.status != "pass" else ""
        yield f"{self.status:<12}{self.name}: {self.observed}{seconds}{need}"
        if self.means:
            yield f"{'':<12}means: {self.means}"
        if self.next and self.status != "pass":
            yield f"{'':<12}next: {self.next}"


@dataclass(slots=True)
class EndpointResult:
    instance: str
    address: str
    model: str
    checks: list[EndpointCheck] = field(default_factory=list)
    tokens_used: int = 0

    @property
    def ok(self) -> bool:
        """True if every check that the run needs passed."""
        return all(check.status == "pass" for check in self.checks if check.needed)

    def as_json(self) -> JsonObject:
        return {
            "ok": self.ok,
            "instance": self.instance,
            "address": self.address,
            "model": self.model,
            "tokens_used": self.tokens_used,
            "checks": [check.as_json() for check in self.checks],
        }

    def lines(self) -> Iterator[str]:
        yield f"{self.address}  model {self.model or '(unnamed)'}"
        for check in self.checks:
            yield from check.lines()
        verdict = "everything a run needs passes" if self.ok else "a check that a run needs does not pass"
        yield f"{verdict}; {self.tokens_used} tokens used"


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    needs: frozenset[str] = frozenset()
    """The checks that must pass, in addition to `answer`."""
    timeout_s: float = 60.0
    probe_context: bool = False
