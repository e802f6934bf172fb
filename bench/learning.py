"""Does a policy learn through Gymnast? Three seeds of recipes/grpo_embedded.py, and a control that must not.

    .venv-train/bin/python bench/learning.py [--seeds 1 2 3] [--out runs/learning] [--write PAGE] [--json]

`make bench-learning` makes the environment and runs it; it takes about an hour on two cores. The control is the first
seed with rewards that are shuffled within every group. All curves go into one page, OUT/report.html. A training that
has ended is not run again, so a bench that was stopped goes on. Bars, for every seed within 20 minutes: held-out reward
rises by 0.25 and to 0.75; the control's stays within 0.1 of where it began.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from running import HERE, write_into

from gymnast.report.learning import Curve, Point, write_learning_report

RECIPE = HERE.parent / "recipes" / "grpo_embedded.py"
MINUTES, RISE, LEVEL, FLAT = 20.0, 0.25, 0.75, 0.1


def trained(out: Path, seed: int, *, control: bool = False) -> Curve:
    """The curve of one training, run now unless it has ended before."""
    folder = out / (f"seed-{seed}" + ("-shuffled" if control else ""))
    ended = folder / "ended"
    if not ended.exists():
        command = [sys.executable, str(RECIPE), "--seed", str(seed), "--minutes", str(MINUTES), "--out", str(folder)]
        subprocess.run([*command, *(["--shuffle-rewards"] if control else [])], check=True, stdout=sys.stderr)
        ended.touch()
    data = json.loads((folder / "curve.json").read_text())
    return Curve(data["name"], [Point(**point) for point in data["points"]])


def reached_min(curve: Curve) -> float | None:
    """When the policy was first measured above both bars, in minutes."""
    goal = max(LEVEL, curve.points[0].reward + RISE)
    return next((point.seconds / 60 for point in curve.points if point.reward >= goal), None)


def figures(curve: Curve) -> dict[str, Any]:
    first, last = curve.points[0], curve.points[-1]
    return {
        "name": curve.name,
        "first": round(first.reward, 3),
        "last": round(last.reward, 3),
        "steps": last.step,
        "minutes": round(last.seconds / 60, 1),
        "reached_min": None if (found := reached_min(curve)) is None else round(found, 1),
        "parts": {name: [round(first.parts[name], 3), round(last.parts[name], 3)] for name in sorted(last.parts)},
    }


def table(found: list[dict[str, Any]]) -> str:
    """The figures as a page shows them."""
    parts = sorted(found[0]["parts"])
    heads = ["training", "held-out reward", *parts, "steps", "minutes", "both bars after"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for one in found:
        by_part = ["{} → {}".format(*one["parts"][name]) for name in parts]
        reached = "never" if one["reached_min"] is None else f"{one['reached_min']} min"
        cells = [one["name"], f"{one['first']} → {one['last']}", *by_part, one["steps"], one["minutes"], reached]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Train, print, and say by the exit code whether the bars were met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    curves = [trained(given.out, seed) for seed in given.seeds]
    control = trained(given.out, given.seeds[0], control=True)
    note = "The control's rewards are shuffled within every group, so that they say nothing."
    write_learning_report("GRPO on the embedded policy", [*curves, control], given.out / "report.html", note=note)
    found = [figures(curve) for curve in [*curves, control]]
    print(json.dumps(found) if given.json else table(found))
    if given.write is not None:
        write_into(given.write, table(found))
    learnt = all((reached_min(curve) or MINUTES + 1) <= MINUTES for curve in curves)
    is_flat = abs(control.points[-1].reward - control.points[0].reward) < FLAT
    sys.exit(0 if learnt and is_flat else 1)


if __name__ == "__main__":
    main()
