"""Profiles a run: reads inputs and rollouts, checks that they belong together, writes the profile and its headline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.errors import NotFoundError
from gymnast.profile.alignment import align
from gymnast.profile.failures import read_failures
from gymnast.profile.files import write_agent_metrics, write_task_profiles
from gymnast.profile.groups import by_task
from gymnast.profile.headline import headline
from gymnast.profile.plan_index import read_plan
from gymnast.profile.reading import read_rollouts
from gymnast.profile.rollout_table import write_rollout_table
from gymnast.store.atomic import atomic_output
from gymnast.store.find_run import find_run
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.profile.alignment import Completeness
    from gymnast.profile.failures import FailureSummary
    from gymnast.profile.groups import Groups
    from gymnast.profile.headline import Headline
    from gymnast.profile.plan_index import PlanIndex


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

    def headline(self, *, answer_key: str | None = None, subset_key: str | None = None) -> Headline:
        return headline(self.groups, self.completeness, self.failures, answer_key=answer_key, subset_key=subset_key)


def load_run(
    inputs: tuple[Path, ...], rollouts: tuple[Path, ...], *, allow_partial: bool, texts: Iterable[str] = ()
) -> LoadedRun:
    """Load a run. Raises DataError if inputs and rollouts do not belong together."""
    plan = read_plan(inputs)
    table = read_rollouts(rollouts, texts=texts)
    completeness = align(plan, table, allow_partial=allow_partial)
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
    if run.existing() == [path]:
        return path  # a profile under a name of its own
    raise NotFoundError("the run has no profile", where=str(tasks), next=f"gymnast profile {run.output}")


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
