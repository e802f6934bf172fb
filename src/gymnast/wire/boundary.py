"""Request-boundary logging: one line per call, for debugging nested failures.

Enabled by `++global_aiohttp_client_request_debug=True`. Lines are marked `[request-boundary]` and give the rollout,
both ends, status, time and size; bodies only of error replies, truncated and scrubbed of secrets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.types.failure import FailureDetail, bounded
from gymnast.wire.message import Reply, Request, encode_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.config.secrets import Scrubber

MARKER: Final = "[request-boundary]"


class BoundaryLog:
    """Passes one line per call to `write`."""

    def __init__(self, write: Callable[[str], None], scrubber: Scrubber) -> None:
        self._write = write
        self._scrubber = scrubber

    def log_reply(self, instance: str, address: str, request: Request, reply: Reply, took_s: float) -> None:
        """Log a call that got a reply."""
        line = self._line(instance, address, request, f"status={reply.status}", took_s)
        if not reply.ok:
            line += f" body={bounded(reply.text(), 2000)!r}"
        self._emit(line)

    def log_failure(self, instance: str, address: str, request: Request, detail: FailureDetail, took_s: float) -> None:
        """Log a call that got no reply."""
        self._emit(self._line(instance, address, request, f"failure={detail.kind}", took_s) + f" {detail.message}")

    def _line(self, instance: str, address: str, request: Request, outcome: str, took_s: float) -> str:
        rollout = request.rollout_id or "-"
        size = len(encode_body(request.body)) if request.body is not None else 0
        return (
            f"{MARKER} rollout={rollout} to={instance} {request.method} {request.path} at={address} "
            f"{outcome} ms={took_s * 1000:.1f} sent_bytes={size}"
        )

    def _emit(self, line: str) -> None:
        self._write(self._scrubber.scrub(line))
