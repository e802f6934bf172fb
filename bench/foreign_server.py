"""What an environment written for NeMo Gym costs beside the same one written for Gymnast, both in this process.

    python bench/foreign_server.py [--json]

The yardstick is a `/verify` call of the native environment, measured in the same run, both on bodies that are validated
where they enter. Bars: the foreign one costs at most 3 times as much; 20 foreign servers in one process are ready
within 3 times what a process takes to import the packages that each of them needs (FastAPI, aiohttp, OmegaConf), and
need less than 400 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from running import memory_mb

NATIVE = '''
"""Native."""

from gymnast.kit import Attempt, Environment, Task, Verdict


class City(Task):
    expected_city: str


class CityVerdict(Verdict):
    expected_city: str
    asked_for: str | None = None


class Desk(Environment[City, None]):
    async def verify(self, attempt: Attempt[City, None]) -> CityVerdict:
        words = attempt.text.split()
        said = words[-1] if words else None
        expected = attempt.task.expected_city
        return CityVerdict(reward=float(said == expected), expected_city=expected, asked_for=said)
'''
FOREIGN = '''
"""Foreign."""

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class CityVerifyRequest(BaseVerifyRequest):
    expected_city: str


class CityVerifyResponse(CityVerifyRequest, BaseVerifyResponse):
    asked_for: str | None = None


class Desk(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: CityVerifyRequest) -> CityVerifyResponse:
        words = body.response.output_text.split()
        said = words[-1] if words else None
        return CityVerifyResponse(**body.model_dump(), reward=float(said == body.expected_city), asked_for=said)


if __name__ == "__main__":
    Desk.run_webserver()
'''
STARTING = """
import asyncio, sys, time
from pathlib import Path
from gymnast.config import load_config, read_environ
from gymnast.runtime.cell import Cell, make_cell_options
from gymnast.runtime.listener import loop_factory

async def main():
    config = load_config(environ=read_environ(), initial=INITIAL, search_dirs=[Path(sys.argv[1])]).require_valid()
    async with Cell(list(config.instances.values()), make_cell_options(config, read_environ())) as cell:
        print(len(cell.instances), flush=True)
        sys.stdin.readline()

with asyncio.Runner(loop_factory=loop_factory()) as runner:
    runner.run(main())
"""
PACKAGES = "import aiohttp, fastapi, omegaconf, uvloop"
TEXT = "It is a long story, and in the end it was Oslo"
BODY = {
    "responses_create_params": {"input": [{"role": "user", "content": "Which city? " * 20}]},
    "expected_city": "Oslo",
    "response": {
        "id": "resp_1",
        "created_at": 1.0,
        "model": "m",
        "object": "response",
        "output": [
            {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm " * 100}]},
            {
                "id": "msg",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
            },
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    },
}


def block(implementation: str) -> dict[str, Any]:
    return {"resources_servers": {implementation: {"entrypoint": "app.py", "domain": "other"}}}


def checkout(folder: Path, names: list[str], text: str) -> None:
    for name in names:
        (folder / "resources_servers" / name).mkdir(parents=True, exist_ok=True)
        (folder / "resources_servers" / name / "app.py").write_text(text.lstrip())


async def call_costs(folder: Path) -> dict[str, float]:
    """CPU seconds of a verify call, the best of many rounds, by environment."""
    from gymnast.config import load_config, read_environ
    from gymnast.runtime.cell import Cell, make_cell_options
    from gymnast.wire.calls import Scope

    checkout(folder, ["native"], NATIVE)
    checkout(folder, ["foreign"], FOREIGN)
    initial = {name: block(name) for name in ("native", "foreign")}
    config = load_config(environ=read_environ(), initial=initial, search_dirs=[folder]).require_valid()
    best = dict.fromkeys(initial, 1.0)
    async with Cell(list(config.instances.values()), make_cell_options(config, read_environ())) as cell:
        for _ in range(60):
            for name in initial:
                assert (await cell.calls.call(name, "/verify", BODY, Scope())).body["reward"] == 1.0
                started = time.process_time()
                for _ in range(100):
                    await cell.calls.call(name, "/verify", BODY, Scope())
                best[name] = min(best[name], (time.process_time() - started) / 100)
    return best


def starting(folder: Path, count: int) -> tuple[float, float]:
    """Seconds from the start of a process until its foreign servers are ready, and its memory then."""
    names = [f"foreign_{number}" for number in range(count)]
    checkout(folder, names, FOREIGN)
    code = STARTING.replace("INITIAL", repr({name: block(name) for name in names}))
    started = time.perf_counter()
    words = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == count
        ready_s, size_mb = time.perf_counter() - started, memory_mb(process.pid)
        process.communicate("\n")
    return ready_s, size_mb


def importing_s() -> float:
    """Seconds that a process takes to import the packages of a foreign server."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", PACKAGES], check=True)
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        costs = asyncio.run(call_costs(Path(folder)))
        starting(Path(folder), 1)  # warm the file cache
        importing_s()
        rounds = [(importing_s(), *starting(Path(folder), 20)) for _ in range(5)]
    packages_s, ready_s, size_mb = (min(values) for values in zip(*rounds, strict=True))
    ratio = costs["foreign"] / costs["native"]
    rows = [
        ("verify, native", costs["native"] * 1e6, "µs", "yardstick", True),
        ("verify, foreign", costs["foreign"] * 1e6, "µs", f"< 3 ×: {ratio:.1f} ×", ratio <= 3),
        ("their packages imported", packages_s, "s", "yardstick", True),
        (
            "20 foreign servers ready",
            ready_s,
            "s",
            f"< 3 ×: {ready_s / packages_s:.1f} ×",
            ready_s < 3 * packages_s,
        ),
        ("20 foreign servers resident", size_mb, "MB", "< 400 MB", size_mb < 400),
    ]
    if options.json:
        print(json.dumps([dict(zip(("what", "value", "unit", "bar", "met"), row, strict=True)) for row in rows]))
        return
    for what, value, unit, bar, met in rows:
        print(f"{what:<32} {value:8.1f} {unit:<3} bar {bar:<16} {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
