"""A run as the report shows it: read through `profile`, so that its numbers are the ones `gymnast profile` prints.

What a run lacks is said, not guessed: without materialized inputs nobody knows what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gymnast.errors import NotFoundError
from gymnast.profile.alignment import Completeness, align
from gymnast.profile.failures import read_failures
from gymnast.profile.groups import by_task
from gymnast.profile.headline import counting_rows
from gymnast.profile.pass_at_k import pass_curve
from gymnast.profile.plan_index import PlanIndex, read_plan
from gymnast.profile.reading import read_rollouts
from gymnast.profile.run_profile import LoadedRun
from gymnast.report.tasks import TOKEN_FIELDS, first_column, is_binary, summarise
from gymnast.store.manifest import read_manifest
from gymnast.store.paths import RunPaths
from gymnast.store.records import record_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gymnast.profile.groups import Groups
    from gymnast.profile.headline import Headline
    from gymnast.profile.intervals import Estimate
    from gymnast.profile.table import Floats, RolloutTable
    from gymnast.report.tasks import Tasks
    from gymnast.store.manifest import Manifest
    from gymnast.store.records import RecordFile


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything about one run that pages and plots read."""

    name: str
    number: int
    """Its place in the report, which is also its colour."""
    paths: RunPaths
    loaded: LoadedRun
    headline: Headline
    curve: list[tuple[int, Estimate]]
    tasks: Tasks
    manifest: Manifest | None
    excluded: int
    """Records without a reward, or masked by their agent."""
    has_inputs: bool
    has_failures_file: bool
    records: RecordFile
    """Scored records, as they were read: the table's offsets are places in it."""
    failed_records: RecordFile

    @property
    def groups(self) -> Groups:
        return self.loaded.groups

    @property
    def table(self) -> RolloutTable:
        return self.loaded.groups.table

    @property
    def rewards(self) -> Floats:
        return self.table.rewards

    @property
    def is_binary(self) -> bool:
        return is_binary(self.rewards)

    @property
    def mean_reward(self) -> Estimate:
        """Over all agents."""
        return self.headline.failure_effect.excluded

    @property
    def tokens(self) -> Floats:
        """Tokens of each rollout, NaN where unknown."""
        column = first_column(self.table, TOKEN_FIELDS)
        return column.values if column is not None else np.full(len(self.table), np.nan)

    @property
    def token_field(self) -> str | None:
        return next((name for name in TOKEN_FIELDS if name in self.table.columns), None)

    @property
    def failed(self) -> int:
        """Rollouts without a score that failed."""
        return sum(self.headline.failed.values())


def view_runs(outputs: Sequence[Path]) -> list[RunView]:
    """The runs with these output files, in this order."""
    names = _names(outputs)
    return [
        _view(RunPaths(output), name, number) for number, (output, name) in enumerate(zip(outputs, names, strict=True))
    ]


def _view(paths: RunPaths, name: str, number: int) -> RunView:
    scored, failures = record_file(paths.output), record_file(paths.failures)
    if not scored.exists():
        raise NotFoundError(
            f"there is no run '{paths.output}'", next="name the output file of a run, e.g. runs/a.jsonl"
        )
    loaded, excluded = _load(paths, scored, failures)
    headline = loaded.headline()
    return RunView(
        name=name,
        number=number,
        paths=paths,
        loaded=loaded,
        headline=headline,
        curve=headline.agents[0].pass_at if len(headline.agents) == 1 else pass_curve(loaded.groups),
        tasks=summarise(loaded),
        manifest=read_manifest(paths.manifest),
        excluded=excluded,
        has_inputs=paths.materialized_inputs.is_file(),
        has_failures_file=failures.exists(),
        records=scored,
        failed_records=failures,
    )


def _load(paths: RunPaths, scored: RecordFile, failed: RecordFile) -> tuple[LoadedRun, int]:
    """A run, finished or not, and how many of its records do not count."""
    table = read_rollouts([scored])
    if paths.materialized_inputs.is_file():
        plan = read_plan([paths.materialized_inputs])
        completeness = align(plan, table, allow_partial=True)
    else:
        plan = PlanIndex((), np.empty(0, np.int64), {})
        completeness = _as_found(table)
    failures = read_failures([failed], set(table.packed.tolist()))
    rows = counting_rows(table)
    excluded = len(table) - len(rows)
    completeness = replace(completeness, scored=completeness.scored - excluded)
    return LoadedRun(plan, by_task(table.chosen(rows)), completeness, failures), excluded


def _as_found(table: RolloutTable) -> Completeness:
    """Where nobody knows what was asked for, what is there is all there is."""
    tasks = len(np.unique(table.tasks))
    return Completeness(len(table), len(table), tasks, tasks, 0, 0, np.empty(0, np.int64))


def _names(outputs: Sequence[Path]) -> list[str]:
    """What to call each run: its file's name, with its folder where that alone would be ambiguous."""
    stems = [path.stem for path in outputs]
    if len(set(stems)) == len(stems):
        return stems
    return [f"{path.resolve().parent.name}/{path.stem}" for path in outputs]
