"""What merging costs, as a ratio to a plain copy of the same shards into one file.

    python bench/merge.py [--tasks 20000] [--repeats 16] [--chunk-rows 178] [--json]

Records of 4 KB that came in any order. Both sides write to disk and sync. Bar: at most 2 times the copy.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chunked import planned, worked_on

from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_records import run_record_files
from gymnast.store.chunk_state import read_chunk_plan
from gymnast.store.paths import RunPaths

MERGE = """
import resource, sys, time
from pathlib import Path
from gymnast.chunks.merge import merge
from gymnast.store.paths import RunPaths
started = time.perf_counter()
merge(RunPaths(Path(sys.argv[1])))
print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def copied(paths: RunPaths) -> float:
    """Seconds of copying every shard into one file."""
    pieces = run_record_files(ChunkLayout.of(paths)).scored
    target = paths.output.with_name("copy")
    started = time.perf_counter()
    with target.open("wb", buffering=1 << 20) as out:
        for piece in pieces:
            with piece.path.open("rb") as shard:
                shutil.copyfileobj(shard, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())
    took = time.perf_counter() - started
    target.unlink()
    return took


def merged(paths: RunPaths) -> tuple[float, float]:
    """Seconds and megabytes of a merge in a process of its own."""
    done = subprocess.run([sys.executable, "-c", MERGE, str(paths.output)], capture_output=True, text=True, check=True)
    paths.done.unlink()
    paths.output.unlink()
    took, size_mb = (float(word) for word in done.stdout.split())
    return took, size_mb


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--chunk-rows", type=int, default=178)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        paths = planned(Path(name), given.tasks, given.repeats, given.chunk_rows, 1000)
        worked_on(paths, read_chunk_plan(ChunkLayout.of(paths)), answer_bytes=2400)
        copies, merges, most_mb = [], [], 0.0
        for _ in range(given.rounds):  # by turns: the disk is others' as well
            copies.append(copied(paths))
            took, size_mb = merged(paths)
            merges.append(took)
            most_mb = max(most_mb, size_mb)
        size = sum(piece.size_bytes for piece in run_record_files(ChunkLayout.of(paths)).scored)
    found = {
        "rows": given.tasks * given.repeats,
        "gb": size / 1e9,
        "copy_s": min(copies),
        "merge_s": min(merges),
        "ratio": min(merges) / min(copies),
        "mb": most_mb,
    }
    if given.json:
        print(json.dumps(found))
        return
    print(
        f"{found['rows']:.0f} rows, {found['gb']:.2f} GB: copy {found['copy_s']:.2f} s, merge {found['merge_s']:.2f} s,"
        f" ratio {found['ratio']:.2f} (bar 2), {found['mb']:.0f} MB"
    )


if __name__ == "__main__":
    main()
