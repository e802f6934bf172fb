"""Reads the failures file: groups attempts by kind and flavor, with examples and the rollouts that each group cost.

Also reads NeMo Gym's records, which have a failure class but no `failure` object. The flavor of a failed model call is
its cause in the table of endpoint errors; for records without one, the table is applied to the body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.doctor.facts import FailureExample, FailureGroup
from gymnast.doctor.provenance import own_words
from gymnast.store.records import record_file
from gymnast.types.failure import KINDS, FailureKind
from gymnast.types.task import ATTEMPT_INDEX, FAILURE_CLASS, JUDGE_ERROR, ROLLOUT_INDEX, TASK_INDEX, RolloutKey
from gymnast.wire.endpoint_errors import Cause, Certainty, diagnose, diagnose_transport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gymnast.store.keys import KeySet

_MAX_EXAMPLES: Final = 5
_MAX_BODIES: Final = 50
_NEMO_GYM_KINDS: Final = {
    FailureKind.JUDGE_FAILED.value: FailureKind.JUDGE_FAILED,
    "remote_agent_error": FailureKind.AGENT_REPORTED,
    "kill_shaped": FailureKind.WORKER_DIED,
    "timeout_exceeded": FailureKind.ROLLOUT_TIMEOUT,
    "skipped": FailureKind.CANCELLED,
    "transient": FailureKind.MODEL_ERROR,
    "legitimate": FailureKind.AGENT_REPORTED,
}
"""NeMo Gym's failure classes, as kinds."""
_SIGKILL: Final = re.compile(r"SIGKILL|exit code -9\b|\b137\b|out of memory", re.IGNORECASE)
_WORK_DIED: Final = re.compile(r"Work(?:er)?CrashedError|worker process (?:ended|is gone)")
_JUDGE_MODEL: Final = re.compile(
    r"\bmodel_(unreachable|timeout|overloaded|rate_limited|error|bad_reply|auth|not_found|quota|misconfigured)\b"
)
_JUDGE_SETTINGS: Final = frozenset({"auth", "not_found", "quota", "misconfigured"})
_ERROR_KINDS: Final = frozenset(
    {
        FailureKind.VERIFIER_ERROR,
        FailureKind.AGENT_ERROR,
        FailureKind.TOOL_ERROR,
        FailureKind.SEED_ERROR,
    }
)


class FailedDetail(msgspec.Struct):
    """The failure in a record."""

    kind: str
    stage: str = ""
    message: str = ""
    instance: str | None = None
    endpoint: str | None = None
    status: int | None = None
    body: str | None = None
    chain: tuple[str, ...] = ()
    cause: str | None = None
    certainty: str | None = None
    started_at: float = 0.0
    seconds: float = 0.0


class FailedAttempt(msgspec.Struct):
    """A line of the failures file."""

    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    failure: FailedDetail | None = None
    failure_class: str | None = msgspec.field(name=FAILURE_CLASS, default=None)
    judge_error: str | None = msgspec.field(name=JUDGE_ERROR, default=None)
    attempt: int = msgspec.field(name=ATTEMPT_INDEX, default=0)
    error: Any = None

    @property
    def key(self) -> RolloutKey:
        return RolloutKey(self.task, self.rollout)

    @property
    def detail(self) -> FailedDetail:
        return self.failure or _nemo_gym_detail(self)


@dataclass(slots=True)
class Failures:
    """The content of the failures file."""

    groups: list[FailureGroup] = field(default_factory=list)
    lines: int = 0
    damaged: list[tuple[int, str]] = field(default_factory=list)
    first_at: float | None = None
    last_at: float | None = None
    settled: set[int] = field(default_factory=set)
    """Packed keys of unscored rollouts that have a failure."""
    attempts: list[tuple[int, FailedAttempt]] = field(default_factory=list)
    """The selected attempts with their line numbers, if a selection was given."""


def read_failures(path: Path, scored: KeySet, selects: Callable[[RolloutKey], bool] | None = None) -> Failures:
    """Read the failed attempts; with `selects`, also list those of the selected rollouts."""
    failures = Failures()
    groups: dict[tuple[FailureKind, str], FailureGroup] = {}
    last: dict[int, FailureGroup] = {}
    decoder = msgspec.json.Decoder(FailedAttempt)
    records = record_file(path)
    if not records.exists():
        return failures
    with records.open() as stream:
        for number, raw in enumerate(stream, 1):
            if not raw.strip():
                continue
            failures.lines += 1
            try:
                line = decoder.decode(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                failures.damaged.append((number, str(error))) if len(failures.damaged) < _MAX_EXAMPLES else None
                continue
            if selects is not None and not selects(line.key):
                continue
            detail, key = line.detail, line.key
            group = _group_of(detail, groups)
            _add_attempt(group, detail, number, key)
            _record_time(failures, detail)
            if key.packed not in scored:
                last[key.packed] = group
            if selects is not None:
                failures.attempts.append((number, line))
    for group in last.values():
        group.lost += 1
    failures.settled = set(last)
    failures.groups = sorted(groups.values(), key=lambda group: (-group.lost, -group.attempts))
    return failures


def flavor_of(
    kind: FailureKind, message: str, body: str, *, status: int | None = None, cause: str | None = None
) -> str:
    """Distinguishes attempts of one kind that have different causes."""
    if kind in _ERROR_KINDS:
        return _error_flavor(body)
    if kind.startswith("model_"):
        is_mute = kind == FailureKind.MODEL_ERROR and _body_flavor(body) == "empty"
        return "empty" if is_mute else endpoint_flavor(kind, message, body, status, cause)
    if kind == FailureKind.JUDGE_FAILED:
        match = _JUDGE_MODEL.search(f"{message} {body}")
        return "" if match is None else "settings" if match[1] in _JUDGE_SETTINGS else "endpoint"
    if kind in {FailureKind.WORKER_DIED, FailureKind.INSTANCE_DIED}:
        return "killed" if _SIGKILL.search(message) else ""
    return ""


def _error_flavor(body: str) -> str:
    if _WORK_DIED.search(body):
        return "crashed"
    return "empty" if "zero-length" in body[:200] else _body_flavor(body)


def _body_flavor(body: str) -> str:
    text = body.strip().strip("\"'")
    if text in {"", "b''", "null", "None", "Internal Server Error"}:
        return "empty"
    return "html" if text[:100].lstrip().startswith("<") else ""


def _nemo_gym_detail(line: FailedAttempt) -> FailedDetail:
    name = line.failure_class or ""
    text = line.judge_error or (line.error if isinstance(line.error, str) else orjson.dumps(line.error).decode())
    kind = name if name in KINDS else _NEMO_GYM_KINDS.get(name, FailureKind.AGENT_REPORTED)
    return FailedDetail(kind, message=f"{name}: {text}", body=text if text != "null" else "")


def _group_of(detail: FailedDetail, groups: dict[tuple[FailureKind, str], FailureGroup]) -> FailureGroup:
    kind = FailureKind(detail.kind)
    message, body = own_words(detail.message), own_words(detail.body or "")
    flavor = flavor_of(kind, message, body, status=detail.status, cause=detail.cause)
    return groups.setdefault((kind, flavor), FailureGroup(kind, flavor))


def _add_attempt(group: FailureGroup, detail: FailedDetail, number: int, key: RolloutKey) -> None:
    group.attempts += 1
    group.instances[detail.instance or ""] += 1
    text = re.sub(r"[0-9]+", "0", (detail.body or detail.message)[:200])
    if text in group.bodies or len(group.bodies) < _MAX_BODIES:
        group.bodies[text] += 1
    if len(group.examples) < _MAX_EXAMPLES:
        group.examples.append(
            FailureExample(
                number,
                str(key),
                detail.message,
                detail.body or "",
                detail.status,
                detail.instance or "",
                detail.endpoint or "",
                detail.chain,
                detail.stage,
                detail.certainty or "",
            )
        )


def _record_time(failures: Failures, detail: FailedDetail) -> None:
    if detail.started_at:
        failures.first_at = min(failures.first_at or detail.started_at, detail.started_at)
        failures.last_at = max(failures.last_at or 0.0, detail.started_at)


_CAUSES: Final = frozenset(Cause)
_CUT_OFF: Final = re.compile(r"(?i)unexpected end of data|stream ended|broke off|EOF while parsing")
_STATUS: Final = {FailureKind.MODEL_NOT_FOUND: 404, FailureKind.MODEL_ERROR: 500, FailureKind.MODEL_RATE_LIMITED: 429}
"""What a kind implies if no status was recorded."""
_BY_KIND: Final = {
    FailureKind.MODEL_TIMEOUT: Cause.TIMEOUT,
    FailureKind.MODEL_RATE_LIMITED: Cause.RATE_LIMIT,
    FailureKind.MODEL_OVERLOADED: Cause.OVERLOADED,
    FailureKind.MODEL_ERROR: Cause.SERVER_ERROR,
    FailureKind.MODEL_BAD_REPLY: Cause.NOT_AN_ANSWER,
    FailureKind.MODEL_AUTH: Cause.KEY_REFUSED,
    FailureKind.MODEL_NOT_FOUND: Cause.MODEL_NAME,
    FailureKind.MODEL_QUOTA: Cause.QUOTA,
}


def find_cause(kind: FailureKind, message: str, body: str, status: int | None) -> tuple[Cause, Certainty]:
    """The cause of a failure without a recorded one."""
    if kind is FailureKind.MODEL_UNREACHABLE:
        return diagnose_transport(message).cause, Certainty.KNOWN
    if kind is FailureKind.MODEL_BAD_REPLY and _CUT_OFF.search(message):
        return Cause.CONNECTION_LOST, Certainty.KNOWN
    if kind is not FailureKind.MODEL_TIMEOUT:
        diagnosis = diagnose(status or _STATUS.get(kind, 400), body)
        if diagnosis.certainty is not Certainty.STATUS:
            return diagnosis.cause, diagnosis.certainty
    return _BY_KIND.get(kind, Cause.UNRECOGNISED), Certainty.STATUS


def endpoint_flavor(kind: FailureKind, message: str, body: str, status: int | None, cause: str | None) -> str:
    """The flavor of a failed model call: its cause."""
    if cause is not None and cause in _CAUSES:
        return cause
    return find_cause(kind, message, body, status)[0].value
