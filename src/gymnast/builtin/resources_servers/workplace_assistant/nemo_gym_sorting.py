"""The order of e-mails in NeMo Gym's searches: from last to first, with equal times as NumPy's quicksort leaves them.

Quicksort is not stable, and e-mails sent in a session all have the same time, so that the algorithm shows in replies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")

_SMALL: Final = 15
"""Partitions up to this distance between their ends are sorted by insertion."""


def sort_descending(values: Sequence[T], *, key: Callable[[T], Any]) -> list[T]:
    """Sort from last to first: the values are reversed, sorted and reversed again."""
    backwards = list(values)[::-1]
    order = quicksort_order([key(value) for value in backwards])
    return [backwards[position] for position in reversed(order)]


def quicksort_order(keys: Sequence[Any]) -> list[int]:
    """The positions of keys in ascending order."""
    order, pending = list(range(len(keys))), [(0, len(keys) - 1)]
    while pending:
        low, high = pending.pop()
        while high - low > _SMALL:
            middle = _partition(keys, order, low, high)
            if middle - low < high - middle:
                pending.append((middle + 1, high))
                high = middle - 1
            else:
                pending.append((low, middle - 1))
                low = middle + 1
        _insertion_sort(keys, order, low, high)
    return order


def _partition(keys: Sequence[Any], order: list[int], low: int, high: int) -> int:
    """Split around the median of the first, middle and last key; returns where the median is."""

    def swap(one: int, other: int) -> None:
        order[one], order[other] = order[other], order[one]

    middle = low + (high - low) // 2
    for one, other in ((low, middle), (middle, high), (low, middle)):
        if keys[order[other]] < keys[order[one]]:
            swap(one, other)
    pivot = keys[order[middle]]
    left, right = low, high - 1
    swap(middle, right)
    while True:
        left += 1
        while keys[order[left]] < pivot:
            left += 1
        right -= 1
        while pivot < keys[order[right]]:
            right -= 1
        if left >= right:
            break
        swap(left, right)
    swap(left, high - 1)
    return left


def _insertion_sort(keys: Sequence[Any], order: list[int], low: int, high: int) -> None:
    for position in range(low + 1, high + 1):
        item, place = order[position], position
        while place > low and keys[item] < keys[order[place - 1]]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = item
