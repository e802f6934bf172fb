"""One at a time, between hosts: a folder that is leased as chunks are, for work that others must not do meanwhile.

The run's own lock is the kernel's, where the file system has locks. Where it has none (Lustre without `flock`, some
NFS) a lease stands in for it, and who was not heard of for the time of a lease may lose it: `Turn.check` says so.
"""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.cluster.identity import is_gone, this_holder
from gymnast.cluster.lease import DEFAULT_LEASE_S, Watch, claim, decides, write_end
from gymnast.cluster.pulse import beating
from gymnast.errors import UserError
from gymnast.store.chunk_files import End, EndKind
from gymnast.store.chunk_layout import ChunkFolder
from gymnast.store.chunk_look import look_at_chunk
from gymnast.store.lock import LOCK_PATIENCE_S, NoLocksError, RunLock, being_written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gymnast.store.chunk_files import Lease
    from gymnast.store.chunk_look import ChunkLook

_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Leased:
    """A lease of a folder."""

    lease: Lease
    after_a_dead_one: bool
    """Whoever held it before died while doing so."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to write a run."""

    mark: str = ""
    """For names of temporary files: where a turn can be lost, nobody else writes them."""
    check: Callable[[], None] = lambda: None
    """Raises UserError if somebody else has it now."""


@contextmanager
def one_writer(lock: Path, folder: Path, patience_s: float = LOCK_PATIENCE_S) -> Iterator[Turn]:
    """Hold a run's lock; where files cannot be locked, a lease of the folder, which must be the same for all hosts."""
    with ExitStack() as stack:
        try:
            stack.enter_context(RunLock(lock, patience_s))
            turn = Turn()
        except NoLocksError:
            held = stack.enter_context(leased(folder, patience_s=patience_s))
            turn = Turn(f".{held.lease.token}", lambda: _refuse_if_lost(folder, held.lease))
        yield turn


def _refuse_if_lost(folder: Path, lease: Lease) -> None:
    if not decides(ChunkFolder(folder), lease):
        raise UserError(
            "this process was not heard of for so long that another one writes the run now",
            where=str(folder),
            next="look with gymnast status RUN, then do it again if it is still needed",
        )


@contextmanager
def leased(folder: Path, lease_s: float = DEFAULT_LEASE_S, patience_s: float | None = None) -> Iterator[Leased]:
    """Hold the lease of a folder. A holder that lives is waited for, for ever or with patience."""
    watch, began, heard = Watch(lease_s, is_gone), time.monotonic(), False
    while True:
        look, now = look_at_chunk(ChunkFolder(folder), folder.name), time.monotonic()
        heard = heard or (look.is_held and watch.has_moved(look))
        if look.end is not None or watch.may_claim(look, now):
            found = claim(look, holder=this_holder(folder.name), token=secrets.token_hex(8), at=time.time())
            if found is not None:
                break
        elif patience_s is not None and heard and now - began >= patience_s:  # not before it is known to live
            raise _held(look)
        time.sleep(_POLL_S)
    with ExitStack() as stack:
        stack.callback(_end, look, found.lease)
        stack.enter_context(beating(look.folder, found.lease, lease_s / 6))
        yield Leased(found.lease, after_a_dead_one=look.is_held)


def _held(look: ChunkLook) -> UserError:
    assert look.lease is not None
    holder = look.lease.holder
    return being_written(f"pid {holder.pid} on {holder.host}", look.folder.path)


def _end(look: ChunkLook, lease: Lease) -> None:
    with suppress(OSError):
        write_end(look.folder, lease, End(token=lease.token, kind=EndKind.RELEASED, at=time.time()))
