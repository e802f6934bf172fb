"""How close adaptive concurrency comes to the best fixed setting, at an endpoint whose capacity it does not know.

    python bench/adaptive.py [--seconds 15] [--json]

The mock policy serves C requests at a time and lets C/4 more wait; the rest get a 429. Bars: at least 0.9 of the best
fixed setting's rollouts per second and at most 2% of the requests rejected, both once the first third is over.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from running import collecting, events, policy, row, stats

SERVICE_MS = 100.0
CAPACITIES = (24, 80, 200)
FIXED = (0.5, 0.75, 1.0, 1.25, 2.0)
"""Fixed settings that are tried, as multiples of the capacity."""
TASKS = 500


def main() -> None:
    """Measure each capacity and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = [measured(capacity, given.seconds) for capacity in CAPACITIES]
    if given.json:
        print(json.dumps(rows))
        return
    print(f"{'capacity':>8} {'best fixed':>18} {'adaptive':>10} {'ratio':>7} {'rejected after warm-up':>24}")
    for found in rows:
        best = f"{found['best_per_s']:.0f}/s at {found['best_setting']}"
        print(
            f"{found['capacity']:>8} {best:>18} {found['adaptive_per_s']:>8.0f}/s {found['ratio']:>7.2f}"
            f" {found['rejected_share']:>23.2%}"
        )


def measured(capacity: int, seconds: float) -> dict[str, Any]:
    """The best fixed setting and the adaptive one."""
    rollouts = int(capacity / (SERVICE_MS / 1000) * seconds)
    fixed = {int(capacity * share): one(capacity, rollouts // 3, int(capacity * share)) for share in FIXED}
    best = max(fixed, key=lambda setting: fixed[setting][0])
    per_s, rejected = one(capacity, rollouts, None)
    return {
        "capacity": capacity,
        "best_setting": best,
        "best_per_s": fixed[best][0],
        "adaptive_per_s": per_s,
        "ratio": per_s / fixed[best][0],
        "rejected_share": rejected,
    }


def one(capacity: int, rollouts: int, concurrency: int | None) -> tuple[float, float]:
    """Requests served per second and the share rejected, after the first third and before the last second."""
    repeats = max(1, rollouts // TASKS)
    limit = ("--concurrency", str(concurrency)) if concurrency else ()
    arguments = ("--capacity", str(capacity), "--service-ms", str(SERVICE_MS), "--queue", str(capacity // 4))
    with tempfile.TemporaryDirectory() as folder, policy(*arguments) as port:
        source = Path(folder) / "in.jsonl"
        source.write_text("".join(json.dumps(row(number)) + "\n" for number in range(TASKS)))
        with collecting(port, source, Path(folder) / "x.jsonl", "-n", str(repeats), *limit) as process:
            found = list(events(process))
        requests, rejected = stats(port)
    finished = found[-1]
    assert finished["scored"] == finished["requested"], finished
    busy = [second for second in sorted(requests) if requests[second] >= max(requests.values()) / 3]
    warm = busy[len(busy) // 3 : -1]
    asked, turned_away = sum(requests[second] for second in warm), sum(rejected.get(second, 0) for second in warm)
    return (asked - turned_away) / len(warm), turned_away / asked


if __name__ == "__main__":
    main()
