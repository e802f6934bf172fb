"""What the studio costs on a large run: 16,000 or 320,000 rollouts of 4 KB, next to 199 small runs.

python bench/studio.py [--tasks 1000] [--repeats 16] [--folder DIR]
`--tasks 20000` for the large one. bench/studio_live.py measures what a studio costs a running collection.

The run's files are written directly; nothing is collected. The yardstick is one pass that decodes the same file in the
same process. Bars: the index at most 4 such passes, the table of runs in 1 s, the first page of tasks within 2 s while
the index is built, warm pages under 200 ms, a search under 500 ms, the server under 300 MB. FTS5 is measured for
comparison on a part of the same texts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import orjson
from studio_runs import SMALL_RUNS, write_large_run, write_small_runs

from gymnast.store.paths import RunPaths
from gymnast.studio.run_index import RunIndex

INDEX_BAR = 4.0
RUNS_BAR_S, FIRST_BAR_S, PAGE_BAR_S, SEARCH_BAR_S, MEMORY_BAR_MB = 1.0, 2.0, 0.2, 0.5, 300.0
ROUNDS = 2
SEARCHES = {
    "common word": "word1234",
    "rare word": "quixotic",
    "phrase": '"word17 word4"',
    "rare phrase": '"quixotic marmalade"',
    "part of a tool call": "tion of city97",
    "no hit": "zebra",
    "three words": "word77 word1999 word3",
    "common and rare word": "word1234 marmalade",
    "other language": "日本語",
    "accents": "BRÜCKE",
    "cyrillic": "привет",
    "short word": "qui",
    "two letters": "xo",
    "one sign": "~",
    "short word, no hit": "zqj",
    "every record": "word",
}
missed: list[str] = []


def main() -> None:
    """Write the runs, measure the index, then a studio as a user starts it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--folder", type=Path, help="Keep the files here, and use a run that is there already.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        folder = options.folder or Path(own) / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        output = folder / "large.jsonl"
        if not output.exists():
            write_large_run(folder, options.tasks, options.repeats)
        write_small_runs(folder)
        measure_index(output, Path(own))
        measure_fts(output)
        measure_server(folder, Path(own))
    sys.exit(1 if missed else 0)


def check(name: str, value: float, bar: float, unit: str) -> None:
    """Print a figure and whether it is within its bar."""
    is_ok = value <= bar
    print(f"{name:34} {value:9.3f} {unit:6} (bar {bar:g}): {'ok' if is_ok else 'MISSED'}", flush=True)
    if not is_ok:
        missed.append(name)


def measure_index(output: Path, own: Path) -> None:
    """CPU seconds of one decode pass and of the index; the best of some rounds each, taken in turns."""
    decodes, builds, lines = [], [], 0
    for number in range(ROUNDS):
        started = time.process_time()
        with output.open("rb", buffering=1 << 20) as stream:
            for line in stream:
                orjson.loads(line)
        decodes.append(time.process_time() - started)
        index = RunIndex(RunPaths(output), own / f"{number}.sqlite")
        started = time.process_time()
        index.update()
        builds.append(time.process_time() - started)
        lines = index.progress.lines
        index.close()
    started = time.perf_counter()
    again = RunIndex(RunPaths(output), own / "0.sqlite")
    again.update()
    reload_s = time.perf_counter() - started
    again.close()
    size = (own / "0.sqlite").stat().st_size
    print(f"{'decode pass':34} {min(decodes) / lines * 1e6:9.2f} µs     a rollout")
    print(f"{'index':34} {min(builds) / lines * 1e6:9.2f} µs     a rollout, {size / lines:.0f} bytes each on disk")
    print(f"{'index, loaded again':34} {reload_s:9.3f} s")
    check("index, in decode passes", min(builds) / min(decodes), INDEX_BAR, "passes")


def measure_fts(output: Path, limit: int = 4000) -> None:
    """What FTS5 would take for the same texts."""
    texts = []
    with output.open("rb") as stream:
        for line, _ in zip(stream, range(limit), strict=False):
            texts.append(json.dumps(orjson.loads(line)["response"]["output"]))
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(x, content='', columnsize=0, detail=none)")
    started = time.process_time()
    connection.executemany("INSERT INTO t(rowid, x) VALUES (?, ?)", enumerate(texts, 1))
    connection.commit()
    used = time.process_time() - started
    print(f"{'FTS5 instead (texts alone)':34} {used / len(texts) * 1e6:9.2f} µs     a rollout")


def measure_server(folder: Path, own: Path) -> None:
    """A studio as a user starts it, from cold to warm."""
    environ = {**os.environ, "GYMNAST_CACHE_DIR": str(own / "cache")}
    command = [sys.executable, "-m", "gymnast.cli.main", "view", str(folder), "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ)
    try:
        assert process.stdout is not None
        base, _, token = process.stdout.readline().strip().partition("/?token=")

        def get(path: str, **params: Any) -> tuple[float, Any]:
            query = urllib.parse.urlencode(params, doseq=True)
            request = urllib.request.Request(f"{base}/api/{path}?{query}", headers={"Authorization": f"Bearer {token}"})
            started = time.perf_counter()
            with urllib.request.urlopen(request, timeout=300) as answer:
                data = json.load(answer)
            return time.perf_counter() - started, data

        def median(path: str, **params: Any) -> tuple[float, Any]:
            results = [get(path, **params) for _ in range(3)]
            return statistics.median(seconds for seconds, _ in results), results[-1][1]

        seconds, runs = get("runs")
        assert len(runs["runs"]) == SMALL_RUNS + 1
        check("table of 200 runs, cold", seconds, RUNS_BAR_S, "s")
        seconds, _ = get("tasks", run="large", size=50)
        check("first page of tasks, cold", seconds, FIRST_BAR_S, "s")
        started = time.perf_counter()
        while (progress := get("rollouts", run="large", size=1)[1]["index"])["state"] != "ready":
            time.sleep(0.2)
        print(f"{'index ready after':34} {time.perf_counter() - started:9.2f} s      {progress['rows']} rollouts")
        get("tasks", run="large", size=50)
        check("page of tasks", median("tasks", run="large", size=50)[0], PAGE_BAR_S, "s")
        check("page of tasks, sorted", median("tasks", run="large", sort="mean", desc=1)[0], PAGE_BAR_S, "s")
        check("page of rollouts", median("rollouts", run="large", page=20)[0], PAGE_BAR_S, "s")
        check("rollouts, sorted", median("rollouts", run="large", sort="output_tokens", desc=1)[0], PAGE_BAR_S, "s")
        filters = ["reward=1", "output_tokens>500", "extracted_answer=A"]
        check("rollouts, filtered", median("rollouts", run="large", f=filters, sort="seconds")[0], PAGE_BAR_S, "s")
        for table in ("rollouts", "tasks"):
            for name, words in SEARCHES.items():
                seconds, found = median(table, run="large", q=words)
                about = "" if found["total_is_exact"] else "about "
                check(f"{table}, {name}", seconds, SEARCH_BAR_S, "s")
                print(f"{'':34} {words}: {about}{found['total']} {table}")
        memory = _peak_mb(process.pid)
        check("memory of the server", memory, MEMORY_BAR_MB, "MB")
    finally:
        process.terminate()
        process.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{'CPU of the server':34} {used.ru_utime + used.ru_stime:9.1f} s")


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
