"""Our commands as processes: run to their end, or serving until the test is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
DEMO_POLICY = "responses_api_models/scripted_model/configs/demo.yaml"
SCRIPTED = "responses_api_models/scripted_model/configs/scripted_model.yaml"


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Served:
    """A running `gymnast serve`."""

    process: subprocess.Popen[str]
    head: str
    token: str | None
    instances: list[dict[str, Any]]
    talk: Path
    """What it said on standard error."""

    def url(self, name: str) -> str:
        return next(str(row["url"]) for row in self.instances if row["process_name"] == name)

    def pid(self, name: str) -> int:
        return next(int(row["pid"]) for row in self.instances if row["process_name"] == name)


@contextmanager
def serving(
    folder: Path, *arguments: str, head_port: str = "auto", env: dict[str, str] | None = None
) -> Iterator[Served]:
    """`gymnast serve` in a process of its own, ready; stopped afterwards."""
    talk = folder / f"serve-{len(list(folder.glob('serve-*.err')))}.err"
    with talk.open("w") as errors:
        process = subprocess.Popen(
            [str(BIN / "gymnast"), "serve", "--json", "--head-port", head_port, *arguments],
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, talk.read_text()
        data = json.loads(line)
        yield Served(process, data["head"], data["token"], data["instances"], talk)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def run_command(
    folder: Path, command: str, *arguments: str, env: dict[str, str] | None = None, timeout_s: float = 600
) -> Outcome:
    """One of our commands, to its end."""
    done = subprocess.run(
        [str(BIN / command), *arguments],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


_HOLD = """
import sys, time
from pathlib import Path
from gymnast.store.lock import RunLock

with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holding_lock(path: Path) -> subprocess.Popen[str]:
    """Another process that holds a run's lock."""
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process
