"""Which finding goes first: causes before symptoms, then rollouts lost, confidence, weight. And what is ruled out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts
    from gymnast.doctor.findings import Evidence, Finding

_CERTAINTY: Final = {Confidence.HIGH: 2, Confidence.MEDIUM: 1, Confidence.LOW: 0}
_MOST_RULED_OUT: Final = 6


def ranked(found: list[Finding], facts: Facts) -> list[Finding]:
    """The findings in the order in which to look at them, the first being the answer."""
    merged = _merged(found)
    ids = {finding.id for finding in merged}
    explained = {name for finding in merged for name in finding.explains if name in ids and name != finding.id}
    credited = [_credited(finding, merged) for finding in merged]
    order = sorted(credited, key=lambda finding: _place(finding, explained))
    return [
        replace(finding, ruled_out=ruled_out(finding, facts), follows=_cause_of(finding, order)) for finding in order
    ]


def _cause_of(finding: Finding, order: list[Finding]) -> str:
    """The finding before this one that explains it, if there is one."""
    before = order[: order.index(finding)]
    return next((other.id for other in before if finding.id in other.explains), "")


def _merged(found: list[Finding]) -> list[Finding]:
    """One finding for each id: what several rules say of one thing counts once, with all the evidence."""
    by_id: dict[str, Finding] = {}
    for finding in found:
        other = by_id.get(finding.id)
        if other is None:
            by_id[finding.id] = finding
            continue
        first, second = sorted((finding, other), key=lambda one: (-one.lost, -_CERTAINTY[one.confidence], -one.weight))
        by_id[finding.id] = replace(
            first,
            evidence=_together(first.evidence, second.evidence),
            weight=max(first.weight, second.weight),
            affected=max(first.affected, second.affected),
            explains=first.explains | second.explains,
        )
    return list(by_id.values())


def _together(first: tuple[Evidence, ...], second: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """Both, a line of a file only once."""
    seen = {(shown.place, shown.quote) for shown in first if shown.line is not None}
    return (*first, *(shown for shown in second if shown not in first and (shown.place, shown.quote) not in seen))


def _credited(finding: Finding, others: list[Finding]) -> Finding:
    """A cause is charged with what its consequences cost. A symptom's loss may have several causes: it is nobody's."""
    lost = max((other.lost for other in others if other.id in finding.explains and not other.is_symptom), default=0)
    return replace(finding, lost=max(finding.lost, lost))


def _place(finding: Finding, explained: set[str]) -> tuple[bool, bool, int, int, int, int]:
    return (
        finding.is_symptom,
        finding.id in explained,
        -finding.lost,
        -_CERTAINTY[finding.confidence],
        -finding.weight,
        -finding.affected,
    )


def ruled_out(finding: Finding, facts: Facts) -> tuple[str, ...]:
    """The other layers that the evidence speaks against."""
    against = [(layer, said) for layer, said in _clear(facts) if layer is not finding.layer]
    return tuple(f"{layer.value}: {said}" for layer, said in against)[:_MOST_RULED_OUT]


def _clear(facts: Facts) -> list[tuple[Layer, str]]:
    """What can be said in favor of each layer."""
    found: list[tuple[Layer, str]] = []
    run, logs = facts.run, facts.logs
    heavy = {"oom_kill", "time_limit", "disk_full", "fd_limit", "port_taken", "job_cancelled", "process_killed"}
    if logs.lines and not heavy & logs.hits.keys():
        found.append((Layer.INFRA, f"no kill, disk, port or limit lines among {logs.lines} lines of logs"))
    if facts.job is not None and facts.job.state in {"RUNNING", "COMPLETED"}:
        found.append((Layer.INFRA, f"job {facts.job.id} is {facts.job.state}"))
    if facts.probes and all(probe.ok for probe in facts.probes):
        found.append((Layer.MODEL_SERVING, "the endpoint answers /models now"))
    if run is None:
        return found
    kinds = {group.kind for group in run.failures if group.lost}
    if run.scored and not any(kind.startswith("model_") for kind in kinds):
        found.append((Layer.MODEL_SERVING, f"{run.scored} rollouts are scored and no lost one failed on a model call"))
    if run.scored and not any(kind.startswith(("verif", "judge", "seed", "tool")) for kind in kinds):
        found.append((Layer.VERIFIER, f"{run.scored} rollouts were verified and none was lost on verifying"))
    if run.source is not None and run.source.changed is False:
        found.append((Layer.CACHE_RESUME, "the input file is the one the run was planned from"))
    if run.plan is not None and not kinds & {"bad_row", "verify_rejected", "seed_rejected", "agent_rejected"}:
        found.append((Layer.DATA_SCHEMA, "no row was refused"))
    return found
