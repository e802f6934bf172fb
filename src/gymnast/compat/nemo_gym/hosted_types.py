"""Items of tools that the endpoint or the client runs, as `nemo_gym.openai_utils` has them.

Undeclared fields are kept. Fields are readable as attributes and as keys.
"""

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gymnast.types.items import InputPart, Status


class Open(BaseModel):
    """An API type that keeps undeclared fields."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _as_data(cls, value: Any) -> Any:
        # Not from attributes: pydantic would miss the undeclared fields.
        if type(value) is dict or not isinstance(value, BaseModel) or isinstance(value, cls):
            return value
        return value.model_dump()

    def to_dict(
        self,
        *,
        mode: Literal["json", "python"] = "python",
        exclude_unset: bool = True,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
    ) -> dict[str, Any]:
        """As the types of `openai` have it: the fields that were set."""
        return self.model_dump(
            mode=mode, exclude_unset=exclude_unset, exclude_defaults=exclude_defaults, exclude_none=exclude_none
        )

    def to_json(
        self,
        *,
        indent: int | None = 2,
        exclude_unset: bool = True,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
    ) -> str:
        """As the types of `openai` have it: the fields that were set, as indented JSON."""
        return self.model_dump_json(
            indent=indent, exclude_unset=exclude_unset, exclude_defaults=exclude_defaults, exclude_none=exclude_none
        )


class HostedItem(Open):
    """An item of a tool that the endpoint or the client runs."""

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


class SearchAction(Open):
    query: str
    type: Literal["search"]
    sources: list[Any] | None = None


class OpenPageAction(Open):
    type: Literal["open_page"]
    url: str


class FindAction(Open):
    """A text that was looked for on a page."""

    pattern: str
    type: Literal["find"]
    url: str


WebAction: TypeAlias = SearchAction | OpenPageAction | FindAction


class ComputerAction(Open):
    """What is done on a computer's screen."""

    type: Literal["click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"]


class ShellAction(Open):
    command: list[str]
    env: dict[str, str]
    type: Literal["exec"]
    timeout_ms: int | None = None
    user: str | None = None
    working_directory: str | None = None


class Screenshot(Open):
    """A picture of a computer's screen."""

    type: Literal["computer_screenshot"]
    file_id: str | None = None
    image_url: str | None = None


class NeMoGymResponseMcpCall(HostedItem):
    id: str | None = None
    arguments: str
    name: str
    server_label: str | None = None
    type: Literal["mcp_call"] = "mcp_call"
    approval_request_id: str | None = None
    error: str | None = None
    output: str | None = None
    status: str | None = None


class NeMoGymResponseMcpListTools(HostedItem):
    """The tools of an MCP server. All fields are optional, so that an untyped object which is nothing else is one."""

    id: str | None = None
    server_label: str | None = None
    tools: list[Any] = Field(default_factory=list)
    type: Literal["mcp_list_tools"] = "mcp_list_tools"
    error: str | None = None


class NeMoGymResponseMcpApprovalRequest(HostedItem):
    """A request to approve a call of a tool of an MCP server."""

    id: str | None = None
    arguments: str
    name: str
    server_label: str | None = None
    type: Literal["mcp_approval_request"] = "mcp_approval_request"


class NeMoGymMcpApprovalResponse(HostedItem):
    approval_request_id: str
    approve: bool
    type: Literal["mcp_approval_response"]
    id: str | None = None
    reason: str | None = None


class NeMoGymResponseFileSearchToolCall(HostedItem):
    id: str
    queries: list[str]
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"]
    type: Literal["file_search_call"]
    results: list[Any] | None = None


class NeMoGymResponseFunctionWebSearch(HostedItem):
    id: str
    action: WebAction
    status: Literal["in_progress", "searching", "completed", "failed"]
    type: Literal["web_search_call"]


class NeMoGymResponseComputerToolCall(HostedItem):
    """A call of a tool that uses a computer."""

    id: str
    action: ComputerAction
    call_id: str
    pending_safety_checks: list[Any]
    status: Status
    type: Literal["computer_call"]


class NeMoGymComputerCallOutput(HostedItem):
    call_id: str
    output: Screenshot
    type: Literal["computer_call_output"]
    id: str | None = None
    acknowledged_safety_checks: list[Any] | None = None
    status: Status | None = None


class NeMoGymImageGenerationCall(HostedItem):
    """A picture that was made."""

    id: str
    result: str | None = None
    status: Literal["in_progress", "completed", "generating", "failed"]
    type: Literal["image_generation_call"]


class NeMoGymResponseCodeInterpreterToolCall(HostedItem):
    id: str
    code: str | None = None
    container_id: str
    outputs: list[Any] | None = None
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"]
    type: Literal["code_interpreter_call"]


class NeMoGymLocalShellCall(HostedItem):
    """A command for the client's shell."""

    id: str
    action: ShellAction
    call_id: str
    status: Status
    type: Literal["local_shell_call"]


class NeMoGymLocalShellCallOutput(HostedItem):
    """The result of a command for the client's shell."""

    id: str
    output: str
    type: Literal["local_shell_call_output"]
    status: Status | None = None


class NeMoGymResponseCustomToolCall(HostedItem):
    call_id: str
    input: str
    name: str
    type: Literal["custom_tool_call"]
    id: str | None = None


class NeMoGymResponseCustomToolCallOutput(HostedItem):
    """The result of a call of a tool that takes text."""

    call_id: str
    output: str | list[InputPart]
    type: Literal["custom_tool_call_output"]
    id: str | None = None
