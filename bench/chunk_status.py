"""What `gymnast status` of a large run in chunks takes, by itself and as a ratio to reading the same files once.

    python bench/chunk_status.py [--chunks 1000] [--rows 320] [--json]

Nine tenths of the chunks are done, the rest is held and has written since its last heartbeat. Bar: under 1 s.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chunked import planned, worked_on

from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_state import read_chunk_plan
from gymnast.store.paths import RunPaths

STATUS = """
import json, sys, time
from pathlib import Path
from gymnast.chunks.status import read_run_status
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.paths import RunPaths
layout = ChunkLayout.of(RunPaths(Path(sys.argv[1])))
started = time.perf_counter()
account = read_run_status(layout)
print(json.dumps([time.perf_counter() - started, account.requested, account.scored, account.unsettled]))
"""


def read_pass(paths: RunPaths) -> float:
    """Seconds of reading every lease, end and heartbeat once."""
    started = time.perf_counter()
    for folder in ChunkLayout.of(paths).chunks.iterdir():
        for path in folder.iterdir():
            if path.suffix == ".json":
                path.read_bytes()
    return time.perf_counter() - started


def command(paths: RunPaths) -> float:
    """Seconds of the whole command, start of Python included."""
    started = time.perf_counter()
    shell = [sys.executable, "-m", "gymnast.cli.main", "status", str(paths.output), "--json"]
    subprocess.run(shell, capture_output=True, check=False)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=320, help="of a chunk")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        paths = planned(Path(name), given.chunks * given.rows // 16, 16, given.rows, 200)
        worked_on(paths, read_chunk_plan(ChunkLayout.of(paths)), done=0.9)
        passes, looks, commands = [], [], []
        for _ in range(3):
            passes.append(read_pass(paths))
            done = subprocess.run(
                [sys.executable, "-c", STATUS, str(paths.output)], capture_output=True, text=True, check=True
            )
            took, requested, scored, unsettled = json.loads(done.stdout)
            assert requested == scored + unsettled
            looks.append(took)
            commands.append(command(paths))
    found = {
        "chunks": given.chunks,
        "read_s": min(passes),
        "status_s": min(looks),
        "ratio": min(looks) / min(passes),
        "command_s": min(commands),
    }
    if given.json:
        print(json.dumps(found))
        return
    print(
        f"{given.chunks} chunks: status {found['status_s']:.2f} s (bar 1), {found['ratio']:.1f} times reading their"
        f" files; the whole command {found['command_s']:.2f} s"
    )


if __name__ == "__main__":
    main()
