"""The calendar."""

from __future__ import annotations

from typing import Any, Final

from gymnast.kit import tool

from .checks import a_day_or_moment, a_moment, an_address, minutes, or_empty, some_text
from .office import Office, change, has_words, make_page, read_field, require, validate, within

_FIELDS: Final = {
    "event_name": some_text,
    "participant_email": an_address,
    "event_start": a_moment,
    "duration": minutes,
}
_BOUNDS: Final = {"time_min": or_empty(a_day_or_moment), "time_max": or_empty(a_day_or_moment)}


class CalendarTools:
    """Tools over the events."""

    @tool
    async def calendar_get_event_information_by_id(self, session: Office, event_id: str, field: str) -> dict[str, str]:
        """Reads one field of an event.

        Args:
            event_id: The id, 8 digits.
            field: 'event_id', 'event_name', 'participant_email', 'event_start' or 'duration'.
        """
        return read_field(require(session.events, event_id, "event"), field)

    @tool
    async def calendar_search_events(
        self,
        session: Office,
        query: str = "",
        time_min: str = "",
        time_max: str = "",
        page: int = 1,
        page_size: int = 5,
    ) -> dict[str, Any]:
        """Searches events.

        Args:
            query: Text to look for in the event's name or the participant's address.
            time_min: The earliest start, YYYY-MM-DD HH:MM:SS or YYYY-MM-DD.
            time_max: The latest start, YYYY-MM-DD HH:MM:SS or YYYY-MM-DD.
            page: Which page of the results, from 1.
            page_size: Events on a page.
        """
        validate(session, _BOUNDS, {"time_min": time_min, "time_max": time_max})
        matches = [
            row
            for row in session.events
            if within(row["event_start"], time_min, time_max)
            and has_words(query, row["event_name"], row["participant_email"])
        ]
        matches.sort(key=lambda row: row["event_start"])
        return make_page("events", matches, page, page_size)

    @tool
    async def calendar_create_event(
        self, session: Office, event_name: str, participant_email: str, event_start: str, duration: str
    ) -> str:
        """Creates an event.

        Args:
            event_name: What it is called.
            participant_email: The address of who takes part.
            event_start: When it starts, YYYY-MM-DD HH:MM:SS.
            duration: How many minutes it takes, e.g. '30'.
        """
        values = {
            "event_name": event_name,
            "participant_email": participant_email,
            "event_start": event_start,
            "duration": duration,
        }
        return f"The event is created. Its id is {session.events.add(validate(session, _FIELDS, values))}."

    @tool
    async def calendar_delete_event(self, session: Office, event_id: str) -> str:
        """Deletes an event.

        Args:
            event_id: The id, 8 digits.
        """
        session.events.delete(require(session.events, event_id, "event"))
        return f"Event {event_id} is deleted."

    @tool
    async def calendar_update_event(self, session: Office, event_id: str, field: str, new_value: str) -> str:
        """Changes one field of an event.

        Args:
            event_id: The id, 8 digits.
            field: 'event_name', 'participant_email', 'event_start' or 'duration'.
            new_value: What the field is to hold.
        """
        change(session, session.events, require(session.events, event_id, "event"), _FIELDS, field, new_value)
        return f"{field} of event {event_id} is now '{new_value}'."
