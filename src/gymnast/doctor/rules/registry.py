"""The registry: every rule doctor knows. A rule is a pure function from facts to a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.rules import components, files, infra, kinds, live, logs, quality, resume, tools

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts
    from gymnast.doctor.findings import Finding, Note
    from gymnast.doctor.rules.rule import NoteRule, Rule

RULES: Final[tuple[Rule, ...]] = (
    *infra.RULES,
    *logs.RULES,
    *components.RULES,
    *live.RULES,
    *kinds.RULES,
    *tools.RULES,
    *resume.RULES,
    *files.RULES,
    *quality.RULES,
)
NOTES: Final[tuple[NoteRule, ...]] = (*infra.NOTES, *quality.NOTES, *resume.NOTES, *live.NOTES)


def findings_of(facts: Facts) -> list[Finding]:
    """What the rules find."""
    return [found for rule in RULES if (found := rule.look(facts)) is not None]


def notes_of(facts: Facts) -> list[Note]:
    """What is odd and no fault."""
    return [found for rule in NOTES if (found := rule(facts)) is not None]
