"""calendar: which list is read, which events overlap, and replies that are made to take for ever."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.resources_servers.calendar import strict_rules
from gymnast.builtin.resources_servers.calendar.app import Calendar, CalendarSettings
from gymnast.builtin.resources_servers.calendar.intervals import any_overlap
from gymnast.builtin.resources_servers.calendar.nemo_gym_rules import find_list, minutes
from tests.helpers.environments import check_cases, collect_examples, started

INNER = r"(?:[^\[\]]|\{[^}]*\})*"
AS_PATTERN = re.compile(rf"\[{INNER}\{{{INNER}\}}{INNER}\]")
WANTED = {"duration": 30, "constraint": None, "min_time": "09:00", "max_time": "17:00"}


def event(event_id: int, start: str, duration: int = 30, name: str = "Call") -> dict[str, Any]:
    return {"event_id": event_id, "event_name": name, "start_time": start, "duration": duration}


def row(**slots: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "Plan it."}, "exp_cal_state": {"0": {**WANTED, **slots}}}


@given(st.text(alphabet="[]{}1", max_size=14))
def test_the_list_is_the_one_that_the_pattern_finds(text: str) -> None:
    match = AS_PATTERN.search(text)
    try:
        expected = json.loads(match[0]) if match else None
    except json.JSONDecodeError:
        expected = None
    assert find_list(text) == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-2, 5)), max_size=6))
def test_overlaps_are_those_of_every_pair(events: list[tuple[int, int]]) -> None:
    intervals = [(start, start + duration) for start, duration in events]
    pairs = [(one, two) for at, one in enumerate(intervals) for two in intervals[at + 1 :]]
    assert any_overlap(intervals) == any(one[1] > two[0] and one[0] < two[1] for one, two in pairs)


def test_an_endless_event_or_one_without_numbers_overlaps() -> None:
    assert any_overlap([(600, float("inf")), (700, 730)])
    assert any_overlap([(600, float("nan")), (700, 730)])
    assert not any_overlap([(600, float("nan"))])


@pytest.mark.parametrize(
    ("time", "loose", "strict"),
    [("14:30", 870, 870), ("2:30pm", 870, 870), ("2pm", 840, 840), ("12am", 0, 0), ("12pm", 720, 720),
     ("24:00", 1440, 1440), ("24:01", 1441, None), ("9:90", 630, None), ("13pm", 1500, None), ("0am", 0, None)],
)  # fmt: skip
def test_times(time: str, loose: int, strict: int | None) -> None:
    assert (minutes(time), strict_rules.parse_time(time)) == (loose, strict)


@pytest.mark.parametrize("scoring", ["nemo_gym", "strict"])
@pytest.mark.parametrize(
    "text",
    [
        "[" + "{" * 30_000,
        "[{" * 60_000 + "}]" * 60_000,
        "[{}" * 60_000,
        '[{"a": ' * 30_000,
        json.dumps([event(0, f"{at}:00") for at in range(3_000)]),
        json.dumps([event(0, "10:00")] * 3_000),
    ],
    ids=["braces", "nested", "open", "deep", "a long day", "the same"],
)
async def test_a_reply_cannot_take_for_ever(scoring: Any, text: str) -> None:
    async with started(Calendar, CalendarSettings(scoring=scoring, verify_processes=1)) as subject:
        verdict = await subject.verify(row(), text)
    assert verdict["reward"] == float(scoring == "nemo_gym" and verdict["grade_reason"] == "pass")


async def test_a_long_reply_is_graded_like_a_short_one() -> None:
    async with started(Calendar, CalendarSettings(verify_processes=1)) as subject:
        for start, reward in (("10:00", 1.0), ("08:00", 0.0)):
            verdict = await subject.verify(row(), "na " * 300_000 + json.dumps([event(0, start)]))
            assert verdict["reward"] == reward


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"duration": None}, "event 0: duration must be a positive number of minutes, got None"),
        ({"constraint": "around noon"}, "unknown constraint 'around noon'"),
        ({"constraint": "between 10am and noon"}, "not a time of day: 'noon'"),
        ({"min_time": 9}, "not a time of day: 9"),
    ],
)
async def test_a_row_that_cannot_be_scored_is_refused_under_strict_scoring(broken: Any, problem: str) -> None:
    async with started(Calendar, CalendarSettings(scoring="strict")) as subject:
        assert problem in await subject.refusal(row(**broken))
    async with started(Calendar, CalendarSettings()) as subject:
        await subject.verify(row(**broken), json.dumps([event(0, "10:00")]))


async def test_cases() -> None:
    async with started(Calendar, CalendarSettings()) as subject:
        await check_cases(subject, "calendar")


async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    replies = [
        json.dumps([event(0, "10:00", 45)]),
        json.dumps([event(0, "13:00", 90)]),
        json.dumps([event(0, "10:00"), event(1, "09:00", 60)]),
        json.dumps([event(0, "10:00", 60), event(1, "14:30", 45), event(2, "09:00")]),
        {"reasoning": "Hm.", "text": json.dumps([event(0, "12:00", 75), event(1, "10:30", 60)])},
        "The one in June.",
    ]
    records = await collect_examples(tmp_path, "calendar", replies)
    assert [record["reward"] for record in records] == [1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    assert [record["grade_reason"] for record in records][:2] == ["pass", "constraint_violated"]
