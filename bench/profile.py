"""What profiling costs, as a ratio to one msgspec decode pass over the same two files.

    python bench/profile.py [--tasks 20000] [--repeats 16] [--json]

Rows of 4 KB. Bars: at most 2.5 times the decode pass, under 600 MB, and ten times the rows cost ten times the time.
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
from running import row

PROFILE = """
import resource, sys, time
from pathlib import Path
from gymnast.profile.run_profile import ProfileRequest, profile
started = time.perf_counter()
inputs, rollouts = Path(sys.argv[1]), Path(sys.argv[2])
profile(ProfileRequest((inputs,), (rollouts,), rollouts, answer_key="extracted_answer"))
print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def write_run(folder: Path, tasks: int, repeats: int) -> tuple[Path, Path]:
    """The files of a finished run: rewards differ, texts are as long as they are in practice."""
    inputs, rollouts = folder / f"{tasks}_materialized_inputs.jsonl", folder / f"{tasks}.jsonl"
    rng = random.Random(0)
    with inputs.open("w") as planned, rollouts.open("w") as scored:
        for task in range(tasks):
            params = row(task, 3500)
            rate = rng.random()
            for rollout in range(repeats):
                identity = {"_ng_task_index": task, "_ng_rollout_index": rollout}
                planned.write(compact({**params, "agent_ref": {"name": "mcqa_simple_agent"}, **identity}) + "\n")
                scored.write(compact(_record(params, identity, rng, rate)) + "\n")
    return inputs, rollouts


def compact(value: Any) -> str:
    """As records are written."""
    return json.dumps(value, separators=(",", ":"))


def _record(params: dict[str, Any], identity: dict[str, int], rng: random.Random, rate: float) -> dict[str, Any]:
    tokens, right = rng.randrange(20, 400), rng.random() < rate
    text = "so it goes, " * (tokens // 4) + "\\boxed{B}"
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    usage = {"input_tokens": 200, "output_tokens": tokens, "total_tokens": 200 + tokens}
    return {
        "responses_create_params": params["responses_create_params"],
        "response": {"id": "r", "output": [message], "usage": usage},
        "reward": float(right),
        "extracted_answer": "B" if right else rng.choice("AC"),
        **identity,
        "agent_ref": {"name": "mcqa_simple_agent"},
    }


def decode_pass(paths: tuple[Path, ...]) -> float:
    """Seconds of decoding every line once."""
    decode = msgspec.json.Decoder().decode
    started = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=1 << 20) as stream:
            for line in stream:
                decode(line)
    return time.perf_counter() - started


def measured(folder: Path, tasks: int, repeats: int) -> dict[str, float]:
    """The better of two rounds each."""
    files = write_run(folder, tasks, repeats)
    passes, profiles, most_mb = [], [], 0.0
    for _ in range(2):
        passes.append(decode_pass(files))
        command = [sys.executable, "-c", PROFILE, *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        took, size_mb = (float(word) for word in done.stdout.split())
        profiles.append(took)
        most_mb = max(most_mb, size_mb)
    for path in files:
        path.unlink()
    return {
        "rollouts": tasks * repeats,
        "decode_s": min(passes),
        "profile_s": min(profiles),
        "ratio": min(profiles) / min(passes),
        "mb": most_mb,
    }


def main() -> None:
    """Measure two sizes and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        small = measured(Path(name), given.tasks // 10, given.repeats)
        large = measured(Path(name), given.tasks, given.repeats)
    if given.json:
        print(json.dumps([small, large]))
        return
    for found in (small, large):
        print(
            f"{found['rollouts']:>7.0f} rollouts: decode {found['decode_s']:.2f} s, profile {found['profile_s']:.2f} s,"
            f" ratio {found['ratio']:.2f} (bar 2.5), {found['mb']:.0f} MB (bar 600)"
        )
    print(f"ten times the rows cost {large['profile_s'] / small['profile_s']:.1f} times the time (bar 8 to 12)")


if __name__ == "__main__":
    main()
