"""Figures of the website with NeMo Gym's rules. Names of classes and arguments are in its replies to wrong calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from .nemo_gym_frame import Cells, Frame, filter_range, refuse_comparison

_PLOT_VALUES: Final = (
    *("total_visits", "session_duration_seconds", "user_engaged", "visits_direct", "visits_referral"),
    *("visits_search_engine", "visits_social_media"),
)
_PLOT_TYPES: Final = ("bar", "line", "scatter", "histogram")
_DAY: Final = "date_of_visit"
_SECONDS: Final = "session_duration_seconds"


class AnalyticsTool:
    """Counts visits and makes plots."""

    def __init__(self, visits: Sequence[Cells]) -> None:
        self.visits = visits
        self.plots = Frame(("file_path",), ())

    def get_visitor_information_by_id(self, visitor_id: Any = None) -> Any:
        if not visitor_id:
            return "Visitor ID not provided."
        frame = Frame(("visitor_id",), self.visits)
        return frame.rows_with("visitor_id", visitor_id) or "Visitor not found."

    def create_plot(
        self, time_min: Any = None, time_max: Any = None, value_to_plot: Any = None, plot_type: Any = None
    ) -> Any:
        if not time_min:
            return "Start date not provided."
        if not time_max:
            return "End date not provided."
        if value_to_plot not in _PLOT_VALUES:
            return f"Value to plot must be one of {', '.join(map(repr, _PLOT_VALUES))}"
        if plot_type not in _PLOT_TYPES:
            return "Plot type must be one of 'bar', 'line', 'scatter', or 'histogram'"
        path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
        self.plots.append({"file_path": path}, renumber=True)
        return path

    def total_visits_count(self, time_min: Any = None, time_max: Any = None) -> Any:
        return _by_day(Counter(row[_DAY] for row in self._between(time_min, time_max)))

    def engaged_users_count(self, time_min: Any = None, time_max: Any = None) -> Any:
        counts: Counter[str] = Counter()
        for row in self._between(time_min, time_max):
            counts[row[_DAY]] += row["user_engaged"]
        return _by_day(counts)

    def traffic_source_count(self, time_min: Any = None, time_max: Any = None, traffic_source: Any = None) -> Any:
        counts: Counter[str] = Counter()
        rows = self._between(time_min, time_max)
        if traffic_source:
            refuse_comparison("eq", traffic_source, len(rows), mixed=False)
        for row in rows:
            counts[row[_DAY]] += not traffic_source or row["traffic_source"] == traffic_source
        return _by_day(counts)

    def get_average_session_duration(self, time_min: Any = None, time_max: Any = None) -> Any:
        rows = self._between(time_min, time_max)
        if not time_min and not time_max:  # the whole table keeps the numbers
            self.visits = rows = [{**row, _SECONDS: _number(row[_SECONDS])} for row in rows]
        seconds: dict[str, list[float]] = {}
        for row in rows:
            length = _number(row[_SECONDS])
            seconds.setdefault(row[_DAY], []).extend([] if length is None else [length])
        return _by_day({day: sum(lengths) / len(lengths) if lengths else None for day, lengths in seconds.items()})

    def _between(self, time_min: Any, time_max: Any) -> Sequence[Cells]:
        rows = filter_range(self.visits, _DAY, low=time_min) if time_min else self.visits
        return filter_range(rows, _DAY, high=time_max) if time_max else rows


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _by_day(values: Any) -> dict[str, Any]:
    return dict(sorted(values.items()))
