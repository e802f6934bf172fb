"""The registry of all rules. A rule is a pure function from facts to a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.rules import components, files, infra, kinds, live, live_processes, logs, quality, resume, tools

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts
    from gymnast.doctor.findings import Finding, Note
    from gymnast.doctor.rules.rule import NoteRule, Rule

RULES: Final[tuple[Rule, ...]] = (
    *infra.RULES,
    *logs.RULES,
    *components.RULES,
    *live_processes.RULES,
    *live.RULES,
    *kinds.RULES,
    *tools.RULES,
    *resume.RULES,
    *files.RULES,
    *quality.RULES,
)
NOTES: Final[tuple[NoteRule, ...]] = (*infra.NOTES, *quality.NOTES, *resume.NOTES, *live.NOTES)


def apply_rules(facts: Facts) -> list[Finding]:
    """Apply all rules."""
    return [finding for rule in RULES if (finding := rule.apply(facts)) is not None]


def collect_notes(facts: Facts) -> list[Note]:
    """Oddities that are not faults."""
    return [note for rule in NOTES if (note := rule(facts)) is not None]
