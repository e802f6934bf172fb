"""`gymnast.load`: a run as an object, whether it is complete, still being written, or in chunks.

Opening reads nothing. Records, failures and inputs are read lazily; the figures are computed once, on first use.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gymnast.errors import NotFoundError, suggest
from gymnast.profile.completeness import check_completeness
from gymnast.profile.failures import read_failures
from gymnast.profile.groups import by_task
from gymnast.profile.plan_index import PlanIndex, read_plan
from gymnast.profile.reading import read_rollouts
from gymnast.profile.run_profile import LoadedRun
from gymnast.results.columns import EMPTY, read_columns
from gymnast.results.frames import ArrowTable, to_pandas, to_polars
from gymnast.results.records import (
    Lines,
    decode_failed_attempt,
    decode_rollout,
    decode_row,
)
from gymnast.results.summary_html import summary_html
from gymnast.store.complete_records import complete_records
from gymnast.store.paths import RunPaths
from gymnast.types.task import TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.profile.headline import Headline
    from gymnast.profile.intervals import Estimate
    from gymnast.profile.table import RolloutTable
    from gymnast.rollouts.record import Record
    from gymnast.types.json import JsonObject

FrameName = Literal["rollouts", "tasks", "failures", "inputs"]


@dataclass(frozen=True, slots=True)
class Task:
    """A task and the rewards of its rollouts."""

    task: int
    agent: str
    requested: int
    scored: int
    failed: int
    """Rollouts without a score whose last attempt failed."""
    mean_reward: float | None
    rewards: tuple[float, ...]
    """In the order of the repeats, without those that have no score."""


class Run:
    """A run on disk. Iterating over it yields its scored rollouts."""

    def __init__(self, output: str | Path) -> None:
        self.paths = RunPaths(Path(output))

    @property
    def path(self) -> Path:
        """The run's output file."""
        return self.paths.output

    @property
    def rollouts(self) -> Lines[Record]:
        """Scored rollouts, in the order in which they were stored."""
        return Lines(self.paths.output, decode_rollout)

    @property
    def failures(self) -> Lines[Record]:
        """Failed attempts, including those of rollouts that were scored later."""
        return Lines(self.paths.failures, decode_failed_attempt)

    @property
    def inputs(self) -> Lines[JsonObject]:
        """The row of every requested rollout."""
        return Lines(self.paths.materialized_inputs, decode_row)

    @cached_property
    def tasks(self) -> list[Task]:
        """Every requested task, by its index."""
        return list(_tasks(self.loaded))

    @cached_property
    def loaded(self) -> LoadedRun:
        """The run's numbers in memory."""
        records = complete_records(self.paths.output)
        table = read_rollouts([records] if records.exists() else [])
        plan = self._plan(table)
        failures = read_failures([complete_records(self.paths.failures)], set(table.packed.tolist()))
        return LoadedRun(plan, by_task(table), check_completeness(plan, table, allow_partial=True), failures)

    @cached_property
    def summary(self) -> Headline:
        """The figures that `gymnast profile` prints, with confidence intervals."""
        return self.loaded.headline()

    @property
    def requested(self) -> int:
        return self.summary.requested

    @property
    def scored(self) -> int:
        return self.summary.scored

    @property
    def mean_reward(self) -> Estimate:
        """Over scored rollouts, with an interval over tasks."""
        return self.summary.failure_effect.excluded

    def to_arrow(self, table: FrameName = "rollouts", *, columns: Sequence[str] | None = None) -> Any:
        """A `pyarrow.Table` with a row per rollout, task, failed attempt or requested rollout.

        The fields of transcripts (`responses_create_params`, `response`, `_ng_token_ledger`) are left out unless
        `columns` names them.
        """
        built = ArrowTable()
        if table == "tasks":
            return _task_table(built, self.tasks, columns)
        paths = {
            "rollouts": self.paths.output,
            "failures": self.paths.failures,
            "inputs": self.paths.materialized_inputs,
        }
        if table not in paths:
            raise NotFoundError(f"a run has no table '{table}'", next=suggest(table, [*paths, "tasks"]))
        names = read_columns(complete_records(paths[table]), built, columns)
        return built.build(names or EMPTY[table])

    def to_pandas(self, table: FrameName = "rollouts", *, columns: Sequence[str] | None = None) -> Any:
        """The same as a `pandas.DataFrame`."""
        return to_pandas(self.to_arrow(table, columns=columns))

    def to_polars(self, table: FrameName = "rollouts", *, columns: Sequence[str] | None = None) -> Any:
        """The same as a `polars.DataFrame`."""
        return to_polars(self.to_arrow(table, columns=columns))

    def reload(self) -> Run:
        """The run as it is now, for one that is still being written."""
        return Run(self.path)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.rollouts)

    def __repr__(self) -> str:
        return f"gymnast.load({str(self.path)!r})"

    def _repr_html_(self) -> str:
        return summary_html(str(self.path), self.summary)

    def _plan(self, table: RolloutTable) -> PlanIndex:
        """The materialized inputs; without that file, what was scored counts as requested."""
        if self.paths.materialized_inputs.exists():
            return read_plan([self.paths.materialized_inputs])
        return PlanIndex((self.paths.materialized_inputs,), np.unique(table.packed), {})


def load(path: str | Path) -> Run:
    """Open a run by its output file. Reads nothing yet."""
    output = Path(path)
    if output.is_file() or (not output.is_dir() and RunPaths(output).existing_files()):
        return Run(output)
    known = _runs_in(output if output.is_dir() else output.parent)
    raise NotFoundError("there is no run", where=str(output), next=suggest(output.name, known))


def _runs_in(folder: Path) -> list[str]:
    """The output files of the runs in a folder."""
    inputs = "_materialized_inputs.jsonl"
    return [f"{path.name.removesuffix(inputs)}.jsonl" for path in folder.glob(f"*{inputs}")]


def _tasks(run: LoadedRun) -> Iterator[Task]:
    table, rows = run.groups.table, dict(run.groups)
    rewards = table.rewards.tolist()
    failed: dict[int, int] = {}
    for packed in run.failures.last_kind:
        failed[packed >> 32] = failed.get(packed >> 32, 0) + 1
    for task, requested in run.plan.count_requested().items():
        own = rows.get(task, slice(0, 0))
        scores = [reward for reward in rewards[own] if reward == reward]  # noqa: PLR0124 - not NaN
        agent = table.agent_names[table.agents[own.start]] if own.stop > own.start else ""
        mean = sum(scores) / len(scores) if scores else None
        yield Task(task, agent, requested, own.stop - own.start, failed.get(task, 0), mean, tuple(scores))


def _task_table(built: ArrowTable, tasks: Sequence[Task], columns: Sequence[str] | None) -> Any:
    attributes = {TASK_INDEX: "task"} | {
        name: name for name in ("agent", "requested", "scored", "failed", "mean_reward")
    }
    for name in columns or ():
        if name not in attributes:
            raise NotFoundError(f"the table of tasks has no column '{name}'", next=suggest(name, attributes))
    for name in columns or attributes:
        built.add(name, [getattr(task, attributes[name]) for task in tasks])
    return built.build(columns or list(attributes))
