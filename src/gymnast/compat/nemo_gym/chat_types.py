"""The Chat Completions types of `nemo_gym.openai_utils`: replies as models, messages of requests as dictionaries."""

from typing import Annotated, Any, Literal, Required, TypeAlias

from pydantic import BaseModel, Discriminator, Tag
from typing_extensions import TypedDict

from gymnast.compat.nemo_gym.item_types import TokenIDLogProbMixin, TokenIDLogProbTypedDictMixin
from gymnast.compat.nemo_gym.response_types import Metadata, ResponsePart


class NeMoGymFunction(BaseModel):
    arguments: str
    name: str


class NeMoGymChatCompletionMessageToolCall(ResponsePart):
    id: str
    function: NeMoGymFunction
    type: Literal["function"] = "function"


class CustomCall(BaseModel):
    input: str
    name: str


class NeMoGymChatCompletionMessageCustomToolCall(ResponsePart):
    """A call of a custom tool, whose input is free text."""

    id: str
    custom: CustomCall
    type: Literal["custom"]


def _call_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "custom" if kind == "custom" else "function"


NeMoGymChatCompletionMessageToolCallUnion: TypeAlias = Annotated[
    Annotated[NeMoGymChatCompletionMessageToolCall, Tag("function")]
    | Annotated[NeMoGymChatCompletionMessageCustomToolCall, Tag("custom")],
    Discriminator(_call_kind),
]


class NeMoGymChatCompletionMessage(ResponsePart):
    content: str | None = None
    refusal: str | None = None
    role: Literal["assistant"]
    annotations: list[dict[str, Any]] | None = None
    audio: dict[str, Any] | None = None
    function_call: dict[str, Any] | None = None
    tool_calls: list[NeMoGymChatCompletionMessageToolCallUnion] | None = None


class NeMoGymChatCompletionMessageForTraining(NeMoGymChatCompletionMessage, TokenIDLogProbMixin):
    """An assistant message with its tokens."""


def _has_tokens(value: Any) -> str:
    token_ids = (
        value.get("generation_token_ids") if isinstance(value, dict) else getattr(value, "generation_token_ids", None)
    )
    return "plain" if token_ids is None else "tokens"


NeMoGymChatCompletionOutputMessage: TypeAlias = Annotated[
    Annotated[NeMoGymChatCompletionMessage, Tag("plain")]
    | Annotated[NeMoGymChatCompletionMessageForTraining, Tag("tokens")],
    Discriminator(_has_tokens),
]


class NeMoGymChoice(ResponsePart):
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter", "function_call"]
    index: int
    logprobs: ResponsePart | None = None
    message: NeMoGymChatCompletionOutputMessage


class CompletionUsage(ResponsePart):
    completion_tokens: int
    prompt_tokens: int
    total_tokens: int
    completion_tokens_details: ResponsePart | None = None
    prompt_tokens_details: ResponsePart | None = None


class NeMoGymChatCompletion(ResponsePart):
    id: str
    choices: list[NeMoGymChoice]
    created: int
    model: str
    object: Literal["chat.completion"]
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: CompletionUsage | None = None


# --- messages of requests --------------------------------------------------------------------------------------------


class NeMoGymChatCompletionContentPartTextParam(TypedDict, total=False):
    text: Required[str]
    type: Required[Literal["text"]]


class NeMoGymChatCompletionContentPartImageParam(TypedDict, total=False):
    image_url: Required[dict[str, Any]]
    type: Required[Literal["image_url"]]


class NeMoGymChatCompletionContentPartInputAudioParam(TypedDict, total=False):
    input_audio: Required[dict[str, Any]]
    type: Required[Literal["input_audio"]]


class NeMoGymChatCompletionContentPartFileParam(TypedDict, total=False):
    file: Required[dict[str, Any]]
    type: Required[Literal["file"]]


class NeMoGymChatCompletionContentPartVideoUrlParam(TypedDict, total=False):
    video_url: Required[str | dict[str, Any]]
    type: Required[Literal["video_url"]]


NeMoGymChatCompletionContentPartParam: TypeAlias = dict[str, Any]
"""Parts are not validated here: endpoints add their own kinds."""
_Texts: TypeAlias = str | list[NeMoGymChatCompletionContentPartTextParam]


class NeMoGymChatCompletionMessageToolCallFunctionParam(TypedDict):
    arguments: Required[str]
    name: Required[str]


class NeMoGymChatCompletionMessageToolCallParam(TypedDict, total=False):
    id: Required[str]
    function: Required[NeMoGymChatCompletionMessageToolCallFunctionParam]
    type: Required[Literal["function"]]


class NeMoGymChatCompletionMessageCustomToolCallParam(TypedDict, total=False):
    id: Required[str]
    custom: Required[dict[str, Any]]
    type: Required[Literal["custom"]]


NeMoGymChatCompletionMessageToolCallUnionParam: TypeAlias = Annotated[
    Annotated[NeMoGymChatCompletionMessageToolCallParam, Tag("function")]
    | Annotated[NeMoGymChatCompletionMessageCustomToolCallParam, Tag("custom")],
    Discriminator(_call_kind),
]


class NeMoGymChatCompletionDeveloperMessageParam(TypedDict, total=False):
    content: Required[_Texts]
    role: Required[Literal["developer"]]
    name: str


class NeMoGymChatCompletionSystemMessageParam(TypedDict, total=False):
    content: Required[_Texts]
    role: Required[Literal["system"]]
    name: str


class NeMoGymChatCompletionUserMessageParam(TypedDict, total=False):
    content: Required[str | list[NeMoGymChatCompletionContentPartParam]]
    role: Required[Literal["user"]]
    name: str


class NeMoGymChatCompletionToolMessageParam(TypedDict, total=False):
    content: Required[_Texts]
    role: Required[Literal["tool"]]
    tool_call_id: Required[str]


class NeMoGymChatCompletionAssistantMessageParam(TypedDict, total=False):
    role: Required[Literal["assistant"]]
    audio: dict[str, Any] | None
    content: str | list[dict[str, Any]] | None
    name: str
    refusal: str | None
    tool_calls: list[NeMoGymChatCompletionMessageToolCallUnionParam] | None
    reasoning_content: str | None
    reasoning: str | None


class NeMoGymChatCompletionAssistantMessageForTrainingParam(
    NeMoGymChatCompletionAssistantMessageParam, TokenIDLogProbTypedDictMixin
):
    """An assistant message with its tokens."""


def _role(message: Any) -> str | None:
    if not isinstance(message, dict):
        return None
    role = message.get("role")
    return f"{role}+tokens" if role == "assistant" and message.get("generation_token_ids") is not None else role


NeMoGymChatCompletionMessageParam: TypeAlias = Annotated[
    Annotated[NeMoGymChatCompletionDeveloperMessageParam, Tag("developer")]
    | Annotated[NeMoGymChatCompletionSystemMessageParam, Tag("system")]
    | Annotated[NeMoGymChatCompletionUserMessageParam, Tag("user")]
    | Annotated[NeMoGymChatCompletionToolMessageParam, Tag("tool")]
    | Annotated[NeMoGymChatCompletionAssistantMessageParam, Tag("assistant")]
    | Annotated[NeMoGymChatCompletionAssistantMessageForTrainingParam, Tag("assistant+tokens")],
    Discriminator(_role),
]


class NeMoGymFunctionDefinition(TypedDict, total=False):
    name: Required[str]
    description: str
    parameters: dict[str, Any]
    strict: bool | None


class NeMoGymChatCompletionToolParam(TypedDict, total=False):
    function: Required[NeMoGymFunctionDefinition]
    type: Required[Literal["function"]]


class NeMoGymChatCompletionCustomToolParam(TypedDict, total=False):
    custom: Required[dict[str, Any]]
    type: Required[Literal["custom"]]


NeMoGymChatCompletionToolUnionParam: TypeAlias = Annotated[
    Annotated[NeMoGymChatCompletionToolParam, Tag("function")]
    | Annotated[NeMoGymChatCompletionCustomToolParam, Tag("custom")],
    Discriminator(_call_kind),
]


class NeMoGymChatCompletionCreateParamsNonStreaming(BaseModel):
    """A request for a chat completion. Unknown keys are dropped."""

    messages: list[NeMoGymChatCompletionMessageParam]
    model: str | None = None
    audio: dict[str, Any] | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, int] | None = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    metadata: Metadata | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    n: int | None = None
    parallel_tool_calls: bool = True
    prediction: dict[str, Any] | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    seed: int | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    stream_options: dict[str, Any] | None = None
    temperature: float | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[NeMoGymChatCompletionToolUnionParam] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None
    web_search_options: dict[str, Any] | None = None
    stream: Literal[False] | None = None
