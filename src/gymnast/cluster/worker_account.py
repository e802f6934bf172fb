"""What each worker of a run did and has: who held which lease of a chunk, and what was settled while it was theirs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from gymnast.store.chunk_files import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.cluster.account import ChunkAccount
    from gymnast.cluster.executor import JobView
    from gymnast.store.chunk_files import Holder
    from gymnast.store.chunk_look import ChunkView


class WorkerAccount(msgspec.Struct, kw_only=True):
    """One worker. All workers together scored and failed what the run did, but for rows that were skipped."""

    worker: str
    job: str | None = None
    host: str | None = None
    state: str = ""
    """What its scheduler says of its job, where one was asked."""
    scored: int = 0
    failed: dict[str, int] = {}
    """Failed for good, by kind."""
    chunks_done: int = 0
    chunks_held: int = 0
    in_flight: int = 0
    unknown: int = 0
    owed: int = 0
    """Of the chunks that it holds."""


def worker_accounts(
    chunks: Iterable[tuple[ChunkView, ChunkAccount]], jobs: Iterable[JobView] = ()
) -> list[WorkerAccount]:
    """Every worker that ever held a chunk, by name."""
    states = {job.job: job.state.value for job in jobs}
    found: dict[str, WorkerAccount] = {}
    for view, account in chunks:
        for holder, scored, failed in _shares(view, account):
            own = found.setdefault(holder.worker, _begun(holder, states))
            own.scored += scored
            own.failed = dict(Counter(own.failed) + failed)
        if account.worker is not None:
            _add_last(found[account.worker], view, account)
    return sorted(found.values(), key=lambda worker: worker.worker)


def _begun(holder: Holder, states: dict[str, str]) -> WorkerAccount:
    state = states.get(holder.job or "", "")
    return WorkerAccount(worker=holder.worker, job=holder.job, host=holder.host or None, state=state)


def _add_last(own: WorkerAccount, view: ChunkView, account: ChunkAccount) -> None:
    """What only the last holder of a chunk has: its end, or what is open of it."""
    own.chunks_done += view.look.is_done
    own.chunks_held += view.look.is_held
    own.in_flight += account.in_flight
    own.unknown += account.unknown
    own.owed += account.owed if view.look.is_held else 0


def _shares(view: ChunkView, account: ChunkAccount) -> Iterator[tuple[Holder, int, Counter[str]]]:
    """What was settled under each lease: each says what those before it had come to."""
    leases = view.look.leases()
    forgiven = {seal.epoch for lease in leases[-1:] for seal in lease.seals if seal.forgiven}
    reached = [*(lease.before for lease in leases[1:]), Progress(scored=account.scored, failed=account.failed)]
    for lease, after in zip(leases, reached, strict=False):
        failed = Counter(after.failed) - Counter(lease.before.failed)
        yield lease.holder, after.scored - lease.before.scored, Counter() if lease.epoch in forgiven else failed
