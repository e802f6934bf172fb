"""workplace_assistant with NeMo Gym's rules: what its tools answer, and where its tables are found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from gymnast.builtin.resources_servers.workplace_assistant.app import (
    NEMO_GYM_TIME,
    SHIPPED_TABLES,
    WorkplaceAssistant,
    WorkplaceSettings,
)
from gymnast.builtin.resources_servers.workplace_assistant.nemo_gym_patterns import compile_pattern, find_problem
from gymnast.builtin.resources_servers.workplace_assistant.nemo_gym_sorting import sort_descending
from gymnast.builtin.resources_servers.workplace_assistant.nemo_gym_times import read_time
from gymnast.wire.calls import Scope
from tests.env.workplace import MAIL, NAME, Desk, delete, row_with, send
from tests.helpers.environments import called, check_cases, started
from tests.helpers.jsonl import read_jsonl

REPLIES: Final = Path(__file__).parent / "workplace_replies.jsonl"


async def test_replies_of_tools_in_one_session() -> None:
    wrong = []
    async with started(WorkplaceAssistant, WorkplaceSettings()) as subject:
        desk = await Desk(subject).sit_down()
        for call in read_jsonl(REPLIES):
            reply = await desk.calls.call("env", f"/{call['tool']}", call["arguments"], desk.scope)
            if reply.body != {"output": call["output"]}:
                wrong.append((call, reply.body))
    assert wrong == []


async def test_a_call_of_an_unknown_tool_is_answered_as_a_failed_one() -> None:
    async with started(WorkplaceAssistant, WorkplaceSettings()) as subject:
        early = await subject.calls.call("env", "/email_shred", {"email_id": "1"}, Scope())
        assert early.status == 400
        desk = await Desk(subject).sit_down()
        reply = await desk.calls.call("env", "/email_shred", {"email_id": "1"}, desk.scope)
        assert (reply.status, reply.body) == (200, {"output": "Error executing tool 'email_shred': 'email_shred'"})


async def test_verifier_cases() -> None:
    async with started(WorkplaceAssistant, WorkplaceSettings()) as subject:
        await check_cases(subject, NAME)


async def test_the_folder_of_nemo_gym_brings_its_time_and_refuses_no_row(tmp_path: Path) -> None:
    for folder in ("processed", "raw"):
        (tmp_path / folder).mkdir()
    for path in SHIPPED_TABLES.glob("*.csv"):
        shutil.copy(path, tmp_path / ("raw" if path.name == "email_addresses.csv" else "processed") / path.name)
    async with started(WorkplaceAssistant, WorkplaceSettings(data_dir=str(tmp_path))) as subject:
        desk = await Desk(subject).sit_down()
        await desk.use("email_send_email", **MAIL)
        sent = await desk.use("email_get_email_information_by_id", email_id="481", field="sent_datetime")
        assert sent == {"output": {"sent_datetime": NEMO_GYM_TIME}}
        assert (await subject.verify(row_with(delete("77777777")), "Nothing to do."))["reward"] == 1.0


async def test_a_reference_that_fails_on_the_built_in_tables_is_refused() -> None:
    async with started(WorkplaceAssistant, WorkplaceSettings()) as subject:
        assert "Is data_dir right?" in await subject.refusal(row_with(delete("77777777")))
        verdict = await subject.verify(row_with(send()), called(*send()), called(*delete("00000003")))
        assert (verdict["reward"], verdict["differences"]) == (0.0, ["emails: 00000003 should be there"])


def test_any_order_is_for_strict_scoring() -> None:
    with pytest.raises(ValueError, match="needs scoring: strict"):
        WorkplaceSettings(new_rows_in_any_order=True)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("a.b", None),
        ("C++", "bad repetition operator: ++"),
        ("*x", "no argument for repetition operator: *"),
        ("(a", "missing ): (a"),
        ("a)", "unexpected ): a)"),
        ("a[b", "missing ]: [b"),
        ("[z-a]", "invalid character class range: z-a"),
        ("a{3,2}", "invalid repetition size: {3,2}"),
        ("(?z)", "invalid perl operator: (?z"),
        ("(?P<n", "invalid named capture group: (?P<n"),
        ("\\y", "invalid escape sequence: \\y"),
        ("a\\", "trailing \\"),
        ("(a|b)?c{2}[^]x]", None),
    ],
)
def test_patterns_that_cannot_be_searched(pattern: str, problem: str | None) -> None:
    assert find_problem(pattern) == problem


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2025-03-20", "2025-03-20 00:00:00"),
        ("2025-03-20T15:30", "2025-03-20 15:30:00"),
        ("2025-03", "2025-03-01 00:00:00"),
        ("20250320", "2025-03-20 00:00:00"),
        ("03/20/2025 3:30 PM", "2025-03-20 15:30:00"),
        ("20/03/2025", "2025-03-20 00:00:00"),
        ("March 20, 2025", "2025-03-20 00:00:00"),
        ("Thursday, 20 Mar 2025 9am", "2025-03-20 09:00:00"),
        ("2025-03-20 10:00:00.5", "2025-03-20 10:00:00.500000"),
        ("2025-03-20T10:00:00+02:00", "2025-03-20 10:00:00+02:00"),
    ],
)
def test_spellings_of_times(text: str, time: str) -> None:
    assert str(read_time(text).at) == time


@pytest.mark.parametrize("value", ["soon", "2025-02-30", "2025-13-01", "Friday", "5", "2025-03-20 25:00", "next week"])
def test_texts_that_are_not_times(value: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any text
        read_time(value)


@pytest.mark.parametrize("value", [[1], {}, True])
def test_values_that_are_not_times(value: Any) -> None:
    with pytest.raises(TypeError, match="Cannot convert input"):
        read_time(value)


@pytest.mark.parametrize(("others", "order"), [(3, [0, 1, 2]), (30, [2, 1, 0])])
def test_equal_times_keep_their_order_in_short_lists_only(others: int, order: list[int]) -> None:
    values = [(number, -1) for number in range(others)] + [(others, number) for number in range(3)]
    assert [number for _, number in sort_descending(values, key=lambda value: value[0])[:3]] == order


@pytest.mark.parametrize(
    ("pattern", "text", "is_found"),
    [
        ("ad\u0131", "nadia@x.example", False),
        ("ad\u0130", "nadia@x.example", False),
        ("ad\u0131", "ad\u0131n", True),
        ("ADI", "nadia@x.example", True),
        ("\u017fun", "Sun", True),
        ("\u212aim", "kim", True),
    ],
)
def test_letters_in_another_case_are_those_of_re2(pattern: str, text: str, is_found: bool) -> None:  # noqa: FBT001
    assert (compile_pattern(pattern, python=False)(text) is not None) == is_found
