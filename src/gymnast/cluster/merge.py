"""One run out of its chunks: records in plan order, the same bytes whatever came first. Streams, chunk by chunk.

Refuses gaps and overlaps by name. Nothing takes its final name before all of it is written.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from contextlib import ExitStack
from itertools import groupby
from typing import IO, TYPE_CHECKING, Final

import msgspec

from gymnast.cluster.account import Observer, RunAccount, account_from
from gymnast.cluster.record_index import RecordIndex, in_plan_order, mapped
from gymnast.cluster.turns import one_writer
from gymnast.errors import DataError
from gymnast.store.chunk_layout import ChunkLayout, planned_id
from gymnast.store.chunk_look import chunk_views, read_chunk_plan
from gymnast.store.chunk_records import pieces_of
from gymnast.store.manifest import Counts, RunState, read_manifest, write_manifest
from gymnast.store.replacing import replacing, write_replacing
from gymnast.types.failure import BAD_ROW

if TYPE_CHECKING:
    from gymnast.store.chunk_files import Chunk, ChunkPlan
    from gymnast.store.chunk_records import RecordPieces
    from gymnast.store.paths import RunPaths

_MOST_NAMED: Final = 10
_MOST_AT_ONCE: Final = 1024
"""Parts of one write, at most."""


def merge(paths: RunPaths, *, partial: bool = False) -> Counts:
    """Write `x.jsonl` and `x_failures.jsonl` out of the chunks, and say in the manifest how the run stands.

    With `partial`, rollouts that are still owed are left out instead of being a reason to refuse.
    """
    layout = ChunkLayout.of(paths)
    plan = read_chunk_plan(layout)
    views = list(chunk_views(layout, plan))
    account = account_from(plan, views, Observer())
    if account.unsettled and not partial:
        raise _gap(paths, account)
    with one_writer(paths.lock, layout.writing) as turn:
        paths.done.unlink(missing_ok=True)
        merging = _Merging(layout, plan)
        with ExitStack() as stack:
            failures = stack.enter_context(replacing(paths.failures, mark=turn.mark))
            scored = stack.enter_context(replacing(paths.output, mark=turn.mark))
            if layout.bad_rows.exists():
                shutil.copyfileobj(stack.enter_context(layout.bad_rows.open("rb")), failures)
            for chunk, (_, own) in zip(
                plan.chunks, groupby(views, lambda view: planned_id(view.chunk.id)), strict=True
            ):
                merging.take(chunk, [pieces_of(view) for view in own], scored, failures)
            counts = merging.counts(account)
            if counts.owed and not partial:
                raise DataError(
                    f"records of {counts.owed} rollouts that were settled are not there: {', '.join(merging.short)}",
                    where=str(layout.chunks),
                    next="gymnast status RUN shows what is owed now",
                )
            turn.check()
        _write_state(paths, plan, counts, account)
    return counts


class _Merging:
    """Goes through the chunks and counts."""

    def __init__(self, layout: ChunkLayout, plan: ChunkPlan) -> None:
        self._layout = layout
        self._plan = plan
        self._scored = 0
        self._failed: Counter[str] = Counter()
        if plan.requested > plan.rows:
            self._failed[BAD_ROW] = plan.requested - plan.rows
        self.short: list[str] = []
        """Chunks with rollouts that are not settled."""

    def take(self, chunk: Chunk, pieces: list[RecordPieces], scored: IO[bytes], failures: IO[bytes]) -> None:
        """The records of a planned chunk and of all that was ceded from it, in plan order."""
        lines = _usual(chunk, pieces)
        if lines is not None:
            scored.flush()
            _write_all(scored.fileno(), lines)
            self._count(chunk, len(lines), {})
            return
        places = {key.packed: place for place, key in enumerate(chunk.rollout_keys())}
        with RecordIndex(places) as index:
            for one in pieces:
                for piece in one.scored:
                    index.take_scored(piece)
            for one in pieces:
                for piece in one.failures:
                    index.take_failures(piece)
            self._count(chunk, index.write(scored, failures), index.settled.failed)

    def _count(self, chunk: Chunk, scored: int, failed: dict[int, str]) -> None:
        self._scored += scored
        self._failed.update(failed.values())
        if scored + len(failed) < chunk.rows:
            self.short.append(chunk.id)

    def counts(self, account: RunAccount) -> Counts:
        failed = dict(self._failed)
        owed = self._plan.requested - self._scored - sum(failed.values())
        retries = max(0, account.attempts - self._scored - sum(failed.values()))
        return Counts(self._plan.requested, self._scored, failed, owed, account.attempts, retries)


def _usual(chunk: Chunk, pieces: list[RecordPieces]) -> list[memoryview] | None:
    """The lines of a chunk that one worker finished without a failure; None for any other."""
    if len(pieces) != 1 or len(pieces[0].scored) != 1 or pieces[0].failures:
        return None
    shard = pieces[0].scored[0]
    return in_plan_order(mapped(shard), shard.index, chunk.first_row, chunk.rows) if shard.index else None


def _write_all(fd: int, lines: list[memoryview]) -> None:
    """Without putting them together first: the copy would cost as much as everything else."""
    for first in range(0, len(lines), _MOST_AT_ONCE):
        batch = lines[first : first + _MOST_AT_ONCE]
        written = os.writev(fd, batch)
        if written != sum(map(len, batch)):
            rest = memoryview(b"".join(batch))[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]


def _write_state(paths: RunPaths, plan: ChunkPlan, counts: Counts, account: RunAccount) -> None:
    manifest = read_manifest(paths.manifest)
    if manifest is None or manifest.run_id != plan.run_id:
        raise DataError("the chunks and the run's manifest are not of one run", where=str(paths.manifest))
    state = RunState.INCOMPLETE if counts.owed else RunState.COMPLETE
    write_manifest(
        paths.manifest,
        msgspec.structs.replace(
            manifest,
            state=state,
            counts=counts,
            spent=account.spent,
            updated_at=time.time(),
            note=f"merged with {counts.owed} rollouts owed" if counts.owed else None,
        ),
    )
    if state is RunState.COMPLETE:
        write_replacing(paths.done, msgspec.json.encode(counts) + b"\n")


def _gap(paths: RunPaths, account: RunAccount) -> DataError:
    open_chunks = [one for one in account.chunks if one.in_flight + one.unknown + one.owed]
    named = [
        f"  chunk {one.chunk}: {one.in_flight + one.unknown + one.owed} of {one.requested} ({one.state.value}"
        + (f", worker {one.worker})" if one.worker else ")")
        for one in open_chunks[:_MOST_NAMED]
    ]
    more = [f"  … and {len(open_chunks) - _MOST_NAMED} more chunks"] if len(open_chunks) > _MOST_NAMED else []
    listed = "\n".join([*named, *more])
    return DataError(
        f"{account.unsettled} of {account.requested} rollouts are not settled\n{listed}",
        where=str(paths.chunks),
        next="add workers with gymnast submit --resume, or merge what there is: --partial",
    )
