"""What `gymnast doctor` costs on a large run with large logs.

    python bench/doctor.py [--rows 320000] [--log-mb 1000] [--json]

A run of 320,000 rollouts, one in a hundred lost on its verifier, and a gigabyte of logs of which most is talk. Bars:
30 s and 300 MB, and the first answer is right.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

DOCTOR = """
import json, resource, sys, time
from pathlib import Path
from gymnast.doctor.examine import examine, find_target
started = time.perf_counter()
diagnosis = examine(find_target(Path(sys.argv[1])))
took_s, cpu_s = time.perf_counter() - started, time.process_time()
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
first = diagnosis.findings[0]
print(json.dumps({"seconds": took_s, "cpu_s": cpu_s, "peak_mb": peak_mb, "first": first.id, "lost": first.lost}))
"""
REPEATS: Final = 16
ONE_IN: Final = 100
"""One rollout in so many is lost."""


def compact(value: Any) -> str:
    """As records are written."""
    return json.dumps(value, separators=(",", ":")) + "\n"


def write_run(folder: Path, rows: int) -> None:
    """The files of a run that lost one rollout in a hundred."""
    text = "so it goes, " * 60
    lost: list[tuple[int, int]] = []
    with (folder / "x_materialized_inputs.jsonl").open("w") as planned, (folder / "x.jsonl").open("w") as scored:
        for number in range(rows):
            task, rollout = divmod(number, REPEATS)
            params = {"input": [{"role": "user", "content": f"{task} {text}"}]}
            key = {"_ng_task_index": task, "_ng_rollout_index": rollout}
            agent = {"agent_ref": {"name": "mcqa_simple_agent"}}
            planned.write(compact({"responses_create_params": params, **agent, **key}))
            if number % ONE_IN == ONE_IN - 1:
                lost.append((task, rollout))
                continue
            part = {"type": "output_text", "text": text * 2}
            output = [{"type": "message", "role": "assistant", "content": [part]}]
            usage = {"input_tokens": 200, "output_tokens": 90, "total_tokens": 290}
            response = {"output": output, "usage": usage, "incomplete_details": None}
            scored.write(
                compact({"responses_create_params": params, "response": response, "reward": number % 2, **key, **agent})
            )
    with (folder / "x_failures.jsonl").open("w") as failed:
        for task, rollout in lost:
            failed.write(compact(_failure(task, rollout)))


def _failure(task: int, rollout: int) -> dict[str, Any]:
    detail = {
        "kind": "verifier_error",
        "layer": "verifier",
        "stage": "verify",
        "message": "mcqa answered 500 to /verify: KeyError('grader')",
        "instance": "mcqa",
        "status": 500,
        "body": "KeyError('grader')",
        "chain": ["mcqa/verify 500"],
        "started_at": 1.0,
        "seconds": 0.1,
    }
    return {"failure": detail, "_ng_task_index": task, "_ng_rollout_index": rollout}


def write_logs(folder: Path, size_bytes: int) -> None:
    """Talk of a server, much of it alike and some of it not, with a traceback now and then."""
    rng = random.Random(0)
    folder.mkdir()
    with (folder / "mcqa.log").open("w") as stream:
        written = 0
        while written < size_bytes:
            lines = [_line(rng) for _ in range(2000)]
            lines.append(
                "Traceback (most recent call last):\n  File \"app.py\", line 7, in verify\nKeyError: 'grader'\n"
            )
            written += stream.write("".join(lines))


def _line(rng: random.Random) -> str:
    stamp = f"2026-01-01 10:{rng.randrange(60):02d}:{rng.randrange(60):02d}"
    if rng.random() < 0.1:
        return f"{stamp} INFO reply id={rng.getrandbits(64):016x} text={'words and words ' * 8}\n"
    return f"{stamp} INFO rollout {rng.randrange(10**6)} verified in {rng.randrange(900)} ms, {'more talk ' * 6}\n"


def main() -> None:
    """Make the files, ask doctor, print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=320_000)
    parser.add_argument("--log-mb", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(folder, given.rows)
        write_logs(folder / "x_logs", given.log_mb * 1_000_000)
        size_mb = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
        command = [sys.executable, "-c", DOCTOR, str(folder / "x.jsonl")]
        data = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if given.json:
        print(json.dumps({**data, "size_mb": size_mb}))
        return
    took = f"{data['seconds']:.1f} s ({data['cpu_s']:.1f} s of CPU), {data['peak_mb']:.0f} MB peak"
    print(f"{given.rows} rows, {size_mb:.0f} MB of files: {took}")
    print(f"first answer: {data['first']} ({data['lost']} rollouts lost)")
    assert data["first"] == "verifier_exception"


if __name__ == "__main__":
    main()
