"""Rules about logs: signatures, the error messages of our own commands, and the first real exception."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.read_logs import JOB_CANCELLED_ID, REQUEUED_ID
from gymnast.doctor.rules.infra import CONSEQUENCES
from gymnast.doctor.rules.kinds import TABLE
from gymnast.doctor.rules.rule import Rule, group_evidence, hit_evidence
from gymnast.doctor.signatures import SIGNATURES, Signature
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts, FailureGroup, LoggedException, LoggedUserError

_HEAVY_WEIGHT: Final = 90
_FATAL: Final = frozenset(
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
_IN_FAILURES: Final = frozenset(
    {"disk_full", "fd_limit", "oom_kill", "cuda_oom", "gpu_fault", "module_missing", "permission", "dns", "tls"}
)
"""Signatures that explain a failure if its own message matches."""
_SAME_LOCATION: Final = frozenset(
    {"verifier_exception", "agent_exception", "engine_exception", "refused_to_start", "server_code"}
)


def by_signature(signature: Signature, facts: Facts) -> Finding | None:
    """The lines with this signature, unless the run is complete or was shutting down."""
    hit = facts.logs.hits.get(signature.id)
    if hit is not None and hit.is_after_shutdown and signature.weight < _HEAVY_WEIGHT:
        hit = None
    if hit is not None and signature.id == "job_cancelled" and _is_requeue(facts):
        hit = None
    groups = _matching_failures(signature, facts)
    if facts.is_complete or (hit is None and not groups):
        return None
    evidence = [hit_evidence(f"{hit.count} log lines", hit)] if hit is not None else []
    evidence += [item for group in groups for item in group_evidence(facts, group)]
    is_sure = facts.run is None or facts.unexplained or groups
    return Finding(
        signature.id,
        signature.layer,
        signature.symptom,
        signature.cause,
        _recommendation(facts, signature) or signature.action,
        tuple(evidence),
        signature.confidence if is_sure or signature.is_vague else Confidence.MEDIUM,
        sum(group.lost for group in groups) or _lost(facts),
        is_symptom=signature.is_vague,
        weight=signature.weight,
        explains=_explained_by(signature) | _rule_ids(groups) - {signature.id},
    )


def _is_requeue(facts: Facts) -> bool:
    """True if only steps ended because their job was requeued."""
    hits = facts.logs.hits
    return REQUEUED_ID in hits and JOB_CANCELLED_ID not in hits


def _matching_failures(signature: Signature, facts: Facts) -> list[FailureGroup]:
    """Failures whose own message matches, such as a verifier that failed because the disk is full."""
    if signature.id not in _IN_FAILURES or facts.run is None:
        return []
    return [
        group
        for group in facts.run.failures
        if group.lost and signature.pattern.search(f"{group.first.message} {group.first.body}".encode())
    ]


def _rule_ids(groups: list[FailureGroup]) -> frozenset[str]:
    return frozenset(row.id for row in TABLE for group in groups if group.kind in row.kinds)


def _explained_by(signature: Signature) -> frozenset[str]:
    if signature.weight >= _HEAVY_WEIGHT:
        return (CONSEQUENCES | _SAME_LOCATION) - {signature.id}
    explained = _SAME_LOCATION | {"fewer_than_requested", "missing_keys", "task_refused", "job_failed"}
    if signature.id in _FATAL:
        explained |= {"engine_dead", "endpoint_down", "not_ready"}
    return explained - {signature.id}


def _lost(facts: Facts) -> int:
    return facts.unexplained if facts.run is not None and not facts.run.is_running else 0


def _recommendation(facts: Facts, signature: Signature) -> str:
    """The next step in one of our own error messages that matches, if any."""
    errors = (error for error in facts.logs.user_errors if signature.pattern.search(error.what.text.encode()))
    return next((error.next for error in errors if error.next), "")


# --- commands that failed --------------------------------------------------------------------------------------------

_USER_ERRORS: Final = tuple(
    (re.compile(pattern), name, layer, cause)
    for pattern, name, layer, cause in (
        (
            r"no agent|agent '[^']*' is not configured|names no agent",
            "agent_missing",
            Layer.CONFIG,
            "the rows' agent_ref does not match the configuration",
        ),
        (
            r"rows? (?:of the input )?cannot be used|input line|bad rows?|not JSON|has no rows|no 'responses_create",
            "bad_rows",
            Layer.DATA_SCHEMA,
            "input lines are not valid rows; the message lists them",
        ),
        (
            r"(?:changed since|not what it was).*rollouts (?:changed|added|removed|no longer)|--extend only adds",
            "stale_inputs",
            Layer.CACHE_RESUME,
            "the input file changed since the run was planned",
        ),
        (
            r"settings changed since this run|the run is not what it was",
            "settings_changed",
            Layer.CACHE_RESUME,
            "settings or code changed since the run started",
        ),
        (
            r"an earlier run (?:exists|is there)|another process is writing|records (?:are )?of rollouts",
            "output_taken",
            Layer.CACHE_RESUME,
            "the output belongs to another run, or another process is using it",
        ),
        (
            r"the entry file raised|could not start: ",
            "server_code",
            Layer.VERIFIER,
            "the code of an environment, agent or model server fails when it is loaded",
        ),
    )
)


_UNFINISHED: Final = re.compile(r"\d+ of \d+ rollouts are not settled")
"""What merge reports about an unfinished run; it does not say why."""


def command_failed(facts: Facts) -> Finding | None:
    """One of our own commands ended with an error message: what, where, next."""
    errors = [] if facts.is_complete else [e for e in facts.logs.user_errors if not _UNFINISHED.search(e.what.text)]
    if not errors:
        return None
    error = errors[-1]  # only the last command matters
    name, layer, cause = _classify(error)
    evidence = Evidence("the command's message", error.what.file, error.what.line, quote=error.what.text)
    return Finding(
        name,
        layer,
        f"the command failed: {error.what.text[:160]}",
        cause,
        error.next or "fix what the message names" + (f", at {error.where}" if error.where else ""),
        (evidence, Evidence(f"where: {error.where}")) if error.where else (evidence,),
        Confidence.HIGH,
        _lost(facts),
        weight=66 if name != "refused_to_start" else 20,
        explains=frozenset({"fewer_than_requested", "missing_keys"}),
    )


def _classify(error: LoggedUserError) -> tuple[str, Layer, str]:
    for pattern, name, layer, cause in _USER_ERRORS:
        if pattern.search(error.what.text):
            return name, layer, cause
    return "refused_to_start", Layer.CONFIG, "an error that can be corrected before running; see the message"


# --- exceptions ------------------------------------------------------------------------------------------------------

_OWNERS: Final = (
    (re.compile(r"resources_servers|verif"), "verifier_exception", Layer.VERIFIER, "an environment"),
    (re.compile(r"responses_api_agents|agent"), "agent_exception", Layer.AGENT, "an agent"),
    (re.compile(r"responses_api_models|vllm|sglang|model"), "engine_exception", Layer.MODEL_SERVING, "a model server"),
)


def first_exception(facts: Facts) -> Finding | None:
    """The first real exception; cancellations and what follows a SIGTERM are noise."""
    real = facts.logs.real_exceptions
    if not real or facts.is_complete:
        return None
    exception = real[0]
    name, layer, owner = _owner_of(exception)
    noise = sum(other.count for other in facts.logs.exceptions if other.is_noise)
    evidence = [
        Evidence(
            f"raised at {exception.frame}",
            exception.end.file,
            exception.end.line,
            count=exception.count,
            quote=exception.end.text,
        )
    ]
    if noise:
        evidence.append(Evidence(f"{noise} tracebacks of cancellations and shutdown were ignored", count=noise))
    return Finding(
        name,
        layer,
        f"{exception.type} in {owner}",
        f"{exception.type}: {exception.message[:200]}" if exception.message else exception.type,
        f"fix {exception.frame or 'the code that the traceback points to'}, then run again with --resume",
        tuple(evidence),
        Confidence.MEDIUM,
        _lost(facts),
        weight=40,
        explains=frozenset({"fewer_than_requested", "missing_keys", "task_refused"}),
    )


def _owner_of(exception: LoggedException) -> tuple[str, Layer, str]:
    for text in (exception.frame, exception.end.file):
        for pattern, name, layer, owner in _OWNERS:
            if pattern.search(text):
                return name, layer, owner
    return "verifier_exception", Layer.VERIFIER, "a server"


RULES: Final = (
    *(
        Rule(signature.id, signature.layer, 1, signature.symptom.capitalize() + ".", signature.action, apply)
        for signature in SIGNATURES.values()
        for apply in (partial(by_signature, signature),)
    ),
    *(
        Rule(name, layer, 5, cause.capitalize() + ".", "Do what the message says.", command_failed)
        for name, layer, cause in (
            ("settings_changed", Layer.CACHE_RESUME, "settings or code changed since the run started"),
            ("output_taken", Layer.CACHE_RESUME, "the output belongs to another run, or another process is using it"),
            ("refused_to_start", Layer.CONFIG, "a command failed to start; its message says what to correct"),
            ("server_code", Layer.VERIFIER, "the code of a server fails when it is loaded"),
        )
    ),
    Rule(
        *("engine_exception", Layer.MODEL_SERVING, 7, "The first real exception in the logs is from a model server."),
        *("Fix the code that the traceback points to.", first_exception),
    ),
)
