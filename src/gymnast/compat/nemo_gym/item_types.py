"""The Responses API items of `nemo_gym.openai_utils`: pydantic models, with content parts as dictionaries.

The contract defines the fields, regardless of the installed version of the openai package, which is not needed here.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Required, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    SerializeAsAny,
    Tag,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)
from typing_extensions import TypedDict

from gymnast.compat.nemo_gym.hosted_types import (
    NeMoGymComputerCallOutput,
    NeMoGymImageGenerationCall,
    NeMoGymLocalShellCall,
    NeMoGymLocalShellCallOutput,
    NeMoGymMcpApprovalResponse,
    NeMoGymResponseCodeInterpreterToolCall,
    NeMoGymResponseComputerToolCall,
    NeMoGymResponseCustomToolCall,
    NeMoGymResponseCustomToolCallOutput,
    NeMoGymResponseFileSearchToolCall,
    NeMoGymResponseFunctionWebSearch,
    NeMoGymResponseMcpApprovalRequest,
    NeMoGymResponseMcpCall,
    NeMoGymResponseMcpListTools,
    Open,
)
from gymnast.types.items import HOSTED_ITEM_TYPES, InputFile, InputImage, InputPart, InputVideo, Status

REQUIRED_TOKEN_METADATA_FIELDS: Final = frozenset({"prompt_token_ids", "generation_token_ids", "generation_log_probs"})
TOKEN_METADATA_FIELDS: Final = REQUIRED_TOKEN_METADATA_FIELDS | {"routed_experts"}

RoutedExperts: TypeAlias = str | list[list[list[int]]]
NeMoGymResponseInputContent: TypeAlias = InputPart
NeMoGymResponseInputContentPart: TypeAlias = InputPart
NeMoGymInputVideoPart = InputVideo
NeMoGymResponseInputContentList: TypeAlias = list[InputPart]
NeMoGymResponseInputImage = InputImage
NeMoGymResponseInputFile = InputFile


class NeMoGymResponseInputText(TypedDict, total=False):
    """A part of a user's message."""

    text: Required[str]
    type: Required[Literal["input_text"]]


class TokenIDLogProbMixin(BaseModel):
    """The tokens of a model call, on the item that ends it."""

    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: RoutedExperts | None = None


class TokenIDLogProbTypedDictMixin(TypedDict, total=False):
    """The tokens of a model call, on a chat message."""

    prompt_token_ids: Required[list[int]]
    generation_token_ids: Required[list[int]]
    generation_log_probs: Required[list[float]]
    routed_experts: RoutedExperts | None


class _Own(BaseModel):
    """A type of the API; also accepts the corresponding object of the openai package."""

    model_config = ConfigDict(from_attributes=True)


class Annotation(Open):
    type: str | None = None


class Logprob(BaseModel):
    """The logprobs of a token. There is one per token, so they are not validated."""

    model_config = ConfigDict(extra="allow")


class ReasoningContent(Open):
    text: str
    type: Literal["reasoning_text"]


class NeMoGymSummary(Open):
    text: str
    type: Literal["summary_text"]


class NeMoGymEasyInputMessage(_Own):
    content: str | NeMoGymResponseInputContentList
    role: Literal["user", "assistant", "system", "developer"]
    type: Literal["message"] = "message"


class NeMoGymMessage(_Own):
    """A message whose content is a list of parts."""

    content: NeMoGymResponseInputContentList
    role: Literal["user", "system", "developer"]
    status: Status = "completed"
    type: Literal["message"] = "message"


class NeMoGymResponseOutputText(_Own):
    annotations: list[Annotation]
    text: str
    type: Literal["output_text"] = "output_text"
    logprobs: list[Logprob] | None = None


class NeMoGymResponseOutputRefusal(_Own):
    refusal: str
    type: Literal["refusal"] = "refusal"


NeMoGymContent: TypeAlias = Annotated[NeMoGymResponseOutputText | NeMoGymResponseOutputRefusal, Discriminator("type")]


class NeMoGymResponseOutputMessage(_Own):
    id: str
    content: list[NeMoGymContent]
    role: Literal["assistant"] = "assistant"
    status: Status = "completed"
    type: Literal["message"] = "message"


class NeMoGymResponseFunctionToolCall(_Own):
    arguments: str
    call_id: str
    name: str
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    status: Status | None = None


class NeMoGymFunctionCallOutput(_Own):
    call_id: str
    output: str | NeMoGymResponseInputContentList
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: Status | None = None


class NeMoGymResponseReasoningItem(_Own):
    id: str
    summary: list[NeMoGymSummary]
    type: Literal["reasoning"] = "reasoning"
    encrypted_content: str | None = None
    content: list[ReasoningContent] | None = None


class NeMoGymEasyInputMessageForTraining(NeMoGymEasyInputMessage, TokenIDLogProbMixin):
    """A message of a conversation with its tokens."""


class NeMoGymMessageForTraining(NeMoGymMessage, TokenIDLogProbMixin):
    """A message of parts with its tokens."""


class NeMoGymResponseOutputMessageForTraining(NeMoGymResponseOutputMessage, TokenIDLogProbMixin):
    """A message with its tokens."""


class NeMoGymResponseFunctionToolCallForTraining(NeMoGymResponseFunctionToolCall, TokenIDLogProbMixin):
    """A call with its tokens."""


class NeMoGymResponseReasoningItemForTraining(NeMoGymResponseReasoningItem, TokenIDLogProbMixin):
    """Reasoning with its tokens."""


RESPONSES_TO_TRAIN: Final[dict[type[BaseModel], type[BaseModel]]] = {
    NeMoGymEasyInputMessage: NeMoGymEasyInputMessageForTraining,
    NeMoGymMessage: NeMoGymMessageForTraining,
    NeMoGymResponseOutputMessage: NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseFunctionToolCall: NeMoGymResponseFunctionToolCallForTraining,
    NeMoGymResponseReasoningItem: NeMoGymResponseReasoningItemForTraining,
}


def training_variant_of(item_cls: type) -> type:
    """The class of such an item with its tokens."""
    variant = RESPONSES_TO_TRAIN.get(item_cls)
    if variant is None:
        raise NotImplementedError(f"{item_cls.__name__} has no variant with tokens")
    return variant


# --- the union -------------------------------------------------------------------------------------------------------

_OWN: Final = frozenset({"function_call", "function_call_output", "reasoning"})
_STATUSES: Final = frozenset({"in_progress", "completed", "incomplete"})
_UNTYPED: Final = {
    "reasoning": ("id", "summary"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "mcp_call": ("name", "arguments"),
}
"""Fields by which an item without a type is recognized."""
_TRAINED: Final = frozenset({"easy", "message", "output", "function_call", "reasoning"})


def _tag(value: Any) -> str | None:
    """The model class of an item: by its type, for messages by their role, and by whether it has tokens.

    Called for every item of every history, so it must be fast.
    """
    get = value.get if isinstance(value, dict) else _attributes(value)
    kind = get("type") or _untyped_tag(get)
    if kind == "message":
        kind = "easy" if isinstance(get("content"), str) else _message_tag(get)
    elif not isinstance(kind, str):
        return None
    elif kind not in _OWN:
        return kind if kind in HOSTED_ITEM_TYPES else None
    if (
        get("generation_token_ids") is None and get("prompt_token_ids") is None and get("generation_log_probs") is None
    ) or kind not in _TRAINED:
        return kind
    return f"{kind}+tokens"


def _output_tag(value: Any) -> str | None:
    return None if isinstance(value, dict) and not value.get("type") else _tag(value)


def _attributes(value: Any) -> Callable[[str], Any]:
    return lambda name: getattr(value, name, None)


def _untyped_tag(get: Callable[[str], Any]) -> str:
    if get("role") is not None:
        return "message"
    fitting = (kind for kind, fields in _UNTYPED.items() if all(get(field) is not None for field in fields))
    return next(fitting, "message")


def _message_tag(get: Callable[[str], Any]) -> str:
    """The class of a message whose content is not a text."""
    content, role = get("content"), get("role")
    if role is None and get("id") is not None:
        return "output"
    if role != "assistant":
        status = get("status")
        return "message" if isinstance(status, str) and status in _STATUSES else "easy"
    if not content or not isinstance(content, list):
        return "output" if get("id") is not None else "easy"
    first = content[0]
    part = first.get("type") if isinstance(first, dict) else getattr(first, "type", None)
    return "easy" if isinstance(part, str) and part.startswith("input") else "output"


_Item: TypeAlias = (
    Annotated[NeMoGymEasyInputMessage, Tag("easy")]
    | Annotated[NeMoGymMessage, Tag("message")]
    | Annotated[NeMoGymResponseOutputMessage, Tag("output")]
    | Annotated[NeMoGymResponseFunctionToolCall, Tag("function_call")]
    | Annotated[NeMoGymFunctionCallOutput, Tag("function_call_output")]
    | Annotated[NeMoGymResponseReasoningItem, Tag("reasoning")]
    | Annotated[NeMoGymResponseMcpCall, Tag("mcp_call")]
    | Annotated[NeMoGymResponseMcpListTools, Tag("mcp_list_tools")]
    | Annotated[NeMoGymResponseMcpApprovalRequest, Tag("mcp_approval_request")]
    | Annotated[NeMoGymMcpApprovalResponse, Tag("mcp_approval_response")]
    | Annotated[NeMoGymResponseFileSearchToolCall, Tag("file_search_call")]
    | Annotated[NeMoGymResponseFunctionWebSearch, Tag("web_search_call")]
    | Annotated[NeMoGymResponseComputerToolCall, Tag("computer_call")]
    | Annotated[NeMoGymComputerCallOutput, Tag("computer_call_output")]
    | Annotated[NeMoGymImageGenerationCall, Tag("image_generation_call")]
    | Annotated[NeMoGymResponseCodeInterpreterToolCall, Tag("code_interpreter_call")]
    | Annotated[NeMoGymLocalShellCall, Tag("local_shell_call")]
    | Annotated[NeMoGymLocalShellCallOutput, Tag("local_shell_call_output")]
    | Annotated[NeMoGymResponseCustomToolCall, Tag("custom_tool_call")]
    | Annotated[NeMoGymResponseCustomToolCallOutput, Tag("custom_tool_call_output")]
    | Annotated[NeMoGymEasyInputMessageForTraining, Tag("easy+tokens")]
    | Annotated[NeMoGymMessageForTraining, Tag("message+tokens")]
    | Annotated[NeMoGymResponseOutputMessageForTraining, Tag("output+tokens")]
    | Annotated[NeMoGymResponseFunctionToolCallForTraining, Tag("function_call+tokens")]
    | Annotated[NeMoGymResponseReasoningItemForTraining, Tag("reasoning+tokens")]
)
# Serialized by the item's class: pydantic would try the members of the union in turn.
NeMoGymResponseInputItem: TypeAlias = Annotated[_Item, Discriminator(_tag), SerializeAsAny()]
NeMoGymResponseOutputItem: TypeAlias = Annotated[
    _Item,
    Discriminator(
        _output_tag,
        custom_error_type="output_item_type",
        custom_error_message="an output item must say its `type`, which must be one of the Responses API",
    ),
    SerializeAsAny(),
]
_ITEM: Final[TypeAdapter[Any]] = TypeAdapter(NeMoGymResponseInputItem)


def _as_tool_lists(value: Any, validate: Callable[[Any], Any]) -> Any:
    """Take untyped objects that are no other item for lists of tools, as NeMo Gym does."""
    try:
        return validate(value)
    except ValidationError:
        if not isinstance(value, list) or not any(_is_untyped(item) for item in value):
            raise
    return validate([_as_item(item) if _is_untyped(item) else item for item in value])


def _is_untyped(item: Any) -> bool:
    return isinstance(item, dict) and "type" not in item


def _as_item(item: dict[str, Any]) -> Any:
    try:
        return _ITEM.validate_python(item)
    except ValidationError:
        return {**item, "type": "mcp_list_tools"}


NeMoGymResponseInput: TypeAlias = Annotated[list[NeMoGymResponseInputItem], WrapValidator(_as_tool_lists)]
