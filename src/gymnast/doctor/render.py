"""The report as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.doctor.findings import Evidence, Finding, Report

_MOST_FINDINGS: Final = 5
_MOST_EVIDENCE: Final = 8
_MOST_SAW: Final = 8
_MOST_KEYS: Final = 6


def lines_of(report: Report, *, with_steps: bool = False) -> Iterator[str]:
    """What is printed."""
    if with_steps:
        yield from _steps(report)
        yield ""
    counts = ", ".join(f"{number} {name}" for name, number in report.counts.items())
    yield f"{report.subject}: {counts}" if counts else report.subject
    if report.is_healthy:
        yield "healthy: nothing to change"
    causes = [finding for finding in report.findings if not finding.follows]
    for number, finding in enumerate(causes[:_MOST_FINDINGS], 1):
        yield ""
        yield from _finding(number, finding)
        yield from (
            f"   so also:    [{other.layer.value}] {other.symptom}"
            for other in report.findings
            if other.follows == finding.id
        )
    if len(causes) > _MOST_FINDINGS:
        yield ""
        yield f"… and {len(causes) - _MOST_FINDINGS} more: --json has them all"
    for note in report.notes:
        yield f"note: {note.text}"
    yield from _stacks(report)


def _stacks(report: Report) -> Iterator[str]:
    """What stands at the same place in the code is shown once."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for entry in report.stuck:
        alike.setdefault(tuple(entry.get("frames") or ()), []).append(entry)
    for frames, entries in alike.items():
        first = entries[0]
        keys = " ".join(str(entry["key"]) for entry in entries[:_MOST_KEYS])
        more = f" and {len(entries) - _MOST_KEYS} more" if len(entries) > _MOST_KEYS else ""
        at = " ".join(str(first.get(part) or "") for part in ("stage", "instance", "endpoint")).strip()
        yield ""
        yield f"{keys}{more} ({at}, {first.get('in_stage_s', 0):.0f} s), stack, innermost last:"
        yield from (f"    {frame}" for frame in frames or ["(no frame: its process has not told of it yet)"])


def _steps(report: Report) -> Iterator[str]:
    for step in report.steps:
        yield f"{step.number} {step.name}: {step.state.value}"
        yield from (f"    {said}" for said in step.saw[:_MOST_SAW])


def _finding(number: int, finding: Finding) -> Iterator[str]:
    cost = f"{finding.lost} rollouts lost; " if finding.lost else ""
    if finding.affected and not finding.lost:
        cost = f"{finding.affected} rollouts affected; "
    yield f"{number}. [{finding.layer.value}] {finding.symptom}"
    yield f"   cause:      {finding.cause}"
    yield f"   next:       {finding.action}"
    yield f"   confidence: {finding.confidence.value} ({cost}{finding.docs})"
    yield from (f"   evidence:   {_evidence(seen)}" for seen in finding.evidence[:_MOST_EVIDENCE])
    if number == 1:
        yield from (f"   ruled out:  {said}" for said in finding.ruled_out)


def _evidence(seen: Evidence) -> str:
    parts = [seen.place, seen.what]
    if seen.keys:
        parts.append("rollouts " + " ".join(seen.keys))
    text = " · ".join(part for part in parts if part)
    return f"{text}\n                 > {seen.quote}" if seen.quote else text
