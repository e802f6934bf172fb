"""The base URLs of one model: which are up, how busy each is, and which one a session belongs to.

A session stays at the replica it was given while that is up; when it is not, the session moves once and stays where it
went. A new session goes where the least is going on; `hash` goes by the session's name alone, as the contract has it.
Pure but for the clock: `kit.health` looks at the replicas, `kit.upstream` calls them.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal

from gymnast.wire.http_client import Target, target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.tokens.engine import Asker

ReplicaChoice = Literal["least_loaded", "hash"]

MOST_SESSIONS: Final = 16384
"""Sessions whose replica is remembered; four times the rollouts that may be in flight."""
_LONGEST_DOWN_S: Final = 30.0


class Replica:
    """One base URL and what we know of it."""

    def __init__(self, base_url: str, limit: int | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.slots = asyncio.Semaphore(limit) if limit else None
        self.failures = 0
        self.down_until = 0.0
        self.in_flight = 0
        """Calls of ours, those that wait for a slot included."""
        self._engine_load = 0.0
        self._in_flight_then = 0

    def url(self, path: str) -> str:
        """`/x` is below the base URL; `//x` is below the server's root, which is what comes before `/v1`."""
        if path.startswith("//"):
            return self.base_url.removesuffix("/v1") + path[1:]
        return self.base_url + path

    def target(self, path: str) -> Target:
        return target_of(self.url(path))

    def is_up(self, now: float) -> bool:
        return self.down_until <= now

    @property
    def load(self) -> float:
        """Requests there now: what its engine said last and what we have changed since, or at least our own."""
        return max(self._engine_load + self.in_flight - self._in_flight_then, float(self.in_flight))

    def note_engine_load(self, requests: float) -> None:
        """What the engine's own metrics say: requests running and waiting, whoever sent them."""
        self._engine_load, self._in_flight_then = requests, self.in_flight

    def mark_up(self) -> None:
        self.failures = 0
        self.down_until = 0.0

    def mark_down(self, now: float) -> None:
        """Leave it alone: 1, 2, 4 … 30 seconds, unless a check finds it well before."""
        self.failures += 1
        self.down_until = now + min(_LONGEST_DOWN_S, 2.0 ** min(self.failures - 1, 10))


class Replicas:
    """The base URLs of one model."""

    def __init__(
        self,
        base_urls: Sequence[str],
        *,
        limit_each: int | None = None,
        choice: ReplicaChoice = "least_loaded",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not base_urls:
            raise ValueError("a model needs at least one base URL")
        self._limit_each = limit_each
        self.all = [Replica(url, limit_each) for url in base_urls]
        self._gone: list[Replica] = []
        self.clock = clock
        self._choice: ReplicaChoice = choice
        self._homes: OrderedDict[str, Replica] = OrderedDict()

    @property
    def sessions(self) -> int:
        """Sessions whose replica is remembered."""
        return len(self._homes)

    def follow(self, base_urls: Sequence[str]) -> None:
        """Take these base URLs from now on. One that is gone gets no more calls, and is itself when it comes back.

        Where none is left the last ones stay: calls to them fail, and are tried again, until one is back.
        """
        urls = list(dict.fromkeys(url.rstrip("/") for url in base_urls))
        if not urls or urls == [replica.base_url for replica in self.all]:
            return
        known = {replica.base_url: replica for replica in [*self._gone, *self.all]}
        now = [known.get(url) or Replica(url, self._limit_each) for url in urls]
        for replica in now:
            if replica not in self.all:
                replica.mark_up()
        self._gone = [replica for replica in known.values() if replica not in now]
        for replica in self._gone:
            replica.down_until = math.inf
        self.all = now

    def choose(self, call: Asker) -> Replica:
        """The session's own replica; for a new session, or one whose replica is down, another that is up."""
        if len(self.all) == 1:
            return self.all[0]
        session, now = call.session_id, self.clock()
        home = self._homes.get(session)
        if home is not None and home.is_up(now):
            self._homes.move_to_end(session)
            return home
        ring = self._ring(session)
        up = [replica for replica in ring if replica.is_up(now)]
        if not up:
            return home or ring[0]  # all are down: its own is as good as any, and it need not move
        chosen = up[0] if self._choice == "hash" else min(up, key=lambda replica: replica.load)
        if self._choice == "least_loaded" or chosen is not ring[0]:
            self._settle(session, chosen)
        return chosen

    def report_down(self, replica: Replica) -> None:
        replica.mark_down(self.clock())

    def _ring(self, session: str) -> list[Replica]:
        """All of them, beginning with the one that the session's name leads to: ties go to the first."""
        first = place_of(session, len(self.all))
        return self.all[first:] + self.all[:first]

    def _settle(self, session: str, replica: Replica) -> None:
        self._homes[session] = replica
        self._homes.move_to_end(session)
        if len(self._homes) > MOST_SESSIONS:
            self._homes.popitem(last=False)


def place_of(session: str, number: int) -> int:
    """The contract's rule: the first eight bytes of the name's SHA-256, modulo the number of replicas."""
    return int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "big") % number
