"""Asks a verifier itself: does a correct answer, made from the row, get another reward than a wrong one?

This tells a broken verifier from a weak model. The question is asked in a child process, because it executes the
environment's code. Nothing is written.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S: Final = 60.0
_EXPECTED: Final = ("expected_answer", "answer", "ground_truth", "target", "solution", "label", "gold", "reference")
_NESTED: Final = ("verifier_metadata", "metadata", "extra_info", "reward_model", "info")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The rewards of a correct and a wrong answer, or why there are none."""

    right: float | None = None
    wrong: float | None = None
    problem: str = ""
    is_known_form: bool = False
    """The answer has a form that the environment's own cases have."""
    judge_error: str = ""
    """Why the environment's judge gave no verdict."""

    @property
    def tells_apart(self) -> bool:
        return self.right is not None and self.wrong is not None and self.right > self.wrong


def probe_verifier(implementation: str, settings: dict[str, Any], rows: Sequence[dict[str, Any]]) -> ProbeResult:
    """Probe an environment with some rows, in a child process."""
    request = orjson.dumps({"name": implementation, "settings": settings, "rows": list(rows)})
    command = [sys.executable, "-P", "-m", "gymnast.checks.verifier_probe_child"]  # -P: no modules of this folder
    try:
        completed = subprocess.run(  # noqa: S603 - our own module
            command, input=request, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return ProbeResult(
            problem=f"it did not end within {TIMEOUT_S:g} s"
            if isinstance(error, subprocess.TimeoutExpired)
            else str(error)
        )
    lines = completed.stdout.splitlines()
    try:
        return ProbeResult(**orjson.loads(lines[-1]))
    except (IndexError, TypeError, orjson.JSONDecodeError):
        last = completed.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return ProbeResult(problem=f"the environment could not be loaded: {' '.join(last)[:200]}")


def expected_of(row: dict[str, Any]) -> Any:
    """The expected answer in a row: under one of its usual names, directly or in the row's metadata."""
    blocks = (row, *(nested for name in _NESTED if isinstance(nested := row.get(name), dict)))
    for block in blocks:
        for name in _EXPECTED:
            if block.get(name) not in (None, "", [], {}):
                return block[name]
    return None
