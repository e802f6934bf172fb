"""The Responses API items of `nemo_gym.openai_utils`: pydantic models, with content parts as dictionaries.

The contract defines the fields, regardless of the installed version of the openai package, which is not needed here.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, Literal, Required, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, SerializeAsAny, Tag, model_validator
from typing_extensions import TypedDict

from gymnast.types.items import HOSTED_ITEM_TYPES, InputFile, InputImage, InputPart, Status

REQUIRED_TOKEN_METADATA_FIELDS: Final = frozenset({"prompt_token_ids", "generation_token_ids", "generation_log_probs"})
TOKEN_METADATA_FIELDS: Final = REQUIRED_TOKEN_METADATA_FIELDS | {"routed_experts"}

RoutedExperts: TypeAlias = str | list[list[list[int]]]
NeMoGymResponseInputContent: TypeAlias = InputPart
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


class Open(BaseModel):
    """An API type that keeps undeclared fields."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _as_data(cls, value: Any) -> Any:
        if type(value) is dict:  # `isinstance` of an abstract class costs three times as much, for every part
            return value
        # Not from attributes: pydantic would miss the undeclared fields.
        return value.model_dump() if isinstance(value, BaseModel) and not isinstance(value, cls) else value


class NeMoGymHostedItem(Open):
    """A call of a tool that the endpoint runs. Its fields are readable as attributes and as keys."""

    type: str

    def __getitem__(self, name: str) -> Any:
        return {"type": self.type, **(self.__pydantic_extra__ or {})}[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or the default if it is missing."""
        return getattr(self, name, default)


class Annotation(Open):
    """An annotation of a text."""

    type: str | None = None


class Logprob(BaseModel):
    """The logprobs of a token. There is one per token, so they are not validated."""

    model_config = ConfigDict(extra="allow")


class ReasoningContent(Open):
    """A part of the full reasoning."""

    text: str | None = None
    type: str | None = None


class NeMoGymSummary(Open):
    """A part of a reasoning summary."""

    text: str
    type: Literal["summary_text"]


class NeMoGymEasyInputMessage(_Own):
    """A message of a conversation."""

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
    """Text of a model."""

    annotations: list[Annotation]
    text: str
    type: Literal["output_text"] = "output_text"
    logprobs: list[Logprob] | None = None


class NeMoGymResponseOutputRefusal(_Own):
    """A refusal of a model."""

    refusal: str
    type: Literal["refusal"] = "refusal"


NeMoGymContent: TypeAlias = Annotated[NeMoGymResponseOutputText | NeMoGymResponseOutputRefusal, Discriminator("type")]


class NeMoGymResponseOutputMessage(_Own):
    """A message of a model."""

    id: str
    content: list[NeMoGymContent]
    role: Literal["assistant"] = "assistant"
    status: Status = "completed"
    type: Literal["message"] = "message"


class NeMoGymResponseFunctionToolCall(_Own):
    """A tool call."""

    arguments: str
    call_id: str
    name: str
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    status: Status | None = None


class NeMoGymFunctionCallOutput(_Own):
    """The output of a tool call."""

    call_id: str
    output: str | NeMoGymResponseInputContentList
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: Status | None = None


class NeMoGymResponseReasoningItem(_Own):
    """The reasoning of a model."""

    id: str
    summary: list[NeMoGymSummary]
    type: Literal["reasoning"] = "reasoning"
    encrypted_content: str | None = None
    content: list[ReasoningContent] | None = None


class NeMoGymResponseOutputMessageForTraining(NeMoGymResponseOutputMessage, TokenIDLogProbMixin):
    """A message with its tokens."""


class NeMoGymResponseFunctionToolCallForTraining(NeMoGymResponseFunctionToolCall, TokenIDLogProbMixin):
    """A call with its tokens."""


class NeMoGymResponseReasoningItemForTraining(NeMoGymResponseReasoningItem, TokenIDLogProbMixin):
    """Reasoning with its tokens."""


# --- the union -------------------------------------------------------------------------------------------------------

_OWN: Final = frozenset({"function_call", "function_call_output", "reasoning"})
_TRAINED: Final = frozenset({"output", "function_call", "reasoning"})


def _tag(value: Any) -> str | None:
    """The model class of an item: by its type, for messages by their role, and by whether it has tokens.

    Called for every item of every history, so it must be fast.
    """
    get = value.get if isinstance(value, dict) else partial(getattr, value)
    kind = get("type", None)
    if kind in _OWN:
        tag: str = kind
    elif kind and kind != "message":
        return "hosted" if kind in HOSTED_ITEM_TYPES else None
    elif isinstance(content := get("content", None), str):
        return "easy"
    else:
        tag = _message_tag(get, content)
    if tag not in _TRAINED or (
        get("generation_token_ids", None) is None
        and get("prompt_token_ids", None) is None
        and get("generation_log_probs", None) is None
    ):
        return tag
    return f"{tag}+tokens"


def _message_tag(get: Callable[[str, Any], Any], content: Any) -> str:
    if get("role", None) != "assistant":
        return "message" if get("status", None) is not None else "easy"
    if not content:
        return "output" if get("id", None) is not None else "easy"
    first = content[0]
    part = first.get("type") if isinstance(first, dict) else getattr(first, "type", None)
    return "easy" if part is not None and part.startswith("input") else "output"


def _output_tag(value: Any) -> str | None:
    """The same for an item of a reply, which must say its type."""
    return None if isinstance(value, dict) and not value.get("type") else _tag(value)


_Item: TypeAlias = (
    Annotated[NeMoGymEasyInputMessage, Tag("easy")]
    | Annotated[NeMoGymMessage, Tag("message")]
    | Annotated[NeMoGymResponseOutputMessage, Tag("output")]
    | Annotated[NeMoGymResponseFunctionToolCall, Tag("function_call")]
    | Annotated[NeMoGymFunctionCallOutput, Tag("function_call_output")]
    | Annotated[NeMoGymResponseReasoningItem, Tag("reasoning")]
    | Annotated[NeMoGymResponseOutputMessageForTraining, Tag("output+tokens")]
    | Annotated[NeMoGymResponseFunctionToolCallForTraining, Tag("function_call+tokens")]
    | Annotated[NeMoGymResponseReasoningItemForTraining, Tag("reasoning+tokens")]
    | Annotated[NeMoGymHostedItem, Tag("hosted")]
)
# Serialized by the item's class: pydantic would try the members of the union in turn.
NeMoGymResponseInputItem: TypeAlias = Annotated[_Item, Discriminator(_tag), SerializeAsAny()]
NeMoGymResponseInput: TypeAlias = list[NeMoGymResponseInputItem]
NeMoGymResponseOutputItem: TypeAlias = Annotated[
    _Item,
    Discriminator(
        _output_tag,
        custom_error_type="item_type",
        custom_error_message="an output item must say its `type`, and it must be one of the Responses API",
    ),
    SerializeAsAny(),
]
