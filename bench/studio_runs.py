"""Runs for the benchmarks of the studio: a large one with varied texts, and many small ones next to it."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from report import failure, record, write_run
from running import row

SMALL_RUNS = 199
RARE_EVERY, FOREIGN_EVERY, TOOL_EVERY = 20_000, 1_000, 10
FOREIGN = ("日本語の答え", "Die Brücke über die Straße", "Привет, мир", "naïve café")


def write_large_run(folder: Path, tasks: int, repeats: int) -> Path:
    """Rollouts of about 4 KB: some with tool calls, few in other languages, very few with a rare word."""
    rng, words = random.Random(0), [f"word{number}" for number in range(2000)]
    output, number, began = folder / "large.jsonl", 0, time.perf_counter()
    with (
        output.open("w") as scored,
        (folder / "large_materialized_inputs.jsonl").open("w") as asked,
        (folder / "large_failures.jsonl").open("w") as failed,
    ):
        for task in range(tasks):
            given, skill = row(task), rng.betavariate(0.6, 0.6)
            for rollout in range(repeats):
                number += 1
                key = {"_ng_task_index": task, "_ng_rollout_index": rollout}
                asked.write(json.dumps({**given, "agent_ref": {"name": "mcqa_simple_agent"}, **key}) + "\n")
                if rng.random() < 0.002:
                    failed.write(json.dumps(failure(key)) + "\n")
                    continue
                own = vary(record(given, key, skill, rng, words), number)
                scored.write(json.dumps(own, ensure_ascii=False) + "\n")
    size = output.stat().st_size / number
    print(f"{number} rollouts, {size:.0f} bytes each, written in {time.perf_counter() - began:.0f} s", flush=True)
    return output


def vary(own: dict[str, Any], number: int) -> dict[str, Any]:
    """Add a tool call, a rare word or another language to some records."""
    output = own["response"]["output"]
    text = output[0]["content"][0]
    if number % TOOL_EVERY == 0:
        arguments = json.dumps({"query": f"population of city{number % 977}", "limit": 5})
        call = {"type": "function_call", "call_id": "c1", "name": "search_web", "arguments": arguments}
        result = {"type": "function_call_output", "call_id": "c1", "output": f"{number} people\nlive there"}
        output[:0] = [call, result]
    if number % FOREIGN_EVERY == 0:
        text["text"] = f"{FOREIGN[number // FOREIGN_EVERY % len(FOREIGN)]} {text['text']}"
    if number % RARE_EVERY == 0:
        text["text"] += " quixotic Marmalade"
    return own


def write_small_runs(folder: Path) -> None:
    """Runs of a few rollouts, each with its files in a folder of its own."""
    template = folder / "small" / "000"
    if template.exists():
        return
    template.mkdir(parents=True)
    with Path(os.devnull).open("w") as quiet:
        stdout, sys.stdout = sys.stdout, quiet
        try:
            write_run(template, 5, 4)
        finally:
            sys.stdout = stdout
    for number in range(1, SMALL_RUNS):
        shutil.copytree(template, folder / "small" / f"{number:03}")
