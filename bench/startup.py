"""How long things take to be there, and what they weigh: import, help, completion, `gymnast serve` with five servers.

    python bench/startup.py [--json]

The yardstick is the interpreter starting with asyncio imported, measured in the same run. Bars: `import gymnast` under
150 ms, help and a Tab under 1.6 yardsticks (100 ms on an idle machine, whose yardstick is about 60 ms), a five-server
serve ready under 2 s and under 200 MB resident.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

SERVE = [
    *(sys.executable, "-m", "gymnast.cli.main", "serve", "--json", "--head-port", "auto"),
    *("-e", "mcqa", "-e", "example_session_state_mgmt", "-c", "responses_api_models/scripted_model/configs/demo.yaml"),
]


def python_s(code: str, times: int = 5) -> float:
    """The median time of an interpreter that runs `code`."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def import_s(module: str, times: int = 5) -> float:
    """The median time of an import in a fresh interpreter, without the interpreter's own start."""
    code = f"import time; started = time.perf_counter(); import {module}; print(time.perf_counter() - started)"
    command = [sys.executable, "-c", code]
    return statistics.median(
        float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) for _ in range(times)
    )


def command_s(*words: str, times: int = 5) -> float:
    """The median time of a command."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "gymnast.cli.main", *words], check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def serve_once() -> tuple[float, float, int]:
    """Seconds until ready, resident megabytes, number of servers."""
    started = time.perf_counter()
    process = subprocess.Popen(SERVE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        data = json.loads(process.stdout.readline())
        ready_s = time.perf_counter() - started
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))
        return ready_s, resident, len(data["instances"])
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    python_s("import gymnast")  # warm the file cache
    yardstick = python_s("import asyncio")
    imported = import_s("gymnast")
    commands = {
        "gymnast --help": command_s("--help"),
        "gymnast --version": command_s("--version"),
        "gymnast collect --help": command_s("collect", "--help"),
        "a Tab after gymnast collect -e": command_s("__complete", "zsh", "collect", "-e", ""),
    }
    runs = sorted(serve_once() for _ in range(3))
    ready_s, resident, servers = runs[1]
    rows = [
        ("import gymnast", imported * 1000, "ms", imported / yardstick, "< 150 ms", imported < 0.15),
        *(
            (what, took * 1000, "ms", took / yardstick, "< 1.6 ×", took < 1.6 * yardstick)
            for what, took in commands.items()
        ),
        (f"serve of {servers} servers ready", ready_s, "s", ready_s / yardstick, "< 2 s", ready_s < 2),
        (f"serve of {servers} servers resident", resident, "MB", 0.0, "< 200 MB", resident < 200),
    ]
    if options.json:
        print(
            json.dumps([dict(zip(("what", "value", "unit", "ratio", "bar", "met"), row, strict=True)) for row in rows])
        )
        return
    print(f"yardstick: an interpreter with asyncio starts in {yardstick * 1000:.0f} ms")
    for what, value, unit, ratio, bar, met in rows:
        times = f"{ratio:6.1f} × yardstick" if ratio else ""
        print(f"{what:<32} {value:8.1f} {unit:<3} {times:<20} bar {bar:<9} {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
