"""A run as the report shows it: loaded through `profile`, so its numbers match those of `gymnast profile`.

What cannot be known is not guessed: without materialized inputs, missing rollouts are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.errors import NotFoundError
from gymnast.profile.completeness import Completeness, check_completeness
from gymnast.profile.failures import read_failures
from gymnast.profile.groups import by_task
from gymnast.profile.headline import countable_rows
from gymnast.profile.pass_at_k import pass_curve
from gymnast.profile.plan_index import PlanIndex, read_plan
from gymnast.profile.reading import read_rollouts
from gymnast.profile.run_profile import LoadedRun
from gymnast.report.label_selection import Selection
from gymnast.report.run_setup import read_setup
from gymnast.report.tasks import TOKEN_FIELDS, first_column, is_binary, summarise_tasks
from gymnast.store.labels import LabelFilter, Labels, read_labels
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
    from gymnast.report.run_setup import RunSetup
    from gymnast.report.tasks import Tasks
    from gymnast.store.manifest import Manifest
    from gymnast.store.records import RecordFile

_ALL: Final = LabelFilter()


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything that pages and plots read of one run: the loaded run, and what is derived from it once."""

    name: str
    number: int
    """Its index in the report, which also selects its colour."""
    paths: RunPaths
    loaded: LoadedRun
    headline: Headline
    curve: list[tuple[int, Estimate]]
    tasks: Tasks
    manifest: Manifest | None
    setup: RunSetup
    excluded_offsets: dict[int, int]
    """Records without a reward, or masked by their agent: their offsets by packed key."""
    truncated: int
    """Records of rollouts that a length or step limit cut off, including masked ones."""
    has_inputs: bool
    has_failures_file: bool
    records: RecordFile
    """The scored records, which the table's offsets refer to."""
    failed_records: RecordFile
    label_note: str | None = None
    """Which rollouts labels left out, if any."""

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
    def excluded(self) -> int:
        """Records without a reward, or masked by their agent."""
        return len(self.excluded_offsets)

    @property
    def total(self) -> int:
        """Rollouts with anything on record: scored, failed or excluded."""
        return len(self.table) + len(self.loaded.failures.last_kind) + self.excluded

    @property
    def failed(self) -> int:
        """Rollouts without a score that failed."""
        return sum(self.headline.failed.values())


def view_runs(outputs: Sequence[Path], by_label: LabelFilter = _ALL) -> list[RunView]:
    """Load the runs with these output files, in this order. The views have only rollouts that the filter accepts."""
    names = _names(outputs)
    chosen = [Selection(by_label, read_labels(output) if by_label else Labels()) for output in outputs]
    by_label.check(selection.labels for selection in chosen)
    return [
        _view_run(RunPaths(output), name, number, selection)
        for number, (output, name, selection) in enumerate(zip(outputs, names, chosen, strict=True))
    ]


def _view_run(paths: RunPaths, name: str, number: int, chosen: Selection) -> RunView:
    scored, failures = record_file(paths.output), record_file(paths.failures)
    if not scored.exists():
        raise NotFoundError(
            f"there is no run '{paths.output}'", next="pass the output file of a run, e.g. runs/a.jsonl"
        )
    loaded, excluded, truncated = _load(paths, scored, failures, chosen)
    headline, setup = loaded.headline(), read_setup(scored, loaded.groups.table)
    return RunView(
        name=name,
        number=number,
        paths=paths,
        loaded=loaded,
        headline=headline,
        curve=headline.agents[0].pass_at if len(headline.agents) == 1 else pass_curve(loaded.groups),
        tasks=summarise_tasks(loaded, setup.seconds),
        manifest=read_manifest(paths.manifest),
        setup=setup,
        excluded_offsets=excluded,
        truncated=truncated,
        has_inputs=paths.materialized_inputs.is_file(),
        has_failures_file=failures.exists(),
        records=scored,
        failed_records=failures,
        label_note=chosen.note(),
    )


def _load(
    paths: RunPaths, scored: RecordFile, failed: RecordFile, chosen: Selection
) -> tuple[LoadedRun, dict[int, int], int]:
    """Load a run, finished or not, the offsets of its excluded records, and the number of truncated ones."""
    table = chosen.of_table(read_rollouts([scored]))
    if paths.materialized_inputs.is_file():
        plan = chosen.of_plan(read_plan([paths.materialized_inputs]))
        completeness = check_completeness(plan, table, allow_partial=True)
    else:
        plan = PlanIndex((), np.empty(0, np.int64), {})
        completeness = assume_complete(table)
    failures = read_failures([failed], set(table.packed.tolist()), chosen.accepts)
    rows = countable_rows(table)
    others = table.select(np.setdiff1d(np.arange(len(table)), rows))
    excluded = dict(zip(others.packed.tolist(), others.offsets.tolist(), strict=True))
    completeness = replace(completeness, scored=completeness.scored - len(excluded))
    run = LoadedRun(plan, by_task(table.select(rows)), completeness, failures)
    return run, excluded, int(table.truncated.sum())


def assume_complete(table: RolloutTable) -> Completeness:
    """Without materialized inputs, the records count as complete."""
    tasks = len(np.unique(table.tasks))
    return Completeness(len(table), len(table), tasks, tasks, 0, 0, np.empty(0, np.int64))


def _names(outputs: Sequence[Path]) -> list[str]:
    """The name of each run: its file's stem, with the folder if stems are ambiguous."""
    stems = [path.stem for path in outputs]
    if len(set(stems)) == len(stems):
        return stems
    return [f"{path.resolve().parent.name}/{path.stem}" for path in outputs]
