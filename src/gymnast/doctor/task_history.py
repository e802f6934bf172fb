"""The history of one task: each of its rollouts, attempt by attempt, and what to do next."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.doctor.facts import Facts, PlanFacts, RecordFacts, RunFacts
from gymnast.doctor.findings import quote_line
from gymnast.doctor.ranking import rank
from gymnast.doctor.read_failures import FailedAttempt, read_failures
from gymnast.doctor.read_logs import read_logs
from gymnast.doctor.read_run import read_rejection
from gymnast.doctor.rules import kinds
from gymnast.errors import NotFoundError, UserError
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.keys import KeySet, key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.types.task import RolloutKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.doctor.examine import Target
    from gymnast.doctor.findings import Finding
    from gymnast.doctor.read_failures import Failures
    from gymnast.store.paths import RunPaths

_MAX_TEXT: Final = 400


@dataclass(slots=True)
class RolloutHistory:
    """One rollout: its state and its failed attempts."""

    key: str
    reward: float | None = None
    """None if it is not scored."""
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
class TaskHistory:
    """A task: its rollouts, and the findings about its failures."""

    run: str
    task: int
    prompt: str
    rollouts: list[RolloutHistory]
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
                    "key": rollout.key,
                    "state": rollout.state,
                    "reward": rollout.reward,
                    "record": rollout.record or None,
                    **rollout.record_facts,
                    "running": rollout.running,
                    "attempts": rollout.attempts,
                }
                for rollout in self.rollouts
            ],
            "findings": [finding.as_json() for finding in self.findings],
            "next": self.next,
        }


def examine_task(target: Target, task: int, rollout: int | None = None) -> TaskHistory:
    paths = target.run
    if paths is None:
        raise UserError("--task needs a run", next="gymnast doctor RUN.jsonl --task N")

    def selects(key: RolloutKey) -> bool:
        return key.task == task and rollout in {None, key.rollout}

    planned = dict(_rows(paths.materialized_inputs, selects))
    histories = {key: RolloutHistory(key) for key in planned}
    scored = _read_scored(paths.output, selects, histories)
    failures = read_failures(paths.failures, scored, selects)
    for number, attempt in failures.attempts:
        history = histories.setdefault(str(attempt.key), RolloutHistory(str(attempt.key)))
        history.attempts.append(_attempt(paths.failures, number, attempt))
    if not histories:
        raise _not_found(paths, task, rollout)
    for entry in _running_attempts(target):
        if entry["key"] in histories:
            histories[entry["key"]].running = entry
    row = next((row for _, row in planned.values()), {})
    findings = _findings(paths, failures, histories, target)
    rollouts = sorted(histories.values(), key=lambda history: int(history.key.partition(":")[2]))
    return TaskHistory(str(paths.output), task, _prompt(row), rollouts, findings, _next(paths, rollouts, findings))


def _rows(path: Path, selects: Any) -> Iterator[tuple[str, tuple[int, dict[str, Any]]]]:
    """The lines of the selected rollouts, by key."""
    if not path.exists():
        return
    for number, line in numbered_lines(path):
        key = key_of_line(line)
        if key is not None and selects(key):
            yield str(key), (number, orjson.loads(line))


def _read_scored(output: Path, selects: Any, histories: dict[str, RolloutHistory]) -> KeySet:
    scored = KeySet()
    for key, (number, row) in _rows(output, selects):
        history = histories.setdefault(key, RolloutHistory(key))
        if history.reward is not None or not isinstance(row.get("reward"), int | float):
            continue
        history.reward, history.record = float(row["reward"]), f"{output}:{number}"
        response = row.get("response") or {}
        history.record_facts = {
            "usage": response.get("usage"),
            "incomplete": (response.get("incomplete_details") or {}).get("reason"),
            "verifier_said": _verifier_fields(row),
        }
        first, second = (int(part) for part in key.split(":"))
        scored.add(RolloutKey(first, second).packed)
    return scored


def _verifier_fields(row: dict[str, Any]) -> dict[str, Any]:
    """The verifier's own scalar fields, such as the extracted and the expected answer."""
    own = {name: value for name, value in row.items() if not name.startswith(("_ng", "ng_")) and name != "reward"}
    return {name: value for name, value in own.items() if isinstance(value, str | int | float | bool | None)}


def _attempt(path: Path, number: int, attempt: FailedAttempt) -> dict[str, Any]:
    detail = attempt.detail
    fields = {
        "attempt": attempt.attempt,
        "at": f"{path}:{number}",
        "kind": detail.kind,
        "stage": detail.stage,
        "instance": detail.instance,
        "endpoint": detail.endpoint,
        "status": detail.status,
        "said": quote_line(detail.message, _MAX_TEXT),
        "body": quote_line(detail.body, _MAX_TEXT) if detail.body and detail.body not in detail.message else None,
        "chain": list(detail.chain),
        "started_at": detail.started_at or None,
        "seconds": detail.seconds or None,
    }
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def _running_attempts(target: Target) -> list[dict[str, Any]]:
    stacks = {entry["key"]: entry for entry in target.stacks}
    oldest = list((target.live or {}).get("oldest", ()))
    return [stacks.get(entry["key"], entry) for entry in oldest] + [
        entry for key, entry in stacks.items() if all(key != other["key"] for other in oldest)
    ]


def _findings(
    paths: RunPaths, failures: Failures, histories: dict[str, RolloutHistory], target: Target
) -> list[Finding]:
    """Apply the rules to this task's failures only, with the logs of the instances involved."""
    scored = sum(history.reward is not None for history in histories.values())
    plan = PlanFacts(rows=len(histories), tasks=1)
    records = RecordFacts(lines=scored, scored=scored)
    run = RunFacts(
        paths.output, None, None, plan, records, failures.groups, failures.lines, None, None, is_running=False
    )
    run.schema = read_rejection(paths, failures.groups)
    names = {name for group in failures.groups for name in group.instances if name}
    logs = read_logs(path for name in sorted(names) if (path := paths.logs / f"{name}.log").is_file())
    facts = Facts(str(paths.output), time.time(), run, logs, probes=target.probes)
    return rank([finding for rule in kinds.RULES if (finding := rule.apply(facts)) is not None], facts)


def _next(paths: RunPaths, rollouts: list[RolloutHistory], findings: list[Finding]) -> str:
    if findings:
        return findings[0].action
    if any(rollout.state == "running" for rollout in rollouts):
        return f"it is running; gymnast doctor {paths.output} --live shows whether it is stuck"
    if any(rollout.state == "owed" for rollout in rollouts):
        return f"it was not finished: gymnast doctor {paths.output} shows why; run {_command(paths)} with --resume"
    if any(rollout.state == "failed" for rollout in rollouts):
        return f"run {_command(paths)} with --resume --retry-failed"
    return f"read the transcript: gymnast report {paths.output} --show {rollouts[0].key}"


def _command(paths: RunPaths) -> str:
    return f"the same {'gymnast submit' if ChunkLayout.of(paths).is_planned else 'collect'} command"


def _prompt(row: dict[str, Any]) -> str:
    params = row.get("responses_create_params") or {}
    prompt = params.get("input") if isinstance(params, dict) else None
    if isinstance(prompt, list):
        users = [item for item in prompt if isinstance(item, dict) and item.get("role") == "user"]
        prompt = users[-1].get("content") if users else None
    if isinstance(prompt, list):
        prompt = " ".join(str(part.get("text", "")) for part in prompt if isinstance(part, dict))
    return quote_line(str(prompt or ""), _MAX_TEXT)


def _not_found(paths: RunPaths, task: int, rollout: int | None) -> NotFoundError:
    what = f"task {task}" if rollout is None else f"rollout {task}:{rollout}"
    return NotFoundError(
        f"the run has no {what}: neither a planned row, a record nor a failure",
        where=str(paths.output),
        next="tasks are numbered from 0 in the order of the input file; gymnast status RUN shows the counts",
    )
