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
from gymnast.types.failure import KINDS
from gymnast.types.task import ATTEMPT_INDEX, FAILURE_CLASS, JUDGE_ERROR, ROLLOUT_INDEX, TASK_INDEX, RolloutKey

if TYPE_CHECKING:
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
    r"(?i)grammar|xgrammar|outlines|guided|json[ _]?schema|tool.{0,40}schema|schema.{0,40}tool"
)
_OVERFLOW: Final = re.compile(
    r"(?i)context length|maximum model length|too many tokens|max_model_len|longer than the max"
)
_SIGKILL: Final = re.compile(r"SIGKILL|exit code -9|137|out of memory", re.IGNORECASE)


class _Detail(msgspec.Struct):
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


class _Line(msgspec.Struct):
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    failure: _Detail | None = None
    failure_class: str | None = msgspec.field(name=FAILURE_CLASS, default=None)
    judge_error: str | None = msgspec.field(name=JUDGE_ERROR, default=None)
    attempt: int = msgspec.field(name=ATTEMPT_INDEX, default=0)
    error: Any = None


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


def read_failures(path: Path, scored: KeySet) -> Failures:
    """The attempts that failed."""
    found = Failures()
    groups: dict[tuple[str, str], FailureGroup] = {}
    last: dict[int, FailureGroup] = {}
    decoder = msgspec.json.Decoder(_Line)
    if not path.exists():
        return found
    with path.open("rb", buffering=1 << 20) as stream:
        for number, raw in enumerate(stream, 1):
            if not raw.strip():
                continue
            found.lines += 1
            try:
                line = decoder.decode(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                found.damaged.append((number, str(error))) if len(found.damaged) < _MOST_EXAMPLES else None
                continue
            detail = line.failure or _foreign(line)
            group = _group_of(detail, groups)
            key = RolloutKey(line.task, line.rollout)
            _add(group, detail, number, key)
            _note_time(found, detail)
            if key.packed not in scored:
                last[key.packed] = group
    for group in last.values():
        group.lost += 1
    found.settled = set(last)
    found.groups = sorted(groups.values(), key=lambda group: (-group.lost, -group.attempts))
    return found


def flavor_of(kind: str, message: str, body: str) -> str:
    """What tells attempts of one kind apart where that leads to another cause."""
    if kind in {"model_error", "model_bad_reply", "verifier_error", "agent_error", "tool_error"}:
        return "empty" if "zero-length" in body[:200] else _emptiness(body)
    if kind == "model_rejected":
        return "grammar" if _GRAMMAR.search(body) else "overflow" if _OVERFLOW.search(body) else ""
    if kind in {"worker_died", "instance_died"}:
        return "killed" if _SIGKILL.search(message) else ""
    return ""


def _emptiness(body: str) -> str:
    text = body.strip().strip("\"'")
    if text in {"", "b''", "null", "None", "Internal Server Error"}:
        return "empty"
    return "html" if text[:100].lstrip().startswith("<") else ""


def _foreign(line: _Line) -> _Detail:
    name = line.failure_class or ""
    said = line.judge_error or (line.error if isinstance(line.error, str) else orjson.dumps(line.error).decode())
    kind = name if name in KINDS else _FOREIGN.get(name, "agent_reported")
    return _Detail(kind, message=f"{name}: {said}", body=said if said != "null" else "")


def _group_of(detail: _Detail, groups: dict[tuple[str, str], FailureGroup]) -> FailureGroup:
    kind = detail.kind if detail.kind in KINDS else "unknown"  # of a newer Gymnast, perhaps
    flavor = flavor_of(kind, detail.message, detail.body or "")
    return groups.setdefault((kind, flavor), FailureGroup(kind, flavor))


def _add(group: FailureGroup, detail: _Detail, number: int, key: RolloutKey) -> None:
    group.attempts += 1
    group.instances[detail.instance or ""] += 1
    group.stages[detail.stage] += 1
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


def _note_time(found: Failures, detail: _Detail) -> None:
    if detail.started_at:
        found.first_at = min(found.first_at or detail.started_at, detail.started_at)
        found.last_at = max(found.last_at or 0.0, detail.started_at)
