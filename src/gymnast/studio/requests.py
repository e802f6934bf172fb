"""Requests that passed all checks, replies to them, and refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gymnast.studio.query import parse_count


class Refusal(Exception):  # noqa: N818 - becomes a reply
    """Ends a request with this status."""

    def __init__(self, status: int, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.hint = hint


@dataclass(slots=True)
class Request:
    """A request that passed all checks."""

    params: dict[str, list[str]]
    body: Any = None

    def run(self) -> str:
        runs = self.params.get("run", [])
        if not runs:
            raise Refusal(400, "expected a run", "add ?run=ID")
        return runs[0]

    def index(self, name: str) -> int:
        if not self.params.get(name):
            raise Refusal(400, f"expected a {name}")
        return parse_count(self.params, name, 0, 2**40)


@dataclass(slots=True)
class Reply:
    """What is sent."""

    data: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    is_compressible: bool = True
