"""Which rollouts of a large run a report carries with it: those that somebody reading it will want to open.

Kinds of interest take turns, so that a small selection has some of each: the shortest and longest of every reward, the
best and the worst of the most uncertain tasks, the slowest, failures of every kind, then a walk over all tasks.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from gymnast.report.bins import reward_bins
from gymnast.report.tasks import DURATION_FIELDS, first_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.report.run_view import RunView

_SHORTEST_AND_LONGEST = 8


def selected(run: RunView, limit: int) -> list[int]:
    """Packed keys of at most `limit` rollouts, scored and failed, the most interesting first."""
    failed = run.loaded.failures.last_kind
    if len(run.table) + len(failed) <= limit:
        return [*run.table.packed.tolist(), *failed]
    packed = run.table.packed
    rows = (_by_reward(run), _by_uncertainty(run), _by_duration(run))
    interests = [(int(packed[row]) for row in found) for found in rows]
    walk = (int(packed[row]) for row in _over_all_tasks(run, limit))
    return list(islice(_distinct(chain(_in_turns([*interests, _by_failure(failed)]), walk)), limit))


def _by_reward(run: RunView) -> Iterator[int]:
    """Shortest and longest rollouts of each bin of rewards."""
    if not len(run.table):
        return
    bins = reward_bins([run.rewards])
    places, length = bins.places(run.rewards), np.nan_to_num(run.tokens)
    orders = [
        rows[np.argsort(length[rows], kind="stable")]
        for rows in (np.flatnonzero(places == one) for one in range(len(bins)))
    ]
    for step in range(_SHORTEST_AND_LONGEST):
        for order in orders:
            if step < len(order):
                yield int(order[step])
                yield int(order[-1 - step])


def _by_uncertainty(run: RunView) -> Iterator[int]:
    """The best and the worst rollout of each uncertain task."""
    for row in run.tasks.uncertain(len(run.tasks)):
        mine = _rows_of(run, int(run.tasks.ids[row]))
        rewards = run.rewards[mine]
        yield mine.start + int(rewards.argmax())
        yield mine.start + int(rewards.argmin())


def _by_duration(run: RunView) -> Iterator[int]:
    """The slowest rollout of each slow task."""
    column = first_column(run.table, DURATION_FIELDS)
    durations = np.nan_to_num(column.values if column is not None else run.tokens)
    for row in run.tasks.slowest(len(run.tasks)):
        mine = _rows_of(run, int(run.tasks.ids[row]))
        yield mine.start + int(durations[mine].argmax())


def _by_failure(failed: dict[int, str]) -> Iterator[int]:
    """Failed rollouts, kinds taking turns."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for packed, kind in failed.items():
        kinds[kind].append(packed)
    return _in_turns([iter(keys) for keys in kinds.values()])


def _over_all_tasks(run: RunView, limit: int) -> Iterator[int]:
    """First rollouts of tasks at even distances, then any."""
    starts = run.groups.starts[:-1]
    stride = max(1, len(starts) // max(1, limit))
    yield from starts[::stride].tolist()
    yield from range(len(run.table))


def _rows_of(run: RunView, task: int) -> slice:
    place = int(np.searchsorted(run.groups.tasks, task))
    return slice(int(run.groups.starts[place]), int(run.groups.starts[place + 1]))


def _in_turns(sources: Iterable[Iterator[int]]) -> Iterator[int]:
    waiting = list(sources)
    while waiting:
        for source in list(waiting):
            found = next(source, None)
            if found is None:
                waiting.remove(source)
            else:
                yield found


def _distinct(keys: Iterable[int]) -> Iterator[int]:
    seen: set[int] = set()
    for key in keys:
        if key not in seen:
            seen.add(key)
            yield key
