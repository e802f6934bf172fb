"""Runs compared task by task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnast.errors import DataError
from gymnast.profile.compare import compare, match_tasks, truncated_share, verdict_sentence
from gymnast.profile.intervals import t_quantile
from gymnast.studio.library import describe_estimate
from gymnast.studio.pages.tasks import task_prompts
from gymnast.studio.task_table import TaskTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.profile.compare import Comparison, TaskChange
    from gymnast.profile.run_profile import LoadedRun
    from gymnast.studio.library import Entry
    from gymnast.types.json import JsonObject


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


def same_task(entry: Entry, other: Entry, task: int) -> int | None:
    """The task of another run with the same content; by its index if a run has no inputs. None if there is none."""
    (view, _), (second, _) = entry.view(), other.view()
    by_index = not (view.has_inputs and second.has_inputs)
    changes, _, _ = match_tasks(view.loaded, second.loaded, by_index=by_index)
    return next((change.task_b for change in changes if change.task_a == task), None)


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
