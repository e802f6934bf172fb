"""Ctrl-C during `gymnast.collect_sync`: the run ends, what was scored is stored, and a resume finishes the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gymnast
from gymnast.store.manifest import RunState, read_manifest
from gymnast.store.paths import RunPaths
from tests.helpers.jsonl import example_rows, write_jsonl

PROGRAM = """
import asyncio, signal, sys, threading
import gymnast
from gymnast.types.events import RolloutScored

signal.signal(signal.SIGINT, signal.default_int_handler)

def say(event):
    if isinstance(event, RolloutScored):
        print("scored", flush=True)

def collect():
    tasks, output, workers = sys.argv[1:4]
    try:
        gymnast.collect_sync(tasks, output, environments=["arithmetic"], model_type="embedded_model", num_repeats=400,
                             concurrency=4, workers=int(workers), on_event=say)
    except KeyboardInterrupt:
        print("interrupted", threading.active_count(), flush=True)

async def notebook():
    collect()

if sys.argv[4] == "loop":
    asyncio.run(notebook())
else:
    collect()
"""


@pytest.mark.parametrize(("caller", "workers"), [("script", "0"), ("loop", "0"), ("loop", "1")])
def test_ctrl_c_ends_the_run_and_nothing_is_lost(tmp_path: Path, caller: str, workers: str) -> None:
    tasks, output = write_jsonl(tmp_path / "tasks.jsonl", example_rows("arithmetic")), tmp_path / "x.jsonl"
    command = [sys.executable, "-c", PROGRAM, str(tasks), str(output), workers, caller]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "scored\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    rest, _ = process.communicate(timeout=300)
    assert rest.splitlines()[-1] == "interrupted 1", rest
    assert process.returncode == 0
    run = gymnast.load(output)
    assert 0 < run.scored < run.requested
    manifest = read_manifest(RunPaths(output).manifest)
    assert manifest is not None
    assert manifest.state is RunState.INTERRUPTED
