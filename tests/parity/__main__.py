"""Compare Gymnast's environments with a checkout of NeMo Gym on generated replies.

    python -m tests.parity CHECKOUT --python PYTHON [--environments mcqa ruler] [--minutes 60] [--json out.json]

PYTHON is an interpreter with NeMo Gym's packages and those of the servers. A file that exists is continued. The exit
code is 1 if a difference was found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from pathlib import Path

from tests.parity.results import Results, add_counts, as_table
from tests.parity.run import Plan, replay, run
from tests.parity.seeds import ENVIRONMENTS


def main() -> int:
    """Run, or replay, and print the table."""
    options = _parse()
    results = Results.load(options.json)
    seed = options.seed if options.seed is not None else results.seed or random.SystemRandom().getrandbits(32)
    plan = Plan(
        options.checkout.resolve(),
        options.python,
        options.environments,
        options.minutes,
        seed,
        options.slice,
        rows=options.rows,
    )
    if options.replay:
        results.differences = asyncio.run(replay(plan, results, say))
        results.save(options.json)
        sys.stdout.write(f"{len(results.differences)} still differ\n")
        return 1 if results.differences else 0
    if options.write is not None:
        known = json.loads(options.write.read_text()) if options.write.exists() else {}
        options.write.write_text(json.dumps(add_counts(known, results), indent=1) + "\n")
        return 0
    say(f"seed {seed}")
    asyncio.run(run(plan, results, lambda: results.save(options.json), say))
    minutes = f"{results.wall_s / 60:.1f} minutes, {results.cpu_s / 60:.1f} of CPU"
    sys.stdout.write(f"{as_table(results)}\n{minutes}; differences are in {options.json}\n")
    return 1 if results.differences else 0


def say(line: str) -> None:
    """Progress, apart from the results."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, help="a checkout of NeMo Gym")
    parser.add_argument("--python", default="python3", help="an interpreter with its packages")
    parser.add_argument("--environments", nargs="+", default=ENVIRONMENTS, choices=ENVIRONMENTS, metavar="NAME")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--slice", type=float, default=60.0, help="seconds for each environment before the next one")
    parser.add_argument("--seed", type=int, help="of the generated requests; by default the file's, or a new one")
    parser.add_argument("--json", type=Path, default=Path(".parity.json"), help="the results; continued if it exists")
    parser.add_argument("--rows", type=Path, metavar="FOLDER", help="more rows to start from, as ENVIRONMENT.jsonl")
    parser.add_argument(
        "--replay", action="store_true", help="score the kept differences again, and keep those that remain"
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="add the counts to those in FILE, for the docs, and compare nothing"
    )
    return parser.parse_args()


if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:  # sets have the same order on both sides
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.parity", *sys.argv[1:]])
    sys.exit(main())
