"""All 27 tools in one class, their declarations for dataset rows, and one way to call them by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from gymnast.hub.resources_servers.workplace_assistant.analytics_tools import AnalyticsTools
from gymnast.hub.resources_servers.workplace_assistant.calendar_tools import CalendarTools
from gymnast.hub.resources_servers.workplace_assistant.customer_tools import CustomerTools
from gymnast.hub.resources_servers.workplace_assistant.email_tools import EmailTools
from gymnast.hub.resources_servers.workplace_assistant.project_tools import ProjectTools
from gymnast.kit.tools import Tool, ToolError, tools_of
from gymnast.types.items import FunctionTool
from gymnast.wire.validate import InvalidBody

CHANGING: Final = frozenset(
    {
        "email_send_email",
        "email_delete_email",
        "email_forward_email",
        "email_reply_email",
        "calendar_create_event",
        "calendar_delete_event",
        "calendar_update_event",
        "analytics_create_plot",
        "project_management_create_task",
        "project_management_delete_task",
        "project_management_update_task",
        "customer_relationship_manager_update_customer",
        "customer_relationship_manager_add_customer",
        "customer_relationship_manager_delete_customer",
    }
)
"""Tools that change tables. All others only read, so that a replay leaves them out."""


class OfficeTools(EmailTools, CalendarTools, AnalyticsTools, ProjectTools, CustomerTools):
    """What an assistant can do in the office."""


def declarations() -> list[FunctionTool]:
    """The tools as rows have them in `responses_create_params.tools`."""
    return [found.declaration() for found in tools_of(OfficeTools()).values()]


def clean_arguments(tool: Tool, body: Any) -> dict[str, Any]:
    """A call's arguments, ready for the tool: null is the same as left out. A ToolError says what is wrong in words."""
    if not isinstance(body, Mapping):
        raise ToolError(f"The arguments of {tool.name} must be one JSON object.")
    known = ", ".join(tool.arguments.model_fields)
    unknown = [name for name in body if name not in tool.arguments.model_fields]
    if unknown:
        raise ToolError(f"{tool.name} has no argument '{unknown[0]}'. Arguments: {known}.")
    given = {name: value for name, value in body.items() if value is not None}
    try:
        tool.parse(given)
    except InvalidBody as error:
        wrong = "; ".join(f"{entry['loc'][-1]}: {entry['msg']}" for entry in error.detail)
        raise ToolError(f"Wrong arguments for {tool.name}. {wrong}. Arguments: {known}.") from error
    return given


def no_such_tool(name: str, tools: Mapping[str, Tool]) -> str:
    """What a model is told that calls something else."""
    close = difflib.get_close_matches(name, tools, n=1)
    meant = f" Did you mean '{close[0]}'?" if close else f" Tools: {', '.join(tools)}."
    return f"There is no tool '{name}'.{meant}"
