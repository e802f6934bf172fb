"""One rule for each way an attempt fails, from the kinds of the failures file. Every kind of the table has one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding, quoted
from gymnast.doctor.read_logs import BOUNDARY_ID
from gymnast.doctor.rules.kind_table import TABLE
from gymnast.doctor.rules.rule import Rule, group_evidence, hit_evidence
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts, FailureGroup
    from gymnast.doctor.rules.kind_row import KindRow

STORM_SHARE: Final = 0.5
STORM_ATTEMPTS: Final = 20
"""Attempts that failed and were made good by a retry are a finding only if there are this many."""
_GIVEN_UP: Final = ("out of reach", "failed on the configuration", "all failed", "budget of retries")
"""In the manifest's note: why rollouts were never begun, or not tried again."""
_SCHEMA: Final = frozenset({"verify_schema", "seed_schema", "agent_schema", "request_refused"})
_WITH_LOGS: Final = frozenset({Layer.VERIFIER, Layer.AGENT, Layer.SANDBOX})


@dataclass(frozen=True, slots=True)
class _Blanks:
    """What the texts of the table may name."""

    instance: str
    endpoint: str
    log: str
    run: str
    task: str

    def fill(self, text: str) -> str:
        return (
            text.replace("{instance}", self.instance)
            .replace("{endpoint}", self.endpoint)
            .replace("{log}", self.log)
            .replace("{run}", self.run)
            .replace("{task}", self.task)
        )


def is_storm(facts: Facts, group: FailureGroup) -> bool:
    """Whether failures that all were made good are still too many to be passed over."""
    scored = facts.run.scored if facts.run is not None else 0
    return group.attempts >= max(STORM_ATTEMPTS, STORM_SHARE * scored)


def _look(row: KindRow, facts: Facts) -> Finding | None:
    groups = [
        group
        for group in facts.groups(*row.kinds)
        if row.flavors is None or group.flavor in row.flavors
        if group.lost or is_storm(facts, group)
    ]
    if not groups:
        return None
    group = max(groups, key=lambda found: (found.lost, found.attempts))
    lost, attempts = sum(found.lost for found in groups), sum(found.attempts for found in groups)
    lost += _share_of_unexplained(facts, group)
    blanks = _blanks(facts, group)
    evidence = [seen for found in groups for seen in group_evidence(facts, found)]
    evidence += _more_evidence(row, facts, group)
    return Finding(
        row.id,
        row.layer,
        blanks.fill(row.symptom) + f" ({attempts} attempts, {lost} rollouts lost)",
        blanks.fill(row.cause),
        _action(row, facts, blanks),
        tuple(evidence),
        row.confidence if lost else Confidence.MEDIUM,
        lost,
        explains=frozenset({"fewer_than_requested", "missing_keys", *row.explains}),
    )


def _share_of_unexplained(facts: Facts, group: FailureGroup) -> int:
    """Rollouts never begun because the run gave up on what this group could not reach."""
    run = facts.run
    if run is None or run.is_running or not run.failures:
        return 0
    gave_up = any(words in run.note for words in _GIVEN_UP)
    return run.unexplained if gave_up and group is run.failures[0] else 0


def _blanks(facts: Facts, group: FailureGroup) -> _Blanks:
    assert facts.run is not None
    first = group.first
    instance = group.instances.most_common(1)[0][0] or "the instance"
    log = f"{facts.run.output.with_name(facts.run.output.stem + '_logs')}/{instance}.log"
    where = first.endpoint or "the endpoint"
    return _Blanks(instance, where, log, str(facts.run.output), first.key.partition(":")[0])


def _action(row: KindRow, facts: Facts, blanks: _Blanks) -> str:
    action = blanks.fill(row.action)
    served = [name for probe in facts.probes for name in probe.models]
    if row.id == "model_name_wrong" and served:
        return f"use a name that the endpoint serves ({', '.join(served[:5])}): -m NAME, or ++policy_model_name=NAME"
    if row.id == "endpoint_down" and facts.probes and all(probe.ok for probe in facts.probes):
        return "the endpoint answers by now: run the same command again with --resume"
    return action


def _more_evidence(row: KindRow, facts: Facts, group: FailureGroup) -> list[Evidence]:
    assert facts.run is not None
    boundary = facts.hit(BOUNDARY_ID)
    if row.id == "inner_500_no_body" and boundary is not None:
        return [hit_evidence("the innermost boundary that a bad reply crossed", boundary)]
    if row.id in _SCHEMA:
        wrong = [found for found in facts.run.schema if found.problem]
        return [Evidence(f"schema of {group.first.key}: {found}", keys=(group.first.key,)) for found in wrong[:8]]
    if row.layer in _WITH_LOGS:
        names = set(group.instances)
        real = [found for found in facts.logs.real_exceptions if any(name and name in found.end.file for name in names)]
        return [
            Evidence(
                f"first real exception in the log, raised at {found.frame or 'an unknown place'}",
                found.end.file,
                found.end.line,
                count=found.count,
                quote=quoted(found.end.text),
            )
            for found in real[:2]
        ]
    return []


RULES: Final = tuple(Rule(row.id, row.layer, row.step, row.about, row.action, partial(_look, row)) for row in TABLE)
