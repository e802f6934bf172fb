"""Rules about logs: signatures, the error messages of our own commands, and the first real exception."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.line_readings import JOB_CANCELLED_ID, REQUEUED_ID, VERIFY_500_ID
from gymnast.doctor.provenance import own_words
from gymnast.doctor.rules.infra import CONSEQUENCES
from gymnast.doctor.rules.kind_table import TABLE
from gymnast.doctor.rules.rule import Rule, group_evidence, hit_evidence
from gymnast.doctor.signatures import ENDS, SIGNATURES, Signature
from gymnast.types.failure import Layer
from gymnast.wire.endpoint_errors import Certainty

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts, FailureGroup, Hit, LoggedException, LoggedUserError

_HEAVY_WEIGHT: Final = 90
_IN_FAILURES: Final = frozenset(
    {"disk_full", "fd_limit", "oom_kill", "cuda_oom", "gpu_fault", "module_missing", "permission", "dns", "tls"}
)
"""Signatures that explain a failure if its own message matches."""
_SAME_LOCATION: Final = frozenset(
    {"verifier_exception", "agent_exception", "engine_exception", "refused_to_start", "server_code"}
)
_FOLLOWING: Final = frozenset(name for name, signature in SIGNATURES.items() if not signature.is_root)
"""Signatures of what follows when something else failed."""
_JUST_BEFORE: Final = 5
_SERVER_ERROR: Final = 500
_NEAR: Final = 200
"""Lines between an error and the end that follows from it."""


def by_signature(signature: Signature, facts: Facts) -> Finding | None:
    """The lines with this signature, unless the run is complete or was shutting down."""
    hit = hit_of(signature, facts)
    groups = _matching_failures(signature, facts)
    if facts.is_complete or (hit is None and not groups):
        return None
    evidence = [hit_evidence(f"{hit.count} log lines", hit), *_error_before(hit, facts)] if hit is not None else []
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
        is_symptom=signature.is_vague or _follows_error(signature, hit, facts),
        weight=signature.weight,
        explains=_explained_by(signature, facts) | _rule_ids(groups) - {signature.id},
        order=_order_of(hit, facts),
    )


def hit_of(signature: Signature, facts: Facts) -> Hit | None:
    """Its lines in the logs, if they count."""
    hit = facts.logs.hits.get(signature.id)
    if hit is None or hit.count < signature.min_lines:
        return None
    if hit.is_after_shutdown and signature.weight < _HEAVY_WEIGHT:
        return None
    if hit.is_warning and not signature.even_as_warning and not _is_serious(hit, facts):
        return None
    return None if signature.id == "job_cancelled" and _is_requeue(facts) else hit


def _error_before(hit: Hit, facts: Facts) -> list[Evidence]:
    """The error just before it that no rule knows, if there is one: it may say more."""
    before = [
        event
        for event in facts.logs.events
        if event.is_certain
        and event.first.file == hit.first.file
        and 0 < hit.first.line - event.first.line <= _JUST_BEFORE
    ]
    return [
        Evidence("an error just before it", event.first.file, event.first.line, quote=event.first.text)
        for event in before[:1]
    ]


def _is_serious(hit: Hit, facts: Facts) -> bool:
    """True if a warning counts: something failed, or the log ends with warnings or because a user lost patience."""
    ends = [end for end in facts.logs.ends if end.last is not None and end.last.file == hit.first.file]
    is_interrupted = any("KeyboardInterrupt" in line for end in ends for line in end.tail)
    has_failed = facts.run is not None or facts.logs.failure_lines > 0
    return has_failed or is_interrupted or any(end.is_warning for end in ends)


def _follows_error(signature: Signature, hit: Hit | None, facts: Facts) -> bool:
    """True if a program ended after an error in the same log that no rule knows."""
    if hit is None or not signature.is_end:
        return False
    errors = [event for event in facts.logs.events if event.is_certain and event.first.file == hit.first.file]
    return any(0 < hit.first.line - event.first.line <= _NEAR for event in errors)


def _order_of(hit: Hit | None, facts: Facts) -> float:
    """When the first line was logged: by its time if all lines have one, else by its place."""
    if hit is None:
        return 0.0
    hits = [known for name, known in facts.logs.hits.items() if name in SIGNATURES]
    return hit.at if hit.at is not None and all(known.at is not None for known in hits) else float(hit.position)


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
        if group.lost
        and not _may_quote_prompt(group)
        and signature.pattern.search(own_words(f"{group.first.message} {group.first.body}").encode())
    ]


def _may_quote_prompt(group: FailureGroup) -> bool:
    """True for a refused request, and for a reply in which the table of endpoint errors found nothing but the prompt.

    The table has seen the request, so it knows what the reply repeats of it; doctor does not.
    """
    status = group.first.status
    if not group.kind.startswith("model_") or status is None:
        return False
    return status < _SERVER_ERROR or group.first.certainty == Certainty.STATUS


def _rule_ids(groups: list[FailureGroup]) -> frozenset[str]:
    return frozenset(row.id for row in TABLE for group in groups if group.kind in row.kinds)


def _explained_by(signature: Signature, facts: Facts) -> frozenset[str]:
    """What follows from it: a cause explains all consequences, another signature those that were logged later."""
    if signature.is_root:
        following = _FOLLOWING if facts.run is None else frozenset()  # of a run, records say more than logs
        return (CONSEQUENCES | _SAME_LOCATION | following) - {signature.id}
    own, hits = facts.logs.hits.get(signature.id), facts.logs.hits
    later = {
        name
        for name in (*ENDS, "process_killed")
        if own is not None and name in hits and hits[name].position > own.position
    }
    return (_SAME_LOCATION | later | {"fewer_than_requested", "missing_keys", "job_failed"}) - {signature.id}


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
            r"refuses our key|needs a key, and none is set",
            "key_refused",
            Layer.CONFIG,
            "the key of the endpoint is missing, wrong or expired",
        ),
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
    (re.compile(r"resources_servers"), "verifier_exception", Layer.VERIFIER, "an environment"),
    (re.compile(r"responses_api_agents"), "agent_exception", Layer.AGENT, "an agent"),
    (
        re.compile(
            r"responses_api_models"
            r"|(?<![\w-])(?:vllm|sglang|tensorrt_llm|trtllm|lmdeploy|tritonserver|llama_cpp|text_generation\w*)[/.]"
        ),
        "engine_exception",
        Layer.MODEL_SERVING,
        "a model server",
    ),
)
"""Whose code raised an exception, by its frames."""
_SERVERS: Final = frozenset({"vllm", "sglang", "tensorrt_llm", "lmdeploy", "llama_cpp", "text_generation_server"})
"""Packages of model servers: what a library raises below them concerns the model that they were given."""
_BUGS: Final = frozenset(
    {
        *(
            "IndexError",
            "KeyError",
            "TypeError",
            "AttributeError",
            "NameError",
            "UnboundLocalError",
            "ZeroDivisionError",
        ),
        *("RecursionError", "UnicodeDecodeError", "JSONDecodeError", "StopIteration", "NotImplementedError"),
    }
)
"""Exceptions of Python itself: faults of the code that raised them."""


def first_exception(facts: Facts) -> Finding | None:
    """The first real exception whose program is known; cancellations and what follows a SIGTERM are noise."""
    if facts.is_complete:
        return None
    owned = [(exception, owner) for exception in facts.logs.real_exceptions if (owner := owner_of(exception, facts))]
    if not owned:
        return None
    exception, (name, layer, whose) = owned[0]
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
        f"{exception.type} in {whose}",
        f"{exception.type}: {exception.message[:200]}" if exception.message else exception.type,
        _fix(exception, layer),
        tuple(evidence),
        Confidence.MEDIUM,
        _lost(facts),
        weight=40,
        explains=frozenset({"fewer_than_requested", "missing_keys", "task_refused", "engine_dead", "process_killed"}),
        order=float(exception.position),
    )


def _fix(exception: LoggedException, layer: Layer) -> str:
    if layer is Layer.MODEL_SERVING:
        return (
            "read the server's own log before this line; if the message is not about one of your settings, it is a "
            "fault of "
            "the server: try another version, or report it to its developers; then run again with --resume"
        )
    frame = exception.own_frame or exception.frame
    return f"fix {frame or 'the code that the traceback points to'}, then run again with --resume"


def owner_of(exception: LoggedException, facts: Facts) -> tuple[str, Layer, str] | None:
    """Whose code raised it: by its frames, or by the request that the same log says failed."""
    for pattern, name, layer, owner in _OWNERS:
        if pattern.search(exception.frame) or pattern.search(exception.own_frame):
            return name, layer, owner
    failed = facts.logs.hits.get(VERIFY_500_ID)
    if failed is not None and failed.first.file == exception.end.file:
        return "verifier_exception", Layer.VERIFIER, "an environment"
    if exception.type in _BUGS and exception.frame != exception.own_frame and _SERVERS & {*exception.packages}:
        return "engine_exception", Layer.MODEL_SERVING, "a model server"
    if exception.type in _BUGS and exception.own_frame:
        return "code_exception", Layer.AGENT, "the program's own code"
    return None


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
        *("code_exception", Layer.AGENT, 7, "The first real exception is a fault in a program's own code."),
        *("Fix the code that the traceback points to.", first_exception),
    ),
    Rule(
        *("engine_exception", Layer.MODEL_SERVING, 7, "The first real exception in the logs is from a model server."),
        *("Fix the code that the traceback points to.", first_exception),
    ),
)
