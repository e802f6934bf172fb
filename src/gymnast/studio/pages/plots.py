"""The values of the plots of runs: rewards, pass rates, tokens, failures, and their course over time."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.report.bins import make_reward_bins, needs_log_scale, reward_by_tokens, split_evenly
from gymnast.report.scales import format_short
from gymnast.studio.library import describe_estimate
from gymnast.studio.pages.run import describe_curve
from gymnast.studio.run_table import number_or_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gymnast.report.run_view import RunView
    from gymnast.studio.library import Entry
    from gymnast.studio.run_table import RunTable
    from gymnast.types.json import JsonObject

_MAX_STEPS: Final = 400
_BINS: Final = 24
_MAX_TIMES: Final = 240
_MIN_TIMES: Final = 20
_ROLLOUTS_PER_STEP: Final = 8
_NICE_STEPS_S: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400)
_MIN_TIME: Final = 1e8
"""Times before 1973 are not times: some servers write 0."""


def plots_page(entries: Sequence[Entry]) -> JsonObject:
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
        "pass_at": [describe_curve(view.curve) for view in views],
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


def _time_step(seconds: float, rollouts: int) -> float:
    """Steps with several rollouts each, where that leaves enough of them: single ones are noise."""
    most = max(_MIN_TIMES, min(_MAX_TIMES, rollouts // _ROLLOUTS_PER_STEP))
    return next((own for own in _NICE_STEPS_S if seconds / own <= most), seconds / most)


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
    step = _time_step(end - start, int(is_timed.sum()))
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
