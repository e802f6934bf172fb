"""The report as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.doctor.findings import Evidence, Finding, Report

_MOST_FINDINGS: Final = 5
_MOST_EVIDENCE: Final = 8
_MOST_SAW: Final = 8


def lines_of(report: Report, *, with_steps: bool = False) -> Iterator[str]:
    """What is printed."""
    if with_steps:
        yield from _steps(report)
        yield ""
    counts = ", ".join(f"{number} {name}" for name, number in report.counts.items())
    yield f"{report.subject}: {counts}" if counts else report.subject
    if report.is_healthy:
        yield "healthy: nothing to change"
    for number, finding in enumerate(report.findings[:_MOST_FINDINGS], 1):
        yield ""
        yield from _finding(number, finding)
    if len(report.findings) > _MOST_FINDINGS:
        yield ""
        yield f"… and {len(report.findings) - _MOST_FINDINGS} more: --json has them all"
    for note in report.notes:
        yield f"note: {note.text}"
    for entry in report.stuck:
        yield ""
        yield f"{entry['key']} ({entry.get('stage', '')} {entry.get('instance', '')}), stack, innermost last:"
        yield from (f"    {frame}" for frame in entry.get("frames") or ["(no frame: it runs in another process)"])


def _steps(report: Report) -> Iterator[str]:
    for step in report.steps:
        yield f"{step.number} {step.name}: {step.state.value}"
        yield from (f"    {said}" for said in step.saw[:_MOST_SAW])


def _finding(number: int, finding: Finding) -> Iterator[str]:
    cost = f"{finding.lost} rollouts lost" if finding.lost else f"{finding.affected} rollouts affected"
    yield f"{number}. [{finding.layer.value}] {finding.symptom}"
    yield f"   cause:      {finding.cause}"
    yield f"   next:       {finding.action}"
    yield f"   confidence: {finding.confidence.value} ({cost}; {finding.docs})"
    yield from (f"   evidence:   {_evidence(seen)}" for seen in finding.evidence[:_MOST_EVIDENCE])
    yield from (f"   ruled out:  {said}" for said in finding.ruled_out)


def _evidence(seen: Evidence) -> str:
    parts = [seen.place, seen.what]
    if seen.keys:
        parts.append("rollouts " + " ".join(seen.keys))
    text = " · ".join(part for part in parts if part)
    return f"{text}\n                 > {seen.quote}" if seen.quote else text
