"""NeMo Gym's rules of calendar, to the letter: which text is read, which list in it, and what is right. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from gymnast.kit import JsonObject

from .intervals import Interval, Number, any_overlap

_MARKS: Final = re.compile(r"[\[\]{}]")
_NOWHERE: Final = -1


def find_answer(output: Sequence[JsonObject]) -> str:
    """The first part of the last item, which may be reasoning; empty if that has no text, or is the user's."""
    last = output[-1] if output else {}
    content = last.get("content") if last.get("role", "assistant") == "assistant" else None
    if isinstance(content, str):
        return content
    text = content[0].get("text") if content else None
    return text if isinstance(text, str) else ""


def grade(text: str, expected: dict[str, Any]) -> str:
    """`pass`, or why not. Any text will do if no events are expected."""
    if not text:
        return "no_answer"
    if "<think>" in text:
        return "think_found"
    if not expected:
        return "pass"
    try:
        return _grade_events(text, expected)
    except Exception:  # noqa: BLE001 - whatever is wrong with a reply or a row, the reward is 0
        return "error_in_grading"


def _grade_events(text: str, expected: dict[str, Any]) -> str:
    events = find_list(text)
    if not events:
        return "no_json_list"
    by_id = {str(event["event_id"]): event for event in events}
    if len(by_id) != len(expected):
        return "different_number_of_events"
    if any_overlap(_distinct_intervals(events)):
        return "conflicting_events"
    if not all(_is_satisfied(by_id[event_id], wanted) for event_id, wanted in expected.items()):
        return "constraint_violated"
    return "pass"


def find_list(text: str) -> Any:
    r"""The first `[…{…}…]`, in which other brackets are inside of `{…}`, as JSON; None if it is not JSON.

    That is the first match of `\[X\{X\}X\]` with X as `(?:[^\[\]]|\{[^}]*\})*`, which takes a regular expression
    exponential time. Here the three X are the phases of a walk over brackets and braces, tried in the same order.
    """
    marks = [(match[0], match.start()) for match in _MARKS.finditer(text)]
    ends = [[_NOWHERE] * (len(marks) + 1) for _ in range(3)]
    """By phase and mark: where the match ends that continues with this mark."""
    closing = len(marks)
    for at in range(len(marks) - 1, -1, -1):
        mark, position = marks[at]
        if mark == "]":
            ends[2][at] = position + 1
        elif mark != "[":
            closing = at if mark == "}" else closing
            for phase in range(3):
                ends[phase][at] = _continue(ends, phase, at, mark, closing)
    first = next((at for at, (mark, _) in enumerate(marks) if mark == "[" and ends[0][at + 1] != _NOWHERE), None)
    if first is None:
        return None
    try:
        return json.loads(text[marks[first][1] : ends[0][first + 1]])
    except json.JSONDecodeError:
        return None


def _continue(ends: list[list[int]], phase: int, at: int, mark: str, closing: int) -> int:
    """Where the match ends if the mark is a character of X, else one of the braces around an X."""
    if ends[phase][at + 1] != _NOWHERE:
        return ends[phase][at + 1]
    if mark == "{" and closing < len(ends[phase]) - 1 and ends[phase][closing + 1] != _NOWHERE:
        return ends[phase][closing + 1]
    is_next = (phase, mark) in {(0, "{"), (1, "}")}
    return ends[phase + 1][at + 1] if is_next else _NOWHERE


def _distinct_intervals(events: Sequence[Any]) -> list[Interval]:
    """The interval of each event, once for events that are equal: those do not conflict."""
    events_at: dict[Interval, list[Any]] = {}
    for event in events:
        same_time = events_at.setdefault(_interval(event), [])
        if len(same_time) < 2 and event not in same_time:  # a third would change nothing
            same_time.append(event)
    return [interval for interval, same_time in events_at.items() for _ in same_time]


def _interval(event: Any) -> Interval:
    start = minutes(event["start_time"])
    return start, start + event["duration"]


def minutes(time: str) -> int:
    """`10:30`, `10:30am` or `10am` as minutes. Numbers may be of any size."""
    time = time.strip()
    half = next((mark for mark in ("am", "pm") if mark in time), None)
    if half is None:
        hour, minute = map(int, time.split(":"))
        return hour * 60 + minute
    time = time.replace(half, "")
    hour, minute = map(int, time.split(":")) if ":" in time else (int(time), 0)
    return (0 if hour == 12 else hour) * 60 + (12 * 60 if half == "pm" else 0) + minute


def _is_satisfied(event: Any, wanted: Any) -> bool:
    earliest, latest = minutes(wanted["min_time"]), minutes(wanted["max_time"])
    start, end = _interval(event)
    if event["duration"] != wanted["duration"] or start < earliest or end > latest:
        return False
    return _meets(wanted["constraint"], start, end)


def _meets(constraint: str | None, start: Number, end: Number) -> bool:
    """Whether an event is where the user wants it. Anything else than four forms is not a constraint."""
    if constraint is None:
        return True
    if constraint.startswith("before "):
        return end <= minutes(constraint.replace("before ", ""))
    if constraint.startswith("after "):
        return start >= minutes(constraint.replace("after ", ""))
    if constraint.startswith("between "):
        first, last = map(minutes, constraint.replace("between ", "").split(" and "))
        return start >= first and end <= last
    if constraint.startswith("at "):
        return start == minutes(constraint.replace("at ", ""))
    return True
