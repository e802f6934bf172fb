"""What the tests of workplace_assistant share: an office, somebody at a desk in it, and calls."""

from __future__ import annotations

import json
from typing import Any

from gymnast.builtin.resources_servers.workplace_assistant.app import SHIPPED_TABLES, SHIPPED_TIME
from gymnast.builtin.resources_servers.workplace_assistant.scoring import Call
from gymnast.builtin.resources_servers.workplace_assistant.tables import load_tables, make_office_data
from gymnast.builtin.resources_servers.workplace_assistant.toolbox import OfficeTools
from gymnast.kit.tools import collect_tools
from gymnast.wire.calls import Scope
from tests.helpers.environments import Subject

NAME = "workplace_assistant"
OFFICE_DATA = make_office_data(load_tables(SHIPPED_TABLES), SHIPPED_TIME)
TOOLS = collect_tools(OfficeTools())
EXAMPLE_SEED = 876

MAIL = {"recipient": "ada.yilmaz@larkfield.example", "subject": "Hello", "body": "Hi."}
OTHER_MAIL = {**MAIL, "subject": "Bye"}
EVENT = {
    "event_name": "Tea",
    "participant_email": "ada.yilmaz@larkfield.example",
    "event_start": "2025-03-20 15:00:00",
    "duration": "30",
}
TASK = {
    "task_name": "Tidy up",
    "assigned_to_email": "arlo.kovacs@larkfield.example",
    "list_name": "Backlog",
    "due_date": "2025-04-01",
    "board": "Design",
}
PLOT = {"time_min": "2025-01-05", "time_max": "2025-02-05", "value_to_plot": "visits_direct", "plot_type": "bar"}


def row_with(*calls: Call, **fields: Any) -> dict[str, Any]:
    truth = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]
    return {
        "responses_create_params": {"input": "q"},
        "ground_truth": truth,
        "id": 1,
        "category": "email",
        "environment_name": "x",
        **fields,
    }


class Desk:
    """The tools of one session."""

    def __init__(self, subject: Subject) -> None:
        self.calls = subject.calls
        self.scope = Scope()

    async def sit_down(self) -> Desk:
        reply = await self.calls.call("env", "/seed_session", row_with(), self.scope)
        assert reply.status == 200, reply.body
        return self

    async def use(self, tool: str, /, **arguments: Any) -> Any:
        reply = await self.calls.call("env", f"/{tool}", arguments, self.scope)
        assert reply.status == 200, reply.body
        return reply.body

    async def refusal(self, name: str, body: Any) -> str:
        reply = await self.calls.call("env", f"/{name}", body, self.scope)
        assert 400 <= reply.status < 500
        assert reply.failure is None  # nothing but a text for the model
        return str(reply.body["error"])


def send(mail: dict[str, str] = MAIL) -> Call:
    return "email_send_email", mail


def update(task: str, field: str, value: str) -> Call:
    return "project_management_update_task", {"task_id": task, "field": field, "new_value": value}


def delete(mail: str) -> Call:
    return "email_delete_email", {"email_id": mail}


CREATE: Call = ("project_management_create_task", TASK)
RENAME, MOVE = update("00000003", "task_name", "A new name"), update("00000004", "list_name", "In Review")
