"""All 27 tools in one class, their declarations for dataset rows, and the checking of calls by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from gymnast.kit import FunctionTool, InvalidBody, Tool, ToolError, collect_tools

from .analytics_tools import AnalyticsTools
from .calendar_tools import CalendarTools
from .customer_tools import CustomerTools
from .email_tools import EmailTools
from .project_tools import ProjectTools

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
"""Tools that change tables. The others only read, and a replay skips them."""


class OfficeTools(EmailTools, CalendarTools, AnalyticsTools, ProjectTools, CustomerTools):
    """All tools of the office."""


def declarations() -> list[FunctionTool]:
    """The tools as in `responses_create_params.tools` of a row."""
    return [tool.declaration() for tool in collect_tools(OfficeTools()).values()]


def clean_arguments(tool: Tool, body: Any) -> dict[str, Any]:
    """Validate the arguments of a call; nulls are dropped. Raises ToolError with a message for the model."""
    if not isinstance(body, Mapping):
        raise ToolError(f"The arguments of {tool.name} must be one JSON object.")
    known = ", ".join(tool.arguments.model_fields)
    unknown = [name for name in body if name not in tool.arguments.model_fields]
    if unknown:
        raise ToolError(f"{tool.name} has no argument '{unknown[0]}'. Arguments: {known}.")
    arguments = {name: value for name, value in body.items() if value is not None}
    try:
        tool.parse(arguments)
    except InvalidBody as error:
        wrong = "; ".join(f"{entry['loc'][-1]}: {entry['msg']}" for entry in error.detail)
        raise ToolError(f"Wrong arguments for {tool.name}. {wrong}. Arguments: {known}.") from error
    return arguments


def unknown_tool_message(name: str, tools: Mapping[str, Tool]) -> str:
    """The message for a model that calls an unknown tool."""
    close = difflib.get_close_matches(name, tools, n=1)
    meant = f" Did you mean '{close[0]}'?" if close else f" Tools: {', '.join(tools)}."
    return f"There is no tool '{name}'.{meant}"
