"""Ranks findings: causes before symptoms, then by rollouts lost, confidence and weight. Lists what is ruled out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.doctor.cleared import cleared_by_checks
from gymnast.doctor.findings import Confidence
from gymnast.doctor.signatures import ROOT_WEIGHT

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts
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
