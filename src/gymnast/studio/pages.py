"""The pages of one run as JSON: headline, plots, tables of tasks and rollouts, diagnosis, comparison."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.doctor.examine import examine, find_target
from gymnast.errors import DataError, NotFoundError, UserError
from gymnast.profile.compare import compare, match_tasks, truncated_share, verdict_sentence
from gymnast.profile.intervals import t_quantile
from gymnast.report.bins import make_reward_bins, needs_log_scale, reward_by_tokens, split_evenly
from gymnast.report.payload import snippet
from gymnast.report.run_description import describe_setup
from gymnast.report.safe_text import to_one_line
from gymnast.report.scales import format_short
from gymnast.report.transcript_items import decode_record
from gymnast.rollouts.control import send_request
from gymnast.rollouts.tally import stats_of
from gymnast.studio.library import describe_estimate, describe_progress
from gymnast.studio.query import select_rows
from gymnast.studio.rollout_page import describe_rows, make_rollout, read_line, record_text
from gymnast.studio.run_table import NUMBER_COLUMNS, STATES, TEXT_COLUMNS, Texts, number_or_none
from gymnast.studio.search import search_rows, search_tasks
from gymnast.types.failure import FailureKind
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from gymnast.profile.compare import Comparison, TaskChange
    from gymnast.profile.run_profile import LoadedRun
    from gymnast.report.run_view import RunView
    from gymnast.studio.library import Entry
    from gymnast.studio.query import Column, Query
    from gymnast.studio.run_table import RunTable
    from gymnast.types.json import JsonObject

_MAX_STEPS: Final = 400
_BINS: Final = 24
_MAX_TIMES: Final = 240
_MAX_MENU: Final = 40
_MAX_REWARDS: Final = 64
_BEFORE: Final = 40
_AFTER: Final = 80
"""Characters around a match that are shown."""
_NICE_STEPS_S: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400)
_EXCLUDED: Final = STATES.index("excluded")
_MIN_TIME: Final = 1e8
"""Times before 1973 are not times: some servers write 0."""
TASK_COLUMNS: Final = (
    *("task", "agent", "expected", "scored", "failed", "excluded", "truncated", "mean", "low", "high", "spread"),
    *("best", "output_tokens", "seconds", "label"),
)
_TITLES: Final = {
    "task": "Task",
    "rollout": "Rollout",
    "tool_calls": "Tool calls",
    "input_tokens": "Tokens in",
    "output_tokens": "Tokens out",
    "mean": "Mean reward",
    "low": "Interval from",
    "high": "Interval to",
    "best": "Best reward",
    "attempts": "Failed attempts",
}
_NOT_SHOWN: Final = frozenset({"calls", "bytes", "attempts", "low", "high", "excluded", "input_tokens", "finish"})


# --- one run ---------------------------------------------------------------------------------------------------------


def run_page(entry: Entry) -> JsonObject:
    """The headline of a run, how it was made, and what its processes did."""
    manifest, facts = entry.facts.manifest, entry.facts
    headline, problem, setup = None, None, []
    if entry.found.curve is None:
        try:
            view, problem = entry.view()
            setup = [list(pair) for pair in describe_setup(view)]
            headline = describe_headline(view) if len(view.table) else None
        except (UserError, OSError) as error:
            problem = getattr(error, "what", None) or str(error)
    output = shlex.quote(str(entry.found.paths.output))
    logs = entry.found.paths.logs
    return {
        "run": entry.row(),
        "setup": setup,
        "headline": headline,
        "headline_problem": problem,
        "invocations": [msgspec.to_builtins(own) for own in manifest.invocations] if manifest is not None else [],
        "usage": msgspec.to_builtins(facts.spent),
        "agents": msgspec.to_builtins(stats_of(facts.agents)),
        "files": {"output": str(entry.found.paths.output), "logs": str(logs) if logs.is_dir() else None},
        "commands": {
            "report": f"gymnast report {output}",
            "doctor": f"gymnast doctor {output}",
            "status": f"gymnast status {output}",
            "view": f"gymnast view {output}",
        },
    }


def describe_headline(view: RunView) -> JsonObject:
    """The figures of a run, as the report shows them."""
    headline = view.headline
    return {
        "mean_reward": describe_estimate(view.mean_reward),
        "requested": headline.requested,
        "scored": headline.scored,
        "failed": headline.failed,
        "missing": headline.missing,
        "excluded": view.excluded,
        "truncated": view.truncated,
        "tasks": headline.tasks,
        "complete_tasks": headline.complete_tasks,
        "partial_tasks": headline.partial_tasks,
        "dropped_tasks": headline.dropped_tasks,
        "mixed_tasks": sum(agent.mixed_tasks for agent in headline.agents),
        "pass_at": _curve(view.curve),
        "is_binary": view.is_binary,
        "if_failures_score_zero": describe_estimate(headline.failure_effect.zero),
        "agents": [
            {
                "agent": agent.agent,
                "tasks": agent.tasks,
                "rollouts": agent.rollouts,
                "mean_reward": describe_estimate(agent.mean_reward),
                "pass_at": _curve(agent.pass_at),
                "truncated": agent.truncated,
                "mixed_tasks": agent.mixed_tasks,
            }
            for agent in headline.agents
        ],
    }


def _curve(points: Iterable[tuple[int, Any]]) -> list[JsonObject]:
    return [{"k": k, **describe_estimate(estimate)} for k, estimate in points]


# --- plots -----------------------------------------------------------------------------------------------------------


def plots(entries: Sequence[Entry]) -> JsonObject:
    """The values of the report's plots, of several runs with the same bins."""
    views = [entry.view()[0] for entry in entries]
    bins = make_reward_bins([view.rewards for view in views])
    seconds = [view.setup.seconds for view in views]
    return {
        "runs": [entry.id for entry in entries],
        "rewards": {
            "labels": bins.labels(),
            "are_values": bins.are_values,
            "edges": list(bins.edges),
            "counts": [bins.counts(view.rewards) for view in views],
        },
        "pass_rates": [_pass_rates(view) for view in views],
        "pass_at": [_curve(view.curve) for view in views],
        "reward_by_tokens": [
            [
                {**asdict(own), "reward": describe_estimate(own.reward)}
                for own in reward_by_tokens(view.table, view.tokens)
            ]
            for view in views
        ],
        "tokens": _histogram([view.tokens for view in views]),
        "seconds": _histogram(seconds),
        "failures": [dict(view.loaded.failures.attempts) for view in views],
        "over_time": [_over_time(entry.table()) for entry in entries],
    }


def _pass_rates(view: RunView) -> JsonObject:
    """The mean reward of each task with its interval, easiest first; many tasks are grouped."""
    tasks = view.tasks
    scored = np.flatnonzero(tasks.scored > 0)
    order = scored[np.lexsort((tasks.ids[scored], -tasks.mean[scored]))]
    steps = []
    if len(order):
        for start, end in zip(*split_evenly(len(order), _MAX_STEPS), strict=True):
            own = order[start:end]
            steps.append(
                {
                    "from": int(start),
                    "to": int(end),
                    "mean": number_or_none(tasks.mean[own].mean()),
                    "low": number_or_none(tasks.low[own].mean()),
                    "high": number_or_none(tasks.high[own].mean()),
                    "task": int(tasks.ids[own[0]]),
                }
            )
    return {"tasks": len(order), "steps": steps}


def _histogram(series: Sequence[NDArray[np.float64]]) -> JsonObject | None:
    """Counts in the same bins; None if no value is known."""
    known = [values[np.isfinite(values)] for values in series]
    everything = np.concatenate(known) if known else np.empty(0)
    if not len(everything):
        return None
    is_log = needs_log_scale(everything)
    low, high = float(everything.min()), float(everything.max())
    high = high if high > low else low + 1
    edges = np.geomspace(low, high, _BINS + 1) if is_log else np.linspace(low, high, _BINS + 1)
    edges[0], edges[-1] = low, high
    return {
        "labels": [f"{format_short(a)} to {format_short(b)}" for a, b in pairwise(edges.tolist())],
        "edges": edges.tolist(),
        "is_log": is_log,
        "counts": [np.histogram(values, edges)[0].tolist() for values in known],
    }


def _over_time(table: RunTable) -> JsonObject | None:
    """Rollouts, rewards, failures and tokens in steps of time, by when they ended."""
    snapshot = table.snapshot
    times = snapshot.numbers.get("at")
    if times is None:
        return None
    is_timed = np.isfinite(times) & (times > _MIN_TIME)
    if not is_timed.any():
        return None
    start, end = float(times[is_timed].min()), float(times[is_timed].max())
    step = next((own for own in _NICE_STEPS_S if (end - start) / own <= _MAX_TIMES), (end - start) / _MAX_TIMES)
    count = int((end - start) / step) + 1
    bins = np.where(is_timed, (times - start) / step, 0).astype(np.int64)
    scored = is_timed & ~snapshot.is_failure

    def total(mask: NDArray[np.bool_], values: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        weights = values[mask] if values is not None else None
        return np.bincount(bins[mask], weights, count)[:count].astype(np.float64)

    rewards = snapshot.numbers.get("reward", np.full(len(snapshot), np.nan))
    has_reward = scored & np.isfinite(rewards)
    rated = total(has_reward)
    means = np.divide(total(has_reward, rewards), rated, out=np.full(count, np.nan), where=rated > 0)
    tokens = snapshot.numbers.get("output_tokens", np.full(len(snapshot), np.nan))
    codes, names = snapshot.texts.get("failure", (np.full(len(snapshot), -1, np.int32), []))
    failed = is_timed & snapshot.is_failure
    return {
        "start": start,
        "step_s": step,
        "settled": total(scored).astype(int).tolist(),
        "mean_reward": [number_or_none(mean) for mean in means],
        "failures": {
            name: total(failed & (codes == number)).astype(int).tolist() for number, name in enumerate(names[:20])
        },
        "output_tokens": total(scored & np.isfinite(tokens), tokens).tolist(),
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def columns_page(entry: Entry) -> JsonObject:
    """The columns of both tables."""
    table = entry.table()
    names = [*dict.fromkeys([*_ordered(table), *table.own_columns])]
    tasks = task_table(entry)
    return {
        "rollouts": [_describe_column(name, table.column(name)) for name in names],
        "tasks": [
            *(_describe_column(name, tasks.column(name)) for name in TASK_COLUMNS),
            {"name": "prompt", "title": "Prompt", "type": "text", "shown": True, "values": None, "sortable": False},
        ],
    }


def _ordered(table: RunTable) -> list[str]:
    first = ["task", "rollout", "state", "agent", "reward", "truncated", "finish", "failure"]
    rest = [*NUMBER_COLUMNS, *TEXT_COLUMNS]
    names = [name for name in dict.fromkeys([*first, *rest]) if table.column(name) is not None]
    return [name for name in names if name != "label"] + ["label"]


def _describe_column(name: str, values: Column | None) -> JsonObject:
    column: JsonObject = {
        "name": name,
        "title": _TITLES.get(name, name.replace("_", " ").capitalize() if name in _BUILT_IN else name),
        "type": "text" if isinstance(values, Texts) else "number",
        "shown": name not in _NOT_SHOWN,
        "sortable": True,
        "values": None,
    }
    if isinstance(values, Texts):
        used = np.unique(values.codes[values.codes >= 0]).tolist()
        if len(used) <= _MAX_MENU:
            column["values"] = sorted(values.names[code] for code in used)
    elif values is not None:
        known = values[np.isfinite(values)]
        column["min"], column["max"] = (
            (number_or_none(known.min()), number_or_none(known.max())) if len(known) else (None, None)
        )
    return column


_BUILT_IN: Final = frozenset({*NUMBER_COLUMNS, *TEXT_COLUMNS, *TASK_COLUMNS})


def rollouts_page(entry: Entry, query: Query) -> JsonObject:
    """A page of rollouts."""
    started, table = time.perf_counter(), entry.table()
    rows, total, is_exact = find_rows(entry, table, query, (query.page + 1) * query.size)
    shown = rows[query.page * query.size : (query.page + 1) * query.size]
    described = describe_rows(table, shown)
    if query.words:
        for row, values in zip(shown, described, strict=True):
            values["match"] = _around(record_text(read_line(table, int(table.lines[row]))), query.words[0])
    return {"rows": described, **_page(entry, query, total, is_exact=is_exact, started=started)}


def find_rows(entry: Entry, table: RunTable, query: Query, needed: int) -> tuple[list[int], int, bool]:
    """The rows of a query, at least the first `needed` of them; their number, and whether that is exact."""
    order = (query.filters, query.sort, query.descending)
    rows = table.orders.get(order)
    if rows is None:
        rows = select_rows(query, len(table), table.column, _BUILT_IN)
        table.keep_order(order, rows)
    if not query.words:
        return (rows[:needed].tolist() if needed < len(rows) else rows.tolist()), len(rows), True
    assert entry.index is not None
    matches = search_rows(entry.index, table, rows, query.words, needed)
    return matches.rows, matches.total, matches.is_exact


def _page(entry: Entry, query: Query, total: int, *, is_exact: bool, started: float) -> JsonObject:
    return {
        "total": total,
        "total_is_exact": is_exact,
        "page": query.page,
        "size": query.size,
        "index": describe_progress(entry.progress),
        "ms": round((time.perf_counter() - started) * 1000, 1),
    }


def _around(text: str, word: str) -> str:
    """The text around the first occurrence of a word."""
    start = text.lower().find(word)
    if start < 0:
        return ""
    left, right = max(0, start - _BEFORE), start + len(word) + _AFTER
    return to_one_line(f"{'…' if left else ''}{text[left:right]}{'…' if right < len(text) else ''}", right - left + 2)


def task_table(entry: Entry) -> TaskTable:
    """The table of tasks, made once for what is indexed."""
    table = entry.table()
    tasks = entry.loaded(table).tasks
    if not isinstance(entry.tasks, TaskTable) or entry.tasks.table is not table or entry.tasks.tasks is not tasks:
        entry.tasks = TaskTable(entry)
    return entry.tasks


class TaskTable:
    """The tasks of a run in columns."""

    def __init__(self, entry: Entry) -> None:
        self.table = entry.table()
        self.tasks = entry.loaded(self.table).tasks
        self._annotations = entry.annotations()
        self._columns: dict[str, Column | None] = {}
        keys = self.table.keys
        self._starts = np.searchsorted(keys, self.tasks.ids << 32)
        self._ends = np.searchsorted(keys, (self.tasks.ids + 1) << 32)

    def __len__(self) -> int:
        return len(self.tasks)

    def column(self, name: str) -> Column | None:
        """A column by name; None if there is none."""
        if name not in self._columns:
            self._columns[name] = self._make_column(name)
        return self._columns[name]

    def _make_column(self, name: str) -> Column | None:
        tasks, table = self.tasks, self.table
        make: dict[str, Callable[[], Column]] = {
            "task": lambda: tasks.ids.astype(np.float64),
            "expected": lambda: tasks.expected.astype(np.float64),
            "scored": lambda: tasks.scored.astype(np.float64),
            "failed": lambda: tasks.failed.astype(np.float64),
            "mean": lambda: tasks.mean,
            "low": lambda: tasks.low,
            "high": lambda: tasks.high,
            "spread": lambda: tasks.spread,
            "seconds": lambda: tasks.seconds,
            "output_tokens": lambda: tasks.tokens,
            "excluded": lambda: self._count(table.states == _EXCLUDED),
            "truncated": self._truncated,
            "best": self._best,
            "agent": self._agents,
            "label": self._labels,
        }
        return make[name]() if name in make else None

    def _truncated(self) -> NDArray[np.float64]:
        truncated = self.table.column("truncated")
        if not isinstance(truncated, Texts):
            return np.zeros(len(self))
        return self._count(truncated.codes >= 0)

    def _count(self, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        sums = np.concatenate([[0], np.cumsum(mask)])
        counts: NDArray[np.float64] = (sums[self._ends] - sums[self._starts]).astype(np.float64)
        return counts

    def _best(self) -> NDArray[np.float64]:
        rewards = self.table.column("reward")
        assert rewards is not None
        assert not isinstance(rewards, Texts)
        values = np.where(np.isfinite(rewards) & (self.table.states == 0), rewards, -np.inf)
        best = np.full(len(self), np.nan)
        has_rows = self._ends > self._starts
        if has_rows.any():
            # Between the starts of tasks that have rows there are only rows of these tasks.
            best[has_rows] = np.maximum.reduceat(values, self._starts[has_rows])
        return np.where(np.isfinite(best), best, np.nan)

    def _agents(self) -> Texts:
        agents = self.table.column("agent")
        codes = np.full(len(self), -1, np.int32)
        if not isinstance(agents, Texts):
            return Texts(codes, [])
        has_rows = self._ends > self._starts
        codes[has_rows] = agents.codes[self._starts[has_rows]]
        return Texts(codes, agents.names)

    def _labels(self) -> Texts:
        labels = {
            task: own.label for (task, rollout), own in self._annotations.items() if rollout is None and own.label
        }
        names = list(dict.fromkeys(labels.values()))
        codes = np.full(len(self), -1, np.int32)
        for task, label in labels.items():
            row = int(np.searchsorted(self.tasks.ids, task))
            if row < len(self) and self.tasks.ids[row] == task:
                codes[row] = names.index(label)
        return Texts(codes, names)

    def rewards(self, row: int) -> list[float | int | None]:
        """The rewards of a task's rollouts."""
        first, last = int(self._starts[row]), int(self._ends[row])
        rewards = self.table.select(range(first, min(last, first + _MAX_REWARDS))).column("reward")
        assert isinstance(rewards, np.ndarray)
        return [number_or_none(reward) for reward in rewards.tolist()]

    def first_row(self, row: int) -> int | None:
        """The first rollout of a task in the table of rollouts, or None."""
        return int(self._starts[row]) if self._ends[row] > self._starts[row] else None


def tasks_page(entry: Entry, query: Query) -> JsonObject:
    """A page of tasks."""
    started, tasks = time.perf_counter(), task_table(entry)
    rows = select_rows(query, len(tasks), tasks.column, TASK_COLUMNS)
    total, total_is_exact = len(rows), True
    if query.words:
        assert entry.index is not None
        ids = tasks.tasks.ids[rows]
        matches = search_tasks(entry.index, tasks.table, ids, query.words, (query.page + 1) * query.size)
        rows, total, total_is_exact = rows[np.array(matches.rows, np.int64)], matches.total, matches.is_exact
    shown = rows[query.page * query.size : (query.page + 1) * query.size].tolist()
    return {
        "rows": describe_tasks(entry, tasks, shown),
        **_page(entry, query, total, is_exact=total_is_exact, started=started),
    }


def describe_tasks(entry: Entry, tasks: TaskTable, rows: Sequence[int]) -> list[JsonObject]:
    """Rows of the table of tasks."""
    columns = {name: tasks.column(name) for name in TASK_COLUMNS}
    prompts = task_prompts(entry, tasks, rows)
    described = []
    for row, prompt in zip(rows, prompts, strict=True):
        values: JsonObject = {}
        for name, column in columns.items():
            if isinstance(column, Texts):
                code = int(column.codes[row])
                values[name] = column.names[code] if code >= 0 else None
            elif column is not None:
                values[name] = number_or_none(column[row])
        described.append({**values, "prompt": prompt, "rewards": tasks.rewards(row)})
    return described


def task_prompts(entry: Entry, tasks: TaskTable, rows: Sequence[int]) -> list[str]:
    """The start of the prompt of each task: from its materialized input, or else a record."""
    plan = entry.plan()
    prompts = []
    if plan is None:
        for row in rows:
            first = tasks.first_row(row)
            line = read_line(tasks.table, int(tasks.table.lines[first])) if first is not None else b"{}"
            prompts.append(_prompt_of(line))
        return prompts
    try:
        with plan.paths[0].open("rb") as stream:
            for row in rows:
                position = plan.positions.get(int(tasks.tasks.ids[row]))
                stream.seek(position[1] if position is not None else 0)
                prompts.append(_prompt_of(stream.readline()) if position is not None else "")
    except OSError as error:
        raise NotFoundError("the run's inputs are gone", where=str(plan.paths[0])) from error
    return prompts


def _prompt_of(line: bytes) -> str:
    params = (decode_record(line) or {}).get(PARAMS)
    return snippet(params.get("input") if isinstance(params, dict) else None)


# --- one rollout -----------------------------------------------------------------------------------------------------


def rollout_page(entry: Entry, task: int, rollout: int, *, full: bool) -> JsonObject:
    """One rollout of a run."""
    table = entry.table()
    row = find_rollout(table, task, rollout)
    page = make_rollout(table, row, entry.token_texts(), full=full)
    notes = [own for (of, which), own in entry.annotations().items() if of == task and which in (None, rollout)]
    return {"run": entry.id, **page, "annotations": [msgspec.to_builtins(own) for own in notes]}


def find_rollout(table: RunTable, task: int, rollout: int) -> int:
    """The row of a rollout. Raises NotFoundError if it has no record."""
    row = table.row_of((task << 32) | rollout) if max(task, rollout) < 2**31 else None
    if row is None:
        raise NotFoundError(f"rollout {task}:{rollout} has no record", next="it may be in flight, or not started yet")
    return row


def raw_line(entry: Entry, task: int, rollout: int) -> bytes:
    """The line of a rollout."""
    table = entry.table()
    return read_line(table, int(table.lines[find_rollout(table, task, rollout)]))


# --- comparison ------------------------------------------------------------------------------------------------------


def compare_page(entries: Sequence[Entry], params: JsonObject) -> JsonObject:
    """Runs paired by task, each with the first. `params`: by_index, page, size, sort, desc."""
    views = [entry.view()[0] for entry in entries]
    loaded = [view.loaded for view in views]
    for entry, run in zip(entries, loaded, strict=True):
        if not len(run.groups):
            raise DataError(f"nothing was scored in '{entry.id}', so there is nothing to compare")
    by_index = params["by_index"] or any(not view.has_inputs for view in views)
    pairs, changes_of = [], []
    for entry, run in zip(entries[1:], loaded[1:], strict=True):
        changes, unmatched, matched_by = match_tasks(loaded[0], run, by_index=by_index)
        comparison = compare(changes, unmatched=unmatched, matched_by=matched_by)
        pairs.append(_describe_pair(entries[0].id, entry.id, comparison, loaded[0], run))
        changes_of.append({change.task_a: change for change in changes})
    rows = _compared_rows(loaded, changes_of)
    key = {"task": lambda row: row["task"], "mean_a": lambda row: row["means"][0]}.get(params["sort"], _size_of_change)
    if params["sort"] == "mean_b":
        key = _second_mean
    elif params["sort"] == "difference":
        key = _change
    rows.sort(key=key, reverse=params["desc"])
    start = params["page"] * params["size"]
    shown = rows[start : start + params["size"]]
    first = TaskTable(entries[0])
    numbers = {int(task): number for number, task in enumerate(first.tasks.ids)}
    prompts = task_prompts(entries[0], first, [numbers[row["task"]] for row in shown])
    return {
        "runs": [entry.id for entry in entries],
        "matched_by": "index" if by_index else "content",
        "pairs": pairs,
        "rows": [{**row, "prompt": prompt} for row, prompt in zip(shown, prompts, strict=True)],
        "total": len(rows),
    }


def _size_of_change(row: JsonObject) -> float:
    return max((abs(own) for own in row["differences"] if own is not None), default=-1.0)


def _change(row: JsonObject) -> float:
    return next((own for own in row["differences"][1:] if own is not None), 0.0)


def _second_mean(row: JsonObject) -> float:
    return next((own for own in row["means"][1:] if own is not None), -1e300)


def _describe_pair(a: str, b: str, comparison: Comparison, run_a: LoadedRun, run_b: LoadedRun) -> JsonObject:
    estimates = ("mean_a", "mean_b", "difference", "difference_bootstrap")
    return {
        "a": a,
        "b": b,
        **{name: getattr(comparison, name) for name in ("tasks", "only_a", "only_b", "p_value", "p_value_t")},
        **{name: getattr(comparison, name) for name in ("wins", "losses", "ties", "verdict")},
        **{name: describe_estimate(getattr(comparison, name)) for name in estimates},
        "sentence": verdict_sentence(comparison),
        "truncated_a": truncated_share(run_a),
        "truncated_b": truncated_share(run_b),
    }


def _compared_rows(runs: Sequence[LoadedRun], changes_of: Sequence[dict[int, TaskChange]]) -> list[JsonObject]:
    """One row per task of the first run that any other run has, too."""
    spreads = [_spreads(run) for run in runs]
    rows = []
    for task in dict.fromkeys(task for changes in changes_of for task in changes):
        known = [changes.get(task) for changes in changes_of]
        first = next(change for change in known if change is not None)
        rows.append(
            {
                "task": task,
                "tasks": [task, *(change.task_b if change is not None else None for change in known)],
                "means": [first.mean_a, *(change.mean_b if change is not None else None for change in known)],
                "rollouts": [first.rollouts_a, *(change.rollouts_b if change is not None else 0 for change in known)],
                "differences": [None, *(change.difference if change is not None else None for change in known)],
                "intervals": [
                    None,
                    *(
                        _interval(change, spreads[0], spreads[number]) if change is not None else None
                        for number, change in enumerate(known, 1)
                    ),
                ],
            }
        )
    return rows


def _spreads(run: LoadedRun) -> dict[int, tuple[float, int]]:
    """The variance of each task's rewards, and their number."""
    rewards = run.groups.table.rewards
    return {
        task: (float(rewards[rows].var(ddof=1)) if rows.stop - rows.start > 1 else 0.0, rows.stop - rows.start)
        for task, rows in run.groups
    }


def _interval(
    change: TaskChange, a: dict[int, tuple[float, int]], b: dict[int, tuple[float, int]]
) -> JsonObject | None:
    """A 95% interval of a task's difference (Welch); None if a run has a single rollout of it."""
    (variance_a, n_a), (variance_b, n_b) = a[change.task_a], b[change.task_b]
    if n_a < 2 or n_b < 2:
        return None
    share_a, share_b = variance_a / n_a, variance_b / n_b
    squares = share_a**2 / (n_a - 1) + share_b**2 / (n_b - 1)
    freedom = (share_a + share_b) ** 2 / squares if squares else n_a + n_b - 2
    margin = t_quantile(0.975, max(1, int(freedom))) * (share_a + share_b) ** 0.5
    return {"low": change.difference - margin, "high": change.difference + margin}


# --- diagnosis -------------------------------------------------------------------------------------------------------


async def read_stuck(entry: Entry) -> dict[str, Any]:
    """What a running collection says, for doctor."""
    if entry.live is None:
        return {}
    try:
        live = await send_request(entry.found.paths.socket, {"command": "status"})
        stacks = await send_request(entry.found.paths.socket, {"command": "stacks"})
    except UserError:
        return {}
    return {"live": live, "stacks": tuple(stacks)}


def doctor_page(entry: Entry, live: dict[str, Any]) -> JsonObject:
    """What `gymnast doctor` says about a run, each finding with the rollouts behind it."""
    version = (entry.stamp, bool(live))
    if entry.doctor is not None and entry.doctor[0] == version and not live:
        return entry.doctor[1]
    page = examine(replace(find_target(entry.found.paths.output), **live)).as_json()
    kinds = {kind.value for kind in FailureKind}
    for finding in page["findings"]:
        keys = dict.fromkeys(key for evidence in finding["evidence"] for key in evidence.get("keys", ()))
        finding["rollouts"] = [rollout for key in keys if (rollout := _parse_key(key)) is not None][:200]
        finding["filter"] = _filter_of(finding, kinds)
    page["at"] = time.time()
    entry.doctor = (version, page)
    return page


def _parse_key(text: str) -> JsonObject | None:
    task, _, rollout = text.partition(":")
    if not task.isdecimal() or not rollout.isdecimal():
        return None
    return {"task": int(task), "rollout": int(rollout)}


def _filter_of(finding: JsonObject, kinds: set[str]) -> str | None:
    """A filter of the table of rollouts that shows those of a finding."""
    texts = [finding["id"], finding["symptom"], *(own["what"] for own in finding["evidence"])]
    named = [kind for kind in kinds if any(kind in text.replace("-", "_").split() for text in texts)]
    if len(named) == 1:
        return f"f=failure={named[0]}"
    return "f=truncated!=" if "truncat" in finding["id"] else None
