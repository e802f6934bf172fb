"""Runs in chunks for benches: written as workers write them, without running any."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from unittest.mock import patch

import msgspec
from running import row

from gymnast.chunks.held_chunk import HeldChunk, read_rows
from gymnast.chunks.lease import claim, write_end, write_heartbeat
from gymnast.chunks.partition import cut_chunks, read_plan_rows
from gymnast.chunks.worker_spec import ConfigArguments, WorkerSpec, write_worker_spec
from gymnast.rollouts.prepare import new_manifest
from gymnast.store.chunk_files import ChunkPlan, Holder
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_state import read_folder_state
from gymnast.store.manifest import write_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.totals import RolloutFacts

AGENT = {"agent_ref": {"name": "mcqa_simple_agent"}}


def planned(folder: Path, tasks: int, repeats: int, chunk_rows: int, row_bytes: int) -> RunPaths:
    """A run that nobody has begun."""
    paths, rows = RunPaths(folder / "x.jsonl"), tasks * repeats
    with paths.materialized_inputs.open("w") as out:
        for task in range(tasks):
            head = json.dumps({**row(task, row_bytes), **AGENT}, separators=(",", ":"))[:-1]
            for rollout in range(repeats):
                out.write(f'{head},"_ng_task_index":{task},"_ng_rollout_index":{rollout}}}\n')
    size = paths.materialized_inputs.stat().st_size
    plan = {"rows": rows, "tasks": tasks, "bytes": size, "agents": {"mcqa_simple_agent": rows}}
    manifest = new_manifest(paths, source={}, plan=plan, settings={}, instances=(), requested=rows)
    write_manifest(paths.manifest, manifest)
    layout = ChunkLayout.of(paths)
    layout.chunks.mkdir(parents=True)
    chunks = tuple(cut_chunks(read_plan_rows(paths.materialized_inputs), chunk_rows))
    found = ChunkPlan(run_id=manifest.run_id, rows=rows, size_bytes=size, crc32=0, requested=rows, chunks=chunks)
    layout.plan.write_bytes(msgspec.json.encode(found))
    write_worker_spec(layout, WorkerSpec(run_id=manifest.run_id, config=ConfigArguments()))
    return paths


def worked_on(paths: RunPaths, plan: ChunkPlan, *, done: float = 1.0, answer_bytes: int = 600) -> None:
    """Records in the order in which concurrent rollouts end; a share of the chunks is still held."""
    rng, layout = random.Random(0), ChunkLayout.of(paths)
    with patch.object(os, "fsync"):  # it is the reading that is measured
        for number, chunk in enumerate(plan.chunks):
            folder_state = read_folder_state(layout.chunk(chunk.id), plan.run_id)
            won = claim(
                folder_state, holder=Holder(worker=f"w{number % 300}", host=f"node{number % 75}"), token=f"t{number}"
            )
            assert won is not None
            held = HeldChunk(chunk, won, folder_state.folder, read_rows(paths.materialized_inputs, chunk))
            is_done = number < done * len(plan.chunks)
            _write(held, rng, answer_bytes, share=1.0 if is_done else 0.5)
            if is_done:
                write_end(held.folder, held.lease, held.end(0.0))
            else:
                write_heartbeat(held.folder, held.lease, held.next_heartbeat(0.0, in_flight=32, is_draining=False))
                _write(held, rng, answer_bytes, share=0.1)
            held.close()


def _write(held: HeldChunk, rng: random.Random, answer_bytes: int, *, share: float) -> None:
    rows = [row for _ in range(int(len(held.unstarted) * share)) if (row := held.next_row()) is not None]
    rows.sort(key=lambda row: row.number + 64 * rng.random())
    for one in rows:
        record = _record(one.line, one.key.task, one.key.rollout, answer_bytes)
        held.record_scored(one.key, record, RolloutFacts("", 1.0))
    write = held.take_pending()
    write.write()
    held.confirm(write)


def _record(line: bytes, task: int, rollout: int, answer_bytes: int) -> bytes:
    params = line[: line.index(b',"options"')]
    text = "so it goes, " * (answer_bytes // 12)
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    usage = {"input_tokens": 200, "output_tokens": 100, "total_tokens": 300}
    used = {"calls": 1, "input_tokens": 200, "output_tokens": 100, "latency_ms": 12.5, "cost": None}
    rest = {
        "response": {"id": "r", "output": [message], "usage": usage},
        "reward": float(rollout % 2),
        "extracted_answer": "B",
        "_ng_model_usage": used,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        **AGENT,
    }
    return params + b"," + json.dumps(rest, separators=(",", ":")).encode()[1:]
