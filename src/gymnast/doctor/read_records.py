"""Reads the plan and the scored records of a run in one pass each: counts, keys, odd rewards, responses and repeats."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.doctor.facts import PlanFacts, RecordFacts, RepeatFacts, RewardRange
from gymnast.doctor.transcripts import Rollout
from gymnast.store.keys import KeySet, key_of_line
from gymnast.store.records import record_file
from gymnast.types.task import AGENT_REF, PARAMS, ROLLOUT_INDEX, TASK_INDEX, RolloutKey
from gymnast.types.truncation import Truncation, truncation_of_reason
from gymnast.types.usage import MODEL_USAGE

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from gymnast.store.paths import RunPaths

_MAX_EXAMPLES: Final = 5
_MAX_TASKS: Final = 16
_NOT_FOUND: Final = re.compile(rb'\\"detail\\": ?\\"Not Found\\"')
_BAD_ARGUMENTS: Final = b"Invalid tool call arguments"
_NO_TEXT: Final = (b'"text":""', b'"text": ""', b'"text":" ', b'"text":"\\n')
"""Texts that are empty, or may be blank."""
_NO_TOOLS: Final = b'"tools":[]'


class _Usage(msgspec.Struct):
    output_tokens: int | None = None


class _Response(msgspec.Struct):
    usage: _Usage | None = None
    incomplete_details: dict[str, Any] | None = None


class _ModelUsage(msgspec.Struct):
    unmetered_calls: int = 0
    output_tokens: int = 0


class _Agent(msgspec.Struct):
    name: str = ""


class _Scored(msgspec.Struct):
    reward: float
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    response: _Response | None = None
    model_usage: _ModelUsage | None = msgspec.field(name=MODEL_USAGE, default=None)
    agent: _Agent | None = msgspec.field(name=AGENT_REF, default=None)


@dataclass(slots=True)
class Records:
    """The facts about the records, and their rollouts."""

    facts: RecordFacts = field(default_factory=RecordFacts)
    keys: KeySet = field(default_factory=KeySet)


def read_records(path: Path) -> Records | None:
    """Read the scored records; None if the file does not exist."""
    file = record_file(path)
    if not file.exists():
        return None
    records = Records()
    facts, decoder = records.facts, msgspec.json.Decoder(_Scored)
    raw = b"\n"
    with file.open() as stream:
        for number, raw in enumerate(stream, 1):
            if not raw.strip():
                continue
            facts.lines += 1
            try:
                record = decoder.decode(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                if len(facts.damaged) < _MAX_EXAMPLES:
                    facts.damaged.append((number, str(error)))
                continue
            _count(records, record, raw)
    facts.is_torn = not raw.endswith(b"\n")
    facts.modified_at = file.modified_at()
    aside = path.with_name(path.name + ".damaged")
    facts.repaired = aside.read_bytes().count(b"\n") if aside.exists() else 0
    return records


def _count(records: Records, record: _Scored, raw: bytes) -> None:
    facts, key = records.facts, RolloutKey(record.task, record.rollout)
    if key.packed in records.keys:
        facts.duplicates += 1
        if len(facts.duplicate_keys) < _MAX_EXAMPLES:
            facts.duplicate_keys.append(str(key))
        return
    records.keys.add(key.packed)
    facts.scored += 1
    _count_reward(facts, record)
    _count_response(facts, record)
    if record.response is not None and record.response.incomplete_details is None and _is_empty(raw):
        facts.empty += 1
        if len(facts.empty_keys) < _MAX_EXAMPLES:
            facts.empty_keys.append(str(key))
    if b"function_call_output" in raw:
        _count_tools(facts, raw)


def _count_reward(facts: RecordFacts, record: _Scored) -> None:
    agent, reward = record.agent.name if record.agent is not None else "", record.reward
    rewards = facts.rewards.get(agent)
    if rewards is None:
        rewards = facts.rewards[agent] = RewardRange(reward, reward)
    rewards.count += 1
    if reward < rewards.low:
        rewards.low = reward
    elif reward > rewards.high:
        rewards.high = reward
    if len(rewards.tasks) < _MAX_TASKS:
        rewards.tasks.add(record.task)


def _is_empty(raw: bytes) -> bool:
    """True if a trajectory has neither text for the user nor a tool call. A cheap test comes first."""
    if b'"output_text"' in raw and not any(empty in raw for empty in _NO_TEXT):
        return False
    output = orjson.loads(raw)["response"].get("output")
    items = [item for item in output or () if isinstance(item, dict)]
    if any(item.get("type") == "function_call" for item in items):
        return False
    parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or ()]
    return not any(str(part.get("text") if isinstance(part, dict) else part).strip() for part in parts)


def _count_response(facts: RecordFacts, record: _Scored) -> None:
    response = record.response
    usage = response.usage if response is not None else None
    if usage is None or (record.model_usage is not None and record.model_usage.unmetered_calls):
        facts.without_usage += 1
    reason = truncation_of_reason(response.incomplete_details) if response is not None else None
    if reason is Truncation.LENGTH:
        if usage is None or not usage.output_tokens:
            facts.overflowed += 1
        else:
            facts.truncated += 1


def _count_tools(facts: RecordFacts, raw: bytes) -> None:
    facts.bad_arguments += _BAD_ARGUMENTS in raw
    if not _NOT_FOUND.search(raw):
        return
    for name in _unowned_tools(orjson.loads(raw)):
        facts.unowned_tools[name] += 1


def _unowned_tools(record: Any) -> set[str]:
    """The called tools of a trajectory whose reply was "Not Found"."""
    items = (record.get("response") or {}).get("output") or []
    names = {item.get("call_id"): item.get("name") for item in items if item.get("type") == "function_call"}
    missing = (
        item.get("call_id")
        for item in items
        if item.get("type") == "function_call_output" and '"Not Found"' in str(item.get("output"))
    )
    return {str(names.get(call_id) or "?") for call_id in missing}


def read_plan(path: Path, records: Records | None, settled: Collection[int]) -> PlanFacts | None:
    """Read the materialized inputs. Adds to `records` the planned rollouts without outcome, and unplanned ones."""
    if not path.exists():
        return None
    facts, planned, tasks = PlanFacts(modified_at=path.stat().st_mtime), KeySet(), KeySet()
    missing = 0
    missing_keys: list[str] = []
    with path.open("rb", buffering=1 << 20) as stream:
        for raw in stream:
            facts.rows += 1
            facts.crc32 = zlib.crc32(raw, facts.crc32)
            facts.has_tools = facts.has_tools or (b'"tools":' in raw and _NO_TOOLS not in raw)
            key = key_of_line(raw.rstrip(b"\r\n"))
            if key is None:
                facts.keyless += 1
                continue
            planned.add(key.packed)
            tasks.add(key.task)
            if records is not None and key.packed not in records.keys and key.packed not in settled:
                missing += 1
                if len(missing_keys) < _MAX_EXAMPLES:
                    missing_keys.append(str(key))
    facts.tasks = len(tasks)
    if records is not None:
        records.facts.missing, records.facts.missing_keys = missing, missing_keys
        matched = facts.rows - facts.keyless - missing - sum(1 for packed in settled if packed in planned)
        records.facts.unplanned = max(0, len(records.keys) - matched)
    return facts


_MAX_SAMPLE: Final = 400
_MIN_REPEATS: Final = 4


def study_repeats(paths: RunPaths) -> RepeatFacts | None:
    """Compare the texts of each task's repeats. None if no task of the sample has several."""
    groups: dict[object, list[Rollout]] = defaultdict(list)
    with record_file(paths.output).open() as stream:
        for number, raw in enumerate(stream):
            if number >= _MAX_SAMPLE:
                break
            try:
                record = orjson.loads(raw)
            except orjson.JSONDecodeError:
                continue
            if isinstance(record, dict):
                rollout = Rollout(record, None)
                groups[rollout.task].append(rollout)
    repeated = {task: rollouts for task, rollouts in groups.items() if len(rollouts) >= _MIN_REPEATS}
    if not repeated:
        return None
    same = [task for task, rollouts in repeated.items() if len({rollout.text for rollout in rollouts}) == 1]
    rollouts = [rollout for group in repeated.values() for rollout in group]
    return RepeatFacts(
        len(repeated),
        len(same),
        max(len(group) for group in repeated.values()),
        all(_temperature(rollout) == 0 for rollout in rollouts),
        repeated[same[0]][0].key if same else "",
    )


def _temperature(rollout: Rollout) -> object:
    params = rollout.record.get(PARAMS)
    return params.get("temperature") if isinstance(params, dict) else None
