"""The order in which a report includes transcripts, so that those that fit are the ones a reader will want to open.

First failures of every kind; then, in turn, the extremes of every reward, the most uncertain and the slowest tasks;
then the worst and the best rollout of each task, from tasks all over the run; then everything else, task by task in
turn.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.report.bins import make_reward_bins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.profile.table import Ints
    from gymnast.report.run_view import RunView

_EXTREMES_PER_BIN: Final = 8
_FAILURES_PER_KIND: Final = 20
_MAX_UNCERTAIN: Final = 100
_MAX_SLOW: Final = 50


def order_rollouts(run: RunView) -> Iterator[int]:
    """Packed keys of all rollouts on record: scored, failed and excluded, the most informative first."""
    failed, packed = run.loaded.failures.last_kind, run.table.packed
    first_failures = islice(_by_failure(failed), _FAILURES_PER_KIND * len(set(failed.values())))
    criteria = (_by_reward(run), _by_uncertainty(run), _by_duration(run))
    extremes = _round_robin([(int(packed[row]) for row in rows) for rows in criteria])
    scored = (int(packed[row]) for row in _by_task(run))
    rest = _round_robin([scored, _by_failure(failed), iter(run.excluded_offsets)])
    return _distinct(chain(first_failures, extremes, rest))


def keys_by_task(run: RunView) -> list[int]:
    """Packed keys of all rollouts on record, by task."""
    return sorted([*run.table.packed.tolist(), *run.loaded.failures.last_kind, *run.excluded_offsets])


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
    """The worst and the best rollout of each uncertain task."""
    for row in run.tasks.most_uncertain(_MAX_UNCERTAIN):
        rollouts = _task_rows(run, int(run.tasks.ids[row]))
        rewards = run.rewards[rollouts]
        yield rollouts.start + int(rewards.argmin())
        yield rollouts.start + int(rewards.argmax())


def _by_duration(run: RunView) -> Iterator[int]:
    """The slowest rollout of each slow task."""
    durations = np.nan_to_num(run.setup.seconds if run.tasks.has_seconds else run.tokens)
    for row in run.tasks.slowest(_MAX_SLOW):
        rollouts = _task_rows(run, int(run.tasks.ids[row]))
        yield rollouts.start + int(durations[rollouts].argmax())


def _by_failure(failed: dict[int, str]) -> Iterator[int]:
    """Failed rollouts of each kind in turn."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for packed, kind in failed.items():
        kinds[kind].append(packed)
    return _round_robin([iter(keys) for keys in kinds.values()])


def _by_task(run: RunView) -> Iterator[int]:
    """The worst and the best rollout of every task, then one more of every task in each round."""
    sizes, count = run.groups.sizes(), len(run.table)
    task_of = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((run.rewards, task_of))
    place = np.empty(count, np.int64)
    place[order] = np.arange(count) - np.repeat(run.groups.starts[:-1], sizes)
    is_best = (place == sizes[task_of] - 1) & (place > 0)
    rounds = np.where(is_best, 0, place)
    return iter(np.lexsort((is_best, _spread_out(len(sizes))[task_of], rounds)).tolist())


def _spread_out(count: int) -> Ints:
    """The rank of each of `count` positions in an order whose every beginning covers the whole range evenly."""
    bits = max(1, (count - 1).bit_length())
    positions, reversed_bits = np.arange(count), np.zeros(count, np.int64)
    for bit in range(bits):
        reversed_bits |= ((positions >> bit) & 1) << (bits - 1 - bit)
    return np.argsort(np.argsort(reversed_bits)).astype(np.int64)


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
