"""Which workers stay when nothing is left to start: a few, so that what late workers leave is taken up immediately.

All others end and free their resources. A run has a few standby slots, which are leased as chunks are.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gymnast.chunks.lease import LeaseMonitor, claim, is_current, write_end, write_heartbeat
from gymnast.store.chunk_files import EndKind, Heartbeat, Holder, Lease, LeaseEnd
from gymnast.store.chunk_state import read_folder_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.store.chunk_layout import ChunkFolder, ChunkLayout

_MIN_SLOTS: Final = 2
_CHUNKS_PER_SLOT: Final = 100
"""Where standby workers share the chunks among them, more chunks need more workers."""


class Standby:
    """The standby slots of a run, as one worker sees them. Blocking: call it in a thread."""

    def __init__(self, layout: ChunkLayout, run_id: str, chunks: int, holder: Holder, lease_s: float) -> None:
        slots = max(_MIN_SLOTS, chunks // _CHUNKS_PER_SLOT)
        self._slots = [layout.standby(number) for number in range(slots)]
        self._run_id = run_id
        self._holder = holder
        self._monitor = LeaseMonitor(lease_s)
        self._held: tuple[ChunkFolder, Lease] | None = None
        self._heartbeats = 0

    def share_filter(self) -> Callable[[int], bool]:
        """Which numbers are this worker's when all slots share them: those of its slot and of free ones after it."""
        if self._held is None:
            return lambda _: False
        count = len(self._slots)
        first = self._slots.index(self._held[0])
        own = [first]
        while len(own) < count and not read_folder_state(self._slots[(own[-1] + 1) % count], self._run_id).is_held:
            own.append((own[-1] + 1) % count)
        return lambda number: number % count in own

    def stand_by(self, now: float, *, may_claim: bool) -> bool:
        """Whether this worker holds a slot. Without `may_claim` it only observes the other holders."""
        if self._held is None or not is_current(*self._held):
            self._held = self._find_slot(now, may_claim=may_claim)
        if self._held is None:
            return False
        folder, lease = self._held
        write_heartbeat(folder, lease, Heartbeat(token=lease.token, counter=self._heartbeats))
        self._heartbeats += 1
        return True

    def leave(self) -> None:
        """Release the slot."""
        if self._held is not None:
            folder, lease = self._held
            self._held = None
            with suppress(OSError):  # the lease then expires
                write_end(folder, lease, LeaseEnd(token=lease.token, kind=EndKind.RELEASED))

    def _find_slot(self, now: float, *, may_claim: bool) -> tuple[ChunkFolder, Lease] | None:
        for folder in self._slots:
            folder_state = read_folder_state(folder, self._run_id)
            if self._monitor.may_claim(folder_state, now) and may_claim:
                won = claim(folder_state, holder=self._holder, token=secrets.token_hex(8))
                if won is not None:
                    return folder, won.lease
        return None
