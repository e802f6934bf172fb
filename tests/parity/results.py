"""What a run has found so far: counts for each environment, and every difference. A file from which a run goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel

from tests.parity.compare import Comparison, Kind

_MAX_EXAMPLES = 25
"""Differences with the same signature that are kept."""


class Tally(BaseModel):
    """The counts of an environment."""

    next: int = 0
    """The number of the next request."""
    compared: int = 0
    equal: int = 0
    by_design: dict[str, int] = {}
    refused: int = 0
    different: int = 0
    strict_compared: int = 0
    strict_other_reward: int = 0

    def count(self, comparison: Comparison) -> None:
        """Count a comparison."""
        self.next += 1
        if comparison.kind is Kind.REFUSED:
            self.refused += 1
            return
        self.compared += 1
        if comparison.kind is Kind.EQUAL:
            self.equal += 1
        elif comparison.rule is not None:
            self.by_design[comparison.rule] = self.by_design.get(comparison.rule, 0) + 1
        else:
            self.different += 1


class Difference(BaseModel):
    """A request on which both sides differ, as small as it could be made."""

    environment: str
    number: int
    signature: str
    request: dict[str, Any]
    fields: dict[str, tuple[Any, Any]]
    """The values of the original and ours."""


class Results(BaseModel):
    """A run over several environments."""

    commit: str = ""
    seed: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    environments: dict[str, Tally] = {}
    differences: list[Difference] = []

    @classmethod
    def load(cls, path: Path) -> Self:
        """What a file has, or nothing yet."""
        return cls.model_validate_json(path.read_bytes()) if path.exists() else cls()

    def save(self, path: Path) -> None:
        """Written to another name, then moved."""
        part = path.with_suffix(".part")
        part.write_text(self.model_dump_json(indent=1))
        part.replace(path)

    def tally(self, environment: str) -> Tally:
        """The counts of an environment."""
        return self.environments.setdefault(environment, Tally())

    def wants(self, environment: str, signature: str) -> bool:
        """Whether another difference of this kind is worth keeping."""
        alike = [one for one in self.differences if (one.environment, one.signature) == (environment, signature)]
        return len(alike) < _MAX_EXAMPLES


def as_table(results: Results) -> str:
    """The counts as text."""
    lines = [f"{'environment':<46}{'compared':>9}{'equal':>9}{'by design':>10}{'refused':>9}{'differing':>10}"]
    for name, tally in sorted(results.environments.items()):
        designed = sum(tally.by_design.values())
        lines.append(
            f"{name:<46}{tally.compared:>9,}{tally.equal:>9,}{designed:>10,}{tally.refused:>9,}{tally.different:>10,}"
        )
    return "\n".join(lines)


def add_counts(counts: dict[str, Any], results: Results) -> dict[str, Any]:
    """The counts of docs/data/scoring_comparison.json with those of a run, in the place of a run of the same seed.

    What still differs is what is left after a replay.
    """
    left = Counter(one.environment for one in results.differences)
    environments = {
        name: {**tally.model_dump(exclude={"next"}), "differing": left[name]}
        for name, tally in sorted(results.environments.items())
        if tally.next
    }
    run = {"seed": results.seed, "cpu_minutes": round(results.cpu_s / 60, 1), "environments": environments}
    others = [other for other in counts.get("runs", []) if other["seed"] != results.seed]
    return {"commit": results.commit, "runs": [*others, run]}
