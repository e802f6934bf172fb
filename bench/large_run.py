"""A run of 320,000 rollouts: what planning it costs, and what going on with it costs when 1,000 are owed.

    python bench/large_run.py [--tasks 20000] [--repeats 16] [--json]

Rows of 4 KB. Bars: plan and write at most 4 times a plain copy of the file they make (with fsync, as the plan has);
a resume dispatches its first rollout within 10 s and stays under 400 MB.
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
from typing import Any

from running import collecting, events, memory_mb, policy, row

ROW_BYTES = 4096
OWED = 1000

PLAN = """
import resource, sys, time
from pathlib import Path
from gymnast.rollouts.plan import PlanOptions, write_plan
started = time.perf_counter()
write_plan(Path(sys.argv[1]), Path(sys.argv[2]), PlanOptions(agent="mcqa_simple_agent", repeats=int(sys.argv[3])), None)
print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "in.jsonl"
        with source.open("w") as out:
            for number in range(given.tasks):
                out.write(json.dumps(row(number, ROW_BYTES - 300)) + "\n")
        found = planned(source, folder, given.repeats) | resumed(source, folder, given.repeats)
    if given.json:
        print(json.dumps(found))
        return
    print(f"{found['rows']} rows of {found['row_bytes']:.0f} bytes, {found['gigabytes']:.2f} GB")
    print(f"  plan and write {found['plan_s']:.1f} s, {found['plan_mb']:.0f} MB; plain copy {found['copy_s']:.1f} s")
    print(f"  ratio {found['ratio']:.2f} (bar 4)")
    print(f"  resume with {OWED} owed: first rollout after {found['resume_s']:.1f} s (bar 10)")
    print(f"  resume needs {found['resume_mb']:.0f} MB at most (bar 400)")


def planned(source: Path, folder: Path, repeats: int) -> dict[str, Any]:
    """Plan and write, against a plain copy of what was written; the better of two rounds each."""
    target, copy = folder / "x_materialized_inputs.jsonl", folder / "copy.jsonl"
    plans, copies, most_mb = [], [], 0.0
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PLAN, str(source), str(target), str(repeats)],
            capture_output=True,
            text=True,
            check=True,
        )
        took, size_mb = (float(word) for word in done.stdout.split())
        plans.append(took)
        most_mb = max(most_mb, size_mb)
        started = time.perf_counter()
        with target.open("rb") as old, copy.open("wb") as new:
            shutil.copyfileobj(old, new, 1 << 20)
            new.flush()
            os.fsync(new.fileno())
        copies.append(time.perf_counter() - started)
        copy.unlink()
    rows = sum(1 for _ in source.open("rb")) * repeats
    size = target.stat().st_size
    target.unlink()
    return {
        "rows": rows,
        "row_bytes": size / rows,
        "gigabytes": size / 1e9,
        "plan_s": min(plans),
        "copy_s": min(copies),
        "ratio": min(plans) / min(copies),
        "plan_mb": most_mb,
    }


def resumed(source: Path, folder: Path, repeats: int) -> dict[str, Any]:
    """Begin a run, settle all but a few of its rollouts by hand, and go on with it."""
    output = folder / "x.jsonl"
    with policy() as port:
        with collecting(port, source, output, "-n", str(repeats)) as process:
            next(event for event in events(process) if output.exists() and b"\n" in output.read_bytes())
            process.kill()
        template = json.loads(output.read_bytes().split(b"\n", 1)[0])
        _settle(template, output, repeats, sum(1 for _ in source.open("rb")) * repeats - OWED)
        started = time.perf_counter()
        with collecting(port, source, output, "-n", str(repeats), "--resume") as process:
            next(event for event in events(process) if event["type"] == "rollout_scored")
            took, most_mb = time.perf_counter() - started, memory_mb(process.pid, "VmHWM")
            finished = next(event for event in events(process) if event["type"] == "run_finished")
    assert finished["owed"] == 0, finished
    return {"resume_s": took, "resume_mb": most_mb}


def _settle(template: dict[str, Any], output: Path, repeats: int, number: int) -> None:
    with output.open("wb") as out:
        for index in range(number):
            template["_ng_task_index"], template["_ng_rollout_index"] = divmod(index, repeats)
            out.write(json.dumps(template).encode() + b"\n")


if __name__ == "__main__":
    main()
