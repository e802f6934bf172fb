"""The Chat Completions types of `nemo_gym.openai_utils`: replies as models, messages of requests as dictionaries."""

from typing import Annotated, Any, Literal, Required, TypeAlias

from pydantic import BaseModel, Discriminator, Tag
from typing_extensions import TypedDict

from gymnast.compat.nemo_gym.item_types import TokenIDLogProbMixin, TokenIDLogProbTypedDictMixin
from gymnast.compat.nemo_gym.response_types import Metadata, ResponsePart


class NeMoGymFunction(BaseModel):
    """The function of a tool call."""

    arguments: str
    name: str


class NeMoGymChatCompletionMessageToolCall(ResponsePart):
    """A tool call."""

    id: str
    function: NeMoGymFunction
    type: Literal["function"] = "function"


NeMoGymChatCompletionMessageToolCallUnion: TypeAlias = NeMoGymChatCompletionMessageToolCall


class NeMoGymChatCompletionMessage(ResponsePart):
    """An assistant message."""

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
    found = (
        value.get("generation_token_ids") if isinstance(value, dict) else getattr(value, "generation_token_ids", None)
    )
    return "plain" if found is None else "tokens"


NeMoGymChatCompletionOutputMessage: TypeAlias = Annotated[
    Annotated[NeMoGymChatCompletionMessage, Tag("plain")]
    | Annotated[NeMoGymChatCompletionMessageForTraining, Tag("tokens")],
    Discriminator(_has_tokens),
]


class NeMoGymChoice(ResponsePart):
    """A choice of a completion."""

    finish_reason: Literal["stop", "length", "tool_calls", "content_filter", "function_call"]
    index: int
    logprobs: ResponsePart | None = None
    message: NeMoGymChatCompletionOutputMessage


class CompletionUsage(ResponsePart):
    """The usage of a chat completion."""

    completion_tokens: int
    prompt_tokens: int
    total_tokens: int
    completion_tokens_details: ResponsePart | None = None
    prompt_tokens_details: ResponsePart | None = None


class NeMoGymChatCompletion(ResponsePart):
    """A chat completion."""

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
    """A text part."""

    text: Required[str]
    type: Required[Literal["text"]]


NeMoGymChatCompletionContentPartParam: TypeAlias = dict[str, Any]
_Texts: TypeAlias = str | list[NeMoGymChatCompletionContentPartTextParam]


class NeMoGymChatCompletionMessageToolCallFunctionParam(TypedDict):
    """The function of a tool call."""

    arguments: Required[str]
    name: Required[str]


class NeMoGymChatCompletionMessageToolCallParam(TypedDict, total=False):
    """A tool call in the history."""

    id: Required[str]
    function: Required[NeMoGymChatCompletionMessageToolCallFunctionParam]
    type: Required[Literal["function"]]


NeMoGymChatCompletionMessageToolCallUnionParam: TypeAlias = NeMoGymChatCompletionMessageToolCallParam


class NeMoGymChatCompletionDeveloperMessageParam(TypedDict, total=False):
    """A developer message."""

    content: Required[_Texts]
    role: Required[Literal["developer"]]
    name: str


class NeMoGymChatCompletionSystemMessageParam(TypedDict, total=False):
    """A system message."""

    content: Required[_Texts]
    role: Required[Literal["system"]]
    name: str


class NeMoGymChatCompletionUserMessageParam(TypedDict, total=False):
    """A user message."""

    content: Required[str | list[NeMoGymChatCompletionContentPartParam]]
    role: Required[Literal["user"]]
    name: str


class NeMoGymChatCompletionToolMessageParam(TypedDict, total=False):
    """A tool message."""

    content: Required[_Texts]
    role: Required[Literal["tool"]]
    tool_call_id: Required[str]


class NeMoGymChatCompletionAssistantMessageParam(TypedDict, total=False):
    """An assistant message in the history."""

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
    """The declaration of a function."""

    name: Required[str]
    description: str
    parameters: dict[str, Any]
    strict: bool | None


class NeMoGymChatCompletionToolParam(TypedDict, total=False):
    """The declaration of a tool."""

    function: Required[NeMoGymFunctionDefinition]
    type: Required[Literal["function"]]


NeMoGymChatCompletionToolUnionParam: TypeAlias = NeMoGymChatCompletionToolParam


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
