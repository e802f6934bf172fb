"""Rules about the failure kinds in the failures file. Every kind in the failure table has one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from gymnast.doctor.failure_classes import class_of
from gymnast.doctor.findings import Confidence, Evidence, Finding, quote_line
from gymnast.doctor.line_readings import BOUNDARY_ID
from gymnast.doctor.rules.kind_table import MODEL_KINDS, TABLE
from gymnast.doctor.rules.rule import Rule, group_evidence, hit_evidence
from gymnast.doctor.system_errors import classify
from gymnast.types.failure import Layer
from gymnast.types.nouns import count_noun
from gymnast.wire.endpoint_errors import Cause, Certainty, error_message

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts, FailureGroup
    from gymnast.doctor.rules.kind_table import KindRule

STORM_SHARE: Final = 0.5
STORM_ATTEMPTS: Final = 20
"""Failed attempts that a retry fixed are a finding only if there are at least this many."""
_GAVE_UP_NOTES: Final = (
    "has been unreachable",
    "out of reach",
    "failed on the configuration",
    "all failed",
    "budget of retries",
)
"""In the manifest's note: why rollouts were not started or not retried."""
_OPEN: Final = frozenset(
    {
        Cause.UNRECOGNISED.value,
        Cause.SERVER_ERROR.value,
        Cause.PARAMETER_REFUSED.value,
        Cause.MODEL_NAME.value,
        Cause.ACCESS_DENIED.value,
    }
)
"""Causes that only the message tells more about."""
_MAX_MESSAGE: Final = 160
_ELSEWHERE: Final = frozenset({"endpoint_down", "unreachable", "dns", "service_down", "peer_lost", "tls", "disk_full"})
_SCHEMA: Final = frozenset({"verify_schema", "seed_schema", "agent_schema", "request_refused"})
_WITH_LOGS: Final = frozenset({Layer.VERIFIER, Layer.AGENT, Layer.SANDBOX})


@dataclass(frozen=True, slots=True)
class _Placeholders:
    """Values for the placeholders in the table's texts."""

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
    """True if failures are too many to ignore although retries fixed all of them."""
    scored = facts.run.scored if facts.run is not None else 0
    return group.attempts >= max(STORM_ATTEMPTS, STORM_SHARE * scored)


def _apply_rule(rule: KindRule, facts: Facts) -> Finding | None:
    groups = [
        group
        for group in facts.groups(*rule.kinds)
        if rule.flavors is None or group.flavor in rule.flavors
        if group.lost or is_storm(facts, group)
    ]
    if not groups:
        return None
    group = max(groups, key=lambda group: (group.lost, group.attempts))
    lost, attempts = sum(group.lost for group in groups), sum(group.attempts for group in groups)
    lost += _share_of_unexplained(facts, group)
    placeholders = _placeholders(facts, group)
    evidence = [item for failures in groups for item in group_evidence(facts, failures)]
    extra = _extra_evidence(rule, facts, group)
    evidence += extra
    raised = next((item.quote for item in extra if item.quote), "") if rule.layer in _WITH_LOGS else ""
    return Finding(
        rule.id,
        rule.layer,
        placeholders.fill(rule.symptom)
        + (f": {quote_line(raised, _MAX_MESSAGE)}" if raised else _own_message(group))
        + f" ({_statuses(groups)}{count_noun(attempts, 'attempt')}, {count_noun(lost, 'rollout')} lost)",
        placeholders.fill(rule.cause) + _missing_service(raised),
        ("check first that this runs and can be reached from there; if it does, " if _missing_service(raised) else "")
        + _action(rule, facts, placeholders),
        tuple(evidence),
        rule.confidence if lost and _is_certain(group) else Confidence.MEDIUM,
        lost,
        explains=frozenset({"fewer_than_requested", "missing_keys", *rule.explains}),
    )


def _missing_service(raised: str) -> str:
    """If the exception is about another process: that this is where to look."""
    known = class_of(classify(raised)) if raised and classify(raised) in _ELSEWHERE else None
    return f"; it is about something that the code needs: {known.cause}" if known is not None else ""


def _own_message(group: FailureGroup) -> str:
    """What the endpoint says, if its message is not one of a known server: the reader knows what it means."""
    first = group.first
    is_open = group.kind in MODEL_KINDS and (first.certainty == Certainty.WORDS or group.flavor in _OPEN)
    message = error_message(first.body) if is_open and first.body else ""
    return f": {quote_line(message, _MAX_MESSAGE)}" if message else ""


def _statuses(groups: list[FailureGroup]) -> str:
    """The statuses that were observed, for the symptom."""
    seen = sorted({example.status for group in groups for example in group.examples if example.status is not None})
    return f"status {' and '.join(str(status) for status in seen)}; " if seen else ""


def _is_certain(group: FailureGroup) -> bool:
    """Words that many servers share are weaker than those of a known server; an unknown message proves nothing."""
    return group.first.certainty != Certainty.WORDS and group.flavor != Cause.UNRECOGNISED


def _share_of_unexplained(facts: Facts, group: FailureGroup) -> int:
    """Rollouts that never started because the run gave up on what this group could not reach."""
    run = facts.run
    if run is None or run.is_running or not run.failures:
        return 0
    gave_up = any(phrase in run.note for phrase in _GAVE_UP_NOTES)
    return run.unexplained if gave_up and group is run.failures[0] else 0


def _placeholders(facts: Facts, group: FailureGroup) -> _Placeholders:
    assert facts.run is not None
    first = group.first
    instance = group.instances.most_common(1)[0][0] or "the instance"
    log = f"{facts.run.output.with_name(facts.run.output.stem + '_logs')}/{instance}.log"
    where = first.endpoint or "the endpoint"
    return _Placeholders(instance, where, log, str(facts.run.output), first.key.partition(":")[0])


def _action(rule: KindRule, facts: Facts, placeholders: _Placeholders) -> str:
    action = placeholders.fill(rule.action)
    served = [name for probe in facts.probes for name in probe.models]
    if rule.id == "model_name_wrong" and served:
        return f"use a model that the endpoint serves ({', '.join(served[:5])}): -m NAME, or ++policy_model_name=NAME"
    if rule.id == "endpoint_down" and facts.probes and all(probe.ok for probe in facts.probes):
        return "the endpoint answers now: run the same command again with --resume"
    return action


def _extra_evidence(rule: KindRule, facts: Facts, group: FailureGroup) -> list[Evidence]:
    assert facts.run is not None
    boundary = facts.hit(BOUNDARY_ID)
    if rule.id == "inner_500_no_body" and boundary is not None:
        return [hit_evidence("the innermost boundary with an error reply", boundary)]
    if rule.id in _SCHEMA:
        wrong = [field for field in facts.run.schema if field.problem]
        return [Evidence(f"schema of {group.first.key}: {field}", keys=(group.first.key,)) for field in wrong[:8]]
    if rule.layer in _WITH_LOGS:
        names = set(group.instances)
        logged = facts.logs.real_exceptions
        return [
            Evidence(
                f"first real exception in the log, raised at {exception.frame or 'an unknown location'}",
                exception.end.file,
                exception.end.line,
                count=exception.count,
                quote=quote_line(exception.end.text),
            )
            for exception in [entry for entry in logged if any(name and name in entry.end.file for name in names)][:2]
        ]
    return []


RULES: Final = tuple(
    Rule(rule.id, rule.layer, rule.step, rule.about, rule.action, partial(_apply_rule, rule)) for rule in TABLE
)
