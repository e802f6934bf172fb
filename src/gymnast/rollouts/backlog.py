"""The owed rollouts that are not in flight: unread in the store, parked, or waiting for a retry.

Invariants: a rollout is in one of the three at a time, and leaves when it is returned. Parked rollouts wait for their
agent, which is at its limit, on trial or paused; those of an agent that was given up are dropped and stay owed. Rows
are read from the store only when nothing else may start: one that stays there can still be ceded to another worker.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from itertools import count
from typing import TYPE_CHECKING

import orjson

from gymnast.rollouts.run_store import NOT_YET
from gymnast.rollouts.runner import WorkItem
from gymnast.types.task import RolloutKey, agent_name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gymnast.rollouts.circuit_breaker import CircuitBreaker
    from gymnast.rollouts.run_store import Owed, RunStore


class Backlog:
    """Returns what may start next; `may_start(agent, now)` decides for which agents."""

    def __init__(
        self,
        store: RunStore,
        circuit_breaker: CircuitBreaker,
        may_start: Callable[[str, float], bool],
        *,
        only_agent: str | None,
        read_ahead: int,
    ) -> None:
        self._store = store
        self._circuit_breaker = circuit_breaker
        self._may_start = may_start
        self._only_agent = only_agent
        self._read_ahead = read_ahead
        self._unread: Iterator[Owed] | None = store.owed_inputs()
        self._parked: dict[str, deque[WorkItem]] = defaultdict(deque)
        self._retries: list[tuple[float, int, WorkItem]] = []
        self._sequence = count()

    @property
    def waiting_retries(self) -> int:
        return len(self._retries)

    @property
    def has_unread(self) -> bool:
        return self._unread is not None

    @property
    def is_empty(self) -> bool:
        """Nothing is parked or waits for a retry."""
        return not (self._retries or any(self._parked.values()))

    @property
    def may_continue(self) -> bool:
        """Whether something waits for a retry, or is parked for an agent that was not given up."""
        return bool(self._retries) or any(
            items and self._circuit_breaker.give_up_reason(agent) is None for agent, items in self._parked.items()
        )

    def has_parked(self, is_full: Callable[[str], bool]) -> bool:
        """Whether something is parked for an agent that is not full."""
        return any(items and not is_full(agent) for agent, items in self._parked.items())

    def next_waiting(self, now: float) -> WorkItem | None:
        """A retry that is due or a parked rollout, if one may start."""
        while self._retries and self._retries[0][0] <= now:
            item = heapq.heappop(self._retries)[2]
            if self._may_start(item.agent, now):
                return item
            self._park(item)
        for items in self._parked.values():
            if items and self._may_start(items[0].agent, now):
                return items.popleft()
        if self._parked:
            for agent in self._circuit_breaker.reasons():
                self._parked.pop(agent, None)  # they stay owed, and make room for others
        return None

    def next_unread(self, now: float) -> WorkItem | None:
        """The next row of the store that may start; those before it are parked."""
        while self._unread is not None and sum(map(len, self._parked.values())) < self._read_ahead:
            row = next(self._unread, None)
            if row is None:
                self._unread = None
                return None
            if row is NOT_YET:  # asked again whenever something may have changed, and at every tick
                return None
            item = self._make_item(*row)
            if self._may_start(item.agent, now):
                return item
            self._park(item)
        return None

    def add_retry(self, item: WorkItem, due: float) -> None:
        """Keep an item until a time of the monotonic clock."""
        heapq.heappush(self._retries, (due, next(self._sequence), item))

    def abandon(self, is_abandoned: Callable[[RolloutKey], bool]) -> None:
        """Forget rollouts that another worker runs now."""
        self._retries = [entry for entry in self._retries if not is_abandoned(entry[2].key)]
        heapq.heapify(self._retries)
        for agent, items in self._parked.items():
            self._parked[agent] = deque(item for item in items if not is_abandoned(item.key))

    def _make_item(self, key: RolloutKey, line: bytes) -> WorkItem:
        agent = self._only_agent or agent_name_of(orjson.loads(line)) or ""
        return WorkItem(key, line, agent, self._store.attempts_of(key), self._store.earlier_attempts_of(key))

    def _park(self, item: WorkItem) -> None:
        if self._circuit_breaker.give_up_reason(item.agent) is None:
            self._parked[item.agent].append(item)
