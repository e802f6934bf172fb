"""What logs say: signatures, the messages of a command that refused to start, and the first real exception."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.read_logs import JOB_CANCELLED_ID, REQUEUED_ID
from gymnast.doctor.rules.infra import CONSEQUENCES
from gymnast.doctor.rules.kind_table import TABLE
from gymnast.doctor.rules.rule import Rule, group_evidence, hit_evidence
from gymnast.doctor.signatures import SIGNATURES, Signature
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts, FailureGroup, LoggedException, LoggedUserError

_HEAVY: Final = 90
_CAUSES_OF_DEATH: Final = frozenset(
    {
        "server_flag",
        "model_path",
        "model_length",
        "cuda_oom",
        "gpu_fault",
        "engine_dead",
        "module_missing",
        "dns",
        "tls",
    }
)
_IN_BODIES: Final = frozenset(
    {"disk_full", "fd_limit", "oom_kill", "cuda_oom", "gpu_fault", "module_missing", "permission", "dns", "tls"}
)
"""Signatures that explain a failure if they are the words of the failure itself."""
_SAME_PLACE: Final = frozenset(
    {"verifier_exception", "agent_exception", "engine_exception", "refused_to_start", "server_code"}
)


def by_signature(signature: Signature, facts: Facts) -> Finding | None:
    """Lines with this signature, unless the run is whole or was being shut down."""
    hit = facts.logs.hits.get(signature.id)
    if hit is not None and hit.is_after_shutdown and signature.weight < _HEAVY:
        hit = None
    if hit is not None and signature.id == "job_cancelled" and _is_requeue(facts):
        hit = None
    groups = _failures_that_say(signature, facts)
    if facts.is_whole or (hit is None and not groups):
        return None
    seen = [hit_evidence(f"{hit.count} log lines", hit)] if hit is not None else []
    seen += [shown for group in groups for shown in group_evidence(facts, group)]
    is_sure = facts.run is None or facts.unexplained or groups
    return Finding(
        signature.id,
        signature.layer,
        signature.symptom,
        signature.cause,
        _recommended(facts, signature) or signature.action,
        tuple(seen),
        signature.confidence if is_sure or signature.is_vague else Confidence.MEDIUM,
        sum(group.lost for group in groups) or _lost(facts),
        is_symptom=signature.is_vague,
        weight=signature.weight,
        explains=_explained_by(signature) | _rules_of(groups) - {signature.id},
    )


def _is_requeue(facts: Facts) -> bool:
    """Only steps ended, because their job went back into the queue."""
    hits = facts.logs.hits
    return REQUEUED_ID in hits and JOB_CANCELLED_ID not in hits


def _failures_that_say(signature: Signature, facts: Facts) -> list[FailureGroup]:
    """Failed attempts whose own words are this signature: a verifier that raised because the disk is full."""
    if signature.id not in _IN_BODIES or facts.run is None:
        return []
    return [
        group
        for group in facts.run.failures
        if group.lost and signature.pattern.search(f"{group.first.message} {group.first.body}".encode())
    ]


def _rules_of(groups: list[FailureGroup]) -> frozenset[str]:
    return frozenset(row.id for row in TABLE for group in groups if group.kind in row.kinds)


def _explained_by(signature: Signature) -> frozenset[str]:
    if signature.weight >= _HEAVY:
        return (CONSEQUENCES | _SAME_PLACE) - {signature.id}
    explained = _SAME_PLACE | {"fewer_than_requested", "missing_keys", "task_refused", "job_failed"}
    if signature.id in _CAUSES_OF_DEATH:
        explained |= {"engine_dead", "endpoint_down", "not_ready"}
    return explained - {signature.id}


def _lost(facts: Facts) -> int:
    return facts.unexplained if facts.run is not None and not facts.run.is_running else 0


def _recommended(facts: Facts, signature: Signature) -> str:
    """What our own message recommends, if one of ours says this."""
    errors = (said for said in facts.logs.user_errors if signature.pattern.search(said.what.text.encode()))
    return next((said.next for said in errors if said.next), "")


# --- commands that refused -------------------------------------------------------------------------------------------

_REFUSALS: Final = tuple(
    (re.compile(pattern), name, layer, cause)
    for pattern, name, layer, cause in (
        (
            r"no agent|agent '[^']*' is not configured|names no agent",
            "agent_missing",
            Layer.CONFIG,
            "agent_ref of the rows and the configuration do not go together",
        ),
        (
            r"rows? (?:of the input )?cannot be used|input line|bad rows?|not JSON|has no rows|no 'responses_create",
            "bad_rows",
            Layer.DATA_SCHEMA,
            "input lines that are no rows; the message names them",
        ),
        (
            r"the run is not what it was.*rollouts (?:changed|added|no longer)|--extend only adds",
            "stale_inputs",
            Layer.CACHE_RESUME,
            "the input file changed since the run was planned",
        ),
        (
            r"the run is not what it was",
            "settings_changed",
            Layer.CACHE_RESUME,
            "settings or code changed since the run was begun",
        ),
        (
            r"an earlier run is there|another process is writing|records of rollouts|records are of rollouts",
            "output_taken",
            Layer.CACHE_RESUME,
            "the output belongs to another run, or somebody else works on it",
        ),
        (
            r"the entry file raised|could not start: ",
            "server_code",
            Layer.VERIFIER,
            "the code of an environment, agent or model server fails when it is loaded",
        ),
    )
)


_UNSETTLED: Final = re.compile(r"\d+ of \d+ rollouts are not settled")
"""What merge says of a run that is not finished: not why."""


def refused(facts: Facts) -> Finding | None:
    """A command of ours ended with a message: what, where, next."""
    errors = [said for said in facts.logs.user_errors if not facts.is_whole and not _UNSETTLED.search(said.what.text)]
    if not errors:
        return None
    said = errors[-1]  # the last command is the one that matters
    name, layer, cause = _classified(said)
    seen = Evidence("what the command said", said.what.file, said.what.line, quote=said.what.text)
    return Finding(
        name,
        layer,
        f"the command refused: {said.what.text[:160]}",
        cause,
        said.next or (f"mend what the message names, at {said.where}" if said.where else "mend what the message names"),
        (seen, Evidence(f"where: {said.where}")) if said.where else (seen,),
        Confidence.HIGH,
        _lost(facts),
        weight=66 if name != "refused_to_start" else 20,
        explains=frozenset({"fewer_than_requested", "missing_keys"}),
    )


def _classified(said: LoggedUserError) -> tuple[str, Layer, str]:
    for pattern, name, layer, cause in _REFUSALS:
        if pattern.search(said.what.text):
            return name, layer, cause
    return "refused_to_start", Layer.CONFIG, "something that can be corrected before running; the message says what"


# --- exceptions ------------------------------------------------------------------------------------------------------

_OWNERS: Final = (
    (re.compile(r"resources_servers|verif"), "verifier_exception", Layer.VERIFIER, "an environment"),
    (re.compile(r"responses_api_agents|agent"), "agent_exception", Layer.AGENT, "an agent"),
    (re.compile(r"responses_api_models|vllm|sglang|model"), "engine_exception", Layer.MODEL_SERVING, "a model server"),
)


def first_exception(facts: Facts) -> Finding | None:
    """The first real exception; cancellations and what comes after a SIGTERM are noise."""
    real = facts.logs.real_exceptions
    if not real or facts.is_whole:
        return None
    found = real[0]
    name, layer, who = _owner(found)
    noise = sum(other.count for other in facts.logs.exceptions if other.is_noise)
    seen = [
        Evidence(f"raised at {found.frame}", found.end.file, found.end.line, count=found.count, quote=found.end.text)
    ]
    if noise:
        seen.append(Evidence(f"{noise} tracebacks of cancellations and shutdown were passed over", count=noise))
    return Finding(
        name,
        layer,
        f"{found.type} in {who}",
        f"{found.type}: {found.message[:200]}" if found.message else found.type,
        f"mend it at {found.frame or 'the place the traceback names'}, then run again with --resume",
        tuple(seen),
        Confidence.MEDIUM,
        _lost(facts),
        weight=40,
        explains=frozenset({"fewer_than_requested", "missing_keys", "task_refused"}),
    )


def _owner(found: LoggedException) -> tuple[str, Layer, str]:
    for text in (found.frame, found.end.file):
        for pattern, name, layer, who in _OWNERS:
            if pattern.search(text):
                return name, layer, who
    return "verifier_exception", Layer.VERIFIER, "a server"


RULES: Final = (
    *(
        Rule(signature.id, signature.layer, 1, signature.symptom.capitalize() + ".", signature.action, look)
        for signature in SIGNATURES.values()
        for look in (partial(by_signature, signature),)
    ),
    *(
        Rule(name, layer, 5, cause.capitalize() + ".", "Do what the message says.", refused)
        for name, layer, cause in (
            ("settings_changed", Layer.CACHE_RESUME, "settings or code changed since the run was begun"),
            ("output_taken", Layer.CACHE_RESUME, "the output belongs to another run, or somebody else works on it"),
            ("refused_to_start", Layer.CONFIG, "a command refused; its message says what can be corrected"),
            ("server_code", Layer.VERIFIER, "the code of a server fails when it is loaded"),
        )
    ),
    Rule(
        *("engine_exception", Layer.MODEL_SERVING, 7, "The first real exception of the logs is a model server's."),
        *("Mend it at the place that is named.", first_exception),
    ),
)
