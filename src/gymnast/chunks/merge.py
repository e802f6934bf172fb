"""Merging the chunks of a run: records in plan order, the same bytes whatever came first. Streams, chunk by chunk.

Gaps and duplicates are errors that name the chunk or the rollout. Files get their final names only when complete.
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

from gymnast.chunks.record_index import RecordIndex, lines_in_plan_order, map_piece
from gymnast.chunks.settlement import Settlement
from gymnast.chunks.status import LivenessCheck, RunStatus, build_run_status
from gymnast.chunks.write_lease import hold_write_lease
from gymnast.errors import DataError
from gymnast.store.atomic import atomic_write, atomic_writer
from gymnast.store.chunk_layout import ChunkLayout, planned_ancestor
from gymnast.store.chunk_records import RecordFiles, chunk_record_files
from gymnast.store.chunk_state import read_chunk_plan, walk_chunks
from gymnast.store.lines import numbered_lines
from gymnast.store.manifest import Counts, RunState, read_manifest, write_manifest
from gymnast.types.failure import FailureKind

if TYPE_CHECKING:
    from gymnast.store.chunk_files import Chunk, ChunkPlan
    from gymnast.store.paths import RunPaths
    from gymnast.types.totals import AgentTotals

_MAX_NAMED: Final = 10
_MAX_WRITEV: Final = 1024
"""Buffers of one `writev`."""


def merge(paths: RunPaths, *, partial: bool = False) -> Counts:
    """Write `x.jsonl` and `x_failures.jsonl` from the chunks, and the final counts into the manifest.

    With `partial`, rollouts that are still owed are left out instead of being an error.
    """
    layout = ChunkLayout.of(paths)
    plan = read_chunk_plan(layout)
    views = list(walk_chunks(layout, plan))
    status = build_run_status(plan, views, LivenessCheck())
    if status.unsettled and not partial:
        raise _unsettled_error(paths, status)
    with hold_write_lease(paths.lock, layout.writing) as write_lease:
        paths.done.unlink(missing_ok=True)
        merger = _Merger(plan)
        with ExitStack() as stack:
            failures = stack.enter_context(atomic_writer(paths.failures, mark=write_lease.mark))
            scored = stack.enter_context(atomic_writer(paths.output, mark=write_lease.mark))
            if layout.bad_rows.exists():
                shutil.copyfileobj(stack.enter_context(layout.bad_rows.open("rb")), failures)
            for chunk, (_, parts) in zip(
                plan.chunks, groupby(views, lambda view: planned_ancestor(view.chunk.id)), strict=True
            ):
                merger.add(chunk, [chunk_record_files(view) for view in parts], scored, failures)
            counts = merger.counts(status)
            if counts.owed and not partial:
                raise DataError(
                    f"records of {counts.owed} settled rollouts are missing or damaged, in chunks "
                    + ", ".join(merger.incomplete),
                    where=str(layout.chunks),
                    next="nothing was merged: restore the shards, or leave these rollouts out with --allow-partial, "
                    "and run them again with gymnast collect --resume",
                )
            write_lease.check()
        _write_state(paths, plan, counts, status)
    return counts


def _totals(paths: RunPaths, counts: Counts, status: RunStatus) -> dict[str, AgentTotals]:
    """The totals that workers reported; counted again from the merged records if they are of other rollouts."""
    reported = status.totals.values()
    scored, failed = (sum(agent.scored for agent in reported), sum(sum(agent.failed.values()) for agent in reported))
    if (scored, failed) == (counts.scored, sum(counts.failed.values())):
        return status.totals
    merged = Settlement()
    for _, line in numbered_lines(paths.output):
        merged.add_scored(line)
    for _, line in numbered_lines(paths.failures):
        merged.add_failure(line, reopened=False)
    merged.tally.set_durations(status.totals)
    return merged.tally.totals()


class _Merger:
    """Writes the records of one chunk after the other, and counts them."""

    def __init__(self, plan: ChunkPlan) -> None:
        self._plan = plan
        self._scored = 0
        self._failed: Counter[str] = Counter()
        if plan.requested > plan.rows:
            self._failed[FailureKind.BAD_ROW.value] = plan.requested - plan.rows
        self.incomplete: list[str] = []
        """Chunks with rollouts that are not settled."""

    def add(self, chunk: Chunk, parts: list[RecordFiles], scored: IO[bytes], failures: IO[bytes]) -> None:
        """Write the records of a planned chunk and of everything ceded from it, in plan order."""
        lines = _indexed_lines(chunk, parts)
        if lines is not None:
            scored.flush()
            _write_all(scored.fileno(), lines)
            self._count(chunk, len(lines), {})
            return
        positions = {key.packed: position for position, key in enumerate(chunk.rollout_keys())}
        with RecordIndex(positions) as index:
            for part in parts:
                for piece in part.scored:
                    index.add_scored(piece)
            for part in parts:
                for piece in part.failures:
                    index.add_failures(piece)
            self._count(chunk, index.write(scored, failures), index.settlement.failed)

    def _count(self, chunk: Chunk, scored: int, failed: dict[int, str]) -> None:
        self._scored += scored
        self._failed.update(failed.values())
        if scored + len(failed) < chunk.rows:
            self.incomplete.append(chunk.id)

    def counts(self, status: RunStatus) -> Counts:
        failed = dict(self._failed)
        settled = self._scored + sum(failed.values())
        owed, retries = self._plan.requested - settled, max(0, status.attempts - settled)
        return Counts(self._plan.requested, self._scored, failed, owed, status.attempts, retries)


def _indexed_lines(chunk: Chunk, parts: list[RecordFiles]) -> list[memoryview] | None:
    """The lines of a chunk that one worker finished without a failure, which is the usual case; None otherwise."""
    if len(parts) != 1 or len(parts[0].scored) != 1 or parts[0].failures:
        return None
    piece = parts[0].scored[0]
    return lines_in_plan_order(map_piece(piece), piece.index, chunk.first_row, chunk.rows) if piece.index else None


def _write_all(fd: int, lines: list[memoryview]) -> None:
    """Write lines without joining them: the copy would cost as much as everything else."""
    for first in range(0, len(lines), _MAX_WRITEV):
        batch = lines[first : first + _MAX_WRITEV]
        written = os.writev(fd, batch)
        if written != sum(map(len, batch)):
            rest = memoryview(b"".join(batch))[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]


def _write_state(paths: RunPaths, plan: ChunkPlan, counts: Counts, status: RunStatus) -> None:
    manifest = read_manifest(paths.manifest)
    if manifest is None or manifest.run_id != plan.run_id:
        raise DataError("the chunks and the manifest belong to different runs", where=str(paths.manifest))
    state = RunState.INCOMPLETE if counts.owed else RunState.COMPLETE
    write_manifest(
        paths.manifest,
        msgspec.structs.replace(
            manifest,
            state=state,
            counts=counts,
            agents=_totals(paths, counts, status),
            spent=status.spent,
            updated_at=time.time(),
            note=f"merged with {counts.owed} rollouts owed" if counts.owed else None,
        ),
    )
    if state is RunState.COMPLETE:
        atomic_write(paths.done, msgspec.json.encode(counts) + b"\n")


def _unsettled_error(paths: RunPaths, status: RunStatus) -> DataError:
    unsettled = [(chunk, count) for chunk in status.chunks if (count := chunk.in_flight + chunk.unknown + chunk.owed)]
    lines = [
        f"  chunk {chunk.chunk}: {count} of {chunk.requested} ({chunk.state.value}"
        + (f", worker {chunk.worker})" if chunk.worker else ")")
        for chunk, count in unsettled[:_MAX_NAMED]
    ]
    if len(unsettled) > _MAX_NAMED:
        lines.append(f"  … and {len(unsettled) - _MAX_NAMED} more chunks")
    listed = "\n".join(lines)
    return DataError(
        f"{status.unsettled} of {status.requested} rollouts are not settled\n{listed}",
        where=str(paths.chunks),
        next="add workers with gymnast submit --resume, or merge what has finished with --allow-partial",
    )
