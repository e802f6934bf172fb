"""One task of a run: what became of each of its rollouts, attempt by attempt, and what to do about it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.doctor.facts import Facts, PlanFacts, RecordFacts, RunFacts
from gymnast.doctor.findings import quoted
from gymnast.doctor.ranking import ranked
from gymnast.doctor.read_failures import FailedAttempt, read_failures
from gymnast.doctor.read_logs import read_logs
from gymnast.doctor.read_run import read_refusal
from gymnast.doctor.rules import kinds
from gymnast.errors import NotFoundError, UserError
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.keys import key_of_line
from gymnast.store.keyset import KeySet
from gymnast.store.lines import numbered_lines
from gymnast.types.task import RolloutKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.doctor.examine import Subject
    from gymnast.doctor.findings import Finding
    from gymnast.doctor.read_failures import Failures
    from gymnast.store.paths import RunPaths

_LONGEST: Final = 400


@dataclass(slots=True)
class RolloutStory:
    """One rollout: how it stands, and its failed attempts."""

    key: str
    reward: float | None = None
    """None where it is not scored."""
    record: str = ""
    """`file:line` of the scored record."""
    record_facts: dict[str, Any] = field(default_factory=dict)
    running: dict[str, Any] | None = None
    attempts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.reward is not None:
            return "scored"
        return "running" if self.running is not None else "failed" if self.attempts else "owed"


@dataclass(slots=True)
class TaskStory:
    """A task."""

    run: str
    task: int
    prompt: str
    rollouts: list[RolloutStory]
    findings: list[Finding]
    next: str

    @property
    def is_scored(self) -> bool:
        return all(rollout.reward is not None for rollout in self.rollouts)

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "task": self.task,
            "prompt": self.prompt,
            "rollouts": [
                {
                    "key": one.key,
                    "state": one.state,
                    "reward": one.reward,
                    "record": one.record or None,
                    **one.record_facts,
                    "running": one.running,
                    "attempts": one.attempts,
                }
                for one in self.rollouts
            ],
            "findings": [finding.as_json() for finding in self.findings],
            "next": self.next,
        }


def examine_task(subject: Subject, task: int, rollout: int | None = None) -> TaskStory:
    """What happened to a task, or to one of its rollouts."""
    paths = subject.run
    if paths is None:
        raise UserError("--task asks about a run, and none was named", next="gymnast doctor RUN.jsonl --task N")

    def wanted(key: RolloutKey) -> bool:
        return key.task == task and rollout in {None, key.rollout}

    planned = dict(_rows(paths.materialized_inputs, wanted))
    stories = {key: RolloutStory(key) for key in planned}
    scored = _read_scored(paths.output, wanted, stories)
    failures = read_failures(paths.failures, scored, wanted)
    for number, attempt in failures.attempts:
        story = stories.setdefault(str(attempt.key), RolloutStory(str(attempt.key)))
        story.attempts.append(_attempt(paths.failures, number, attempt))
    if not stories:
        raise _unknown(paths, task, rollout)
    for entry in _in_flight(subject):
        if entry["key"] in stories:
            stories[entry["key"]].running = entry
    row = next((row for _, row in planned.values()), {})
    findings = _findings(paths, failures, stories, subject)
    rollouts = sorted(stories.values(), key=lambda one: int(one.key.partition(":")[2]))
    return TaskStory(str(paths.output), task, _prompt(row), rollouts, findings, _next(paths, rollouts, findings))


def _rows(path: Path, wanted: Any) -> Iterator[tuple[str, tuple[int, dict[str, Any]]]]:
    """Lines of these rollouts, by key."""
    if not path.exists():
        return
    for number, line in numbered_lines(path):
        key = key_of_line(line)
        if key is not None and wanted(key):
            yield str(key), (number, orjson.loads(line))


def _read_scored(output: Path, wanted: Any, stories: dict[str, RolloutStory]) -> KeySet:
    scored = KeySet()
    for key, (number, row) in _rows(output, wanted):
        story = stories.setdefault(key, RolloutStory(key))
        if story.reward is not None or not isinstance(row.get("reward"), int | float):
            continue
        story.reward, story.record = float(row["reward"]), f"{output}:{number}"
        response = row.get("response") or {}
        story.record_facts = {
            "usage": response.get("usage"),
            "incomplete": (response.get("incomplete_details") or {}).get("reason"),
            "verifier_said": _verifier_said(row),
        }
        first, second = (int(part) for part in key.split(":"))
        scored.add(RolloutKey(first, second).packed)
    return scored


def _verifier_said(row: dict[str, Any]) -> dict[str, Any]:
    """The verifier's own small fields: what it extracted, what it expected."""
    own = {name: value for name, value in row.items() if not name.startswith(("_ng", "ng_")) and name != "reward"}
    return {name: value for name, value in own.items() if isinstance(value, str | int | float | bool | None)}


def _attempt(path: Path, number: int, attempt: FailedAttempt) -> dict[str, Any]:
    detail = attempt.detail
    found = {
        "attempt": attempt.attempt,
        "at": f"{path}:{number}",
        "kind": detail.kind,
        "stage": detail.stage,
        "instance": detail.instance,
        "endpoint": detail.endpoint,
        "status": detail.status,
        "said": quoted(detail.message, _LONGEST),
        "body": quoted(detail.body, _LONGEST) if detail.body and detail.body not in detail.message else None,
        "chain": list(detail.chain),
        "started_at": detail.started_at or None,
        "seconds": detail.seconds or None,
    }
    return {name: value for name, value in found.items() if value not in (None, "", [])}


def _in_flight(subject: Subject) -> list[dict[str, Any]]:
    stacks = {entry["key"]: entry for entry in subject.stacks}
    oldest = list((subject.live or {}).get("oldest", ()))
    return [stacks.get(entry["key"], entry) for entry in oldest] + [
        entry for key, entry in stacks.items() if all(key != other["key"] for other in oldest)
    ]


def _findings(paths: RunPaths, failures: Failures, stories: dict[str, RolloutStory], subject: Subject) -> list[Finding]:
    """What the rules say of this task's failures alone, with the logs of the instances they name."""
    scored = sum(story.reward is not None for story in stories.values())
    plan = PlanFacts(rows=len(stories), tasks=1)
    records = RecordFacts(lines=scored, scored=scored)
    run = RunFacts(
        paths.output, None, None, plan, records, failures.groups, failures.lines, None, None, is_running=False
    )
    run.schema = read_refusal(paths, failures.groups)
    names = {name for group in failures.groups for name in group.instances if name}
    logs = read_logs(path for name in sorted(names) if (path := paths.logs / f"{name}.log").is_file())
    facts = Facts(str(paths.output), time.time(), run, logs, probes=subject.probes)
    return ranked([found for rule in kinds.RULES if (found := rule.look(facts)) is not None], facts)


def _next(paths: RunPaths, rollouts: list[RolloutStory], findings: list[Finding]) -> str:
    if findings:
        return findings[0].action
    if any(one.state == "running" for one in rollouts):
        return f"it is being worked on: gymnast doctor {paths.output} --live says whether it is stuck"
    if any(one.state == "owed" for one in rollouts):
        return f"it was never finished: gymnast doctor {paths.output} says why; {_command(paths)} with --resume"
    if any(one.state == "failed" for one in rollouts):
        return f"run {_command(paths)} with --resume --retry-failed"
    return f"read it: gymnast report {paths.output} --show {rollouts[0].key}"


def _command(paths: RunPaths) -> str:
    return f"the same {'gymnast submit' if ChunkLayout.of(paths).is_planned else 'collect'} command"


def _prompt(row: dict[str, Any]) -> str:
    params = row.get("responses_create_params") or {}
    asked = params.get("input") if isinstance(params, dict) else None
    if isinstance(asked, list):
        users = [item for item in asked if isinstance(item, dict) and item.get("role") == "user"]
        asked = users[-1].get("content") if users else None
    if isinstance(asked, list):
        asked = " ".join(str(part.get("text", "")) for part in asked if isinstance(part, dict))
    return quoted(str(asked or ""), _LONGEST)


def _unknown(paths: RunPaths, task: int, rollout: int | None) -> NotFoundError:
    what = f"task {task}" if rollout is None else f"rollout {task}:{rollout}"
    return NotFoundError(
        f"the run has no {what}: no planned row, no record and no failure",
        where=str(paths.output),
        next="tasks are numbered from 0 in the order of the input file; gymnast status RUN has the counts",
    )
