"""The Responses API as data: create params, input and output items, the response object, usage.

These are plain dicts with a declared shape. `wire.validate` checks what enters from outside against them; inside they
are not validated again. Other dialects are converted to and from this one at the edge.
"""

from __future__ import annotations

from typing import (  # typing's own TypedDict is not enough before 3.12
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
)

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Tag, with_config
from typing_extensions import TypedDict

from gymnast.types.json import JsonObject

Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]
_STATUSES: Final = ("in_progress", "completed", "incomplete")


_lenient = with_config(ConfigDict(extra="ignore"))  # unknown keys are dropped; explicit because settings are inherited


def _text_or_list(value: Any) -> str:
    return "text" if isinstance(value, str) else "list"


# --- content parts ---------------------------------------------------------------------------------------------------


@_lenient
class InputText(TypedDict):
    text: str
    type: Literal["input_text"]


@_lenient
class InputImage(TypedDict, total=False):
    detail: Literal["low", "high", "auto"]
    type: Required[Literal["input_image"]]
    file_id: str | None
    image_url: str | None


@_lenient
class InputFile(TypedDict, total=False):
    type: Required[Literal["input_file"]]
    file_data: str
    file_id: str | None
    file_url: str
    filename: str


@_lenient
class InputVideo(TypedDict, total=False):
    """Exactly one of the two sources."""

    type: Required[Literal["input_video"]]
    video_url: str | JsonObject | None
    video: str | JsonObject | None


def _check_video(part: InputVideo) -> InputVideo:
    if (part.get("video_url") is None) == (part.get("video") is None):
        raise ValueError("an input_video needs exactly one of `video_url` and `video`")
    return part


InputPart: TypeAlias = Annotated[
    InputText | InputImage | InputFile | Annotated[InputVideo, AfterValidator(_check_video)], Discriminator("type")
]


@_lenient
class OutputText(TypedDict):
    type: NotRequired[Literal["output_text"]]
    text: str
    annotations: list[JsonObject]
    logprobs: NotRequired[list[JsonObject] | None]


@_lenient
class Refusal(TypedDict):
    type: NotRequired[Literal["refusal"]]
    refusal: str


Content: TypeAlias = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[InputPart], Tag("list")], Discriminator(_text_or_list)
]
"""Text, or a list of parts. Tagged so that an error names the bad part, not every alternative."""

_INPUT_TYPES: Final = frozenset({"input_text", "input_image", "input_file", "input_video"})


def output_part_type(part: Any) -> Any:
    """The type of a part of an output message; one without a type is what its field says."""
    if not isinstance(part, dict):
        return None
    return part.get("type", "refusal" if "refusal" in part else "output_text")


OutputPart: TypeAlias = Annotated[
    Annotated[OutputText, Tag("output_text")] | Annotated[Refusal, Tag("refusal")], Discriminator(output_part_type)
]

# --- items -----------------------------------------------------------------------------------------------------------


TRAINING_FIELDS: Final = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
"""The tokens of a model call, on its last output item."""
_TRAINING_FIELD_SET: Final = frozenset(TRAINING_FIELDS)
ROUTED_EXPERTS: Final = "routed_experts"
"""With them, for models with experts."""


@_lenient
class TokenBundle(TypedDict, total=False):
    """Training fields: all three required ones or none."""

    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: Any
    token_call: int
    """Instead of the three: the index of the model call in the rollout's token ledger."""


@_lenient
class EasyMessage(TokenBundle, total=False):
    type: Literal["message"]
    role: Required[Literal["user", "assistant", "system", "developer"]]
    content: Required[Content]
    status: Status


@_lenient
class OutputMessage(TokenBundle, total=False):
    type: Required[Literal["message"]]
    id: Required[str]
    role: Literal["assistant"]
    content: Required[list[OutputPart]]
    status: Status


@_lenient
class FunctionCall(TokenBundle, total=False):
    type: Required[Literal["function_call"]]
    call_id: Required[str]
    name: Required[str]
    arguments: Required[str]
    id: str | None
    status: Status | None


@_lenient
class FunctionCallOutput(TypedDict, total=False):
    type: Required[Literal["function_call_output"]]
    call_id: Required[str]
    output: Required[Content]
    id: str | None
    status: Status | None


@_lenient
class SummaryText(TypedDict):
    type: Literal["summary_text"]
    text: str


@_lenient
class Reasoning(TokenBundle, total=False):
    type: Required[Literal["reasoning"]]
    id: Required[str]
    summary: Required[list[SummaryText]]
    encrypted_content: str | None
    content: list[JsonObject] | None


HOSTED_ITEM_TYPES = frozenset(
    {
        "code_interpreter_call",
        "computer_call",
        "computer_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
    }
)
"""Items of hosted tools are passed through unchanged."""


def _check_bundle(item: Any) -> Any:
    if _TRAINING_FIELD_SET.isdisjoint(item):
        return item
    present = sum(1 for name in TRAINING_FIELDS if item.get(name) is not None)
    if present not in {0, len(TRAINING_FIELDS)}:
        raise ValueError("training fields must be all present or all absent: " + ", ".join(TRAINING_FIELDS))
    return item


def _is_output(message: JsonObject) -> bool:
    """True for what a model said. A history may also have assistant messages as text, or of a user's parts."""
    content = message.get("content")
    if message.get("role", "assistant") != "assistant" or isinstance(content, str):
        return False
    if content == []:
        return isinstance(message.get("id"), str) and _has_known_status(message)
    return not (isinstance(content, list) and all(map(_is_input_part, content)))


def _has_known_status(message: JsonObject) -> bool:
    return message.get("status", "completed") in _STATUSES


def _drop_unknown_status(message: Any) -> Any:
    """An input message has no status of its own: one that other servers made up is ignored."""
    if not isinstance(message, dict) or _has_known_status(message):
        return message
    return {name: value for name, value in message.items() if name != "status"}


def _is_input_part(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(kind, str) and kind in _INPUT_TYPES


def _item_tag(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    kind = value.get("type", "message")
    if not isinstance(kind, str):
        return None
    if kind == "message":
        return "output_message" if _is_output(value) else "easy_message"
    if kind in {"function_call", "function_call_output", "reasoning"}:
        return kind
    return "hosted" if kind in HOSTED_ITEM_TYPES else None


Item: TypeAlias = Annotated[
    Annotated[EasyMessage, BeforeValidator(_drop_unknown_status), AfterValidator(_check_bundle), Tag("easy_message")]
    | Annotated[OutputMessage, AfterValidator(_check_bundle), Tag("output_message")]
    | Annotated[FunctionCall, AfterValidator(_check_bundle), Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[Reasoning, AfterValidator(_check_bundle), Tag("reasoning")]
    | Annotated[JsonObject, Tag("hosted")],
    Discriminator(_item_tag),
]

Input: TypeAlias = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[Item], Tag("list")], Discriminator(_text_or_list)
]

# --- requests --------------------------------------------------------------------------------------------------------


@with_config(ConfigDict(extra="forbid"))
class FunctionTool(TypedDict):
    type: Literal["function"]
    name: str
    parameters: JsonObject | None
    strict: bool | None
    description: NotRequired[str | None]


def _tool_tag(value: Any) -> str:
    return "function" if not isinstance(value, dict) or value.get("type", "function") == "function" else "hosted"


Tool: TypeAlias = Annotated[
    Annotated[FunctionTool, Tag("function")] | Annotated[JsonObject, Tag("hosted")], Discriminator(_tool_tag)
]


@with_config(ConfigDict(extra="forbid"))
class CreateParams(TypedDict, total=False):
    """Responses create params. Unknown keys are refused."""

    background: bool | None
    include: list[str] | None
    input: Required[Input]
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str] | None
    model: str | None
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt: JsonObject | None
    reasoning: JsonObject | None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None
    store: bool | None
    temperature: float | None
    text: JsonObject | None
    tool_choice: Literal["none", "auto", "required"] | JsonObject
    tools: list[Tool]
    top_logprobs: int | None
    top_p: float | None
    truncation: Literal["auto", "disabled"] | None
    user: str | None
    stream: Literal[False] | None


CREATE_PARAMS_DEFAULTS: dict[str, Any] = {
    "background": None,
    "include": None,
    "input": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": None,
    "model": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt": None,
    "reasoning": None,
    "service_tier": None,
    "store": None,
    "temperature": None,
    "text": None,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": None,
    "top_p": None,
    "truncation": None,
    "user": None,
    "stream": None,
}
"""Every create param with its default, in the order of verify rows."""

# --- replies ---------------------------------------------------------------------------------------------------------


@_lenient
class InputTokensDetails(TypedDict):
    cached_tokens: int | None


@_lenient
class OutputTokensDetails(TypedDict):
    reasoning_tokens: int | None


@_lenient
class Usage(TypedDict):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


@with_config(ConfigDict(extra="allow"))
class Response(TypedDict, total=False):
    """A Responses object. Other keys are allowed and kept."""

    id: Required[str]
    created_at: Required[float]
    error: JsonObject | None
    incomplete_details: JsonObject | None
    instructions: str | list[Item] | None
    metadata: dict[str, str] | None
    model: Required[str]
    object: Required[Literal["response"]]
    output: Required[list[Item]]
    parallel_tool_calls: Required[bool]
    temperature: float | None
    tool_choice: Required[str | JsonObject]
    tools: Required[list[JsonObject]]
    top_p: float | None
    background: bool | None
    conversation: JsonObject | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    previous_response_id: str | None
    prompt: JsonObject | None
    prompt_cache_key: str | None
    reasoning: JsonObject | None
    safety_identifier: str | None
    service_tier: str | None
    status: str | None
    text: JsonObject | None
    top_logprobs: int | None
    truncation: str | None
    usage: Usage | None
    user: str | None
