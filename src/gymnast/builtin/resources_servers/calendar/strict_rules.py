"""Our own, stricter rules of calendar: one calendar with exactly the expected events, at times that exist. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from .intervals import any_overlap

_TIME: Final = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?\s*([ap]m)?", re.IGNORECASE)
_CONSTRAINT: Final = re.compile(r"(before|after|at) (.+)|between (.+) and (.+)")
_LIST_START: Final = re.compile(r"\[\s*(?=[{\]])")
_DAY: Final = 24 * 60
_MAX_BROKEN_LISTS: Final = 50
"""Texts that start like a list of events but are not JSON. A reply with more has no calendar."""


@dataclass(frozen=True, slots=True)
class Slot:
    """When an expected event may be, in minutes."""

    duration: int
    earliest: int
    """The earliest start."""
    latest: int
    """The latest end."""
    start: int | None
    """The only start, if there is one."""

    def takes(self, start: int) -> bool:
        """Whether the event may start at this minute."""
        if self.start not in {None, start}:
            return False
        return start >= self.earliest and start + self.duration <= self.latest


def parse_slots(expected: dict[str, Any]) -> dict[str, Slot]:
    """The slots of a row by event id. Raises ValueError for a row that no reply could satisfy, or any could."""
    slots = {}
    for event_id, wanted in expected.items():
        if not isinstance(wanted, dict):
            raise ValueError(f"event {event_id}: expected an object")  # noqa: TRY004 - the row has a bad value
        try:
            slots[event_id] = _parse_slot(wanted)
        except ValueError as error:
            raise ValueError(f"event {event_id}: {error}") from error
    return slots


def grade(text: str, expected: dict[str, Any]) -> str:
    """`pass`, or why not."""
    if not text.strip():
        return "no_answer"
    if "<think>" in text:
        return "think_found"
    events, slots = find_events(text), parse_slots(expected)
    if not slots:
        return "different_events" if events else "pass"
    return _grade_events(events, slots) if events else "no_json_list"


def _grade_events(events: list[dict[str, Any]], slots: dict[str, Slot]) -> str:
    by_id = {_event_id(event): event for event in events}
    if len(events) != len(slots) or by_id.keys() != slots.keys():
        return "different_events"
    intervals = []
    for event_id, slot in slots.items():
        start, duration = parse_time(by_id[event_id].get("start_time")), by_id[event_id].get("duration")
        if start is None:
            return "not_a_time"
        if isinstance(duration, bool) or duration != slot.duration or not slot.takes(start):
            return "constraint_violated"
        intervals.append((start, start + slot.duration))
    return "conflicting_events" if any_overlap(intervals) else "pass"


def find_events(text: str) -> list[dict[str, Any]] | None:
    """The last JSON list of objects in a text, or None. A list inside of another's objects is not one."""
    decoder, at, broken = json.JSONDecoder(), 0, 0
    events = None
    while broken <= _MAX_BROKEN_LISTS and (match := _LIST_START.search(text, at)):
        try:
            value, at = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            broken, at = broken + 1, match.end()
            continue
        if all(isinstance(event, dict) for event in value):
            events = value
    return events if broken <= _MAX_BROKEN_LISTS else None


def parse_time(value: Any) -> int | None:
    """A time of day as minutes: `14:30`, `2:30pm`, `2 PM`; None for anything else."""
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or "").lower()
    if minute > 59 or (half and not 1 <= hour <= 12) or (not half and match[2] is None):
        return None
    time = (hour % 12 + 12 * (half == "pm") if half else hour) * 60 + minute
    return time if time <= _DAY else None


def _parse_slot(wanted: dict[str, Any]) -> Slot:
    duration, constraint = wanted.get("duration"), wanted.get("constraint")
    if isinstance(duration, bool) or not isinstance(duration, int) or duration <= 0:
        raise ValueError(f"duration must be a positive number of minutes, got {duration!r}")
    earliest, latest = _require_time(wanted.get("min_time")), _require_time(wanted.get("max_time"))
    if constraint is None:
        return Slot(duration, earliest, latest, None)
    match = _CONSTRAINT.fullmatch(constraint) if isinstance(constraint, str) else None
    if match is None:
        raise ValueError(f"unknown constraint {constraint!r}: use before, after, at, or between … and …")
    if match[1] == "at":
        return Slot(duration, earliest, latest, _require_time(match[2]))
    first = _require_time(match[2] if match[1] == "after" else match[3]) if match[1] != "before" else earliest
    last = _require_time(match[2] if match[1] == "before" else match[4]) if match[1] != "after" else latest
    return Slot(duration, max(earliest, first), min(latest, last), None)


def _require_time(value: Any) -> int:
    time = parse_time(value)
    if time is None:
        raise ValueError(f"not a time of day: {value!r}")
    return time


def _event_id(event: dict[str, Any]) -> str | None:
    value = event.get("event_id")
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
