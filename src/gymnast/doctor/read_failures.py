"""The failures file: attempts grouped by kind and flavor, with examples, and which rollouts each group cost.

Records of NeMo Gym, which have a failure class and no `failure` object, are read as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.doctor.facts import FailureExample, FailureGroup
from gymnast.store.records import record_file
from gymnast.types.failure import KINDS
from gymnast.types.task import ATTEMPT_INDEX, FAILURE_CLASS, JUDGE_ERROR, ROLLOUT_INDEX, TASK_INDEX, RolloutKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gymnast.store.keyset import KeySet

_MOST_EXAMPLES: Final = 5
_MOST_BODIES: Final = 50
_FOREIGN: Final = {
    "judge_failed": "judge_failed",
    "remote_agent_error": "agent_reported",
    "kill_shaped": "worker_died",
    "timeout_exceeded": "rollout_timeout",
    "skipped": "cancelled",
    "transient": "model_error",
    "legitimate": "agent_reported",
}
"""NeMo Gym's failure classes as kinds."""
_GRAMMAR: Final = re.compile(
    r"(?i)grammar|outlines|guidance|guided|json[ _]?schema|(?:tool|function).{0,60}schema"
    r"|schema.{0,60}(?:tool|function)"
)
_GRAMMAR_ENGINE: Final = re.compile(r"(?i)grammar|outlines|guidance")
"""Where an endpoint calls a refused schema its own error, only the engines' names tell."""
_OVERFLOW: Final = re.compile(
    r"(?i)context length|maximum model length|too many tokens|max_model_len|longer than the max"
)
_SIGKILL: Final = re.compile(r"SIGKILL|exit code -9\b|\b137\b|out of memory", re.IGNORECASE)
_WORK_DIED: Final = re.compile(r"WorkCrashedError|worker process (?:ended|is gone)")
_CUT: Final = re.compile(r"(?i)unexpected end of data|stream ended|broke off|EOF while parsing")
_NO_SUCH_PATH: Final = re.compile(
    r"(?i)^\W*(?:detail\W+not found\W*|404 page not found|cannot post .*|not found\W*|<.*|)$"
)
_JUDGE_MODEL: Final = re.compile(
    r"\bmodel_(unreachable|timeout|overloaded|rate_limited|error|bad_reply|auth|not_found)\b"
)
_RAISING: Final = frozenset(
    {"model_error", "model_bad_reply", "verifier_error", "agent_error", "tool_error", "seed_error"}
)


class FailedDetail(msgspec.Struct):
    """What a record says of a failure."""

    kind: str
    stage: str = ""
    message: str = ""
    instance: str | None = None
    endpoint: str | None = None
    status: int | None = None
    body: str | None = None
    chain: tuple[str, ...] = ()
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
        return self.failure or _foreign(self)


@dataclass(slots=True)
class Failures:
    """What the file holds."""

    groups: list[FailureGroup] = field(default_factory=list)
    lines: int = 0
    damaged: list[tuple[int, str]] = field(default_factory=list)
    first_at: float | None = None
    last_at: float | None = None
    settled: set[int] = field(default_factory=set)
    """Packed keys of rollouts that are not scored and have a failure."""
    attempts: list[tuple[int, FailedAttempt]] = field(default_factory=list)
    """With their lines, where only some rollouts were wanted."""


def read_failures(path: Path, scored: KeySet, wanted: Callable[[RolloutKey], bool] | None = None) -> Failures:
    """The attempts that failed; if only some rollouts are wanted, theirs one by one."""
    found = Failures()
    groups: dict[tuple[str, str], FailureGroup] = {}
    last: dict[int, FailureGroup] = {}
    decoder = msgspec.json.Decoder(FailedAttempt)
    records = record_file(path)
    if not records.exists():
        return found
    with records.open() as stream:
        for number, raw in enumerate(stream, 1):
            if not raw.strip():
                continue
            found.lines += 1
            try:
                line = decoder.decode(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                found.damaged.append((number, str(error))) if len(found.damaged) < _MOST_EXAMPLES else None
                continue
            if wanted is not None and not wanted(line.key):
                continue
            detail, key = line.detail, line.key
            group = _group_of(detail, groups)
            _add(group, detail, number, key)
            _note_time(found, detail)
            if key.packed not in scored:
                last[key.packed] = group
            if wanted is not None:
                found.attempts.append((number, line))
    for group in last.values():
        group.lost += 1
    found.settled = set(last)
    found.groups = sorted(groups.values(), key=lambda group: (-group.lost, -group.attempts))
    return found


def flavor_of(kind: str, message: str, body: str) -> str:
    """What tells attempts of one kind apart where that leads to another cause."""
    if kind in _RAISING:
        return _how_it_raised(kind, message, body)
    if kind == "model_rejected":
        return "overflow" if _OVERFLOW.search(body) else "grammar" if _GRAMMAR.search(body) else ""
    if kind == "model_not_found":
        return "path" if _NO_SUCH_PATH.match(body.strip()) else ""
    if kind == "judge_failed":
        asked = _JUDGE_MODEL.search(f"{message} {body}")
        return "" if asked is None else "settings" if asked[1] in {"auth", "not_found"} else "endpoint"
    if kind in {"worker_died", "instance_died"}:
        return "killed" if _SIGKILL.search(message) else ""
    return ""


def _how_it_raised(kind: str, message: str, body: str) -> str:
    if kind == "model_error" and _GRAMMAR_ENGINE.search(body):
        return "grammar"
    if kind == "model_bad_reply" and _CUT.search(message):
        return "cut"
    if not kind.startswith("model") and _WORK_DIED.search(body):
        return "crashed"
    return "empty" if "zero-length" in body[:200] else _emptiness(body)


def _emptiness(body: str) -> str:
    text = body.strip().strip("\"'")
    if text in {"", "b''", "null", "None", "Internal Server Error"}:
        return "empty"
    return "html" if text[:100].lstrip().startswith("<") else ""


def _foreign(line: FailedAttempt) -> FailedDetail:
    name = line.failure_class or ""
    said = line.judge_error or (line.error if isinstance(line.error, str) else orjson.dumps(line.error).decode())
    kind = name if name in KINDS else _FOREIGN.get(name, "agent_reported")
    return FailedDetail(kind, message=f"{name}: {said}", body=said if said != "null" else "")


def _group_of(detail: FailedDetail, groups: dict[tuple[str, str], FailureGroup]) -> FailureGroup:
    kind = detail.kind if detail.kind in KINDS else "unknown"  # of a newer Gymnast, perhaps
    flavor = flavor_of(kind, detail.message, detail.body or "")
    return groups.setdefault((kind, flavor), FailureGroup(kind, flavor))


def _add(group: FailureGroup, detail: FailedDetail, number: int, key: RolloutKey) -> None:
    group.attempts += 1
    group.instances[detail.instance or ""] += 1
    said = re.sub(r"[0-9]+", "0", (detail.body or detail.message)[:200])
    if said in group.bodies or len(group.bodies) < _MOST_BODIES:
        group.bodies[said] += 1
    if len(group.examples) < _MOST_EXAMPLES:
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
            )
        )


def _note_time(found: Failures, detail: FailedDetail) -> None:
    if detail.started_at:
        found.first_at = min(found.first_at or detail.started_at, detail.started_at)
        found.last_at = max(found.last_at or 0.0, detail.started_at)
