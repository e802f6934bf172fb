"""Who stays when there is nothing left to begin: a few workers, so that what late ones leave is taken up at once.

Everybody else ends, and what they ran on is free. The places are leased as chunks are.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gymnast.cluster.lease import Watch, claim, decides, write_beat, write_end
from gymnast.store.chunk_files import Beat, End, EndKind
from gymnast.store.chunk_look import look_at_chunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.store.chunk_files import Holder, Lease
    from gymnast.store.chunk_layout import ChunkFolder, ChunkLayout

_LEAST_PLACES: Final = 2
_CHUNKS_TO_A_PLACE: Final = 100
"""Where chunks are shared among those that stay, more of them stay for more chunks."""


class Standby:
    """The places of a run, as one worker sees them. Blocking: for a thread."""

    def __init__(self, layout: ChunkLayout, run_id: str, chunks: int, holder: Holder, lease_s: float) -> None:
        places = max(_LEAST_PLACES, chunks // _CHUNKS_TO_A_PLACE)
        self._places = [layout.standby(number) for number in range(places)]
        self._run_id = run_id
        self._holder = holder
        self._watch = Watch(lease_s)
        self._held: tuple[ChunkFolder, Lease] | None = None
        self._beats = 0

    def share(self) -> Callable[[int], bool]:
        """Which of the numbers that all places share are this worker's: its own, and those of free places after it."""
        if self._held is None:
            return lambda _: False
        count = len(self._places)
        first = self._places.index(self._held[0])
        mine = [first]
        while len(mine) < count and not look_at_chunk(self._places[(mine[-1] + 1) % count], self._run_id).is_held:
            mine.append((mine[-1] + 1) % count)
        return lambda number: number % count in mine

    def stays(self, now: float, *, takes: bool) -> bool:
        """Whether this worker has a place. Without `takes` it only looks who has one, to know later who still lives."""
        if self._held is None or not decides(*self._held):
            self._held = self._take(now, takes=takes)
        if self._held is None:
            return False
        folder, lease = self._held
        write_beat(folder, lease, Beat(token=lease.token, counter=self._beats))
        self._beats += 1
        return True

    def leave(self) -> None:
        """The place is free."""
        if self._held is not None:
            folder, lease = self._held
            self._held = None
            with suppress(OSError):  # whoever wants it waits for as long as a lease lasts
                write_end(folder, lease, End(token=lease.token, kind=EndKind.RELEASED))

    def _take(self, now: float, *, takes: bool) -> tuple[ChunkFolder, Lease] | None:
        for folder in self._places:
            look = look_at_chunk(folder, self._run_id)
            if self._watch.may_claim(look, now) and takes:
                won = claim(look, holder=self._holder, token=secrets.token_hex(8))
                if won is not None:
                    return folder, won.lease
        return None
