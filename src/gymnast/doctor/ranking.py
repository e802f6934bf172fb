"""Ranks findings: causes before symptoms, then by rollouts lost, confidence and weight. Lists what is ruled out.

Only a check that was made and passed, and that is named, rules something out: that nothing was seen is not a check. A
layer is cleared in the part that a check covers, and no further.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import Verdict
from gymnast.doctor.findings import Confidence
from gymnast.doctor.signatures import ROOT_WEIGHT
from gymnast.types.failure import FailureKind, Layer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.doctor.facts import Facts, RunFacts
    from gymnast.doctor.findings import Evidence, Finding

_CONFIDENCE_RANK: Final = {Confidence.HIGH: 2, Confidence.MEDIUM: 1, Confidence.LOW: 0}
_MAX_RULED_OUT: Final = 4


def rank(findings: list[Finding], facts: Facts) -> list[Finding]:
    """The findings, the most likely root cause first."""
    merged = _merge(findings)
    ids = {finding.id for finding in merged}
    explained = {name for finding in merged for name in finding.explains if name in ids and name != finding.id}
    charged = [_add_consequences(finding, merged) for finding in merged]
    order = sorted(charged, key=lambda finding: _sort_key(finding, explained))
    return [
        replace(finding, ruled_out=ruled_out(finding, facts), follows=_cause_of(finding, order)) for finding in order
    ]


def _cause_of(finding: Finding, order: list[Finding]) -> str:
    """The id of an earlier finding that explains this one, if any."""
    before = order[: order.index(finding)]
    return next((other.id for other in before if finding.id in other.explains), "")


def _merge(findings: list[Finding]) -> list[Finding]:
    """One finding per id, with the evidence of all rules that reported it."""
    by_id: dict[str, Finding] = {}
    for finding in findings:
        other = by_id.get(finding.id)
        if other is None:
            by_id[finding.id] = finding
            continue
        first, second = sorted(
            (finding, other), key=lambda same: (-same.lost, -_CONFIDENCE_RANK[same.confidence], -same.weight)
        )
        by_id[finding.id] = replace(
            first,
            evidence=_join_evidence(first.evidence, second.evidence),
            weight=max(first.weight, second.weight),
            affected=max(first.affected, second.affected),
            explains=first.explains | second.explains,
        )
    return list(by_id.values())


def _join_evidence(first: tuple[Evidence, ...], second: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """Both, without duplicate lines."""
    known = {(evidence.location, evidence.quote) for evidence in first if evidence.line is not None}
    new = (item for item in second if item not in first and (item.location, item.quote) not in known)
    return (*first, *new)


def _add_consequences(finding: Finding, others: list[Finding]) -> Finding:
    """Charge a cause with the losses of its consequences, except of symptoms, which may have several causes."""
    lost = max((other.lost for other in others if other.id in finding.explains and not other.is_symptom), default=0)
    return replace(finding, lost=max(finding.lost, lost))


def _sort_key(finding: Finding, explained: set[str]) -> tuple[bool, bool, int, bool, float, int, int, int]:
    is_root = finding.weight >= ROOT_WEIGHT
    return (
        finding.is_symptom,
        finding.id in explained,
        -finding.lost,
        not is_root,
        finding.order if is_root else 0.0,
        -_CONFIDENCE_RANK[finding.confidence],
        -finding.weight,
        -finding.affected,
    )


def ruled_out(finding: Finding, facts: Facts) -> tuple[str, ...]:
    """What checks clear."""
    return tuple(dict.fromkeys(str(part) for part in cleared_by_checks(facts, finding)))[:_MAX_RULED_OUT]


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
