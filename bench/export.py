"""What `gymnast export` costs, as a ratio to one msgspec decode pass over the same file, and its peak memory.

    python bench/export.py [--rollouts 320000] [--formats sft dpo] [--rounds 3] [--json]

Rollouts of 4 KB with reasoning and two tool calls, 16 per task. CPU time, user and system, of processes of their own
with one thread; decode passes and exports alternate, and the least of each counts. Bars: at most 3 times the decode
pass, under 300 MB.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson

from gymnast.types.items import CREATE_PARAMS_DEFAULTS
from gymnast.types.responses import make_response, make_usage

REPEATS = 16
MEASURED = """
import resource, sys, time
from pathlib import Path
{imports}
started = time.process_time()
{work}
print(time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
DECODE = MEASURED.format(
    imports="import msgspec",
    work="""decode = msgspec.json.Decoder().decode
with open(sys.argv[1], "rb", buffering=1 << 20) as stream:
    for line in stream:
        decode(line)""",
)
EXPORT = MEASURED.format(
    imports="""from gymnast.config.secrets import Scrubber
from gymnast.train.dataset.export import ExportRequest, export_dataset""",
    work="export_dataset(ExportRequest((Path(sys.argv[1]),), Path(sys.argv[2]), sys.argv[3]), Scrubber(None))",
)
WORDS = ("the", "a", "of", "to", "in", "we", "compute", "value", "then", "because", "result", "tool", "answer", "plan")
TOOL = {
    "type": "function",
    "name": "get_price",
    "description": "What one piece of an item costs.",
    "parameters": {"properties": {"item": {"type": "string"}}, "required": ["item"], "type": "object"},
    "strict": True,
}


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def record(number: int, rng: random.Random) -> dict[str, Any]:
    """A scored rollout of about 4 KB."""
    task = number // REPEATS
    prompt = [
        {"role": "system", "content": "Use the tools."},
        {"role": "user", "content": text(random.Random(task), 60)},
    ]
    params: Any = {**CREATE_PARAMS_DEFAULTS, "input": prompt, "tools": [TOOL]}
    output: list[Any] = []
    for turn in range(2):
        call = {"type": "function_call", "call_id": f"call_{number}_{turn}", "name": "get_price"}
        output += [
            {"id": f"rs_{turn}", "summary": [{"type": "summary_text", "text": text(rng, 45)}], "type": "reasoning"},
            call | {"arguments": json.dumps({"item": text(rng, 2)}), "id": f"fc_{turn}", "status": "completed"},
            {"type": "function_call_output", "call_id": f"call_{number}_{turn}", "output": text(rng, 25)},
        ]
    part: dict[str, Any] = {"annotations": [], "text": text(rng, 150), "type": "output_text", "logprobs": None}
    output.append({"id": "msg", "content": [part], "role": "assistant", "status": "completed", "type": "message"})
    response = make_response(
        params, output, response_id=f"resp_{number}", created_at=0.0, model="m", usage=make_usage(200, 220)
    )
    return {
        "responses_create_params": params,
        "response": response,
        "reward": float(rng.random() < 0.4),
        "extracted_answer": rng.choice("ABCD"),
        "_ng_task_index": task,
        "_ng_rollout_index": number % REPEATS,
        "agent_ref": {"type": "responses_api_agents", "name": "shop_simple_agent"},
    }


def write_run(path: Path, count: int) -> None:
    rng = random.Random(0)
    with path.open("wb", buffering=1 << 20) as out:
        for number in range(count):
            out.write(orjson.dumps(record(number, rng)) + b"\n")


def measure(code: str, *arguments: str) -> tuple[float, float]:
    """CPU seconds and peak megabytes of a process of its own."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    cpu_s, peak_mb = map(float, done.stdout.split())
    return cpu_s, peak_mb


def compare(run: Path, format_: str, rounds: int) -> dict[str, float]:
    """The least CPU time of decode passes and of exports, which alternate because hosts vary; the highest memory."""
    decode_s, export_s, peak_mb = [], [], []
    for _ in range(rounds):
        decode_s.append(measure(DECODE, str(run))[0])
        with tempfile.TemporaryDirectory(dir=run.parent) as folder:
            cpu_s, peak = measure(EXPORT, str(run), str(Path(folder) / format_), format_)
        export_s.append(cpu_s)
        peak_mb.append(peak)
    least, export = min(decode_s), min(export_s)
    return {"decode_s": least, "export_s": export, "ratio": export / least, "peak_mb": max(peak_mb)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rollouts", type=int, default=40_000)
    parser.add_argument("--formats", nargs="+", default=["sft", "dpo", "kto", "jsonl", "datasets"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[str, Any] = {"rollouts": given.rollouts}
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run.jsonl"
        write_run(run, given.rollouts)
        found["record_bytes"] = run.stat().st_size / given.rollouts
        for format_ in given.formats:
            found[format_] = compare(run, format_, given.rounds)
    if given.json:
        print(json.dumps(found))
        return
    print(f"{given.rollouts} rollouts of {found['record_bytes']:.0f} bytes")
    for format_ in given.formats:
        row = found[format_]
        bars = " (bars 3, 300 MB)"
        print(
            f"  {format_:<9} {row['export_s']:6.1f} s CPU, decode pass {row['decode_s']:.1f} s: "
            f"ratio {row['ratio']:.2f}, {row['peak_mb']:.0f} MB{bars}"
        )


if __name__ == "__main__":
    main()
