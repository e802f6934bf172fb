"""The replicas (base URLs) of one model: which are up, their load, and the load balancing of sessions.

A session stays at its replica while that is up; otherwise it moves to another and stays there. A new session goes to
the least-loaded replica; with `hash` its id alone decides, as in the contract. Pure except for the clock:
`endpoints.health` checks the replicas, `endpoints.upstream` calls them.

States of a replica: up; down until a time (1, 2, 4 … 30 s after consecutive failures, or until a check succeeds);
removed (gets no calls; its counts are kept in case it returns). There is always at least one replica, and `choose`
always returns one: if all are down, the session's own or the one that its hash selects.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal

from gymnast.wire.http_client import Target, parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.tokens.backend import Caller

ReplicaChoice = Literal["least_loaded", "hash"]

MAX_SESSIONS: Final = 16384
"""Sessions whose replica is remembered; four times the maximum number of rollouts in flight."""
_MAX_DOWN_S: Final = 30.0


class Replica:
    """One base URL, its health and its load."""

    def __init__(self, base_url: str, limit: int | None = None, *, is_external: bool = True) -> None:
        """One that is not external is a server of ours, which no proxy is between."""
        self.is_external = is_external
        self.base_url = base_url.rstrip("/")
        self.slots = asyncio.Semaphore(limit) if limit else None
        self.failures = 0
        self.down_until = 0.0
        self.in_flight = 0
        """Our own calls, including those waiting for a slot."""
        self._server_load = 0.0
        self._in_flight_then = 0

    def url(self, path: str) -> str:
        """`/x` is relative to the base URL, `//x` to the server's root (the base URL without `/v1`)."""
        if path.startswith("//"):
            return self.base_url.removesuffix("/v1") + path[1:]
        return self.base_url + path

    def target(self, path: str) -> Target:
        return parse_target(self.url(path), external=self.is_external)

    def is_up(self, now: float) -> bool:
        return self.down_until <= now

    @property
    def load(self) -> float:
        """Requests in progress: the server's last report plus our changes since, or at least our own."""
        return max(self._server_load + self.in_flight - self._in_flight_then, float(self.in_flight))

    def record_server_load(self, requests: float) -> None:
        """Record the server's own metrics: requests running and waiting, from any client."""
        self._server_load, self._in_flight_then = requests, self.in_flight

    def mark_up(self) -> None:
        self.failures = 0
        self.down_until = 0.0

    def mark_down(self, now: float) -> None:
        """Back off for 1, 2, 4 … 30 seconds, or until a health check succeeds."""
        self.failures += 1
        self.down_until = now + min(_MAX_DOWN_S, 2.0 ** min(self.failures - 1, 10))


class Replicas:
    """The base URLs of one model."""

    def __init__(
        self,
        base_urls: Sequence[str],
        *,
        limit_each: int | None = None,
        choice: ReplicaChoice = "least_loaded",
        clock: Callable[[], float] = time.monotonic,
        are_external: bool = True,
    ) -> None:
        if not base_urls:
            raise ValueError("a model needs at least one base URL")
        self._limit_each = limit_each
        self._are_external = are_external
        self.all = [self._add(url) for url in base_urls]
        self._removed: list[Replica] = []
        self.clock = clock
        self._choice: ReplicaChoice = choice
        self._assigned: OrderedDict[str, Replica] = OrderedDict()

    def _add(self, url: str) -> Replica:
        return Replica(url, self._limit_each, is_external=self._are_external)

    @property
    def sessions(self) -> int:
        return len(self._assigned)

    def update(self, base_urls: Sequence[str]) -> None:
        """Switch to these base URLs. A removed replica gets no more calls; if it returns, its state is restored.

        An empty list changes nothing: calls to the last replicas fail and are retried until one is back.
        """
        urls = list(dict.fromkeys(url.rstrip("/") for url in base_urls))
        if not urls or urls == [replica.base_url for replica in self.all]:
            return
        known = {replica.base_url: replica for replica in [*self._removed, *self.all]}
        current = [known.get(url) or self._add(url) for url in urls]
        for replica in current:
            if replica not in self.all:
                replica.mark_up()
        self._removed = [replica for replica in known.values() if replica not in current]
        for replica in self._removed:
            replica.down_until = math.inf
        self.all = current

    def choose(self, caller: Caller) -> Replica:
        """The session's replica; for a new session, or one whose replica is down, another one that is up."""
        if len(self.all) == 1:
            return self.all[0]
        session, now = caller.session_id, self.clock()
        assigned = self._assigned.get(session)
        if assigned is not None and assigned.is_up(now):
            self._assigned.move_to_end(session)
            return assigned
        ring = self._ring(session)
        up = [replica for replica in ring if replica.is_up(now)]
        if not up:
            return assigned or ring[0]  # all are down: no reason to move
        chosen = up[0] if self._choice == "hash" else min(up, key=lambda replica: replica.load)
        if self._choice == "least_loaded" or chosen is not ring[0]:
            self._assign(session, chosen)
        return chosen

    def report_down(self, replica: Replica) -> None:
        replica.mark_down(self.clock())

    @property
    def are_all_down(self) -> bool:
        now = self.clock()
        return not any(replica.is_up(now) for replica in self.all)

    def _ring(self, session: str) -> list[Replica]:
        """All replicas, starting with the one that the session's hash selects: ties go to the first."""
        first = hash_index(session, len(self.all))
        return self.all[first:] + self.all[:first]

    def _assign(self, session: str, replica: Replica) -> None:
        self._assigned[session] = replica
        self._assigned.move_to_end(session)
        if len(self._assigned) > MAX_SESSIONS:
            self._assigned.popitem(last=False)


def hash_index(session: str, count: int) -> int:
    """The contract's rule: the first eight bytes of the id's SHA-256, modulo the number of replicas."""
    return int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "big") % count
