"""What the data frames of a run cost, as a ratio to one msgspec decode pass over the same file, and their peak memory.

    python bench/frames.py [--rollouts 320000] [--json]

Rows of 1 KB. Once with the default columns, once with whole transcripts as texts too. Bar: under 1 GB.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

FRAME = """
import resource, sys, time
import gymnast
path, method, columns = sys.argv[1], sys.argv[2], sys.argv[3].split() or None
started = time.perf_counter()
frame = getattr(gymnast.load(path), method)(columns=columns)
assert len(frame), "an empty frame"
print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
METHODS = ("to_arrow", "to_pandas", "to_polars")
EVERYTHING = (
    "_ng_task_index _ng_rollout_index agent reward extracted_answer responses_create_params response output_tokens"
)
REPEATS = 16


def write_records(path: Path, count: int) -> None:
    """Scored rollouts of about 1 KB."""
    rng = random.Random(0)
    with path.open("w") as out:
        for number in range(count):
            out.write(json.dumps(record(number, rng), separators=(",", ":")) + "\n")


def record(number: int, rng: random.Random) -> dict[str, Any]:
    tokens = rng.randrange(40, 120)
    message = {"type": "output_text", "text": " ".join(str(rng.randrange(10_000)) for _ in range(tokens))}
    question = " ".join(str(rng.randrange(1000)) for _ in range(60))
    return {
        "responses_create_params": {"input": [{"role": "user", "content": question}]},
        "response": {
            "id": f"resp_{number}",
            "output": [{"type": "message", "role": "assistant", "content": [message]}],
            "usage": {"input_tokens": 60, "output_tokens": tokens, "total_tokens": 60 + tokens},
        },
        "reward": float(rng.random() < 0.4),
        "extracted_answer": rng.choice("ABCD"),
        "_ng_task_index": number // REPEATS,
        "_ng_rollout_index": number % REPEATS,
        "agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"},
    }


def decode_pass(path: Path) -> float:
    """Seconds of decoding every line once."""
    decode = msgspec.json.Decoder().decode
    started = time.perf_counter()
    with path.open("rb", buffering=1 << 20) as stream:
        for line in stream:
            decode(line)
    return time.perf_counter() - started


def measure(path: Path, method: str, columns: str) -> tuple[float, float]:
    """Seconds and peak megabytes of one frame in a process of its own."""
    command = [sys.executable, "-c", FRAME, str(path), method, columns]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took_s, peak_mb = map(float, done.stdout.split())
    return took_s, peak_mb


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=320_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = {"rollouts": options.rollouts}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        write_records(path, options.rollouts)
        results["file_mb"] = path.stat().st_size / 1e6
        results["decode_pass_s"] = min(decode_pass(path) for _ in range(2))
        for name, columns in (("default", ""), ("transcripts", EVERYTHING)):
            for method in METHODS:
                took_s, peak_mb = min(measure(path, method, columns) for _ in range(2))
                results[f"{method}/{name}"] = {"ratio": took_s / results["decode_pass_s"], "peak_mb": peak_mb}
    if options.json:
        print(json.dumps(results))
        return 0
    print(f"{options.rollouts:,} rollouts, {results['file_mb']:.0f} MB, decode pass {results['decode_pass_s']:.2f} s")
    for name, figures in results.items():
        if isinstance(figures, dict):
            print(f"{name:<24} {figures['ratio']:5.2f} × the decode pass, peak {figures['peak_mb']:,.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
