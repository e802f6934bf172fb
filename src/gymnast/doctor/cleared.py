"""What a diagnosis rules out: only by a check that was made and passed, and that is named.

That nothing was seen is not a check. A layer is cleared in the part that a check covers, and no further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import Verdict
from gymnast.types.failure import FailureKind, Layer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.doctor.facts import Facts, RunFacts
    from gymnast.doctor.findings import Finding

_MIN_FREE_BYTES: Final = 1 << 30
_ROWS_REJECTED: Final = frozenset(
    {FailureKind.BAD_ROW, FailureKind.VERIFY_REJECTED, FailureKind.SEED_REJECTED, FailureKind.AGENT_REJECTED}
)
_SCORING: Final = ("verif", "judge", "seed", "tool", "session")


@dataclass(frozen=True, slots=True)
class Cleared:
    """A part of a layer, and the check that clears it."""

    layer: Layer
    claim: str
    check: str

    def __str__(self) -> str:
        return f"{self.layer.value}: {self.claim} (checked: {self.check})"


def cleared_by_checks(facts: Facts, finding: Finding) -> list[Cleared]:
    """The parts of other layers that checks clear."""
    return [part for part in _passed_checks(facts, finding) if part.layer is not finding.layer]


def _passed_checks(facts: Facts, finding: Finding) -> Iterator[Cleared]:
    job, run = facts.job, facts.run
    if job is not None and job.state == "COMPLETED" and job.exit_code in {"0:0", "0"}:
        yield Cleared(
            Layer.INFRA, f"job {job.id} ended normally", f"{job.source} says COMPLETED, exit code {job.exit_code}"
        )
    if facts.probes and all(probe.ok for probe in facts.probes):
        urls = ", ".join(probe.url for probe in facts.probes[:2])
        yield Cleared(Layer.MODEL_SERVING, "the endpoint can be reached now", f"GET {urls}")
    if run is not None:
        yield from _run_checks(run, finding)


def _run_checks(run: RunFacts, finding: Finding) -> Iterator[Cleared]:
    if run.source is not None and run.source.changed is False:
        yield Cleared(Layer.CACHE_RESUME, "the input file is unchanged", run.source.detail or run.source.path)
    if run.free_bytes is not None and run.free_bytes >= _MIN_FREE_BYTES and run.lost:
        yield Cleared(Layer.INFRA, "the output's disk is not full now", f"{run.free_bytes / 1e9:.0f} GB are free")
    yield from (
        Cleared(Layer.VERIFIER, f"the verifier of {study.environment} works", check.detail)
        for study in run.studies
        for check in study.checks
        if check.id == "verifier" and check.verdict is Verdict.PASSED
    )
    if finding.lost:
        yield from _failure_checks(run)


def _failure_checks(run: RunFacts) -> Iterator[Cleared]:
    """Layers in which no lost rollout failed. Only if every lost rollout has a record that says where it did."""
    if run.unexplained or not run.scored:
        return
    kinds = {group.kind for group in run.failures if group.lost}
    records = f"the failure records of all {run.lost} lost rollouts"
    if not any(kind.startswith("model_") for kind in kinds) and FailureKind.JUDGE_FAILED not in kinds:
        yield Cleared(Layer.MODEL_SERVING, "no rollout was lost in a model call", records)
    if not any(kind.startswith(_SCORING) for kind in kinds):
        yield Cleared(Layer.VERIFIER, "no rollout was lost in the environment", records)
    if not kinds & _ROWS_REJECTED:
        yield Cleared(Layer.DATA_SCHEMA, "no row was rejected", records)
