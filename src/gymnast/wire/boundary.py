"""Request-boundary lines: what crossed each boundary, for debugging nested failures.

Switched on by `++global_aiohttp_client_request_debug=True`. One line a call, marked `[request-boundary]`, with the
rollout, both ends, status, time and sizes; bodies only of bad replies, bounded and scrubbed of secrets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.types.failure import FailureDetail, bounded
from gymnast.wire.message import Reply, Request, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.config.secrets import Scrubber

MARKER: Final = "[request-boundary]"


class BoundaryLog:
    """Writes one line for each call to `write`."""

    def __init__(self, write: Callable[[str], None], scrubber: Scrubber) -> None:
        self._write = write
        self._scrubber = scrubber

    def answered(self, instance: str, address: str, request: Request, reply: Reply, took_s: float) -> None:
        """A call that got a reply."""
        line = self._line(instance, address, request, f"status={reply.status}", took_s)
        if not reply.ok:
            line += f" body={bounded(reply.text(), 2000)!r}"
        self._emit(line)

    def failed(self, instance: str, address: str, request: Request, detail: FailureDetail, took_s: float) -> None:
        """A call that got none."""
        self._emit(self._line(instance, address, request, f"failure={detail.kind}", took_s) + f" {detail.message}")

    def _line(self, instance: str, address: str, request: Request, outcome: str, took_s: float) -> str:
        rollout = request.rollout_id or "-"
        size = len(encode(request.body)) if request.body is not None else 0
        return (
            f"{MARKER} rollout={rollout} to={instance} {request.method} {request.path} at={address} "
            f"{outcome} ms={took_s * 1000:.1f} sent_bytes={size}"
        )

    def _emit(self, line: str) -> None:
        self._write(self._scrubber.scrub(line))
