"""What `check endpoint` reports, and how it is told to ask."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

Status = Literal["pass", "fail", "unsupported"]
NAMES: Final = (
    *("models", "answer", "usage", "tools_auto", "tools_forced"),
    *("streaming", "logprobs", "token_ids", "context", "latency"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was asked, and what it means."""

    name: str
    status: Status
    said: str
    """What was observed."""
    means: str = ""
    next: str = ""
    seconds: float | None = None
    needed: bool = False


@dataclass(slots=True)
class EndpointReport:
    """What an endpoint can do."""

    instance: str
    address: str
    model: str
    checks: list[Check] = field(default_factory=list)
    tokens_used: int = 0

    @property
    def ok(self) -> bool:
        """Nothing that a run needs is lacking."""
        return all(check.status == "pass" for check in self.checks if check.needed)

    def as_json(self) -> JsonObject:
        return {
            "ok": self.ok,
            "instance": self.instance,
            "address": self.address,
            "model": self.model,
            "tokens_used": self.tokens_used,
            "checks": [asdict(check) for check in self.checks],
        }


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """How an endpoint is asked."""

    needs: frozenset[str] = frozenset()
    """What a run needs beside an answer."""
    timeout_s: float = 60.0
    probe_context: bool = False
