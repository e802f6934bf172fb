"""Visits of the company's website: figures by day, and plots of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from gymnast.kit import ToolError, tool

from .checks import a_day_or_moment, one_of, or_empty
from .office import Office, validate, within
from .tables import OfficeData, Row

PLOT_TYPES: Final = ("bar", "line", "scatter", "histogram")


def values_to_plot(office_data: OfficeData) -> list[str]:
    """The values that a plot may show: totals, and the visits of each source."""
    sources = [f"visits_{source.replace(' ', '_')}" for source in office_data.sources]
    return ["total_visits", "session_duration_seconds", "user_engaged", *sources]


_BOUNDS: Final = {"time_min": or_empty(a_day_or_moment), "time_max": or_empty(a_day_or_moment)}
_PLOT: Final = {
    "time_min": a_day_or_moment,
    "time_max": a_day_or_moment,
    "value_to_plot": one_of(values_to_plot),
    "plot_type": one_of(lambda _: PLOT_TYPES),
}
_SOURCE: Final = {"traffic_source": or_empty(one_of(lambda office_data: office_data.sources))}


class AnalyticsTools:
    """Tools over the visits."""

    @tool
    async def analytics_get_visitor_information_by_id(self, session: Office, visitor_id: str) -> list[Row]:
        """Lists the visits of a visitor.

        Args:
            visitor_id: The id, 4 digits.
        """
        matches = [row for row in session.office_data.tables.visits if row["visitor_id"] == visitor_id]
        if not matches:
            raise ToolError(f"There is no visitor with the id '{visitor_id}'. Ids are texts of 4 digits.")
        return matches

    @tool
    async def analytics_create_plot(
        self, session: Office, time_min: str, time_max: str, value_to_plot: str, plot_type: str
    ) -> str:
        """Makes a plot of a figure by day and stores it.

        Args:
            time_min: The first day, YYYY-MM-DD.
            time_max: The last day, YYYY-MM-DD.
            value_to_plot: 'total_visits', 'session_duration_seconds', 'user_engaged', 'visits_direct', 'visits_referral', 'visits_search_engine' or 'visits_social_media'.
            plot_type: 'bar', 'line', 'scatter' or 'histogram'.
        """  # noqa: E501 - an argument's description is one line
        values = {"time_min": time_min, "time_max": time_max, "value_to_plot": value_to_plot, "plot_type": plot_type}
        validate(session, _PLOT, values)
        if time_min > time_max:
            raise ToolError(f"time_min '{time_min}' is after time_max '{time_max}'.")
        path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
        session.plots.add({"file_path": path})
        return f"The plot is stored as {path}."

    @tool
    async def analytics_total_visits_count(
        self, session: Office, time_min: str = "", time_max: str = ""
    ) -> dict[str, int]:
        """Counts all visits by day.

        Args:
            time_min: The first day, YYYY-MM-DD.
            time_max: The last day, YYYY-MM-DD.
        """
        return dict(Counter(row["date_of_visit"] for row in _visits(session, time_min, time_max)))

    @tool
    async def analytics_engaged_users_count(
        self, session: Office, time_min: str = "", time_max: str = ""
    ) -> dict[str, int]:
        """Counts the visits of engaged users by day.

        Args:
            time_min: The first day, YYYY-MM-DD.
            time_max: The last day, YYYY-MM-DD.
        """
        counts: Counter[str] = Counter()
        for row in _visits(session, time_min, time_max):
            counts[row["date_of_visit"]] += row["user_engaged"].lower() in {"true", "1"}
        return dict(counts)

    @tool
    async def analytics_traffic_source_count(
        self, session: Office, time_min: str = "", time_max: str = "", traffic_source: str = ""
    ) -> dict[str, int]:
        """Counts the visits that came from a source by day.

        Args:
            time_min: The first day, YYYY-MM-DD.
            time_max: The last day, YYYY-MM-DD.
            traffic_source: 'direct', 'referral', 'search engine' or 'social media'; all of them when left out.
        """
        validate(session, _SOURCE, {"traffic_source": traffic_source})
        counts: Counter[str] = Counter()
        for row in _visits(session, time_min, time_max):
            counts[row["date_of_visit"]] += not traffic_source or row["traffic_source"] == traffic_source
        return dict(counts)

    @tool
    async def analytics_get_average_session_duration(
        self, session: Office, time_min: str = "", time_max: str = ""
    ) -> dict[str, float]:
        """Averages the length of visits, in seconds, by day.

        Args:
            time_min: The first day, YYYY-MM-DD.
            time_max: The last day, YYYY-MM-DD.
        """
        seconds: dict[str, list[float]] = {}
        for row in _visits(session, time_min, time_max):
            seconds.setdefault(row["date_of_visit"], []).append(float(row["session_duration_seconds"] or 0))
        return {day: round(sum(lengths) / len(lengths), 2) for day, lengths in seconds.items()}


def _visits(office: Office, time_min: str, time_max: str) -> Iterator[Row]:
    validate(office, _BOUNDS, {"time_min": time_min, "time_max": time_max})
    return (row for row in office.office_data.tables.visits if within(row["date_of_visit"], time_min, time_max))
