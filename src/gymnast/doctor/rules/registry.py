"""The registry of all rules. A rule is a pure function from facts to a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.rules import (
    access_logs,
    components,
    files,
    incident,
    infra,
    kinds,
    live,
    live_processes,
    logs,
    quality,
    resume,
    rewards,
    tools,
    unknown,
)
from gymnast.errors import NotFoundError, suggest
from gymnast.types.failure import LAYERS

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts
    from gymnast.doctor.findings import Finding, Note
    from gymnast.doctor.rules.rule import NoteRule, Rule

RULES: Final[tuple[Rule, ...]] = (
    *infra.RULES,
    *logs.RULES,
    *incident.RULES,
    *access_logs.RULES,
    *components.RULES,
    *live_processes.RULES,
    *live.RULES,
    *kinds.RULES,
    *tools.RULES,
    *resume.RULES,
    *files.RULES,
    *quality.RULES,
    *rewards.RULES,
    *unknown.RULES,
)
_WORDS: Final = {
    "{instance}": "ENV",
    "{environment}": "ENV",
    "{endpoint}": "URL",
    "{run}": "RUN",
    "{log}": "the instance's log",
    "{task}": "TASK",
    "{show}": "gymnast report RUN --show KEY",
}
NOTES: Final[tuple[NoteRule, ...]] = (*infra.NOTES, *quality.NOTES, *resume.NOTES, *live.NOTES, *unknown.NOTES)


def apply_rules(facts: Facts) -> list[Finding]:
    """Apply all rules; those about the unknown only if no cause is known."""
    known = [rule for rule in RULES if rule not in unknown.RULES]
    findings = incident.settle(facts, [finding for rule in known if (finding := rule.apply(facts)) is not None])
    if all(finding.is_symptom for finding in findings):
        findings += unknown.explain_unknown(facts, findings)
    return findings


def collect_notes(facts: Facts) -> list[Note]:
    """Oddities that are not faults."""
    return [note for rule in NOTES if (note := rule(facts)) is not None]


def explain_rule(name: str) -> dict[str, str]:
    """What a finding's id means. Raises NotFoundError for an unknown one."""
    rules = [rule for rule in RULES if rule.id == name]
    if not rules:
        raise NotFoundError(f"unknown finding '{name}'", next=suggest(name, sorted({rule.id for rule in RULES})))
    first = rules[0]
    return {
        "finding": name,
        "layer": f"{first.layer.value} ({LAYERS[first.layer]})",
        "means": " ".join(dict.fromkeys(rule.about for rule in rules)),
        "next": fill_in(first.action),
        "docs": f"docs/debugging/rules.md#{name}",
    }


def fill_in(action: str) -> str:
    """An action with words for its placeholders."""
    for placeholder, words in _WORDS.items():
        action = action.replace(placeholder, words)
    return action
