"""Templates of requests to an office assistant, in five levels: each makes a random request and its calls.

Level 1 states everything; 2 needs a look-up; 3 has a condition that may be false; 4 concerns several rows; 5 several
tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from .analytics_tools import PLOT_TYPES, values_to_plot
from .tables import Row, Table
from .task_writing import (
    Call,
    Request,
    TaskWriter,
    create_event_call,
    create_plot_call,
    create_task_call,
    person_name,
    send_email_call,
    update_customer_call,
    update_event_call,
    update_task_call,
)


def send_mail(writer: TaskWriter) -> Request:
    person, (subject, body) = writer.colleague(), writer.mail()
    text = f"Send {person_name(person)} an e-mail with the subject '{subject}' and the text '{body}'"
    return Request(text, "email", [send_email_call(person, subject, body)])


def create_event(writer: TaskWriter) -> Request:
    person, day, time = writer.colleague(), writer.day(1, 20), writer.time()
    name, length = writer.row(writer.tables.events)["event_name"], writer.pick(("30", "45", "60", "90"))
    text = f"Put '{name}' with {person_name(person)} into my calendar on {day} at {time}, for {length} minutes."
    return Request(text, "calendar", [create_event_call(name, person, f"{day} {time}:00", length)])


def create_plot(writer: TaskWriter) -> Request:
    value, kind, first, last = _random_plot(writer)
    text = f"Make a {kind} plot of {_plot_text(value)} from {first} to {last}."
    return Request(text, "analytics", [create_plot_call(first, last, value, kind)])


def create_task(writer: TaskWriter) -> Request:
    person, board, due = writer.assignee(writer.tables.tasks), writer.pick(writer.office_data.boards), writer.day(3, 30)
    name = (
        f"Prepare the {writer.pick(('demo', 'upgrade', 'rollout', 'test plan', 'survey'))} for {writer.pick(_MONTHS)}"
    )
    text = f"Create a task '{name}' for {person_name(person)} in the Backlog of the {board} board, due on {due}."
    return Request(text, "project_management", [create_task_call(name, person, "Backlog", due, board)])


def add_customer(writer: TaskWriter) -> Request:
    person, product = writer.assignee(writer.tables.customers), writer.pick(writer.office_data.products)
    first, last = (
        writer.pick(("Nora", "Piet", "Salma", "Teo", "Ulla")),
        writer.pick(("Ashdown", "Briar", "Cole", "Dunmore")),
    )
    values = {"customer_name": f"{first} {last}", "assigned_to_email": person, "status": "Lead"}
    text = f"Add {first} {last} as a new lead of {person_name(person)}, interested in {product.lower()}."
    call = Call("customer_relationship_manager_add_customer", {**values, "product_interest": product})
    return Request(text, "customer_relationship_manager", [call])


def delete_latest_mail(writer: TaskWriter) -> Request:
    row = _latest_from(writer, writer.row(writer.tables.emails, _is_received)["sender/recipient"])
    text = f"Delete the latest e-mail that I got from {person_name(row['sender/recipient'])}."
    return Request(text, "email", [Call("email_delete_email", {"email_id": row["email_id"]})])


def reply_to_latest_mail(writer: TaskWriter) -> Request:
    row, (_, body) = (
        _latest_from(writer, writer.row(writer.tables.emails, _is_received)["sender/recipient"]),
        writer.mail(),
    )
    text = f"Reply to the latest e-mail that I got from {person_name(row['sender/recipient'])} with '{body}'"
    return Request(text, "email", [Call("email_reply_email", {"email_id": row["email_id"], "body": body})])


def forward_mail(writer: TaskWriter) -> Request:
    counts = Counter((row["sender/recipient"], row["subject"]) for row in writer.tables.emails.rows.values())
    row = writer.row(
        writer.tables.emails, lambda row: counts[row["sender/recipient"], row["subject"]] == 1 and _is_received(row)
    )
    sender, person = row["sender/recipient"], writer.colleague(row["sender/recipient"])
    text = f"Forward the e-mail '{row['subject']}' from {person_name(sender)} to {person_name(person)}."
    return Request(text, "email", [Call("email_forward_email", {"email_id": row["email_id"], "recipient": person})])


def move_event(writer: TaskWriter) -> Request:
    row = _unique_event(writer)
    day, now = row["event_start"][:10], row["event_start"][11:16]
    time = writer.pick(
        f"{hour:02d}:{part}" for hour in range(9, 17) for part in ("00", "30") if f"{hour:02d}:{part}" != now
    )
    text = f"Move '{row['event_name']}' on {day} to {time} on the same day."
    return Request(text, "calendar", [update_event_call(row, "event_start", f"{day} {time}:00")])


def cancel_event(writer: TaskWriter) -> Request:
    row = _unique_event(writer)
    text = f"Cancel '{row['event_name']}' on {row['event_start'][:10]}."
    return Request(text, "calendar", [Call("calendar_delete_event", {"event_id": row["event_id"]})])


def update_task(writer: TaskWriter) -> Request:
    row = writer.unique_row(writer.tables.tasks, "task_name", lambda row: row["list_name"] != "Completed")
    wishes = {
        "assigned_to_email": writer.assignee(writer.tables.tasks, row["assigned_to_email"]),
        "list_name": writer.pick(name for name in writer.office_data.lists if name != row["list_name"]),
        "due_date": writer.day(31, 45),
    }
    field = writer.pick(wishes)
    value = wishes[field]
    texts = {
        "assigned_to_email": f"Give the task '{row['task_name']}' to {person_name(value)}.",
        "list_name": f"Move the task '{row['task_name']}' to {value}.",
        "due_date": f"The task '{row['task_name']}' is now due on {value}. Change it on the board.",
    }
    return Request(texts[field], "project_management", [update_task_call(row, field, value)])


def update_customer(writer: TaskWriter) -> Request:
    row = writer.unique_row(writer.tables.customers, "customer_name")
    status = writer.pick(name for name in writer.office_data.statuses if name != row["status"])
    text = f"Set the status of the customer {row['customer_name']} to {status}."
    return Request(text, "customer_relationship_manager", [update_customer_call(row, "status", status)])


def plot_if_many_visits(writer: TaskWriter) -> Request:
    visits = Counter(row["date_of_visit"] for row in writer.tables.visits)
    day = writer.pick(visits)
    limit = max(1, visits[day] + writer.rng.choice((-2, -1, 0, 1)))
    value, kind, first, last = _random_plot(writer)
    text = (
        f"If there were more than {limit} visits on {day}, make a {kind} plot of {_plot_text(value)} "
        f"from {first} to {last}. Otherwise do nothing."
    )
    return Request(text, "analytics", [create_plot_call(first, last, value, kind)] if visits[day] > limit else [])


def meet_if_not_planned(writer: TaskWriter) -> Request:
    last = writer.today + timedelta(days=7)
    soon = [
        row["participant_email"]
        for row in writer.tables.events.rows.values()
        if f"{writer.today}" < row["event_start"][:10] <= f"{last}"
    ]
    person = writer.pick(soon) if soon and writer.rng.random() < 0.5 else writer.colleague(*soon)
    day, time = f"{last + timedelta(days=3)}", writer.time()
    text = (
        f"If nothing with {person_name(person)} is in my calendar in the seven days after today, put a 30-minute "
        f"'Catch-up' with them in on {day} at {time}. Otherwise leave the calendar as it is."
    )
    return Request(
        text, "calendar", [] if person in soon else [create_event_call("Catch-up", person, f"{day} {time}:00", "30")]
    )


def delete_customer_if_lost(writer: TaskWriter) -> Request:
    lost = writer.rng.random() < 0.5
    row = writer.unique_row(writer.tables.customers, "customer_name", lambda row: (row["status"] == "Lost") == lost)
    text = f"If the customer {row['customer_name']} is lost, delete the entry; if not, keep everything."
    call = Call("customer_relationship_manager_delete_customer", {"customer_id": row["customer_id"]})
    return Request(text, "customer_relationship_manager", [call] if lost else [])


def cancel_events_with(writer: TaskWriter) -> Request:
    ahead = [row for row in writer.tables.events.rows.values() if row["event_start"][:10] > f"{writer.today}"]
    counts = Counter(row["participant_email"] for row in ahead)
    person = writer.pick(person for person, count in counts.items() if count > 1)
    ids = [row["event_id"] for row in ahead if row["participant_email"] == person]
    text = f"Cancel everything that I have with {person_name(person)} after today."
    return Request(text, "calendar", [Call("calendar_delete_event", {"event_id": event_id}) for event_id in ids])


def move_tasks(writer: TaskWriter) -> Request:
    columns = ("assigned_to_email", "board", "list_name")
    group = _group_of_rows(writer, writer.tables.tasks, columns, lambda row: row["list_name"] != "Completed")
    person, board, source = (group[0][column] for column in columns)
    target = writer.pick(name for name in writer.office_data.lists if name != source)
    text = f"Move all tasks of {person_name(person)} that are in {source} on the {board} board to {target}."
    return Request(text, "project_management", [update_task_call(row, "list_name", target) for row in group])


def hand_customers_over(writer: TaskWriter) -> Request:
    columns = ("assigned_to_email", "status", "product_interest")
    group = _group_of_rows(writer, writer.tables.customers, columns)
    person, status, product = (group[0][column] for column in columns)
    other = writer.assignee(writer.tables.customers, person)
    text = (
        f"Assign all customers of {person_name(person)} with the status {status} who are interested in "
        f"{product.lower()} to {person_name(other)}."
    )
    calls = [update_customer_call(row, "assigned_to_email", other) for row in group]
    return Request(text, "customer_relationship_manager", calls)


def postpone_overdue_tasks(writer: TaskWriter) -> Request:
    person, due, (subject, body) = writer.assignee(writer.tables.tasks), writer.day(7, 20), writer.mail()
    rows = [
        row
        for row in writer.rows(writer.tables.tasks, assigned_to_email=person)
        if row["due_date"] < f"{writer.today}" and row["list_name"] != "Completed"
    ]
    text = (
        f"Move the due date of every overdue task of {person_name(person)} that is not completed to {due}. "
        f"Then send them an e-mail with the subject '{subject}' and the text '{body}'"
    )
    calls = [*(update_task_call(row, "due_date", due) for row in rows), send_email_call(person, subject, body)]
    return Request(text, "multi_domain", calls)


def win_customer(writer: TaskWriter) -> Request:
    row = writer.unique_row(writer.tables.customers, "customer_name", lambda row: row["status"] == "Proposal")
    day, time, person = writer.day(4, 20), writer.time(), row["assigned_to_email"]
    text = (
        f"{row['customer_name']} has signed: set the customer to Won, and put a 60-minute 'Kick-off' with the "
        f"colleague in charge into my calendar on {day} at {time}."
    )
    calls = [
        update_customer_call(row, "status", "Won"),
        create_event_call("Kick-off", person, f"{day} {time}:00", "60"),
    ]
    return Request(text, "multi_domain", calls)


def task_and_mail_if_few_engaged(writer: TaskWriter) -> Request:
    engaged = Counter({row["date_of_visit"]: 0 for row in writer.tables.visits})
    engaged.update(row["date_of_visit"] for row in writer.tables.visits if row["user_engaged"].lower() == "true")
    day, person, due = writer.pick(engaged), writer.assignee(writer.tables.tasks), writer.day(3, 20)
    limit = engaged[day] + writer.rng.choice((0, 1, 2))
    name, (subject, body) = "Look into engagement", writer.mail()
    text = (
        f"If fewer than {limit} engaged users visited us on {day}, create a task '{name}' for {person_name(person)} "
        f"in the Backlog of the Design board, due on {due}, and send them an e-mail with the subject '{subject}' and "
        f"the text '{body}' Otherwise do nothing."
    )
    calls = [create_task_call(name, person, "Backlog", due, "Design"), send_email_call(person, subject, body)]
    return Request(text, "multi_domain", calls if engaged[day] < limit else [])


LEVELS: Final[Mapping[int, Sequence[Callable[[TaskWriter], Request]]]] = {
    1: (send_mail, create_event, create_plot, create_task, add_customer),
    2: (
        *(delete_latest_mail, reply_to_latest_mail, forward_mail, move_event, cancel_event, update_task),
        update_customer,
    ),
    3: (plot_if_many_visits, meet_if_not_planned, delete_customer_if_lost),
    4: (cancel_events_with, move_tasks, hand_customers_over),
    5: (postpone_overdue_tasks, win_customer, task_and_mail_if_few_engaged),
}

_MONTHS: Final = ("April", "May", "June", "July")


def _is_received(row: Row) -> bool:
    return row["inbox/outbox"] == "inbox"


def _latest_from(writer: TaskWriter, person: str) -> Row:
    rows = [row for row in writer.rows(writer.tables.emails, **{"sender/recipient": person}) if _is_received(row)]
    return max(rows, key=lambda row: row["sent_datetime"])


def _unique_event(writer: TaskWriter) -> Row:
    """A random future event whose name is unique on its day."""
    counts = Counter((row["event_name"], row["event_start"][:10]) for row in writer.tables.events.rows.values())

    def fits(row: Row) -> bool:
        day = row["event_start"][:10]
        return day > f"{writer.today}" and counts[row["event_name"], day] == 1

    return writer.row(writer.tables.events, fits)


def _random_plot(writer: TaskWriter) -> tuple[str, str, str, str]:
    days = sorted({row["date_of_visit"] for row in writer.tables.visits})
    first, last = sorted(writer.rng.sample(days, 2))
    return writer.pick(values_to_plot(writer.office_data)), writer.pick(PLOT_TYPES), first, last


def _plot_text(value: str) -> str:
    """A plotted value in natural words that remain close to the tool's."""
    usual = {
        "total_visits": "the total visits",
        "session_duration_seconds": "the session duration",
        "user_engaged": "the engaged users",
    }
    return usual.get(value) or f"the visits by {value.removeprefix('visits_').replace('_', ' ')}"


def _group_of_rows(
    writer: TaskWriter, table: Table, columns: Sequence[str], test: Callable[[Row], bool] = lambda _: True
) -> list[Row]:
    """A random group of two or more rows: all that have the same values in some columns."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in table.rows.values():
        if test(row):
            groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return writer.rng.choice([group for group in groups.values() if len(group) > 1])
