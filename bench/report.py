"""How heavy the report of a large run is and how soon it shows: 320,000 rollouts (20,000 tasks × 16) of 4 KB.

python bench/report.py [--tasks 20000] [--repeats 16] [--chromium /usr/bin/chromium] [--folder DIR]

The run's files are written directly; nothing is collected. Bars: the file under 15 MB, its first paint in Chromium
under 2 s (the median of three openings, each in a browser of its own). A first search unpacks every transcript in the
file; the next ones search what is unpacked.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from running import row

SIZE_BAR_MB = 15.0
PAINT_BAR_S = 2.0
RECORD_BYTES = 4096


def main() -> None:
    """Write the run, build the report, open it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "/usr/bin/chromium")
    parser.add_argument("--folder", type=Path, help="Keep the files here.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        folder = options.folder or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        run = write_run(folder, options.tasks, options.repeats)
        report = build(run)
        size_mb = report.stat().st_size / 1e6
        print(f"report        {size_mb:.2f} MB (bar {SIZE_BAR_MB} MB): {'ok' if size_mb < SIZE_BAR_MB else 'MISSED'}")
        paints = [first_paint(report, options.chromium) for _ in range(3)]
        paint_s = statistics.median(found["paint_s"] for found in paints)
        ready_s = statistics.median(found["ready_s"] for found in paints)
        print(f"first paint   {paint_s:.2f} s (bar {PAINT_BAR_S} s): {'ok' if paint_s < PAINT_BAR_S else 'MISSED'}")
        print(f"table usable  {ready_s:.2f} s")
        for name in ("first_search_s", "next_search_s"):
            print(
                f"{name.removesuffix('_s').replace('_', ' '):13} {statistics.median(one[name] for one in paints):.2f} s"
            )
        sys.exit(0 if size_mb < SIZE_BAR_MB and paint_s < PAINT_BAR_S else 1)


def write_run(folder: Path, tasks: int, repeats: int) -> Path:
    """A run of mcqa rollouts: rewards by a task's difficulty, lengths that vary, a few failures."""
    rng = random.Random(0)
    words = [f"word{number}" for number in range(2000)]
    began, total = time.perf_counter(), 0
    output = folder / "large.jsonl"
    with (
        output.open("w") as scored,
        (folder / "large_materialized_inputs.jsonl").open("w") as asked,
        (folder / "large_failures.jsonl").open("w") as failed,
    ):
        for task in range(tasks):
            given, skill = row(task), rng.betavariate(0.6, 0.6)
            for rollout in range(repeats):
                key = {"_ng_task_index": task, "_ng_rollout_index": rollout}
                asked.write(json.dumps({**given, "agent_ref": {"name": "mcqa_simple_agent"}, **key}) + "\n")
                if rng.random() < 0.002:
                    failed.write(json.dumps(failure(key)) + "\n")
                    continue
                line = json.dumps(record(given, key, skill, rng, words)) + "\n"
                total += len(line)
                scored.write(line)
    count, took_s = tasks * repeats, time.perf_counter() - began
    print(f"run           {count} rollouts, {total / count:.0f} bytes each, written in {took_s:.0f} s")
    return output


def record(
    given: dict[str, Any], key: dict[str, int], skill: float, rng: random.Random, words: list[str]
) -> dict[str, Any]:
    """A scored rollout of about 4 KB."""
    said = " ".join(rng.choices(words, k=rng.randint(200, 620)))
    text = {"type": "output_text", "text": said, "annotations": []}
    tokens = max(8, int(rng.lognormvariate(6.0, 0.8)))
    return {
        "responses_create_params": given["responses_create_params"],
        "response": {
            "id": "resp",
            "created_at": 0.0,
            "model": "mock",
            "object": "response",
            "output": [
                {"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": [text]},
            ],
            "usage": {"input_tokens": 40, "output_tokens": tokens, "total_tokens": 40 + tokens},
        },
        "reward": float(rng.random() < skill),
        "extracted_answer": rng.choice("ABC"),
        **key,
        "agent_ref": {"name": "mcqa_simple_agent"},
    }


def failure(key: dict[str, int]) -> dict[str, Any]:
    """A rollout that failed for good."""
    detail = {"kind": "model_timeout", "layer": "model_serving", "stage": "model", "message": "no answer in 1800 s"}
    return {**key, "_ng_failure_class": "model_timeout", "_ng_failure_terminal": True, "failure": detail}


def build(run: Path) -> Path:
    """`gymnast report`, timed."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "gymnast.cli.main", "report", str(run), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_s, cpu_s = time.perf_counter() - began, used.ru_utime + used.ru_stime
    print(f"built in      {wall_s:.0f} s ({cpu_s:.0f} s of CPU, {used.ru_maxrss / 1024:.0f} MB of memory)")
    return Path(json.loads(done.stdout)["report"])


def first_paint(report: Path, chromium: str) -> dict[str, float]:
    """Seconds from opening the file to its first contentful paint, and until its table can be used."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        began = time.perf_counter()
        page.goto(report.resolve().as_uri(), wait_until="commit")
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        ready_s = time.perf_counter() - began
        paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        searches = [search_s(page, text) for text in ("word77 word", "word78 word")]
        browser.close()
    return {
        "paint_s": paint_ms / 1000,
        "ready_s": ready_s,
        "first_search_s": searches[0],
        "next_search_s": searches[1],
    }


def search_s(page: Any, text: str) -> float:
    """Seconds until a search has covered every transcript in the file."""
    began = time.perf_counter()
    page.fill("#find", text)
    while "%" in page.inner_text("#searched"):
        page.wait_for_timeout(20)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
