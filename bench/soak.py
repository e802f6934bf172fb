"""A long run with faults: is every rollout accounted for, and does memory stay flat?

    python bench/soak.py [--rollouts 100000] [--faults 0.05] [--json]

Bars: requested = scored + failed for good, each once; memory in the last quarter of the run within 5% of the second.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

from running import collecting, events, memory_mb, policy, row

TASKS = 1000
BAR = 1.05


def main() -> None:
    """Run the soak and say how it went."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--faults", type=float, default=0.05)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    repeats = max(1, given.rollouts // TASKS)
    with tempfile.TemporaryDirectory() as folder, policy("--faults", str(given.faults)) as port:
        source, output = Path(folder) / "in.jsonl", Path(folder) / "x.jsonl"
        source.write_text("".join(json.dumps(row(number)) + "\n" for number in range(TASKS)))
        found = soak(port, source, output, repeats)
        keys = [tuple(record_key(line)) for line in output.open("rb")]
    assert len(set(keys)) == len(keys) == found["scored"], "a rollout was scored twice"
    assert found["scored"] + found["failed"] + found["owed"] == found["requested"]
    if given.json:
        print(json.dumps(found))
        return
    print(f"{found['requested']} rollouts, {given.faults:.0%} faults injected, {found['seconds']:.0f} s")
    print(f"  scored {found['scored']}, failed for good {found['failed']}, owed {found['owed']}")
    print(f"  attempts made again {found['retries']}, in flight at the end {found['concurrency']}")
    print(f"  memory by quarter, MB: {', '.join(f'{size:.1f}' for size in found['quarters_mb'])}")
    print(f"  last quarter / second quarter: {found['growth']:.3f} (bar {BAR})")


def soak(port: int, source: Path, output: Path, repeats: int) -> dict[str, Any]:
    """One run; memory is sampled at each percent."""
    samples: list[float] = []
    ended = 0
    started = time.monotonic()
    with collecting(port, source, output, "-n", str(repeats), "--max-failed", "100%") as process:
        for event in events(process):
            if event["type"] in {"rollout_scored", "rollout_failed"} and event.get("final", True):
                ended += 1
                if ended % max(1, TASKS * repeats // 100) == 0:
                    samples.append(memory_mb(process.pid))
            elif event["type"] == "run_finished":
                finished = event
        process.wait()
    size = len(samples) // 4
    quarters = [mean(samples[index * size : (index + 1) * size]) for index in range(4)]
    return {
        "requested": finished["requested"],
        "scored": finished["scored"],
        "failed": sum(finished["failed"].values()),
        "owed": finished["owed"],
        "retries": finished["retries"],
        "concurrency": finished["concurrency"],
        "seconds": time.monotonic() - started,
        "quarters_mb": quarters,
        "growth": quarters[3] / quarters[1],
    }


def record_key(line: bytes) -> tuple[int, int]:
    """The rollout that a record belongs to."""
    record = json.loads(line)
    return record["_ng_task_index"], record["_ng_rollout_index"]


if __name__ == "__main__":
    main()
