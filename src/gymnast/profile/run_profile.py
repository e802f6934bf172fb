"""Profiles a run: reads inputs and rollouts, checks that they belong together, writes the profile and its headline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import orjson

from gymnast.errors import NotFoundError
from gymnast.profile.completeness import check_completeness
from gymnast.profile.failures import read_failures
from gymnast.profile.groups import by_task, describe_rows, rollout_infos
from gymnast.profile.headline import countable_rows, headline
from gymnast.profile.plan_index import read_plan
from gymnast.profile.reading import read_rollouts
from gymnast.profile.rollout_table import write_rollout_table
from gymnast.store.atomic import atomic_output
from gymnast.store.find_run import find_run
from gymnast.store.paths import RunPaths
from gymnast.types.task import TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.profile.completeness import Completeness
    from gymnast.profile.failures import FailureSummary
    from gymnast.profile.groups import Groups
    from gymnast.profile.headline import Headline
    from gymnast.profile.plan_index import PlanIndex
    from gymnast.types.json import JsonObject

_OTHER_FILES: Final = ("_materialized_inputs", "_failures", "_reward_profiling")


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """What to profile, and where to write it."""

    inputs: tuple[Path, ...]
    rollouts: tuple[Path, ...]
    output: Path
    """The files are named after it: x_reward_profiling.jsonl for x.jsonl."""
    allow_partial: bool = False
    answer_key: str | None = None
    subset_key: str | None = None
    table: Path | None = None
    """Where to write a CSV of all rollouts."""


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run's numbers in memory."""

    plan: PlanIndex
    groups: Groups
    completeness: Completeness
    failures: FailureSummary

    def countable(self) -> LoadedRun:
        """Without records that no mean counts: masked ones, and those without a reward."""
        rows = countable_rows(self.groups.table)
        if len(rows) == len(self.groups.table):
            return self
        return replace(self, groups=by_task(self.groups.table.select(rows)))

    def headline(self, *, answer_key: str | None = None, subset_key: str | None = None) -> Headline:
        return headline(self.groups, self.completeness, self.failures, answer_key=answer_key, subset_key=subset_key)


def load_run(
    inputs: tuple[Path, ...], rollouts: tuple[Path, ...], *, allow_partial: bool, texts: Iterable[str] = ()
) -> LoadedRun:
    """Load a run. Raises DataError if inputs and rollouts do not belong together."""
    plan = read_plan(inputs)
    table = read_rollouts(rollouts, texts=texts)
    completeness = check_completeness(plan, table, allow_partial=allow_partial)
    failures = read_failures([RunPaths(path).failures for path in rollouts], set(table.packed.tolist()))
    return LoadedRun(plan, by_task(table), completeness, failures)


def profile(request: ProfileRequest) -> Headline:
    """Write a run's profile and return its headline."""
    texts = [key for key in (request.answer_key, request.subset_key) if key is not None]
    run = load_run(request.inputs, request.rollouts, allow_partial=request.allow_partial, texts=texts)
    paths = ProfilePaths(request.output)
    write_task_profiles(paths.tasks, run.groups, run.plan)
    write_agent_metrics(paths.agents, run.groups)
    if request.table is not None:
        write_rollout_table(request.table, run.groups.table)
    summary = run.headline(answer_key=request.answer_key, subset_key=request.subset_key)
    with atomic_output(paths.summary) as out:
        out.write(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    return summary


@dataclass(frozen=True, slots=True)
class ProfilePaths:
    """The paths of a profile's files."""

    rollouts: Path

    @property
    def tasks(self) -> Path:
        return self.rollouts.with_name(f"{self.rollouts.stem}_reward_profiling.jsonl")

    @property
    def agents(self) -> Path:
        return self.rollouts.with_name(f"{self.rollouts.stem}_agent_metrics.json")

    @property
    def summary(self) -> Path:
        return self.rollouts.with_name(f"{self.rollouts.stem}_profile_summary.json")


def profile_of(path: Path) -> Path:
    """The profile per task of a run, or the file itself if it is not a file of a run."""
    if path.is_file() and path.name.endswith("_reward_profiling.jsonl"):
        return path
    run = find_run(path)
    tasks = ProfilePaths(run.output).tasks
    if tasks.exists():
        return tasks
    if run.existing_files() == [path]:
        return path  # a profile under a name of its own
    raise NotFoundError("the run has no profile", where=str(tasks), next=f"gymnast profile {run.output}")


def output_of_profile(path: Path) -> Path:
    """The output file of the run that a profile per task belongs to; the file itself if its name does not say."""
    stem = path.name.removesuffix("_reward_profiling.jsonl")
    return path.with_name(f"{stem}.jsonl") if stem != path.name else path


def rollout_files(patterns: Iterable[str]) -> tuple[Path, ...]:
    """The rollout files of runs, or for patterns with `*` and `?`, which do not match a run's other files."""
    files: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.exists() or not any(sign in pattern for sign in "*?["):
            files.append(find_run(path).output)
            continue
        matches = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor) if path.anchor else path)))
        matches = [match for match in matches if not match.stem.endswith(_OTHER_FILES)]
        if not matches:
            raise NotFoundError(f"there is no file '{pattern}'")
        files += matches
    return tuple(files)


def write_task_profiles(path: Path, groups: Groups, plan: PlanIndex) -> None:
    """Write `x_reward_profiling.jsonl`."""
    expected, integers = plan.count_requested(), groups.table.is_integer
    with atomic_output(path) as out, plan.samples() as samples:
        for task, rows in groups:
            line = task_profile(groups, task, rows, expected[task], samples.fragment(task), integers=integers)
            out.write(orjson.dumps(line) + b"\n")


def task_profile(
    groups: Groups, task: int, rows: slice, expected: int, sample: object, *, integers: bool
) -> JsonObject:
    count = rows.stop - rows.start
    truncated = int(groups.table.truncated[rows].sum())
    return {
        TASK_INDEX: task,
        **describe_rows(groups.table, rows, integers=integers),
        "sample": sample,
        "num_rollouts": count,
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - count,
        "reward_profile_completion_pct": 100.0 * count / expected,
        **({"num_truncated": truncated} if truncated else {}),
        "rollout_infos": rollout_infos(groups.table, rows),
    }


def write_agent_metrics(path: Path, groups: Groups) -> None:
    """Write `x_agent_metrics.json`: the same statistics over all rollouts of each agent."""
    table = groups.table
    entries = []
    for number, name in enumerate(table.agent_names):
        own = table.select(np.flatnonzero(table.agents == number))
        statistics = describe_rows(own, slice(0, len(own)), integers=table.is_integer)
        entries.append({**statistics, "agent_ref": {"name": name}})
    with atomic_output(path) as out:
        out.write(orjson.dumps(entries))
