"""What several benches run beside themselves: the mock policy, and `gymnast collect` with its events."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OUR_CORE, POLICY_CORE = 0, 1
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@contextlib.contextmanager
def policy(*arguments: str) -> Iterator[int]:
    """The mock policy on its own core; yields its port."""
    command = [sys.executable, str(HERE / "mock_policy.py"), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, {POLICY_CORE} if (os.cpu_count() or 1) > 1 else {0})
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def collecting(port: int, source: Path, output: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`gymnast collect --json` of mcqa rows on our core."""
    command = [sys.executable, "-m", "gymnast.cli.main", "collect", "--json", "-e", "mcqa", "-m", "mock"]
    command += ["--model-url", f"http://127.0.0.1:{port}/v1", "-i", str(source), "-o", str(output), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    os.sched_setaffinity(process.pid, {OUR_CORE})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What a collection says as it happens."""
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def stats(port: int) -> tuple[dict[int, int], dict[int, int]]:
    """Requests and rejections of the mock policy, by second."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats") as answer:
        requests, rejected = json.load(answer)
    return {int(at): count for at, count in requests.items()}, {int(at): count for at, count in rejected.items()}


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Memory of a process: VmRSS now, VmHWM at most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"{pid} has no {field}")


def row(number: int, size_bytes: int = 0) -> dict[str, Any]:
    """A task of the mcqa environment, with a question as long as wanted."""
    question = f"Question {number}: which one? A: this B: that C: neither. " + "It is a long story. " * (
        size_bytes // 20
    )
    return {
        "responses_create_params": {"input": [{"role": "user", "content": question}]},
        "options": [{"A": "this"}, {"B": "that"}, {"C": "neither"}],
        "expected_answer": "ABC"[number % 3],
        "grading_mode": "lenient_boxed",
        "uuid": f"task-{number}",
    }


def write_into(page: Path, text: str) -> None:
    """Replace what stands between a page's two markers."""
    old = page.read_text()
    new, found = re.subn(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{text}\n{END}", old, flags=re.DOTALL)
    if found != 1:
        sys.exit(f"{page} has no place for figures: {BEGIN} … {END}")
    page.write_text(new)
