"""What `--track` and `--trace` cost: CPU of a collection with and without, alternated in the same run.

    python bench/tracking.py [--rollouts 15000] [--rounds 5] [--with wandb] [--json]

Each collection runs mcqa in one process on one core, with the mock policy on the other. Its CPU time, user and system,
counts between the first and the last rollout; that of trackers' processes is measured apart, because they use other
cores and most of it is their start.

Whole runs differ by several percent from one to the next, more than the bars. So the shares come from clocks that see
nothing else: for trackers, the CPU clock of their thread and that of every sample in the event loop; for traces, the
clock of the exporter's thread, the choice of the rollouts, and a hundredth of what tracing all rollouts adds to the
others' CPU. The ratios of whole runs are printed next to them: "off" runs twice a round, the ratio is to the mean of
both, and theirs shows the noise.
Bars: trackers <= 2% (the run's process), traces of 1% <= 3%, at 3,000 rollouts a second of CPU time.
"""

from __future__ import annotations

import argparse
import json
import logging
import operator
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from running import OUR_CORE, POLICY_CORE, policy
from running import row as make_row

BARS = {"track": 0.02, "trace": 0.03}
SHARES = {"trace": 0.01, "trace all": 1.0}
THREADS = {"trackers", "span-exporter"}
TASKS = 100
CONCURRENCY = 256


def collect(spec: dict[str, Any]) -> dict[str, float]:
    """One collection in this process, as `gymnast collect` runs it."""
    import uvloop

    from gymnast.config import load_config, read_environ
    from gymnast.rollouts.engine import EngineOptions
    from gymnast.rollouts.observer import RunObserver
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.plan import PlanOptions
    from gymnast.rollouts.run import collect_run
    from gymnast.tracking.telemetry import open_telemetry
    from gymnast.types.events import RunFinished, RunStarted

    config_files = "resources_servers/mcqa/configs/mcqa.yaml,responses_api_models/vllm_model/configs/vllm_model.yaml"
    overrides = [
        f"+config_paths=[{config_files}]",
        f"+policy_base_url=http://127.0.0.1:{spec['port']}/v1",
        "+policy_api_key=key",
        "+policy_model_name=mock",
        "+model_endpoint_readiness_timeout_seconds=0",
    ]
    config = load_config(overrides, environ=read_environ()).require_valid()
    clock: dict[str, float] = {}

    def listen(event: Any) -> None:
        if isinstance(event, RunStarted):
            clock["cpu"], clock["wall"] = time.process_time(), time.monotonic()
        elif isinstance(event, RunFinished):
            clock["cpu"], clock["wall"] = time.process_time() - clock["cpu"], time.monotonic() - clock["wall"]
            clock["threads"] = sum(map(thread_cpu_s, threading.enumerate()))

    kind = spec["kind"]
    track = [spec["tracker"]] if kind == "track" else None
    trace, share = (spec["collector"], SHARES[kind]) if kind in SHARES else (None, 0.0)
    with tempfile.TemporaryDirectory() as folder, open_telemetry(track, trace, share, logging.warning) as telemetry:
        options = RunOptions(
            source=Path(spec["tasks"]),
            output=Path(folder) / "x.jsonl",
            plan=PlanOptions(agent="mcqa_simple_agent", repeats=spec["rollouts"] // TASKS),
            engine=EngineOptions(CONCURRENCY),
            aggregate=False,
        )
        observer = RunObserver(listen)
        if telemetry is not None:
            if telemetry.tracking is not None:
                telemetry.tracking = clocked(telemetry.tracking, clock)
            observer = RunObserver(listen, watch=lambda engine, _: telemetry.watch(engine), tracer=telemetry.tracer)
        finished = uvloop.run(collect_run(options, config, read_environ(), observer))
        assert finished.scored == spec["rollouts"], finished
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {**clock, "children": children.ru_utime + children.ru_stime}


def thread_cpu_s(thread: threading.Thread) -> float:
    """The CPU time of a thread of trackers or traces."""
    if thread.name not in THREADS or thread.ident is None:
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def clocked(tracking: Any, clock: dict[str, float]) -> Any:
    """The same tracking, with the CPU time that it takes in the event loop added to `clock["loop"]`."""
    clock["loop"] = 0.0

    def timed(call: Any) -> Any:
        def wrapper(*arguments: Any) -> Any:
            started = time.thread_time()
            try:
                return call(*arguments)
            finally:
                clock["loop"] += time.thread_time() - started

        return wrapper

    for name in ("_start", "_point"):
        setattr(tracking, name, timed(getattr(tracking, name)))
    return tracking


def sampling_cpu_s(rollouts: int) -> float:
    """What the choice of the traced rollouts takes."""
    from gymnast.types.span import TraceIds
    from gymnast.types.task import RolloutKey

    ids = TraceIds("run", SHARES["trace"])
    keys = [RolloutKey(number // TASKS, number % TASKS) for number in range(rollouts)]
    started = time.thread_time()
    for key in keys:
        ids.sampled_id(key)
    return time.thread_time() - started


class _Sink(BaseHTTPRequestHandler):
    """A collector that accepts everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def measure(spec: dict[str, Any]) -> dict[str, float]:
    """One collection in a fresh process on our core."""
    command = [sys.executable, __file__, "--child", json.dumps(spec)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    os.sched_setaffinity(process.pid, {OUR_CORE})
    measured: dict[str, float] = json.loads(process.communicate()[0].splitlines()[-1])
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=15_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--with", dest="tracker", default="tensorboard")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(collect(json.loads(options.child))))
        return
    sink = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    os.sched_setaffinity(0, {POLICY_CORE} if (os.cpu_count() or 1) > 1 else {0})
    kinds = ("off", "track", "trace", "trace all", "off again")
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder, policy() as port:
        tasks = Path(folder) / "tasks.jsonl"
        tasks.write_text("".join(json.dumps(make_row(number)) + "\n" for number in range(TASKS)))
        spec = {
            "port": port,
            "tasks": str(tasks),
            "rollouts": options.rollouts,
            "tracker": options.tracker,
            "collector": f"http://127.0.0.1:{sink.server_address[1]}",
        }
        for number in range(options.rounds):
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                found[kind].append(measure({**spec, "kind": kind}))
    sink.shutdown()
    rows = summarize(found, options.rollouts)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':<10} {'rollouts/CPU s':>14} {'CPU us each':>12} {'ratio':>7} {'own share':>10} {'of tracker':>16}  bar")
    for row in rows:
        share, bar = row["share"], row["bar"]
        verdict = "" if bar is None else f"<= {bar:.0%} " + ("met" if share <= bar else "MISSED")
        shown = "" if share is None else f"{share:.2%}"
        print(
            f"{row['kind']:<10} {row['rollouts_per_cpu_s']:>14} {row['cpu_us']:>12} {row['ratio']:>7.4f} {shown:>10} "
            f"{row['process_of_tracker_s']:>14.2f} s  {verdict}"
        )


def summarize(found: dict[str, list[dict[str, float]]], rollouts: int) -> list[dict[str, Any]]:
    """A row for each kind of run."""
    cpu = {kind: [each["cpu"] for each in runs] for kind, runs in found.items()}
    without = [(first + second) / 2 for first, second in zip(cpu["off"], cpu["off again"], strict=True)]
    shares = own_shares(found, statistics.median(without), rollouts)
    rows = []
    for kind, runs in found.items():
        cpu_s = statistics.median(cpu[kind])
        rows.append(
            {
                "kind": kind,
                "rollouts_per_cpu_s": round(rollouts / cpu_s),
                "cpu_us": round(cpu_s / rollouts * 1e6, 1),
                "ratio": round(statistics.median(map(operator.truediv, cpu[kind], without)), 4),
                "share": shares.get(kind),
                "process_of_tracker_s": round(statistics.median(each["children"] for each in runs), 2),
                "bar": BARS.get(kind),
            }
        )
    return rows


def own_shares(found: dict[str, list[dict[str, float]]], off_s: float, rollouts: int) -> dict[str, float]:
    """What trackers and traces take themselves, as a share of a run's CPU without them."""
    track_s = statistics.median(each["threads"] + each["loop"] for each in found["track"])
    exporter_s = statistics.median(each["threads"] for each in found["trace"])
    all_s = statistics.median(each["cpu"] - each["threads"] for each in found["trace all"])
    in_loop_s = max(0.0, all_s - off_s) * SHARES["trace"]
    sampling_s = min(sampling_cpu_s(rollouts) for _ in range(3))
    return {"track": track_s / off_s, "trace": (exporter_s + in_loop_s + sampling_s) / off_s}


if __name__ == "__main__":
    main()
