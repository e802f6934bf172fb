"""The rollouts of a run as one table: a row each, whether scored, failed or excluded, with named columns.

Also the run as the report sees it (`RunView`), made from the same columns without reading the records again.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gymnast.errors import DataError
from gymnast.profile.completeness import check_completeness
from gymnast.profile.failures import FailureSummary
from gymnast.profile.groups import by_task
from gymnast.profile.headline import countable_rows
from gymnast.profile.pass_at_k import pass_curve
from gymnast.profile.plan_index import PlanIndex, read_plan
from gymnast.profile.run_profile import LoadedRun
from gymnast.profile.table import Column, RolloutTable
from gymnast.report.run_setup import IN_MODEL_CALLS, MILLISECONDS_FIELDS, SECONDS_FIELDS, RunSetup
from gymnast.report.run_view import RunView, assume_complete
from gymnast.report.tasks import summarise_tasks
from gymnast.store.records import RecordFile
from gymnast.studio.line_columns import FINAL, MASKED, NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from gymnast.report.tasks import Tasks
    from gymnast.store.manifest import Manifest
    from gymnast.store.paths import RunPaths
    from gymnast.studio.column_store import Snapshot

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

STATES: Final = ("scored", "failed", "excluded")
NUMBER_COLUMNS: Final = (
    *("task", "rollout", "reward", "attempts", "turns", "tool_calls", "input_tokens", "output_tokens", "seconds"),
    *("calls", "cost", "bytes"),
)
TEXT_COLUMNS: Final = ("state", "agent", "truncated", "finish", "failure", "label")
_HIDDEN: Final = frozenset({"total_tokens", "at", "temperature", "top_p", "max_output_tokens", "reasoning"})
_SAMPLING: Final = ("temperature", "top_p", "max_output_tokens", "reasoning")
_FIGURES: Final = frozenset({"reward", "input_tokens", "output_tokens", "total_tokens"})
"""The columns that the report's figures are made of."""
_MAX_ORDERS: Final = 4
_EMPTY_PLAN: Final = PlanIndex((), np.empty(0, np.int64), {})


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts: numbers of `names`, -1 for none."""

    codes: NDArray[np.int32]
    names: Sequence[str]


@dataclass
class RunTable:
    """The rollouts of a run by task and rollout. Immutable: a run that grows gets a new one."""

    snapshot: Snapshot
    labels: dict[int, str] = field(default_factory=dict)
    """The label of each annotated rollout, by packed key."""

    @cached_property
    def orders(self) -> OrderedDict[Any, Ints]:
        """The rows of the last queries, so that their next pages are quick."""
        return OrderedDict()

    def keep_order(self, query: Any, rows: Ints) -> None:
        self.orders[query] = rows
        while len(self.orders) > _MAX_ORDERS:
            self.orders.popitem(last=False)

    @cached_property
    def _scored(self) -> Ints:
        """The line of each rollout with a record: its last one."""
        return _last_lines(self.snapshot.fixed["keys"], np.flatnonzero(~self.snapshot.is_failure))

    @cached_property
    def _failed(self) -> Ints:
        """The last failed attempt of each rollout without a record."""
        keys = self.snapshot.fixed["keys"]
        lines = _last_lines(keys, np.flatnonzero(self.snapshot.is_failure))
        return lines[~np.isin(keys[lines], keys[self._scored])]

    @cached_property
    def lines(self) -> Ints:
        """The line that each row shows, by task and rollout."""
        lines = np.concatenate([self._scored, self._failed])
        return lines[np.argsort(self.snapshot.fixed["keys"][lines], kind="stable")]

    @cached_property
    def keys(self) -> Ints:
        keys: Ints = self.snapshot.fixed["keys"][self.lines]
        return keys

    def __len__(self) -> int:
        return len(self.lines)

    def row_of(self, key: int) -> int | None:
        """The row of a rollout, or None."""
        row = int(np.searchsorted(self.keys, key))
        return row if row < len(self.keys) and self.keys[row] == key else None

    def rows_of_task(self, task: int) -> range:
        first, last = np.searchsorted(self.keys, [task << 32, (task + 1) << 32])
        return range(int(first), int(last))

    def position(self, line: int) -> tuple[str, int, int]:
        """The file, offset and size of a line."""
        fixed = self.snapshot.fixed
        return self.snapshot.paths[int(fixed["sources"][line])], int(fixed["offsets"][line]), int(fixed["sizes"][line])

    def attempt_lines(self, key: int) -> list[int]:
        """The lines of a rollout's failed attempts, oldest first."""
        lines = np.flatnonzero((self.snapshot.fixed["keys"] == key) & self.snapshot.is_failure)
        return [int(line) for line in lines]

    # --- columns -----------------------------------------------------------------------------------------------------

    @cached_property
    def states(self) -> NDArray[np.int32]:
        flags = self.snapshot.fixed["flags"][self.lines]
        is_excluded = ((flags & MASKED) != 0) | ~np.isfinite(self._number("reward"))
        states: NDArray[np.int32] = np.where(self.snapshot.is_failure[self.lines], 1, np.where(is_excluded, 2, 0))
        return states.astype(np.int32)

    def _number(self, name: str) -> Floats:
        values = self.snapshot.numbers.get(name)
        return values[self.lines] if values is not None else np.full(len(self), math.nan)

    @cached_property
    def seconds_source(self) -> str | None:
        """The field with the durations of whole rollouts, or that of their model calls."""
        scored = self._scored
        for name in (*SECONDS_FIELDS, *MILLISECONDS_FIELDS):
            values = self.snapshot.numbers.get(name)
            if values is not None and name not in NAMES and np.isfinite(values[scored]).any():
                return name
        values = self.snapshot.numbers.get("seconds")
        return IN_MODEL_CALLS if values is not None and np.isfinite(values[scored]).any() else None

    def seconds(self) -> Floats:
        """The duration of each rollout, NaN where unknown."""
        source = self.seconds_source
        if source in (None, IN_MODEL_CALLS):
            return self._number("seconds")
        own = self._number(str(source)) * (1e-3 if source in MILLISECONDS_FIELDS else 1.0)
        return np.where(self.states == 1, self._number("seconds"), own)

    @cached_property
    def _attempts(self) -> Floats:
        failures = self.snapshot.fixed["keys"][self.snapshot.is_failure]
        keys, counts = np.unique(failures, return_counts=True)
        positions = np.searchsorted(keys, self.keys)
        attempts = np.zeros(len(self), np.float64)
        inside = positions < len(keys)
        matches = inside.copy()
        matches[inside] = keys[positions[inside]] == self.keys[inside]
        attempts[matches] = counts[positions[matches]]
        return attempts

    def column(self, name: str) -> Floats | Texts | None:
        """A column by name; None if there is none."""
        make: dict[str, Callable[[], Floats | Texts]] = {
            "task": lambda: (self.keys >> 32).astype(np.float64),
            "rollout": lambda: (self.keys & 0xFFFFFFFF).astype(np.float64),
            "state": lambda: Texts(self.states, STATES),
            "attempts": lambda: self._attempts,
            "bytes": lambda: self.snapshot.fixed["sizes"][self.lines].astype(np.float64),
            "seconds": self.seconds,
            "label": self._label_column,
        }
        return make[name]() if name in make else self._own_column(name)

    def select(self, rows: Sequence[int]) -> RunTable:
        """A table of some rows, for which columns are cheap. It has no plan, tasks or figures of its own."""
        some = RunTable(self.snapshot, self.labels)
        chosen = np.array(rows, np.int64)
        some.__dict__.update(
            lines=self.lines[chosen],
            keys=self.keys[chosen],
            states=self.states[chosen],
            _attempts=self._attempts[chosen],
            seconds_source=self.seconds_source,
        )
        return some

    def _own_column(self, name: str) -> Floats | Texts | None:
        texts, numbers = self.snapshot.texts.get(name), self.snapshot.numbers.get(name)
        if name in NUMBER_COLUMNS or texts is None:
            return self._number(name) if numbers is not None or name in NUMBER_COLUMNS else None
        codes = texts[0][self.lines]
        own = self._number(name) if numbers is not None else None
        if own is None or not np.isfinite(own).any():
            return Texts(codes, texts[1])
        # Some records have a number here and others a text: all are shown as texts.
        distinct, positions = np.unique(own[np.isfinite(own)], return_inverse=True)
        mixed = codes.copy()
        mixed[np.isfinite(own)] = len(texts[1]) + positions
        return Texts(mixed, [*texts[1], *(f"{value:g}" for value in distinct.tolist())])

    def _label_column(self) -> Texts:
        names = list(dict.fromkeys(self.labels.values()))
        codes = np.full(len(self), -1, np.int32)
        if self.labels:
            keys = np.array(sorted(self.labels), np.int64)
            numbers = np.array([names.index(self.labels[key]) for key in keys.tolist()], np.int32)
            positions = np.minimum(np.searchsorted(keys, self.keys), len(keys) - 1)
            is_labelled = keys[positions] == self.keys
            codes[is_labelled] = numbers[positions[is_labelled]]
        return Texts(codes, names)

    @property
    def own_columns(self) -> list[str]:
        """The fields of the records that are columns."""
        names = [*self.snapshot.numbers, *self.snapshot.texts]
        shown = {*NUMBER_COLUMNS, *TEXT_COLUMNS, *_HIDDEN, "model"}
        return [name for name in dict.fromkeys(names) if name not in shown]

    # --- as the report sees it -------------------------------------------------------------------------------------

    @cached_property
    def rollout_table(self) -> RolloutTable:
        """The records, as `gymnast profile` reads them."""
        lines, snapshot = self._scored, self.snapshot
        columns = {}
        for name, values in snapshot.numbers.items():
            own = values[lines]
            if name in _FIGURES and np.isfinite(own).any():
                columns[name] = Column(own, own == np.floor(own), name.endswith("_tokens"))
        if "reward" not in columns:
            columns["reward"] = Column(np.full(len(lines), math.nan), np.zeros(len(lines), np.bool_), from_usage=False)
        codes, names = snapshot.texts.get("agent", (np.full(len(snapshot), -1, np.int32), []))
        keys, truncated = snapshot.fixed["keys"][lines], snapshot.texts.get("truncated")
        return RolloutTable(
            tasks=keys >> 32,
            rollouts=keys & 0xFFFFFFFF,
            agents=np.where(codes[lines] < 0, len(names), codes[lines]).astype(np.int32),
            agent_names=[*names, ""],
            columns=columns,
            overridden={},
            texts={},
            offsets=snapshot.fixed["offsets"][lines],
            sources=snapshot.fixed["sources"][lines],
            output_bytes=snapshot.fixed["output_bytes"][lines].astype(np.int64),
            truncated=truncated[0][lines] >= 0 if truncated is not None else np.zeros(len(lines), np.bool_),
        )

    @cached_property
    def failure_summary(self) -> FailureSummary:
        """The failed attempts, as `gymnast profile` counts them."""
        snapshot = self.snapshot
        codes, names = snapshot.texts.get("failure", (np.full(len(snapshot), -1, np.int32), []))
        kinds = codes[snapshot.is_failure]
        counts = np.bincount(kinds[kinds >= 0], minlength=len(names)).tolist()
        attempts = Counter({name: count for name, count in zip(names, counts, strict=False) if count})
        keys, failed = snapshot.fixed["keys"], self._failed
        last = {int(keys[line]): names[codes[line]] for line in failed.tolist() if codes[line] >= 0}
        final = {int(keys[line]) for line in failed.tolist() if snapshot.fixed["flags"][line] & FINAL}
        return FailureSummary(attempts, last, final)

    def setup(self, seconds: Floats) -> RunSetup:
        """How the run was made, as its records say."""
        setup = RunSetup(models=self.counts("model"), seconds=seconds, seconds_source=self.seconds_source)
        for name in _SAMPLING:
            if counts := self.counts(name):
                setup.sampling[name] = counts
        times = self.snapshot.numbers.get("at")
        known = times[self._scored] if times is not None else np.empty(0)
        known = known[np.isfinite(known) & (known > 0)]
        if len(known):
            setup.started_at, setup.ended_at = float(known.min()), float(known.max())
        return setup

    def counts(self, name: str) -> Counter[str]:
        """The records by their value of a text column."""
        texts = self.snapshot.texts.get(name)
        if texts is None:
            return Counter()
        codes = texts[0][self._scored]
        counts = np.bincount(codes[codes >= 0], minlength=len(texts[1])).tolist()
        return Counter({text: count for text, count in zip(texts[1], counts, strict=False) if count})


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A run with its plan, as far as tables of tasks need it."""

    loaded: LoadedRun
    """Without excluded records."""
    tasks: Tasks
    seconds: Floats
    """The duration of each rollout of `loaded`."""
    excluded: Ints
    """The rows of excluded records."""
    has_plan: bool
    problem: str | None
    """Why the plan was not used, if it was not."""


def load_table(table: RunTable, plan: PlanIndex | None) -> LoadedTable:
    """Match the rollouts with the plan, and summarise the tasks."""
    records = table.rollout_table
    problem = None
    completeness = assume_complete(records)
    if plan is not None:
        try:
            completeness = check_completeness(plan, records, allow_partial=True)
        except DataError as error:
            plan, problem = None, error.what
    rows = countable_rows(records)
    groups = by_task(records.select(rows))
    excluded = np.setdiff1d(np.arange(len(records)), rows)
    completeness = replace(completeness, scored=completeness.scored - len(excluded))
    loaded = LoadedRun(plan or _EMPTY_PLAN, groups, completeness, table.failure_summary)
    seconds = table.seconds()[np.searchsorted(table.keys, groups.table.packed)]
    return LoadedTable(loaded, summarise_tasks(loaded, seconds), seconds, excluded, plan is not None, problem)


def make_view(table: RunTable, own: LoadedTable, paths: RunPaths, manifest: Manifest | None, name: str) -> RunView:
    """The run for the report's functions."""
    records, loaded = table.rollout_table, own.loaded
    headline = loaded.headline()
    return RunView(
        name=name,
        number=0,
        paths=paths,
        loaded=loaded,
        headline=headline,
        curve=headline.agents[0].pass_at if len(headline.agents) == 1 else pass_curve(loaded.groups),
        tasks=own.tasks,
        manifest=manifest,
        setup=table.setup(own.seconds),
        excluded_offsets=dict.fromkeys(records.packed[own.excluded].tolist(), 0),
        truncated=int(records.truncated.sum()),
        has_inputs=own.has_plan,
        has_failures_file=paths.failures.exists(),
        records=RecordFile(paths.output),
        failed_records=RecordFile(paths.failures),
    )


def _last_lines(keys: Ints, lines: Ints) -> Ints:
    """The last of the lines of each key, by key."""
    _, last = np.unique(keys[lines][::-1], return_index=True)
    lines_of_last: Ints = lines[::-1][last]
    return lines_of_last


def read_run_plan(path: Path) -> PlanIndex | None:
    """The plan of a run, or None if it has none that can be read."""
    try:
        plan = read_plan([path])
    except DataError:
        return None
    return plan if len(plan.packed) else None


def number_or_none(value: Any) -> float | int | None:
    """A number for JSON: None if it is not finite, an integer if it is one."""
    if value is None or not math.isfinite(value):
        return None
    number = float(value)
    return int(number) if number == int(number) and abs(number) < 2**53 else number
