"""What `--track` and `--trace` cost: CPU of a collection with and without, alternated in the same run.

    python bench/tracking.py [--rollouts 15000] [--rounds 5] [--with wandb] [--json]

Each collection runs mcqa in one process on one core, with the mock policy on the other. Its CPU time, user and system,
counts between the first and the last rollout; that of trackers' processes is measured apart, because they use other
cores and most of it is their start. "off" runs twice a round: the ratio is to the mean of both, and theirs shows the
noise. Medians over rounds, and the ratio of the least CPU times.
Bars: trackers <= 1.02 (the run's process), traces of 1% <= 1.03, at 3,000 rollouts a second of CPU time.
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

BARS = {"track": 1.02, "trace": 1.03}
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

    kind = spec["kind"]
    track = [spec["tracker"]] if kind == "track" else None
    trace = spec["collector"] if kind == "trace" else None
    with tempfile.TemporaryDirectory() as folder, open_telemetry(track, trace, 0.01, logging.warning) as telemetry:
        options = RunOptions(
            source=Path(spec["tasks"]),
            output=Path(folder) / "x.jsonl",
            plan=PlanOptions(agent="mcqa_simple_agent", repeats=spec["rollouts"] // TASKS),
            engine=EngineOptions(CONCURRENCY),
            aggregate=False,
        )
        observer = RunObserver(listen)
        if telemetry is not None:
            observer = RunObserver(listen, watch=lambda engine, _: telemetry.watch(engine), tracer=telemetry.tracer)
        finished = uvloop.run(collect_run(options, config, read_environ(), observer))
        assert finished.scored == spec["rollouts"], finished
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {**clock, "children": children.ru_utime + children.ru_stime}


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
    kinds = ("off", "track", "trace", "off again")
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
    cpu = {kind: [each["cpu"] for each in found[kind]] for kind in kinds}
    without = [(first + second) / 2 for first, second in zip(cpu["off"], cpu["off again"], strict=True)]
    cpu_s = {kind: statistics.median(cpu[kind]) for kind in kinds}
    rows = [
        {
            "kind": kind,
            "rollouts_per_cpu_s": round(options.rollouts / cpu_s[kind]),
            "cpu_us": round(cpu_s[kind] / options.rollouts * 1e6, 1),
            "ratio": round(statistics.median(map(operator.truediv, cpu[kind], without)), 4),
            "least": round(min(cpu[kind]) / min(cpu["off"] + cpu["off again"]), 4),
            "process_of_tracker_s": round(statistics.median(each["children"] for each in found[kind]), 2),
            "bar": BARS.get(kind),
        }
        for kind in kinds
    ]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(
        f"{'':<12} {'rollouts/CPU s':>14} {'CPU us each':>12} {'ratio':>7} {'of least':>9} {'tracker process':>16}  bar"
    )
    for row in rows:
        bar = "" if row["bar"] is None else f"<= {row['bar']} " + ("met" if row["ratio"] <= row["bar"] else "MISSED")
        print(
            f"{row['kind']:<12} {row['rollouts_per_cpu_s']:>14} {row['cpu_us']:>12} {row['ratio']:>7.4f} "
            f"{row['least']:>9.4f} {row['process_of_tracker_s']:>14.2f} s  {bar}"
        )


if __name__ == "__main__":
    main()
