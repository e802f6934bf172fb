"""workplace_assistant: what a score compares, sessions apart, tasks from a seed, and a run over the example rows."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gymnast
from gymnast.builtin.resources_servers.workplace_assistant.app import (
    SHIPPED_TABLES,
    WorkplaceAssistant,
    WorkplaceSettings,
)
from gymnast.builtin.resources_servers.workplace_assistant.office import Office
from gymnast.builtin.resources_servers.workplace_assistant.scoring import Call, differences, replay
from gymnast.builtin.resources_servers.workplace_assistant.tasks import main as write_tasks
from gymnast.builtin.resources_servers.workplace_assistant.tasks import task_rows
from gymnast.builtin.resources_servers.workplace_assistant.toolbox import declarations
from tests.env.workplace import (
    EVENT,
    MAIL,
    MOVE,
    NAME,
    OFFICE_DATA,
    OTHER_MAIL,
    PLOT,
    RENAME,
    TASK,
    TOOLS,
    Desk,
    row_with,
    send,
    update,
)
from tests.helpers.commands import SCRIPTED
from tests.helpers.environments import Subject, called, response, said, started, thought
from tests.helpers.jsonl import example_rows, write_jsonl


@pytest.fixture
async def subject() -> AsyncIterator[Subject]:
    async with started(WorkplaceAssistant, WorkplaceSettings(scoring="strict")) as found:
        yield found


@pytest.mark.parametrize(
    ("reference", "made", "differing"),
    [
        ([send()], [send()], []),
        ([send()], [send({name: text.upper() for name, text in MAIL.items()})], []),
        ([send()], [send({**MAIL, "body": "Hi!"})], ["emails"]),
        ([send()], [], ["emails"]),
        ([], [send()], ["emails"]),
        ([send()], [send(), send()], ["emails"]),
        ([send()], [send({**MAIL, "recipient": "Ada"}), send()], []),  # refused, then mended
        ([send(), send(OTHER_MAIL)], [send(OTHER_MAIL), send()], ["emails"]),  # ids follow from the order
        ([RENAME, MOVE], [MOVE, RENAME], []),
        ([RENAME], [update("00000003", "task_name", "Other"), RENAME], []),  # what stays is what counts
        ([RENAME], [RENAME, ("project_management_search_tasks", {"board": "Design"})], []),
        ([RENAME], [RENAME, MOVE], ["project_tasks"]),
        (
            [],
            [("project_management_create_task", TASK), ("project_management_delete_task", {"task_id": "00000301"})],
            [],
        ),
        ([("analytics_create_plot", PLOT)], [("analytics_create_plot", PLOT)], []),
        ([("analytics_create_plot", PLOT)], [("analytics_create_plot", {**PLOT, "plot_type": "line"})], ["plots"]),
        ([("calendar_create_event", EVENT)], [("calendar_create_event", {**EVENT, "duration": "60"})], ["calendar"]),
        ([("calendar_create_event", EVENT)], [("calendar_create_event", EVENT), send()], ["emails"]),
        ([("calendar_create_event", EVENT)], [("calendar_create_event", {**EVENT, "notes": "x"})], ["calendar"]),
        (
            [("email_delete_email", {"email_id": "00000001"})],
            [("email_delete_email", {"email_id": "00000002"})],
            ["emails"],
        ),
        ([], [("no_such_tool", {}), ("verify", {}), ("seed_session", {})], []),
    ],
)
async def test_the_state_is_what_counts(
    subject: Subject, reference: list[Call], made: list[Call], differing: list[str]
) -> None:
    verdict = await subject.verify(row_with(*reference), *(called(*call) for call in made), "Done.")
    assert verdict["differing_tables"] == differing
    assert verdict["reward"] == float(not differing)
    assert bool(verdict["differences"]) == bool(differing)


async def test_names_of_lists_are_compared_with_their_case(tmp_path: Path) -> None:
    text = (SHIPPED_TABLES / "project_tasks.csv").read_text().replace("Completed", "in review", 1)
    for path in SHIPPED_TABLES.glob("*.csv"):
        (tmp_path / path.name).write_text(text if path.name == "project_tasks.csv" else path.read_text())
    async with started(WorkplaceAssistant, WorkplaceSettings(scoring="strict", data_dir=str(tmp_path))) as subject:
        made = called(*update("00000004", "list_name", "in review"))
        assert (await subject.verify(row_with(MOVE), made))["reward"] == 0.0
        assert (await subject.verify(row_with(MOVE), called(*MOVE)))["reward"] == 1.0


async def test_only_calls_count_not_what_is_said_or_thought(subject: Subject) -> None:
    text = json.dumps({"name": "email_send_email", "arguments": MAIL})
    assert (await subject.verify(row_with(send()), thought(text), f"I sent it: {text}"))["reward"] == 0.0


async def test_a_tool_that_the_row_does_not_offer_was_never_used(subject: Subject) -> None:
    row = row_with(RENAME)
    row["responses_create_params"] = {
        "input": "q",
        "tools": [tool for tool in declarations() if tool["name"] == "project_management_update_task"],
    }
    assert (await subject.verify(row, called(*send()), called(*RENAME)))["reward"] == 1.0


async def test_new_rows_may_come_in_any_order_where_the_setting_says_so() -> None:
    async with started(WorkplaceAssistant, WorkplaceSettings(scoring="strict", new_rows_in_any_order=True)) as subject:
        row = row_with(send(), send(OTHER_MAIL), RENAME)
        made = [called(*call) for call in (RENAME, send(OTHER_MAIL), send())]
        assert (await subject.verify(row, *made))["reward"] == 1.0
        verdict = await subject.verify(row, *made[:2], called(*send(OTHER_MAIL)))
        assert verdict["differing_tables"] == ["emails"]
        assert any("should have been added" in text and "'hello'" in text for text in verdict["differences"])


@pytest.mark.parametrize("write", [json.dumps, repr, lambda _: ""])
async def test_reference_calls_may_be_stored_as_text(subject: Subject, write: Any) -> None:
    row = row_with(send())
    row["ground_truth"] = text = write(row["ground_truth"])
    assert (await subject.verify(row, *([called(*send())] if text else [])))["reward"] == 1.0


@pytest.mark.parametrize(
    ("truth", "told"),
    [
        ("[", "must be a list"),
        ("__import__('os')", "must be a list"),
        ([{"name": "email_send_email", "arguments": "{"}], "expected a JSON object"),
        ([{"name": "email_delete_email", "arguments": '{"email_id": "77777777"}'}], "Is data_dir right?"),
        ([{"name": "email_destroy", "arguments": "{}"}], "unknown tool 'email_destroy'"),
    ],
)
async def test_rows_whose_reference_does_not_work_are_refused(subject: Subject, truth: Any, told: str) -> None:
    row = row_with(ground_truth=truth)
    assert told in await subject.refusal(row)
    assert told in await subject.refusal(row, "/verify")


async def test_references_that_do_not_work_can_be_let_through() -> None:
    async with started(WorkplaceAssistant, WorkplaceSettings(scoring="strict", failing_reference="ignore")) as subject:
        row = row_with(("email_delete_email", {"email_id": "77777777"}))
        assert (await subject.verify(row, "Nothing to do."))["reward"] == 1.0


async def test_stored_rollouts_can_be_scored_again(subject: Subject) -> None:
    assert (await subject.calls.call("env", "/reverify_mode", method="GET")).body == "stateless"


async def test_ten_thousand_calls_in_one_reply_let_others_run(subject: Subject) -> None:
    output = [called("email_send_email", MAIL)] * 10_000
    body = {**row_with(), "response": response(*output)}
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0)
            beats += 1

    beating = asyncio.create_task(beat())
    verdict = (await subject.calls.call("env", "/verify", body)).body
    beating.cancel()
    assert verdict["reward"] == 0.0
    assert len(verdict["differences"]) == 8
    assert beats > 30


# Properties: any calls, sensible or not.

IDS = st.sampled_from(["00000001", "00000002", "00000003", "00000301", "00000481", "00000482", "9"])
TEXTS = st.sampled_from(
    ["Alpha", "alpha", "Beta", "", "Backlog", "In Review", "2025-03-20", "ada.yilmaz@larkfield.example"]
)
CALLS = st.one_of(
    st.builds(lambda subject: ("email_send_email", {**MAIL, "subject": subject}), TEXTS),
    st.builds(lambda row_id: ("email_delete_email", {"email_id": row_id}), IDS),
    st.builds(lambda row_id, body: ("email_reply_email", {"email_id": row_id, "body": body}), IDS, TEXTS),
    st.builds(lambda row_id: ("project_management_delete_task", {"task_id": row_id}), IDS),
    st.builds(lambda name: ("project_management_create_task", {**TASK, "task_name": name}), TEXTS),
    st.builds(update, IDS, st.sampled_from(list(TASK)), TEXTS),
    st.just(("analytics_create_plot", PLOT)),
    st.sampled_from([("email_search_emails", {"query": "x"}), ("nothing", {}), ("email_send_email", None)]),
)
PROGRAMS = st.lists(CALLS, max_size=12)


def state(calls: Sequence[Call]) -> dict[str, Any]:
    return contents(asyncio.run(replay(TOOLS, calls, OFFICE_DATA)).office)


def contents(office: Office) -> dict[str, Any]:
    return {name: (sheet.changes(), list(sheet)) for name, sheet in office.sheets.items()}


@given(PROGRAMS)
def test_a_replay_ends_the_same_every_time_and_leaves_the_tables_alone(calls: list[Call]) -> None:
    before = [dict(row) for row in OFFICE_DATA.tables.tasks.rows.values()]
    assert state(calls) == state(calls)
    assert [dict(row) for row in OFFICE_DATA.tables.tasks.rows.values()] == before
    office = Office(OFFICE_DATA)
    assert all(not sheet.changes() for sheet in office.sheets.values())


@given(PROGRAMS, st.randoms(use_true_random=False))
def test_the_order_of_arguments_does_not_matter(calls: list[Call], chance: Any) -> None:
    shuffled: list[Call] = []
    for name, arguments in calls:
        items = list((arguments or {}).items())
        chance.shuffle(items)
        shuffled.append((name, dict(items) if arguments is not None else None))
    assert state(calls) == state(shuffled)


@given(PROGRAMS)
def test_reading_in_between_changes_no_score(calls: list[Call]) -> None:
    reading: list[Call] = [call for made in calls for call in (("calendar_search_events", {"query": "tea"}), made)]
    one, other = (asyncio.run(replay(TOOLS, program, OFFICE_DATA)).office for program in (calls, reading))
    assert differences(one, other, any_order=False) == {}


@given(PROGRAMS, PROGRAMS)
def test_equal_states_are_those_without_differences(calls: list[Call], others: list[Call]) -> None:
    one, other = (asyncio.run(replay(TOOLS, program, OFFICE_DATA)).office for program in (calls, others))
    told = {name for name in one.sheets if one.sheets[name].changes() != other.sheets[name].changes()}
    assert set(differences(one, other, any_order=False)) == told
    assert set(differences(one, other, any_order=True)) <= told
    assert differences(one, one, any_order=True) == {}


@settings(max_examples=25)
@given(PROGRAMS, PROGRAMS, st.randoms(use_true_random=False))
def test_sessions_do_not_see_each_other(first: list[Call], second: list[Call], chance: Any) -> None:
    async def interleaved() -> list[dict[str, Any]]:
        async with started(WorkplaceAssistant, WorkplaceSettings(scoring="strict")) as subject:
            desks = [await Desk(subject).sit_down() for _ in range(2)]
            turns = [(desks[0], call) for call in reversed(first)], [(desks[1], call) for call in reversed(second)]
            while waiting := [turn for turn in turns if turn]:
                desk, (name, arguments) = chance.choice(waiting).pop()
                if arguments is not None:
                    await desk.calls.call("env", f"/{name}", arguments, desk.scope)
            offices = [entry.state for entry in subject.server.sessions._entries.values()]
            return [contents(office) for office in offices]

    assert asyncio.run(interleaved()) == [state(first), state(second)]


async def test_every_generated_task_is_answered_by_its_reference(subject: Subject) -> None:
    rows = list(task_rows(OFFICE_DATA, count=200, seed=5, levels=[1, 2, 3, 4, 5]))
    assert len({json.dumps(row["responses_create_params"]["input"]) for row in rows}) == 200
    for row in rows:
        made = [called(call["name"], call["arguments"]) for call in row["ground_truth"]]
        assert (await subject.verify(row, *made, "Done."))["reward"] == 1.0
        assert (await subject.verify(row, "Done."))["reward"] == float(not made), row["responses_create_params"][
            "input"
        ]
        assert (await subject.verify(row, *made, called(*send({**MAIL, "subject": "!"}))))["reward"] == 0.0
    nothing = sum(not row["ground_truth"] for row in rows)
    assert 10 <= nothing <= 60


def test_tasks_follow_from_the_seed_and_the_command_writes_them(capsys: pytest.CaptureFixture[str]) -> None:
    write_tasks(["--count", "6", "--seed", "9", "--level", "2-3"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["id"], row["level"]) for row in rows] == [(0, 2), (1, 3), (2, 2), (3, 3), (4, 2), (5, 3)]
    assert rows == list(task_rows(OFFICE_DATA, count=12, seed=9, levels=[2, 3]))[:6]
    with pytest.raises(SystemExit):
        write_tasks(["--level", "0"])
    assert "--level 0" in capsys.readouterr().err


_SCRIPT = """
PLANS = {plans!r}


def answer(call):
    plan = PLANS[int(call.params["metadata"]["row"])]
    if call.turn == 0 and plan:
        return {{"tool_calls": plan}}
    return {{"text": "Done."}}
"""


async def test_a_run_over_the_example_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = example_rows(NAME)
    plans = [[{"name": call["name"], "arguments": call["arguments"]} for call in row["ground_truth"]] for row in rows]
    plans[1] = []  # does nothing where something is asked
    plans[3] = [*plans[3][:1], {"name": "calendar_delete_event", "arguments": '{"event_id": 3}'}]
    plans[7] = [{"name": "email_search_emails", "arguments": "{}"}]
    plans[8] = [{"name": "project_management_search_tasks", "arguments": '{"board": "Back end"}'}, *plans[8][::-1]]
    for number, row in enumerate(rows):
        row["responses_create_params"]["metadata"] = {"row": str(number)}
    (tmp_path / "office_script.py").write_text(_SCRIPT.format(plans=plans))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("office_script", None)
    records = [
        record.data
        async for record in gymnast.collect(
            write_jsonl(tmp_path / "rows.jsonl", rows),
            tmp_path / "out.jsonl",
            environments=[NAME],
            config_paths=[SCRIPTED],
            overrides=["++policy_model.responses_api_models.scripted_model.script=office_script:answer"],
        )
    ]
    records.sort(key=lambda record: int(record["_ng_task_index"]))
    assert [record["reward"] for record in records] == [1, 0, 1, 0, 1, 1, 1, 1, 1, 1]
    assert records[3]["differing_tables"] == ["calendar"]
    assert records[3]["refused_calls"] == 1
    assert records[9]["category"] == "multi_domain"
    output = [item for item in records[8]["response"]["output"] if item["type"] == "function_call_output"]
    assert "Keiko" in rows[8]["responses_create_params"]["input"][1]["content"]
    assert "keiko.renard" in output[0]["output"]
    assert said("Done.")["role"] == records[8]["response"]["output"][-1]["role"]
