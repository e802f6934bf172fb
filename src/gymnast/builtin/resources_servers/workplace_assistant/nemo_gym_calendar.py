"""The calendar with NeMo Gym's rules. Names of classes and arguments are in its replies to wrong calls."""

from __future__ import annotations

from typing import Any, Final

from .nemo_gym_frame import Frame, make_page
from .nemo_gym_times import read_time

_FIELDS: Final = ("event_name", "participant_email", "event_start", "duration")
_BAD_ID: Final = "Invalid event ID format. Expected 8-digit ID."
_NOT_FOUND: Final = "Event not found."
_FORMAT: Final = "format. Expected YYYY-MM-DD HH:MM:SS."
_ID_LENGTH: Final = 8


class CalendarTool:
    """Reads and changes events."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def get_event_information_by_id(self, event_id: Any = None, field: Any = None) -> Any:
        if not event_id:
            return "Event ID not provided."
        if not field:
            return "Field not provided."
        if not _is_id(event_id):
            return _BAD_ID
        if field not in self.frame.columns:
            return f"Invalid field. Available fields are: {', '.join(self.frame.columns)}"
        matches = self.frame.rows_with("event_id", event_id)
        return {field: matches[0][field]} if matches else _NOT_FOUND

    def search_events(
        self, query: Any = "", time_min: Any = None, time_max: Any = None, page: Any = 1, page_size: Any = 5
    ) -> Any:
        bounds = {"time_min": time_min, "time_max": time_max}
        for name, value in bounds.items():
            try:
                bounds[name] = read_time(value) if value else None
            except ValueError:
                return f"Invalid {name} {_FORMAT}"
        low, high, rows = bounds["time_min"], bounds["time_max"], self.frame.rows
        by_name = self.frame.match_texts(rows, "event_name", query, missing=False)
        by_address = self.frame.match_texts(rows, "participant_email", query, missing=False)
        matches = [row for row, one, other in zip(rows, by_name, by_address, strict=True) if one or other]
        if low:
            matches = [row for row in matches if read_time(row["event_start"]) >= low]
        if high:
            matches = [row for row in matches if read_time(row["event_start"]) <= high]
        if not matches:
            return "No events found."
        matches.sort(key=lambda row: read_time(row["event_start"]), reverse=True)
        return make_page("events", matches, page, page_size)

    def create_event(
        self, event_name: Any = None, participant_email: Any = None, event_start: Any = None, duration: Any = None
    ) -> Any:
        values = {"Event name": event_name, "Participant email": participant_email, "Event start": event_start}
        for what, value in {**values, "Event duration": duration}.items():
            if not value:
                return f"{what} not provided."
        problem = _problem("event_start", event_start) or _problem("duration", duration)
        if problem is not None:
            return problem
        address = participant_email.lower()
        event_id = str(int(self.frame.highest("event_id")) + 1).zfill(_ID_LENGTH)
        cells = {
            "event_id": event_id,
            "event_name": event_name,
            "participant_email": address,
            "event_start": event_start,
            "duration": duration,
        }
        self.frame.append(cells, renumber=False)
        return event_id

    def delete_event(self, event_id: Any = None) -> Any:
        if not event_id:
            return "Event ID not provided."
        if not _is_id(event_id):
            return _BAD_ID
        if not self.frame.has("event_id", event_id):
            return _NOT_FOUND
        self.frame.delete("event_id", event_id)
        return "Event deleted successfully."

    def update_event(self, event_id: Any = None, field: Any = None, new_value: Any = None) -> Any:
        if not event_id or not field or not new_value:
            return "Event ID, field, or new value not provided."
        if not _is_id(event_id):
            return _BAD_ID
        if field not in _FIELDS:
            return f"Invalid field. Available fields are: {', '.join(_FIELDS)}"
        problem = _problem(field, new_value)
        if problem is not None:
            return problem
        if not self.frame.has("event_id", event_id):
            return _NOT_FOUND
        value = new_value.lower() if field == "participant_email" else new_value
        self.frame.replace("event_id", event_id, field, value)
        return "Event updated successfully."


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and len(value) == _ID_LENGTH and value.isdigit()


def _problem(field: str, value: Any) -> str | None:
    try:
        if field == "event_start":
            read_time(value)
        elif field == "duration" and int(value) <= 0:
            return "Duration must be a positive number of minutes."
    except ValueError:
        if field == "event_start":
            return f"Invalid event_start {_FORMAT}"
        return "Invalid duration format. Expected a number of minutes."
    return None
