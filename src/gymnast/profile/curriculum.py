"""Makes training data from profiles: tasks are rated by difficulty, then filtered or scheduled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import orjson

from gymnast.errors import DataError
from gymnast.profile.difficulty import BUCKETS, Thresholds, difficulty
from gymnast.profile.run_profile import output_of_profile
from gymnast.profile.schedule import draw_schedule
from gymnast.store.atomic import atomic_output
from gymnast.store.labels import LabelFilter, read_labels
from gymnast.store.lines import LinesAt
from gymnast.types.task import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from gymnast.profile.difficulty import Bucket, Difficulty
    from gymnast.profile.schedule import Schedule
    from gymnast.store.labels import Labels
    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class CurriculumRequest:
    """What to make from which profiles."""

    profiles: tuple[Path, ...]
    output: Path
    group_size: int = 8
    pass_at: float = 0.5
    """A rollout passes with a reward of at least this."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    keep: frozenset[Bucket] = frozenset({"hard", "medium", "easy"})
    max_truncated: float = 1.0
    """Drop tasks with a larger share of truncated rollouts."""
    schedule: Schedule | None = None
    blend: Mapping[str, float] | None = None
    seed: int = 0
    by_label: LabelFilter = field(default_factory=LabelFilter)
    """Which rollouts count. A task without any is dropped."""


@dataclass(frozen=True, slots=True)
class RatedTask:
    """A task of a profile: the position of its line, and its difficulty."""

    source: int
    offset: int
    task: int
    agent: str
    difficulty: Difficulty
    mean_reward: float
    std_reward: float
    truncated: float
    """The share of its rollouts that a length or step limit cut off."""


@dataclass(frozen=True, slots=True)
class CurriculumSummary:
    """The result of writing a curriculum."""

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
    """For a schedule: the target and the mean pass rate of each step."""
    dropped_truncated: int = 0
    """Tasks of the buckets to keep that were dropped for their share of truncated rollouts."""
    dropped_labels: int = 0
    """Tasks without a rollout that the labels leave."""


class _Line(msgspec.Struct):
    rollout_infos: list[dict[str, Any]]
    task: int = msgspec.field(name=TASK_INDEX)
    sample: dict[str, msgspec.Raw] = {}
    num_truncated: int = 0


_LINES = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class _DroppedTasks:
    """Tasks that are left out, by reason."""

    truncated: int
    labels: int


def write_curriculum(request: CurriculumRequest) -> CurriculumSummary:
    """Rate every task of the profiles and write training rows with their profiles."""
    labels = [read_labels(output_of_profile(path)) for path in request.profiles] if request.by_label else []
    request.by_label.check(labels)
    rated = list(rate_tasks(request, labels))
    if not rated:
        raise DataError("the profile has no tasks", where=str(request.profiles[0]))
    tasks = [task for task in rated if task is not None]
    if not tasks:
        raise DataError(f"none of {len(rated)} tasks is left: {request.by_label.describe()}", next="change the labels")
    selection = [task for task in tasks if task.difficulty.bucket in request.keep]
    selected = [task for task in selection if task.truncated <= request.max_truncated]
    if not selected:
        raise _nothing_left_error(tasks, selection, request)
    steps = _steps(selected, request)
    with atomic_output(request.output) as out, LinesAt(request.profiles) as lines:
        for step, indices in enumerate(steps):
            for task in (selected[index] for index in indices):
                sample = orjson.loads(lines.line(task.source, task.offset))["sample"]
                row = training_row(sample, task, step if request.schedule is not None else None)
                out.write(orjson.dumps(row) + b"\n")
    dropped = _DroppedTasks(truncated=len(selection) - len(selected), labels=len(rated) - len(tasks))
    return _summary(tasks, selected, steps, request, dropped)


def _nothing_left_error(tasks: Sequence[RatedTask], kept: Sequence[RatedTask], request: CurriculumRequest) -> DataError:
    counts = ", ".join(f"{count} {bucket}" for bucket, count in _count_buckets(tasks).items() if count)
    if kept:
        return DataError(
            f"none of {len(tasks)} tasks is left: of all {len(kept)} to keep, more than {request.max_truncated:.0%} of "
            "the rollouts were truncated",
            next="raise --max-truncated, or collect with a larger --max-output-tokens",
        )
    buckets = ", ".join(bucket for bucket in BUCKETS if bucket in request.keep) or "none"
    return DataError(
        f"none of {len(tasks)} tasks is left: they are {counts}, and the buckets to keep are {buckets}",
        next="keep more buckets (--keep)",
    )


def rate_tasks(request: CurriculumRequest, labels: Sequence[Labels] = ()) -> Iterator[RatedTask | None]:
    """Read and rate every task of the profiles; None for one whose rollouts all have labels that are not wanted."""
    for source, path in enumerate(request.profiles):
        offset = 0
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    profile = _LINES.decode(line)
                    rewards = [float(info["reward"]) for info in profile.rollout_infos]
                except (msgspec.MsgspecError, KeyError, ValueError) as error:
                    raise DataError(f"not a line of a profile: {error}", where=f"{path} line {number}") from error
                if not rewards:
                    raise DataError("a task of the profile has no rollouts", where=f"{path} line {number}")
                if request.by_label:
                    rewards = list(_labelled_rewards(profile, rewards, labels[source], request.by_label))
                yield _rate(profile, rewards, source, offset, request) if rewards else None
                offset += len(line)


def _labelled_rewards(line: _Line, rewards: list[float], labels: Labels, by_label: LabelFilter) -> Iterator[float]:
    """The rewards of the rollouts that labels leave. Profiles of other tools may not number them."""
    for number, (info, reward) in enumerate(zip(line.rollout_infos, rewards, strict=True)):
        if by_label.accepts(labels, line.task, info.get(ROLLOUT_INDEX, number)):
            yield reward


def _rate(line: _Line, rewards: list[float], source: int, offset: int, request: CurriculumRequest) -> RatedTask:
    passed = sum(reward >= request.pass_at for reward in rewards)
    ref = line.sample.get(AGENT_REF)
    agent = str((orjson.loads(bytes(ref)) or {}).get("name", "")) if ref is not None else ""
    return RatedTask(
        source,
        offset,
        line.task,
        agent,
        difficulty(passed, len(rewards), request.group_size, request.thresholds),
        float(np.mean(rewards)),
        float(np.std(rewards, ddof=1)) if len(rewards) > 1 else 0.0,
        line.num_truncated / len(line.rollout_infos),
    )


def _steps(tasks: Sequence[RatedTask], request: CurriculumRequest) -> list[list[int]]:
    if request.schedule is None:
        return [list(range(len(tasks)))]
    rates = [task.difficulty.pass_rate for task in tasks]
    return draw_schedule(rates, [task.agent for task in tasks], request.schedule, request.blend, request.seed)


def training_row(sample: JsonObject, task: RatedTask, step: int | None) -> JsonObject:
    """A task's row with its profile."""
    rating = task.difficulty
    profile: JsonObject = {
        "task_index": task.task,
        "pass_rate": rating.pass_rate,
        "pass_rate_low": rating.low,
        "pass_rate_high": rating.high,
        "num_rollouts": rating.rollouts,
        "mean_reward": task.mean_reward,
        "std_reward": task.std_reward,
        "usable_signal": rating.usable_signal,
        "bucket": rating.bucket,
        "truncated": task.truncated,
    }
    if step is not None:
        profile["step"] = step
    return {**sample, "reward_profile": profile}


def _summary(
    tasks: Sequence[RatedTask],
    selected: Sequence[RatedTask],
    steps: Sequence[Sequence[int]],
    request: CurriculumRequest,
    dropped: _DroppedTasks,
) -> CurriculumSummary:
    agents = sorted({task.agent for task in tasks})
    schedule = request.schedule
    return CurriculumSummary(
        tasks=len(tasks),
        kept=len(selected),
        buckets=_count_buckets(tasks),
        buckets_by_agent={name: _count_buckets([task for task in tasks if task.agent == name]) for name in agents},
        group_size=request.group_size,
        usable_signal_before=float(np.mean([task.difficulty.usable_signal for task in tasks])),
        usable_signal_after=float(np.mean([task.difficulty.usable_signal for task in selected])),
        rows=sum(map(len, steps)),
        steps=[
            {
                "target": schedule.target(step),
                "pass_rate": float(np.mean([selected[index].difficulty.pass_rate for index in indices])),
            }
            for step, indices in enumerate(steps)
        ]
        if schedule is not None
        else [],
        dropped_truncated=dropped.truncated,
        dropped_labels=dropped.labels,
    )


def _count_buckets(tasks: Sequence[RatedTask]) -> dict[str, int]:
    counts = Counter(task.difficulty.bucket for task in tasks)
    return {bucket: counts[bucket] for bucket in BUCKETS}
