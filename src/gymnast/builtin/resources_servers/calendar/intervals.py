"""Whether events overlap in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

Number = int | float
Interval = tuple[Number, Number]
"""Start and end."""


def any_overlap(intervals: Sequence[Interval]) -> bool:
    """Whether two of them share time: each starts before the other ends. An end may precede its start.

    An interval overlaps with those that start before its end and end after its start: the latest end of those that
    start before its end decides, its own apart.
    """
    if any(math.isnan(value) for interval in intervals for value in interval if isinstance(value, float)):
        return len(intervals) > 1  # such an event is never before or after another
    by_start = sorted(range(len(intervals)), key=lambda at: intervals[at][0])
    by_end = sorted(range(len(intervals)), key=lambda at: intervals[at][1])
    latest: list[int] = []
    started = 0
    for end, same_end in groupby(by_end, key=lambda at: intervals[at][1]):
        while started < len(by_start) and intervals[by_start[started]][0] < end:
            latest = sorted([*latest, by_start[started]], key=lambda at: intervals[at][1])[-2:]
            started += 1
        for at in same_end:
            if any(other != at and intervals[other][1] > intervals[at][0] for other in latest):
                return True
    return False
