"""workplace_assistant: its tools, what they answer to wrong calls, tables of your own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gymnast.builtin.resources_servers.workplace_assistant import tables
from gymnast.builtin.resources_servers.workplace_assistant.app import (
    SHIPPED_TABLES,
    WorkplaceAssistant,
    WorkplaceSettings,
)
from gymnast.builtin.resources_servers.workplace_assistant.checks import is_day, is_moment
from gymnast.builtin.resources_servers.workplace_assistant.make_tables import SHIPPED_SEED, make_tables
from gymnast.builtin.resources_servers.workplace_assistant.office import within
from gymnast.builtin.resources_servers.workplace_assistant.tables import load_tables
from gymnast.builtin.resources_servers.workplace_assistant.tasks import task_rows
from gymnast.builtin.resources_servers.workplace_assistant.toolbox import CHANGING, declarations
from gymnast.errors import DataError, NotFoundError
from gymnast.wire.calls import Scope
from tests.env.workplace import (
    EVENT,
    EXAMPLE_SEED,
    MAIL,
    NAME,
    OFFICE_DATA,
    PLOT,
    TASK,
    Desk,
)
from tests.helpers.environments import Subject, check_cases, started
from tests.helpers.jsonl import example_rows

_BOUNDS = "last_contact_date_min last_contact_date_max follow_up_by_min follow_up_by_max"
_DETAILS = "customer_email customer_phone last_contact_date product_interest notes follow_up_by"
# tool: (arguments, required), as the rows of the environment's namesake have them
SIGNATURES: dict[str, tuple[str, str]] = {
    "company_directory_find_email_address": ("name", ""),
    "email_get_email_information_by_id": ("email_id field", "email_id field"),
    "email_search_emails": ("query date_min date_max page page_size", ""),
    "email_send_email": ("recipient subject body", "recipient subject body"),
    "email_delete_email": ("email_id", "email_id"),
    "email_forward_email": ("email_id recipient", "email_id recipient"),
    "email_reply_email": ("email_id body", "email_id body"),
    "calendar_get_event_information_by_id": ("event_id field", "event_id field"),
    "calendar_search_events": ("query time_min time_max page page_size", ""),
    "calendar_create_event": (
        "event_name participant_email event_start duration",
        "event_name participant_email event_start duration",
    ),
    "calendar_delete_event": ("event_id", "event_id"),
    "calendar_update_event": ("event_id field new_value", "event_id field new_value"),
    "analytics_get_visitor_information_by_id": ("visitor_id", "visitor_id"),
    "analytics_create_plot": ("time_min time_max value_to_plot plot_type", "time_min time_max value_to_plot plot_type"),
    "analytics_total_visits_count": ("time_min time_max", ""),
    "analytics_engaged_users_count": ("time_min time_max", ""),
    "analytics_traffic_source_count": ("time_min time_max traffic_source", ""),
    "analytics_get_average_session_duration": ("time_min time_max", ""),
    "project_management_get_task_information_by_id": ("task_id field", "task_id field"),
    "project_management_search_tasks": ("task_name assigned_to_email list_name due_date board", ""),
    "project_management_create_task": (
        "task_name assigned_to_email list_name due_date board",
        "task_name assigned_to_email list_name due_date board",
    ),
    "project_management_delete_task": ("task_id", "task_id"),
    "project_management_update_task": ("task_id field new_value", "task_id field new_value"),
    "customer_relationship_manager_search_customers": (
        f"customer_name customer_email product_interest status assigned_to_email {_BOUNDS} page page_size",
        "",
    ),
    "customer_relationship_manager_update_customer": ("customer_id field new_value", "customer_id field new_value"),
    "customer_relationship_manager_add_customer": (
        f"customer_name assigned_to_email status {_DETAILS}",
        "customer_name assigned_to_email status",
    ),
    "customer_relationship_manager_delete_customer": ("customer_id", "customer_id"),
}


@pytest.fixture
async def subject() -> AsyncIterator[Subject]:
    async with started(WorkplaceAssistant, WorkplaceSettings(scoring="strict")) as found:
        yield found


@pytest.fixture
async def desk(subject: Subject) -> Desk:
    return await Desk(subject).sit_down()


def test_tools_have_the_names_and_arguments_of_existing_rows() -> None:
    found = {
        tool["name"]: (
            " ".join(tool["parameters"]["properties"]),  # type: ignore[index]
            " ".join(tool["parameters"].get("required", ())),  # type: ignore[union-attr]
        )
        for tool in declarations()
    }
    assert found == SIGNATURES
    assert set(SIGNATURES) > CHANGING
    for tool in declarations():
        parameters: Any = tool["parameters"]
        assert tool["description"]
        for name, schema in parameters["properties"].items():
            assert schema["type"] == ("integer" if name in {"page", "page_size"} else "string")
            assert schema["description"]


def test_the_example_rows_are_made_from_the_code_and_the_shipped_tables() -> None:
    rows = example_rows(NAME)
    assert rows == list(task_rows(OFFICE_DATA, count=10, seed=EXAMPLE_SEED, levels=[1, 2, 3, 4, 5]))
    assert {row["category"] for row in rows} > {"email", "calendar", "analytics", "multi_domain", "project_management"}
    assert sorted({len(row["ground_truth"]) for row in rows}) == [0, 1, 2, 3]


def test_the_shipped_tables_come_from_their_seed() -> None:
    made = make_tables(SHIPPED_SEED)
    assert made == {path.name: path.read_text() for path in SHIPPED_TABLES.glob("*.csv")}
    assert made != make_tables(SHIPPED_SEED + 1)
    for table in (
        OFFICE_DATA.tables.emails,
        OFFICE_DATA.tables.events,
        OFFICE_DATA.tables.tasks,
        OFFICE_DATA.tables.customers,
    ):
        assert len(table.rows) >= 200
        assert all(len(row_id) == 8 for row_id in table.rows)
    assert {len(row["visitor_id"]) for row in OFFICE_DATA.tables.visits} == {4}


async def test_verifier_cases(subject: Subject) -> None:
    await check_cases(subject, NAME)


async def test_searches_come_in_pages(desk: Desk) -> None:
    first = await desk.use("email_search_emails", query="budget", page_size=3)
    second = await desk.use("email_search_emails", query="budget", page_size=3, page=2)
    assert (len(first["emails"]), first["page"], second["page"]) == (3, 1, 2)
    times = [row["sent_datetime"] for row in first["emails"] + second["emails"]]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 6
    assert first["pages"] == -(-first["total"] // 3)
    beyond = await desk.use("email_search_emails", query="budget", page=10**30)
    assert beyond["emails"] == []
    customers = await desk.use("customer_relationship_manager_search_customers", status="Won", page_size=50)
    assert {row["status"] for row in customers["customers"]} == {"Won"}
    assert len((await desk.use("calendar_search_events"))["events"]) == 5


async def test_searches_keep_to_their_bounds(desk: Desk) -> None:
    day = "2025-03-18"
    events = (await desk.use("calendar_search_events", time_min=day, time_max=day, page_size=50))["events"]
    assert events
    assert {row["event_start"][:10] for row in events} == {day}
    later = await desk.use("calendar_search_events", time_min=f"{day} 12:00:00", time_max=f"{day} 23:00:00")
    assert all(row["event_start"] >= f"{day} 12" for row in later["events"])
    mails = (await desk.use("email_search_emails", date_min="2025-03-10", date_max="2025-03-11", page_size=50))[
        "emails"
    ]
    assert {row["sent_datetime"][:10] for row in mails} == {"2025-03-10", "2025-03-11"}
    tasks = await desk.use("project_management_search_tasks", board="Design", list_name="Backlog")
    assert {(row["board"], row["list_name"]) for row in tasks} == {("Design", "Backlog")}
    due = await desk.use(
        "customer_relationship_manager_search_customers", follow_up_by_max="2025-03-14", status="Lead", page_size=50
    )
    assert all(row["follow_up_by"] <= "2025-03-14" for row in due["customers"])


async def test_figures_of_the_website_add_up(desk: Desk) -> None:
    span = {"time_min": "2025-02-01", "time_max": "2025-02-28"}
    total = await desk.use("analytics_total_visits_count", **span)
    assert len(total) == 28
    sources = ("direct", "referral", "search engine", "social media")
    by_source = [await desk.use("analytics_traffic_source_count", **span, traffic_source=source) for source in sources]
    assert {day: sum(found[day] for found in by_source) for day in total} == total
    assert await desk.use("analytics_traffic_source_count", **span) == total
    engaged = await desk.use("analytics_engaged_users_count", **span)
    assert all(engaged[day] <= total[day] for day in total)
    lengths = await desk.use("analytics_get_average_session_duration", **span)
    assert set(lengths) == set(total)
    visitor = OFFICE_DATA.tables.visits[0]["visitor_id"]
    assert (await desk.use("analytics_get_visitor_information_by_id", visitor_id=visitor))[0]["visitor_id"] == visitor


async def test_what_is_done_can_be_read_again(desk: Desk) -> None:
    assert await desk.use("company_directory_find_email_address", name="Ada Yilmaz") == [MAIL["recipient"]]
    sent = await desk.use("email_send_email", **MAIL)
    assert sent.endswith("00000481.")
    found = await desk.use("email_get_email_information_by_id", email_id="00000481", field="sender/recipient")
    assert found == {"sender/recipient": MAIL["recipient"]}
    await desk.use("email_forward_email", email_id="00000481", recipient="x@y.example")
    await desk.use("email_reply_email", email_id="00000001", body="Yes.")
    newest = (await desk.use("email_search_emails", date_min="2025-03-14"))["emails"]
    assert [row["subject"] for row in newest] == ["Hello", "Fwd: Hello", "Re: Draft of the photo archive"]
    await desk.use("email_delete_email", email_id="00000482")
    assert (await desk.use("email_search_emails", date_min="2025-03-14"))["total"] == 2
    assert (await desk.use("email_send_email", **MAIL)).endswith("00000484.")  # an id is never given twice
    await desk.use("calendar_create_event", **EVENT)
    await desk.use("calendar_update_event", event_id="00000294", field="duration", new_value="45")
    assert await desk.use("calendar_get_event_information_by_id", event_id="00000294", field="duration") == {
        "duration": "45"
    }
    await desk.use("project_management_create_task", **TASK)
    assert len(await desk.use("project_management_search_tasks", task_name="tidy UP")) == 1
    assert "plots/2025-01-05_2025-02-05_visits_direct_bar.png" in await desk.use("analytics_create_plot", **PLOT)


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("email_send_email", {"recipient": "a@b.example", "subject": "x"}, "body: Field required"),
        ("email_send_email", {**MAIL, "cc": "x@y.example"}, "no argument 'cc'"),
        ("email_send_email", {**MAIL, "recipient": "Ada"}, "company_directory_find_email_address"),
        ("email_send_email", {**MAIL, "subject": 3}, "subject: Input should be a valid string"),
        ("email_send_email", [1], "one JSON object"),
        ("email_delete_email", {"email_id": "1"}, "no e-mail with the id '1'"),
        ("email_get_email_information_by_id", {"email_id": "00000001", "field": "cc"}, "Fields: email_id"),
        ("email_search_emails", {"page": 0}, "page must be 1 or more"),
        ("email_search_emails", {"page_size": 1000}, "page_size 1 to 50"),
        ("email_search_emails", {"page": "two"}, "page: Input should be a valid integer"),
        ("email_search_emails", {"date_min": "yesterday"}, "date_min must be a date"),
        ("calendar_create_event", {**EVENT, "event_start": "2025-03-20T15:00:00"}, "event_start must be a time"),
        ("calendar_create_event", {**EVENT, "event_start": "2025-02-30 15:00:00"}, "event_start must be a time"),
        ("calendar_create_event", {**EVENT, "duration": "half an hour"}, "whole number of minutes"),
        ("calendar_create_event", {**EVENT, "duration": "٣٠"}, "whole number of minutes"),
        ("calendar_update_event", {"event_id": "00000001", "field": "event_id", "new_value": "1"}, "cannot be changed"),
        ("analytics_create_plot", {**PLOT, "plot_type": "pie"}, "one of bar, line, scatter, histogram"),
        ("analytics_create_plot", {**PLOT, "time_min": "2025-03-01"}, "is after time_max"),
        ("analytics_get_visitor_information_by_id", {"visitor_id": "12"}, "no visitor"),
        ("project_management_search_tasks", {}, "at least one of"),
        ("project_management_create_task", {**TASK, "board": "design"}, "one of Back end, Front end, Design"),
        ("project_management_create_task", {**TASK, "assigned_to_email": "a@b.example"}, "no colleague has"),
        ("project_management_update_task", {"task_id": "00000001", "field": "due_date", "new_value": "soon"}, "a date"),
        ("customer_relationship_manager_delete_customer", {"customer_id": "99999999"}, "no customer"),
        ("company_directory_find_email_address", {}, "Give a name"),
        ("email_send_mail", MAIL, "Did you mean 'email_send_email'?"),
        ("launch_rocket", {}, "There is no tool 'launch_rocket'. Tools: analytics_create_plot"),
    ],
)
async def test_wrong_calls_are_answered_in_words_and_change_nothing(
    desk: Desk, name: str, body: Any, told: str
) -> None:
    assert told in await desk.refusal(name, body)
    assert (await desk.use("email_search_emails", date_min="2025-03-14"))["total"] == 0


async def test_an_argument_that_is_null_is_left_out(desk: Desk) -> None:
    assert (await desk.use("email_search_emails", query=None, page=None))["page"] == 1


async def test_a_session_must_be_opened_first(subject: Subject) -> None:
    reply = await subject.calls.call("env", "/email_send_email", MAIL, Scope())
    assert reply.status == 400
    assert "seed_session" in str(reply.body)


def own_tables(folder: Path, **changed: str) -> Path:
    texts = {
        "emails.csv": "email_id,inbox/outbox,sender/recipient,subject,sent_datetime,body,extra\n",
        "calendar_events.csv": f"{','.join(tables.EVENT_COLUMNS)}\n",
        "analytics_data.csv": f"{','.join(tables.VISIT_COLUMNS)}\n",
        "project_tasks.csv": f"{','.join(tables.TASK_COLUMNS)}\n00000007,Sing,me@mine.example,Soon,2025-01-01,Music\n",
        "customer_relationship_manager_data.csv": f"{','.join(tables.CUSTOMER_COLUMNS)}\n",
    }
    for name, text in {**texts, **changed}.items():
        (folder / name).write_text(text)
    return folder


async def test_tables_of_your_own(tmp_path: Path) -> None:
    async with started(
        WorkplaceAssistant, WorkplaceSettings(scoring="strict", data_dir=str(own_tables(tmp_path)))
    ) as subject:
        desk = await Desk(subject).sit_down()
        assert (await desk.use("email_search_emails"))["total"] == 0
        assert (await desk.use("email_send_email", **MAIL)).endswith("00000001.")
        task = {**TASK, "assigned_to_email": "ME@mine.example", "list_name": "Soon", "board": "Music"}
        assert (await desk.use("project_management_create_task", **task)).endswith("00000008.")
        assert await desk.use("company_directory_find_email_address", name="me") == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"emails.csv": "email_id,body\n"}, "missing columns: inbox/outbox, sender/recipient, subject, sent_datetime"),
        ({"project_tasks.csv": f"{','.join(tables.TASK_COLUMNS)}\n1,,,,,\n1,,,,,\n"}, "task_id '1' is a duplicate"),
        ({"project_tasks.csv": f"{','.join(tables.TASK_COLUMNS)}\nx,,,,,\n"}, "task_id 'x' is not a number"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, changed: dict[str, str], told: str) -> None:
    with pytest.raises(DataError, match=told):
        load_tables(own_tables(tmp_path, **changed))


async def test_missing_folders_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        async with started(WorkplaceAssistant, WorkplaceSettings(scoring="strict", data_dir=str(tmp_path / "nowhere"))):
            pass
    (own_tables(tmp_path) / "emails.csv").unlink()
    with pytest.raises(DataError, match=r"emails\.csv is missing"):
        load_tables(tmp_path)
    with pytest.raises(ValueError, match="must be a time such as"):
        WorkplaceSettings(current_time="noon")


@pytest.mark.parametrize(
    ("value", "low", "high", "inside"),
    [
        ("2025-03-01 10:00:00", "2025-03-01", "2025-03-01", True),
        ("2025-03-01 10:00:00", "2025-03-01 10:00:01", "", False),
        ("2025-03-02", "", "2025-03-01 23:00:00", False),
        ("2025-03-01", "2025-03-01 12:00:00", "2025-03-01 13:00:00", True),
        ("", "", "", True),
        ("", "2025-01-01", "", False),
    ],
)
def test_bounds_that_are_days_mean_the_whole_day(value: str, low: str, high: str, *, inside: bool) -> None:
    assert within(value, low, high) == inside


@pytest.mark.parametrize("text", ["2025-1-01", "20250101", "2025-01-32", "2025-W01-1", "２０２５-01-01", ""])
def test_texts_that_are_not_dates(text: str) -> None:
    assert not is_day(text)
    assert not is_moment(f"{text} 10:00:00")
