"""Selects the rollouts of a large run whose transcripts a report includes: those a reader will want to open.

Picks from several criteria in turn, so that a small selection has some of each: the shortest and longest of every
reward, the best and worst of the most uncertain tasks, the slowest, failures of every kind; then a sample of all tasks.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from gymnast.report.bins import make_reward_bins
from gymnast.report.tasks import DURATION_FIELDS, first_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.report.run_view import RunView

_EXTREMES_PER_BIN = 8


def select_rollouts(run: RunView, limit: int) -> list[int]:
    """Packed keys of at most `limit` rollouts, scored and failed, the most interesting first."""
    failed = run.loaded.failures.last_kind
    if len(run.table) + len(failed) <= limit:
        return [*run.table.packed.tolist(), *failed]
    packed = run.table.packed
    criteria = (_by_reward(run), _by_uncertainty(run), _by_duration(run))
    keys = [(int(packed[row]) for row in rows) for rows in criteria]
    sample = (int(packed[row]) for row in _sample_tasks(run, limit))
    return list(islice(_distinct(chain(_round_robin([*keys, _by_failure(failed)]), sample)), limit))


def _by_reward(run: RunView) -> Iterator[int]:
    """Shortest and longest rollouts of each bin of rewards."""
    if not len(run.table):
        return
    bins = make_reward_bins([run.rewards])
    indices, length = bins.indices(run.rewards), np.nan_to_num(run.tokens)
    orders = [
        rows[np.argsort(length[rows], kind="stable")]
        for rows in (np.flatnonzero(indices == index) for index in range(len(bins)))
    ]
    for step in range(_EXTREMES_PER_BIN):
        for order in orders:
            if step < len(order):
                yield int(order[step])
                yield int(order[-1 - step])


def _by_uncertainty(run: RunView) -> Iterator[int]:
    """The best and the worst rollout of each uncertain task."""
    for row in run.tasks.most_uncertain(len(run.tasks)):
        rollouts = _task_rows(run, int(run.tasks.ids[row]))
        rewards = run.rewards[rollouts]
        yield rollouts.start + int(rewards.argmax())
        yield rollouts.start + int(rewards.argmin())


def _by_duration(run: RunView) -> Iterator[int]:
    """The slowest rollout of each slow task."""
    column = first_column(run.table, DURATION_FIELDS)
    durations = np.nan_to_num(column.values if column is not None else run.tokens)
    for row in run.tasks.slowest(len(run.tasks)):
        rollouts = _task_rows(run, int(run.tasks.ids[row]))
        yield rollouts.start + int(durations[rollouts].argmax())


def _by_failure(failed: dict[int, str]) -> Iterator[int]:
    """Failed rollouts of each kind in turn."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for packed, kind in failed.items():
        kinds[kind].append(packed)
    return _round_robin([iter(keys) for keys in kinds.values()])


def _sample_tasks(run: RunView, limit: int) -> Iterator[int]:
    """The first rollouts of evenly spaced tasks, then all rollouts."""
    starts = run.groups.starts[:-1]
    stride = max(1, len(starts) // max(1, limit))
    yield from starts[::stride].tolist()
    yield from range(len(run.table))


def _task_rows(run: RunView, task: int) -> slice:
    index = int(np.searchsorted(run.groups.tasks, task))
    return slice(int(run.groups.starts[index]), int(run.groups.starts[index + 1]))


def _round_robin(sources: Iterable[Iterator[int]]) -> Iterator[int]:
    remaining = list(sources)
    while remaining:
        for source in list(remaining):
            key = next(source, None)
            if key is None:
                remaining.remove(source)
            else:
                yield key


def _distinct(keys: Iterable[int]) -> Iterator[int]:
    seen: set[int] = set()
    for key in keys:
        if key not in seen:
            seen.add(key)
            yield key
