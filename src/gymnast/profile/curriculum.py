"""From a profile to training data: tasks judged by difficulty, useless ones dropped, the rest filtered or scheduled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import orjson

from gymnast.errors import DataError
from gymnast.profile.difficulty import BUCKETS, Thresholds, difficulty
from gymnast.profile.schedule import drawn
from gymnast.store.lines import LinesAt
from gymnast.store.replacing import replaced
from gymnast.types.task import AGENT_REF, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from gymnast.profile.difficulty import Bucket, Difficulty
    from gymnast.profile.schedule import Schedule
    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class CurriculumRequest:
    """What is made of a profile."""

    profiles: tuple[Path, ...]
    output: Path
    group_size: int = 8
    pass_at: float = 0.5
    """A rollout passes with a reward of at least this."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    keep: frozenset[Bucket] = frozenset({"hard", "medium", "easy"})
    schedule: Schedule | None = None
    blend: Mapping[str, float] | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class JudgedTask:
    """A task of a profile: where its line is, and how hard it is."""

    source: int
    offset: int
    task: int
    agent: str
    difficulty: Difficulty
    mean_reward: float
    std_reward: float


@dataclass(frozen=True, slots=True)
class CurriculumSummary:
    """What came of it."""

    tasks: int
    kept: int
    buckets: dict[str, int]
    buckets_by_agent: dict[str, dict[str, int]]
    group_size: int
    usable_signal_before: float
    """The expected share of groups with both passes and failures, over all tasks."""
    usable_signal_after: float
    rows: int
    steps: list[dict[str, float]]
    """Of a schedule: the target, and the mean pass rate that was drawn."""


class _Line(msgspec.Struct):
    rollout_infos: list[dict[str, Any]]
    task: int = msgspec.field(name=TASK_INDEX)
    sample: dict[str, msgspec.Raw] = {}


_LINES = msgspec.json.Decoder(_Line)


def write_curriculum(request: CurriculumRequest) -> CurriculumSummary:
    """Judge every task of the profiles and write training rows, with what the profile says attached."""
    judged = list(judged_tasks(request))
    if not judged:
        raise DataError("the profile has no tasks", where=str(request.profiles[0]))
    kept = [task for task in judged if task.difficulty.bucket in request.keep]
    if not kept:
        raise DataError(f"no task is left of {len(judged)}: {_counted(judged)}", next="keep more buckets (--keep)")
    steps = _steps(kept, request)
    rows = 0
    with replaced(request.output) as out, LinesAt(request.profiles) as lines:
        for step, places in enumerate(steps):
            for place in places:
                number = step if request.schedule is not None else None
                task = kept[place]
                sample = orjson.loads(lines.line(task.source, task.offset))["sample"]
                out.write(orjson.dumps(training_row(sample, task, number)) + b"\n")
                rows += 1
    return _summary(judged, kept, steps, rows, request)


def judged_tasks(request: CurriculumRequest) -> Iterator[JudgedTask]:
    """Every task of the profiles, read once."""
    for source, path in enumerate(request.profiles):
        offset = 0
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    found = _LINES.decode(line)
                    rewards = [float(info["reward"]) for info in found.rollout_infos]
                except (msgspec.MsgspecError, KeyError, ValueError) as error:
                    where = f"{path} line {number}"
                    raise DataError(f"this is no line of a profile: {error}", where=where) from error
                yield _judged(found, rewards, source, offset, request)
                offset += len(line)


def _judged(line: _Line, rewards: list[float], source: int, offset: int, request: CurriculumRequest) -> JudgedTask:
    passed = sum(reward >= request.pass_at for reward in rewards)
    ref = line.sample.get(AGENT_REF)
    agent = str((orjson.loads(bytes(ref)) or {}).get("name", "")) if ref is not None else ""
    return JudgedTask(
        source,
        offset,
        line.task,
        agent,
        difficulty(passed, len(rewards), request.group_size, request.thresholds),
        float(np.mean(rewards)),
        float(np.std(rewards, ddof=1)) if len(rewards) > 1 else 0.0,
    )


def _steps(kept: Sequence[JudgedTask], request: CurriculumRequest) -> list[list[int]]:
    if request.schedule is None:
        return [list(range(len(kept)))]
    rates = [task.difficulty.pass_rate for task in kept]
    return drawn(rates, [task.agent for task in kept], request.schedule, request.blend, request.seed)


def training_row(sample: JsonObject, task: JudgedTask, step: int | None) -> JsonObject:
    """A task's row with its profile."""
    found = task.difficulty
    profile: JsonObject = {
        "task_index": task.task,
        "pass_rate": found.pass_rate,
        "pass_rate_low": found.low,
        "pass_rate_high": found.high,
        "num_rollouts": found.rollouts,
        "mean_reward": task.mean_reward,
        "std_reward": task.std_reward,
        "usable_signal": found.usable_signal,
        "bucket": found.bucket,
    }
    if step is not None:
        profile["step"] = step
    return {**sample, "reward_profile": profile}


def _summary(
    judged: Sequence[JudgedTask],
    kept: Sequence[JudgedTask],
    steps: Sequence[Sequence[int]],
    rows: int,
    request: CurriculumRequest,
) -> CurriculumSummary:
    agents = sorted({task.agent for task in judged})
    schedule = request.schedule
    return CurriculumSummary(
        tasks=len(judged),
        kept=len(kept),
        buckets=_counted(judged),
        buckets_by_agent={name: _counted([task for task in judged if task.agent == name]) for name in agents},
        group_size=request.group_size,
        usable_signal_before=float(np.mean([task.difficulty.usable_signal for task in judged])),
        usable_signal_after=float(np.mean([task.difficulty.usable_signal for task in kept])),
        rows=rows,
        steps=[
            {
                "target": schedule.target(step),
                "pass_rate": float(np.mean([kept[place].difficulty.pass_rate for place in places])),
            }
            for step, places in enumerate(steps)
        ]
        if schedule is not None
        else [],
    )


def _counted(tasks: Sequence[JudgedTask]) -> dict[str, int]:
    found = Counter(task.difficulty.bucket for task in tasks)
    return {bucket: found.get(bucket, 0) for bucket in BUCKETS}
