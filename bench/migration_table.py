"""What a switch from NeMo Gym changes in cost: our figures measured now, beside what is known of the incumbent's.

    python bench/migration_table.py [--write docs/how-to/migrate-from-nemo-gym.md] [--json] [--only KEY …]

Whole commands are measured from outside: wall time, CPU of the process and its children, peak memory. The incumbent's
column is quoted from bench/incumbent.json, with its source. With --write, the table between the page's two markers is
replaced. The last column says how many times better the first figure of a cell is, and the CPU time, which a busy
machine distorts less; it is empty where the two did not do the same work.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from running import memory_mb, policy, row, write_into

from gymnast.config.roots import BUILTIN

HERE = Path(__file__).parent
COLLECT = [sys.executable, "-m", "gymnast.cli.main", "collect", "--json"]
DEMO = ["-c", "responses_api_models/scripted_model/configs/demo.yaml"]


@dataclass(frozen=True)
class Cost:
    """A command, run to its end."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    out: str
    code: int


@dataclass(frozen=True)
class Ours:
    """One of our cells: words for people, and the figure to compare."""

    said: str
    value: float | None = None
    cpu_ms: float | None = None


def timed(command: list[str]) -> Cost:
    """Run a command; what it took, whatever its exit code."""
    started = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    cpu_s = usage.ru_utime + usage.ru_stime
    return Cost(wall_s, cpu_s, usage.ru_maxrss / 1024, text, process.returncode)


class Measuring:
    """All measurements, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def mcqa_64(self) -> Ours:
        return self._rollouts("mcqa", 2000, 64)

    def mcqa_1024(self) -> Ours:
        return self._rollouts("mcqa", 2000, 1024)

    def multi_step(self) -> Ours:
        return self._rollouts("example_session_state_mgmt", 500, 64, tool_calls=3)

    def workplace(self) -> Ours:
        found = self._rollouts("workplace_assistant", 300, 64)
        return Ours(f"{found.said} (one model call each; how many there is not known)")

    def _rollouts(self, environment: str, rollouts: int, concurrency: int, tool_calls: int = 0) -> Ours:
        source = BUILTIN / "resources_servers" / environment / "data" / "example.jsonl"
        repeats = rollouts // sum(1 for _ in source.open("rb"))
        with policy("--tool-calls", str(tool_calls)) as port:
            words = ["-e", environment, "-m", "mock", "--model-url", f"http://127.0.0.1:{port}/v1"]
            words += ["-i", str(source), "-n", str(repeats), "--concurrency", str(concurrency), "--disable-aggregation"]
            cost = timed([*COLLECT, *words, "-o", str(self._output())])
        finished = self._finished(cost)
        per_second = finished["scored"] / finished["seconds"]
        per_rollout_ms = 1000 * cost.cpu_s / finished["scored"]
        return Ours(
            f"{per_second:,.0f} rollouts/s, {per_rollout_ms:.1f} ms CPU per rollout", per_second, per_rollout_ms
        )

    def one_rollout(self) -> Ours:
        source = BUILTIN / "resources_servers" / "mcqa" / "data" / "example.jsonl"
        cost = timed([*COLLECT, "-e", "mcqa", *DEMO, "-i", str(source), "--limit", "1", "-o", str(self._output())])
        self._finished(cost)
        return Ours(f"{cost.wall_s:.1f} s for the whole command", cost.wall_s)

    def aggregate(self) -> Ours:
        output = self._run(tasks=2000, repeats=1)
        words = ["ng_aggregate_rollouts", f"+input_glob='{output}'", f"+output_jsonl_fpath='{self._output()}'"]
        paths = f"+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,{DEMO[1]}]"
        cost = timed([sys.executable, "-m", "gymnast.compat", *words, paths])
        assert cost.code == 0, cost
        return Ours(f"{cost.wall_s:.1f} s for the whole command", cost.wall_s)

    def serve(self) -> Ours:
        command = [
            sys.executable,
            "-m",
            "gymnast.cli.main",
            "serve",
            "--json",
            "--head-port",
            "auto",
            "-e",
            "mcqa",
            *DEMO,
        ]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            data = json.loads(process.stdout.readline())
            ready_s = time.perf_counter() - started
            assert len(data["instances"]) == 3
            resident = memory_mb(process.pid)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        finally:
            process.terminate()
            process.wait()
        processes = 1 + len(children)
        shown = f"{processes} process" + ("es" if processes > 1 else "")
        return Ours(f"{ready_s:.1f} s to ready, {shown}, {resident:.0f} MB resident", ready_s)

    def profile(self) -> Ours:
        cost = timed([sys.executable, "-m", "gymnast.cli.main", "profile", str(self._large())])
        assert cost.code == 0, cost
        return Ours(f"{cost.wall_s:.1f} s, {cost.peak_mb:.0f} MB", cost.wall_s)

    def resume(self) -> Ours:
        output = self._large()
        lines = output.read_bytes().splitlines(keepends=True)
        output.write_bytes(b"".join(lines[:-1]))  # one rollout is owed
        source = output.with_name("large_in.jsonl")
        words = ["-e", "mcqa", *DEMO, "-i", str(source), "-n", "16", "--disable-aggregation", "--resume"]
        cost = timed([*COLLECT, *words, "-o", str(output)])
        self._finished(cost)
        return Ours(f"{cost.wall_s:.1f} s, {cost.peak_mb:.0f} MB", cost.wall_s)

    def refused(self) -> Ours:
        bad = {"grading_mode": "no_such_mode"}
        rows = [{**row(number, 500), **(bad if number % 4 == 3 else {})} for number in range(40)]
        source = self._folder / "refused.jsonl"
        source.write_text("".join(json.dumps(one) + "\n" for one in rows))
        output = self._output()
        cost = timed([*COLLECT, "-e", "mcqa", *DEMO, "-i", str(source), "-o", str(output)])
        scored = json.loads(cost.out.splitlines()[-1])["scored"]
        failures = len(output.with_name(f"{output.stem}_failures.jsonl").read_bytes().splitlines())
        return Ours(f"runs to its end: {scored} scored, {failures} failure records, exit code {cost.code}")

    def _large(self) -> Path:
        """20,000 finished rollouts of 1,250 tasks, made once."""
        output = self._folder / "large.jsonl"
        return output if output.exists() else self._run(tasks=1250, repeats=16, output=output)

    def _run(self, tasks: int, repeats: int, output: Path | None = None) -> Path:
        """A finished run with rows of 3.3 KB."""
        output = output or self._output()
        source = output.with_name(f"{output.stem}_in.jsonl")
        source.write_text("".join(json.dumps(row(task, 1500)) + "\n" for task in range(tasks)))
        words = ["-e", "mcqa", *DEMO, "-i", str(source), "-n", str(repeats), "--disable-aggregation"]
        self._finished(timed([*COLLECT, *words, "-o", str(output)]))
        return output

    def _output(self) -> Path:
        return self._folder / f"x{len(list(self._folder.iterdir()))}.jsonl"

    def _finished(self, cost: Cost) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(cost.out.splitlines()[-1])
        assert cost.code == 0, data
        return data


def table(incumbent: dict[str, Any], ours: dict[str, Ours]) -> str:
    """The figures as a page shows them."""
    lines = ["| work | NeMo Gym 0.5.1 (quoted) | Gymnast (measured) | times better |", "|---|---|---|---|"]
    for entry in incumbent["rows"]:
        found = ours.get(entry["key"])
        if found is not None:
            lines.append(f"| {entry['work']} | {entry['said']} | {found.said} | {_times(entry, found)} |")
    return "\n".join([*lines, "", incumbent["source"]])


def _times(entry: dict[str, Any], found: Ours) -> str:
    if found.value is None or "value" not in entry:
        return ""
    ratio = found.value / entry["value"] if entry["better"] == "more" else entry["value"] / found.value
    in_cpu = f" (CPU {entry['cpu_ms'] / found.cpu_ms:,.0f})" if "cpu_ms" in entry and found.cpu_ms else ""
    return f"{ratio:,.0f}{in_cpu}"


def main() -> None:
    """Measure and print, or write."""
    incumbent = json.loads((HERE / "incumbent.json").read_text())
    keys = [entry["key"] for entry in incumbent["rows"]]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="*", choices=keys)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measuring = Measuring(Path(folder))
        work: dict[str, Callable[[], Ours]] = {key: getattr(measuring, key) for key in keys}
        ours = {key: work[key]() for key in given.only or keys}
    if given.json:
        print(json.dumps({key: found.__dict__ for key, found in ours.items()}))
        return
    text = table(incumbent, ours)
    print(text)
    if given.write is not None:
        write_into(given.write, text)


if __name__ == "__main__":
    main()
