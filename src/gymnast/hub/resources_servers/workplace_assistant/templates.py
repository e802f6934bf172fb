"""What people ask an office assistant, in five levels: chance and the tables become a request and its calls.

Level 1 says everything; 2 needs a look-up; 3 has a condition that may not hold; 4 means several rows; 5 several tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from gymnast.hub.resources_servers.workplace_assistant.analytics_tools import PLOT_TYPES, values_to_plot
from gymnast.hub.resources_servers.workplace_assistant.asking import (
    Asker,
    Call,
    Request,
    customer_update,
    event_call,
    event_update,
    mail_call,
    name_of,
    plot_call,
    task_call,
    task_update,
)
from gymnast.hub.resources_servers.workplace_assistant.tables import Row, Table


def send_mail(ask: Asker) -> Request:
    person, (subject, body) = ask.colleague(), ask.mail()
    text = f"Send {name_of(person)} an e-mail with the subject '{subject}' and the text '{body}'"
    return Request(text, "email", [mail_call(person, subject, body)])


def create_event(ask: Asker) -> Request:
    person, day, time = ask.colleague(), ask.day(1, 20), ask.time()
    name, length = ask.row(ask.tables.events)["event_name"], ask.pick(("30", "45", "60", "90"))
    text = f"Put '{name}' with {name_of(person)} into my calendar on {day} at {time}, for {length} minutes."
    return Request(text, "calendar", [event_call(name, person, f"{day} {time}:00", length)])


def create_plot(ask: Asker) -> Request:
    value, kind, first, last = _plot_wish(ask)
    text = f"Make a {kind} plot of {_in_words(value)} from {first} to {last}."
    return Request(text, "analytics", [plot_call(first, last, value, kind)])


def create_task(ask: Asker) -> Request:
    person, board, due = ask.holder(ask.tables.tasks), ask.pick(ask.premises.boards), ask.day(3, 30)
    name = f"Prepare the {ask.pick(('demo', 'upgrade', 'rollout', 'test plan', 'survey'))} for {ask.pick(_MONTHS)}"
    text = f"Create a task '{name}' for {name_of(person)} in the Backlog of the {board} board, due on {due}."
    return Request(text, "project_management", [task_call(name, person, "Backlog", due, board)])


def add_customer(ask: Asker) -> Request:
    person, product = ask.holder(ask.tables.customers), ask.pick(ask.premises.products)
    first, last = ask.pick(("Nora", "Piet", "Salma", "Teo", "Ulla")), ask.pick(("Ashdown", "Briar", "Cole", "Dunmore"))
    given = {"customer_name": f"{first} {last}", "assigned_to_email": person, "status": "Lead"}
    text = f"Add {first} {last} as a new lead of {name_of(person)}, interested in {product.lower()}."
    call = Call("customer_relationship_manager_add_customer", {**given, "product_interest": product})
    return Request(text, "customer_relationship_manager", [call])


def delete_latest_mail(ask: Asker) -> Request:
    row = _latest_from(ask, ask.row(ask.tables.emails, _received)["sender/recipient"])
    text = f"Delete the latest e-mail that I got from {name_of(row['sender/recipient'])}."
    return Request(text, "email", [Call("email_delete_email", {"email_id": row["email_id"]})])


def reply_to_latest_mail(ask: Asker) -> Request:
    row, (_, body) = _latest_from(ask, ask.row(ask.tables.emails, _received)["sender/recipient"]), ask.mail()
    text = f"Reply to the latest e-mail that I got from {name_of(row['sender/recipient'])} with '{body}'"
    return Request(text, "email", [Call("email_reply_email", {"email_id": row["email_id"], "body": body})])


def forward_mail(ask: Asker) -> Request:
    counts = Counter((row["sender/recipient"], row["subject"]) for row in ask.tables.emails.rows.values())
    row = ask.row(
        ask.tables.emails, lambda row: counts[row["sender/recipient"], row["subject"]] == 1 and _received(row)
    )
    sender, person = row["sender/recipient"], ask.colleague(row["sender/recipient"])
    text = f"Forward the e-mail '{row['subject']}' from {name_of(sender)} to {name_of(person)}."
    return Request(text, "email", [Call("email_forward_email", {"email_id": row["email_id"], "recipient": person})])


def move_event(ask: Asker) -> Request:
    row = _lone_event(ask)
    day, now = row["event_start"][:10], row["event_start"][11:16]
    time = ask.pick(
        f"{hour:02d}:{part}" for hour in range(9, 17) for part in ("00", "30") if f"{hour:02d}:{part}" != now
    )
    text = f"Move '{row['event_name']}' on {day} to {time} on the same day."
    return Request(text, "calendar", [event_update(row, "event_start", f"{day} {time}:00")])


def cancel_event(ask: Asker) -> Request:
    row = _lone_event(ask)
    text = f"Cancel '{row['event_name']}' on {row['event_start'][:10]}."
    return Request(text, "calendar", [Call("calendar_delete_event", {"event_id": row["event_id"]})])


def update_task(ask: Asker) -> Request:
    row = ask.lone_row(ask.tables.tasks, "task_name", lambda row: row["list_name"] != "Completed")
    wishes = {
        "assigned_to_email": ask.holder(ask.tables.tasks, row["assigned_to_email"]),
        "list_name": ask.pick(name for name in ask.premises.lists if name != row["list_name"]),
        "due_date": ask.day(31, 45),
    }
    field = ask.pick(wishes)
    value = wishes[field]
    texts = {
        "assigned_to_email": f"Give the task '{row['task_name']}' to {name_of(value)}.",
        "list_name": f"Move the task '{row['task_name']}' to {value}.",
        "due_date": f"The task '{row['task_name']}' is now due on {value}. Change it on the board.",
    }
    return Request(texts[field], "project_management", [task_update(row, field, value)])


def update_customer(ask: Asker) -> Request:
    row = ask.lone_row(ask.tables.customers, "customer_name")
    status = ask.pick(name for name in ask.premises.statuses if name != row["status"])
    text = f"Set the status of the customer {row['customer_name']} to {status}."
    return Request(text, "customer_relationship_manager", [customer_update(row, "status", status)])


def plot_if_many_visits(ask: Asker) -> Request:
    visits = Counter(row["date_of_visit"] for row in ask.tables.visits)
    day = ask.pick(visits)
    limit = max(1, visits[day] + ask.chance.choice((-2, -1, 0, 1)))
    value, kind, first, last = _plot_wish(ask)
    text = (
        f"If there were more than {limit} visits on {day}, make a {kind} plot of {_in_words(value)} "
        f"from {first} to {last}. Otherwise do nothing."
    )
    return Request(text, "analytics", [plot_call(first, last, value, kind)] if visits[day] > limit else [])


def meet_if_not_planned(ask: Asker) -> Request:
    last = ask.today + timedelta(days=7)
    soon = [
        row["participant_email"]
        for row in ask.tables.events.rows.values()
        if f"{ask.today}" < row["event_start"][:10] <= f"{last}"
    ]
    person = ask.pick(soon) if soon and ask.chance.random() < 0.5 else ask.colleague(*soon)
    day, time = f"{last + timedelta(days=3)}", ask.time()
    text = (
        f"If nothing with {name_of(person)} is in my calendar in the seven days after today, put a 30-minute "
        f"'Catch-up' with them in on {day} at {time}. Otherwise leave the calendar as it is."
    )
    return Request(
        text, "calendar", [] if person in soon else [event_call("Catch-up", person, f"{day} {time}:00", "30")]
    )


def delete_customer_if_lost(ask: Asker) -> Request:
    lost = ask.chance.random() < 0.5
    row = ask.lone_row(ask.tables.customers, "customer_name", lambda row: (row["status"] == "Lost") == lost)
    text = f"If the customer {row['customer_name']} is lost, delete the entry; if not, keep everything."
    call = Call("customer_relationship_manager_delete_customer", {"customer_id": row["customer_id"]})
    return Request(text, "customer_relationship_manager", [call] if lost else [])


def cancel_events_with(ask: Asker) -> Request:
    ahead = [row for row in ask.tables.events.rows.values() if row["event_start"][:10] > f"{ask.today}"]
    counts = Counter(row["participant_email"] for row in ahead)
    person = ask.pick(person for person, count in counts.items() if count > 1)
    ids = [row["event_id"] for row in ahead if row["participant_email"] == person]
    text = f"Cancel everything that I have with {name_of(person)} after today."
    return Request(text, "calendar", [Call("calendar_delete_event", {"event_id": event_id}) for event_id in ids])


def move_tasks(ask: Asker) -> Request:
    columns = ("assigned_to_email", "board", "list_name")
    group = _several(ask, ask.tables.tasks, columns, lambda row: row["list_name"] != "Completed")
    person, board, source = (group[0][column] for column in columns)
    target = ask.pick(name for name in ask.premises.lists if name != source)
    text = f"Move all tasks of {name_of(person)} that are in {source} on the {board} board to {target}."
    return Request(text, "project_management", [task_update(row, "list_name", target) for row in group])


def hand_customers_over(ask: Asker) -> Request:
    columns = ("assigned_to_email", "status", "product_interest")
    group = _several(ask, ask.tables.customers, columns)
    person, status, product = (group[0][column] for column in columns)
    other = ask.holder(ask.tables.customers, person)
    text = (
        f"Assign all customers of {name_of(person)} with the status {status} who are interested in "
        f"{product.lower()} to {name_of(other)}."
    )
    calls = [customer_update(row, "assigned_to_email", other) for row in group]
    return Request(text, "customer_relationship_manager", calls)


def postpone_overdue_tasks(ask: Asker) -> Request:
    person, due, (subject, body) = ask.holder(ask.tables.tasks), ask.day(7, 20), ask.mail()
    rows = [
        row
        for row in ask.rows(ask.tables.tasks, assigned_to_email=person)
        if row["due_date"] < f"{ask.today}" and row["list_name"] != "Completed"
    ]
    text = (
        f"Move the due date of every overdue task of {name_of(person)} that is not completed to {due}. "
        f"Then send them an e-mail with the subject '{subject}' and the text '{body}'"
    )
    calls = [*(task_update(row, "due_date", due) for row in rows), mail_call(person, subject, body)]
    return Request(text, "multi_domain", calls)


def win_customer(ask: Asker) -> Request:
    row = ask.lone_row(ask.tables.customers, "customer_name", lambda row: row["status"] == "Proposal")
    day, time, person = ask.day(4, 20), ask.time(), row["assigned_to_email"]
    text = (
        f"{row['customer_name']} has signed: set the customer to Won, and put a 60-minute 'Kick-off' with the "
        f"colleague in charge into my calendar on {day} at {time}."
    )
    calls = [customer_update(row, "status", "Won"), event_call("Kick-off", person, f"{day} {time}:00", "60")]
    return Request(text, "multi_domain", calls)


def task_and_mail_if_few_engaged(ask: Asker) -> Request:
    engaged = Counter({row["date_of_visit"]: 0 for row in ask.tables.visits})
    engaged.update(row["date_of_visit"] for row in ask.tables.visits if row["user_engaged"].lower() == "true")
    day, person, due = ask.pick(engaged), ask.holder(ask.tables.tasks), ask.day(3, 20)
    limit = engaged[day] + ask.chance.choice((0, 1, 2))
    name, (subject, body) = "Look into engagement", ask.mail()
    text = (
        f"If fewer than {limit} engaged users visited us on {day}, create a task '{name}' for {name_of(person)} in the "
        f"Backlog of the Design board, due on {due}, and send them an e-mail with the subject '{subject}' and the "
        f"text '{body}' Otherwise do nothing."
    )
    calls = [task_call(name, person, "Backlog", due, "Design"), mail_call(person, subject, body)]
    return Request(text, "multi_domain", calls if engaged[day] < limit else [])


LEVELS: Final[Mapping[int, Sequence[Callable[[Asker], Request]]]] = {
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


def _received(row: Row) -> bool:
    return row["inbox/outbox"] == "inbox"


def _latest_from(ask: Asker, person: str) -> Row:
    rows = [row for row in ask.rows(ask.tables.emails, **{"sender/recipient": person}) if _received(row)]
    return max(rows, key=lambda row: row["sent_datetime"])


def _lone_event(ask: Asker) -> Row:
    """An event ahead whose name is there once that day."""
    counts = Counter((row["event_name"], row["event_start"][:10]) for row in ask.tables.events.rows.values())

    def fits(row: Row) -> bool:
        day = row["event_start"][:10]
        return day > f"{ask.today}" and counts[row["event_name"], day] == 1

    return ask.row(ask.tables.events, fits)


def _plot_wish(ask: Asker) -> tuple[str, str, str, str]:
    days = sorted({row["date_of_visit"] for row in ask.tables.visits})
    first, last = sorted(ask.chance.sample(days, 2))
    return ask.pick(values_to_plot(ask.premises)), ask.pick(PLOT_TYPES), first, last


def _in_words(value: str) -> str:
    """What a plot shows, as people say it; the tool's own words stay recognisable."""
    usual = {
        "total_visits": "the total visits",
        "session_duration_seconds": "the session duration",
        "user_engaged": "the engaged users",
    }
    return usual.get(value) or f"the visits by {value.removeprefix('visits_').replace('_', ' ')}"


def _several(
    ask: Asker, table: Table, columns: Sequence[str], test: Callable[[Row], bool] = lambda _: True
) -> list[Row]:
    """Two rows or more that are all there is with the same values in some columns."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in table.rows.values():
        if test(row):
            groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return ask.chance.choice([group for group in groups.values() if len(group) > 1])
