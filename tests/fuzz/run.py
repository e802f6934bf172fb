"""Fuzzes parsers for a while: `python -m tests.fuzz.run SECONDS [TARGET …]`. Findings are kept in `.fuzz/`.

Inputs that once were findings, and those that reached `tests/fuzz/corpus`, are tried first.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS, FuzzTarget

KEPT: Final = Path(".fuzz")
CORPUS: Final = Path(__file__).parent / "corpus"


def attempt(target: FuzzTarget, data: bytes) -> Exception | None:
    """What the parser raised although it must not; None if all is well."""
    try:
        target.parse(data)
    except target.refusals:
        return None
    except Exception as error:
        return error
    return None


def corpus_of(name: str) -> list[bytes]:
    """Inputs that are tried first."""
    files = [path for folder in (CORPUS, KEPT) for path in sorted((folder / name.replace(" ", "_")).glob("*"))]
    return [path.read_bytes() for path in files]


def fuzz(name: str, seconds: float, chance: random.Random) -> tuple[int, set[str]]:
    """The number of inputs tried, and the findings: where each was raised."""
    target, findings, count = TARGETS[name], set[str](), 0
    first = corpus_of(name)
    deadline = time.monotonic() + seconds
    while first or time.monotonic() < deadline:
        data = first.pop() if first else mutate(chance.choice(target.seeds), chance)
        error = attempt(target, data)
        count += 1
        if error is not None:
            place = traceback.extract_tb(error.__traceback__)[-1]
            finding = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
            if finding not in findings:
                findings.add(finding)
                folder = KEPT / name.replace(" ", "_")
                folder.mkdir(parents=True, exist_ok=True)
                (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    return count, findings


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    names = sys.argv[2:] or list(TARGETS)
    seed = random.SystemRandom().getrandbits(32)
    sys.stdout.write(f"seed {seed}\n")
    total = 0
    for name in names:
        count, findings = fuzz(name, seconds / len(names), random.Random(seed))
        total += len(findings)
        sys.stdout.write(f"{name}: {count} inputs, {len(findings)} findings\n")
        sys.stdout.writelines(f"  {finding}\n" for finding in sorted(findings))
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
