"""What a studio that watches a running collection costs the collector: its CPU with and without, alternated.

    python bench/studio_live.py [--rollouts 15000] [--rounds 5] [--json]

Each collection runs mcqa in one process on one core, at about 3,000 rollouts a second of CPU time; the mock policy and
the studio share the other. A watcher acts as an open page: it has the stream of events of the run and asks for the run,
its live state and the newest rollouts every second. "off" runs twice a round: the ratio is to the mean of both, and
theirs shows the noise. The studio's own CPU is another process's. Bar: <= 1.02.

On a busy machine the noise is larger than the bar. So what the studio asks of the collector is also measured on its
own: the CPU that a collector with 256 rollouts in flight and nothing else to do takes for a request of its state, times
the requests that a watched run gets, two a second. The studio asks for nothing else; it reads files.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import operator
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from running import HERE, OUR_CORE, POLICY_CORE, policy
from running import row as make_row
from tracking import CONCURRENCY, TASKS

from gymnast.rollouts.control import send_request
from gymnast.store.paths import RunPaths

BAR = 1.02
REQUESTS_PER_S = 2
KINDS = ("off", "watched", "off again")


@contextlib.contextmanager
def studio(folder: Path) -> Iterator[int]:
    """A studio over a folder with an open page; yields its process."""
    environ = {**os.environ, "GYMNAST_CACHE_DIR": str(folder.parent / "cache")}
    command = [sys.executable, "-m", "gymnast.cli.main", "view", str(folder), "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ)
    os.sched_setaffinity(process.pid, {POLICY_CORE} if (os.cpu_count() or 1) > 1 else {0})
    stop = threading.Event()
    try:
        assert process.stdout is not None
        base, _, token = process.stdout.readline().strip().partition("/?token=")
        page = threading.Thread(target=watch, args=(base, token, stop))
        page.start()
        yield process.pid
    finally:
        stop.set()
        process.terminate()
        process.wait()
        page.join()


def watch(base: str, token: str, stop: threading.Event) -> None:
    """What an open page of a live run does."""

    def open_url(path: str, **params: Any) -> Any:
        query = urllib.parse.urlencode(params)
        headers = {"Authorization": f"Bearer {token}"}
        return urllib.request.urlopen(urllib.request.Request(f"{base}/api/{path}?{query}", headers=headers), timeout=30)

    def ask(path: str, **params: Any) -> Any:
        with open_url(path, **params) as answer:
            return json.load(answer)

    streams: dict[str, Any] = {}
    while not stop.wait(1.0):
        with contextlib.suppress(OSError, ValueError):
            for run in [own["id"] for own in ask("runs")["runs"]]:
                if run not in streams:
                    streams[run] = open_url("events", run=run)
                    threading.Thread(target=drain, args=(streams[run],), daemon=True).start()
                for path in ("run", "run/live", "rollouts"):
                    ask(path, run=run)


def drain(stream: Any) -> None:
    """Read events until the studio ends."""
    with contextlib.suppress(OSError, ValueError):
        while stream.readline():
            pass


def collect(spec: dict[str, Any], folder: Path) -> float:
    """The CPU seconds of one collection below a folder, in a fresh process on our core."""
    command = [sys.executable, str(HERE / "tracking.py"), "--child", json.dumps({**spec, "kind": "off"})]
    environ = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ)
    os.sched_setaffinity(process.pid, {OUR_CORE})
    cpu: float = json.loads(process.communicate()[0].splitlines()[-1])["cpu"]
    return cpu


def cpu_of(pid: int) -> float:
    """The CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_ns(pid: int) -> int:
    """The CPU nanoseconds of a process."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


def request_cost(tasks: Path, folder: Path, requests: int = 500) -> float:
    """The CPU seconds that a request of its state costs a collector whose policy never answers."""
    connections: list[Any] = []

    def accept(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connections.append(server.accept())

    async def ask(paths: RunPaths) -> None:
        for _ in range(requests):
            await send_request(paths.socket, {"command": "status"})

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        spec = {"port": server.getsockname()[1], "tasks": str(tasks), "rollouts": 15_000, "kind": "off"}
        command = [sys.executable, str(HERE / "tracking.py"), "--child", json.dumps(spec)]
        environ = {**os.environ, "TMPDIR": str(folder)}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
        try:
            while len(connections) < CONCURRENCY // 2 and process.poll() is None:
                time.sleep(0.2)
            time.sleep(2.0)
            paths = RunPaths(next(folder.rglob("x.jsonl")))
            before = cpu_ns(process.pid)
            asyncio.run(ask(paths))
            return (cpu_ns(process.pid) - before) / requests / 1e9
        finally:
            process.kill()
            process.wait()


def main() -> None:
    """Alternate collections with and without a studio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=15_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cpu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    own: list[float] = []
    with tempfile.TemporaryDirectory() as place, policy() as port:
        folder, tasks = Path(place) / "runs", Path(place) / "tasks.jsonl"
        folder.mkdir()
        tasks.write_text("".join(json.dumps(make_row(number)) + "\n" for number in range(TASKS)))
        spec = {"port": port, "tasks": str(tasks), "rollouts": options.rollouts}
        request_s = request_cost(tasks, folder)
        for number in range(options.rounds):
            for kind in KINDS if number % 2 == 0 else reversed(KINDS):
                if kind == "watched":
                    with studio(folder) as pid:
                        cpu[kind].append(collect(spec, folder))
                        own.append(cpu_of(pid))
                else:
                    cpu[kind].append(collect(spec, folder))
            print({kind: round(cpu[kind][-1], 3) for kind in KINDS}, file=sys.stderr, flush=True)
    without = [(first + second) / 2 for first, second in zip(cpu["off"], cpu["off again"], strict=True)]
    ratios = {kind: statistics.median(map(operator.truediv, cpu[kind], without)) for kind in KINDS}
    least = min(cpu["watched"]) / min(cpu["off"] + cpu["off again"])
    results = {
        "rollouts_per_cpu_s": round(options.rollouts / statistics.median(cpu["off"])),
        "ratio": round(ratios["watched"], 4),
        "noise": round(ratios["off"], 4),
        "ratio_of_least": round(least, 4),
        "studio_cpu_s": round(statistics.median(own), 2),
        "request_us": round(request_s * 1e6),
        "requested_share": round(request_s * REQUESTS_PER_S, 5),
    }
    if options.json:
        print(json.dumps(results))
    else:
        verdict = "ok" if ratios["watched"] <= BAR else "MISSED"
        print(f"{'collector alone':22} {results['rollouts_per_cpu_s']} rollouts per CPU second")
        print(f"{'noise':22} {ratios['off']:.4f}")
        print(f"{'CPU of the studio':22} {results['studio_cpu_s']} s")
        print(f"{'ratio of least CPU':22} {least:.4f}")
        print(
            f"{'CPU of a request':22} {request_s * 1e6:.0f} µs, {request_s * REQUESTS_PER_S:.3%} of a core when watched"
        )
        print(f"{'collector, watched':22} {ratios['watched']:.4f} (bar {BAR}): {verdict}")
    sys.exit(0 if ratios["watched"] <= BAR else 1)


if __name__ == "__main__":
    main()
