"""Runs in chunks made by hand, for tests: rows that need no policy, records that are the same whoever writes them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gymnast.chunks.held_chunk import HeldChunk, read_rows
from gymnast.chunks.lease import claim, write_heartbeat
from gymnast.chunks.partition import cut_chunks, read_plan_rows
from gymnast.rollouts.prepare import new_manifest
from gymnast.store.chunk_files import ChunkPlan, Holder
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_state import ChunkView, walk_chunks
from gymnast.store.manifest import write_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.task import RolloutKey
from gymnast.types.totals import RolloutFacts

FACTS = RolloutFacts("a", 1.0)
"""Of every scored record made here."""


@dataclass(frozen=True)
class SmallRun:
    """A planned run without a configuration."""

    paths: RunPaths
    plan: ChunkPlan

    @property
    def layout(self) -> ChunkLayout:
        return ChunkLayout.of(self.paths)

    def views(self) -> list[ChunkView]:
        return list(walk_chunks(self.layout, self.plan))

    def view(self, chunk_id: str) -> ChunkView:
        return next(view for view in self.views() if view.chunk.id == chunk_id)

    def claim(self, view: ChunkView, worker: str, token: str) -> HeldChunk | None:
        rows = read_rows(self.paths.materialized_inputs, view.chunk)
        won = claim(view.folder_state, holder=Holder(worker=worker), token=token)
        if won is None:
            return None
        held = HeldChunk(view.chunk, won, view.folder_state.folder, rows, view.attempts)
        write_heartbeat(held.folder, held.lease, held.next_heartbeat(0.0, in_flight=0, is_draining=False))
        return held


def small_run(folder: Path, tasks: int, repeats: int, chunk_rows: int) -> SmallRun:
    """Plan `tasks` × `repeats` rows."""
    paths = RunPaths(folder / "x.jsonl")
    folder.mkdir(parents=True, exist_ok=True)
    with paths.materialized_inputs.open("w") as out:
        for task in range(tasks):
            for rollout in range(repeats):
                row = {"agent_ref": {"name": "a"}, "q": "?" * task, **identity(RolloutKey(task, rollout))}
                out.write(json.dumps(row, separators=(",", ":")) + "\n")
    data = paths.materialized_inputs.read_bytes()
    plan = {"rows": tasks * repeats, "tasks": tasks, "bytes": len(data), "agents": {"a": tasks * repeats}}
    manifest = new_manifest(paths, source={}, plan=plan, settings={}, instances=(), requested=tasks * repeats)
    write_manifest(paths.manifest, manifest)
    chunks = ChunkPlan(
        run_id=manifest.run_id,
        rows=tasks * repeats,
        size_bytes=len(data),
        crc32=zlib.crc32(data),
        requested=tasks * repeats,
        chunks=tuple(cut_chunks(read_plan_rows(paths.materialized_inputs), chunk_rows)),
    )
    layout = ChunkLayout.of(paths)
    layout.chunks.mkdir(parents=True)
    layout.plan.write_bytes(msgspec.json.encode(chunks))
    return SmallRun(paths, chunks)


def identity(key: RolloutKey) -> dict[str, int]:
    return {"_ng_task_index": key.task, "_ng_rollout_index": key.rollout}


def record(key: RolloutKey) -> bytes:
    """The scored record of a rollout, the same whoever writes it."""
    body = {"response": {"output": "é" * (key.task % 5)}, "reward": float(key.rollout % 2), **identity(key)}
    return json.dumps({**body, "agent_ref": {"name": "a"}}, separators=(",", ":")).encode()


def failure(key: RolloutKey, attempt: int, *, final: bool, kind: str = "model_error") -> bytes:
    body = {"_ng_failure_class": kind, "_ng_attempt_index": attempt, "failure": {"kind": kind}}
    more = {"_ng_failure_terminal": True} if final else {}
    return json.dumps({**body, **more, **identity(key)}, separators=(",", ":")).encode()


def commit(held: HeldChunk) -> None:
    """What `Committer.commit` does, without a loop."""
    pending = held.take_pending()
    pending.write()
    held.confirm(pending)


def expected_output(run: SmallRun, without: Iterable[RolloutKey] = ()) -> bytes:
    """What the merged run must be."""
    lines = (json.loads(line) for line in run.paths.materialized_inputs.read_bytes().splitlines())
    keys = (RolloutKey(row["_ng_task_index"], row["_ng_rollout_index"]) for row in lines)
    left_out = set(without)
    return b"".join(record(key) + b"\n" for key in keys if key not in left_out)
