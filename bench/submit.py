"""Submitting 20,000 x 16 rollouts to 300 jobs of a real Slurm: wall and CPU, beside what a bare sbatch takes.

python bench/submit.py [rows]      needs root (or a Slurm that SLURM_CONF names); bar: under 5 s
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
UP = ROOT / "tests" / "cluster" / "slurm_up.sh"
AGENT = "responses_api_agents/steady_agent/configs/steady_agent.yaml"
REPEATS, WORKERS, BAR_S = 16, 300, 5.0


def timed(*words: str, cwd: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(folder: Path, rows: int) -> None:
    with (folder / "tasks.jsonl").open("w") as out:
        for row in range(rows):
            out.write(json.dumps({"responses_create_params": {"input": f"question {row} " + 400 * "x"}}) + "\n")
    bare = timed("sbatch", "--hold", f"--array=0-{WORKERS - 1}", "-o", "/dev/null", "--wrap", "true", cwd=folder)
    gymnast = str(Path(sys.executable).parent / "gymnast")
    common = ["-c", AGENT, "--search-dir", str(ROOT / "tests" / "cluster" / "steady"), "-i", "tasks.jsonl"]
    more = ["-n", str(REPEATS), "--workers", str(WORKERS), "--executor", "slurm", "--sbatch=--hold"]
    ours = timed(gymnast, "submit", *common, "-o", "x.jsonl", *more, cwd=folder)
    again = timed(gymnast, "submit", *common, "-o", "x.jsonl", *more, "--resume", cwd=folder)
    print(f"sbatch alone                    {bare[0]:6.2f} s wall  {bare[1]:6.2f} s CPU")
    print(f"submit, {rows * REPEATS:7d} rollouts       {ours[0]:6.2f} s wall  {ours[1]:6.2f} s CPU   (bar {BAR_S:g} s)")
    print(f"submit --resume, nothing to add {again[0]:6.2f} s wall  {again[1]:6.2f} s CPU")


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory(prefix="gymnast-bench-") as scratch:
        slurm = Path(scratch) / "slurm"
        own = "SLURM_CONF" not in os.environ
        if own:
            subprocess.run([UP, "up", slurm], check=True, stdout=subprocess.DEVNULL)
            os.environ["SLURM_CONF"] = str(slurm / "slurm.conf")
        try:
            measure(Path(scratch), rows)
        finally:
            if own:
                subprocess.run([UP, "wipe", slurm], check=True)


if __name__ == "__main__":
    main()
