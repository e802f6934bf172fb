"""The Responses API requests and replies of `nemo_gym.openai_utils`."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from gymnast.compat.nemo_gym.hosted_types import Open
from gymnast.compat.nemo_gym.item_types import NeMoGymResponseInput, NeMoGymResponseOutputItem
from gymnast.types.items import FunctionTool, Tool
from gymnast.types.responses import sum_usage

Metadata: TypeAlias = dict[str, str]
ToolParam: TypeAlias = Tool
ToolChoice: TypeAlias = Literal["none", "auto", "required"] | dict[str, Any]
NeMoGymFunctionToolParam = FunctionTool


class ResponsePart(Open):
    """Part of a reply."""


class IncompleteDetails(ResponsePart):
    reason: str | None = None  # also limits of an agent, such as max_model_calls


class ResponseError(ResponsePart):
    code: str
    message: str


class Reasoning(ResponsePart):
    effort: str | None = None
    generate_summary: str | None = None
    summary: str | None = None


class ResponseText(ResponsePart):
    """The form of the text that a request asks for."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ResponseTool(ResponsePart):
    """A tool that the endpoint runs, as replies repeat it."""

    type: str


class ResponseFunctionTool(ResponsePart):
    name: str
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    type: Literal["function"] = "function"
    description: str | None = None


def _tool_tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "function" if kind == "function" else "hosted"


AnyResponseTool: TypeAlias = Annotated[
    Annotated[ResponseFunctionTool, Tag("function")] | Annotated[ResponseTool, Tag("hosted")], Discriminator(_tool_tag)
]


class NeMoGymResponseInputTokensDetails(ResponsePart):
    cached_tokens: int | None


class NeMoGymResponseOutputTokensDetails(ResponsePart):
    reasoning_tokens: int | None


class NeMoGymResponseUsage(ResponsePart):
    """The usage of a call or a whole rollout."""

    input_tokens: int
    input_tokens_details: NeMoGymResponseInputTokensDetails
    output_tokens: int
    output_tokens_details: NeMoGymResponseOutputTokensDetails
    total_tokens: int

    @classmethod
    def sum_from_list(cls, usages: "list[NeMoGymResponseUsage]") -> "NeMoGymResponseUsage":
        """Sum usages; a detail that one of them lacks is missing from the sum."""
        total: NeMoGymResponseUsage | None = None
        for usage in usages:
            total = accumulate_response_usage(total, usage)
        nothing = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        return total or cls.model_validate(
            {**nothing, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        )


def accumulate_response_usage(
    total: NeMoGymResponseUsage | None, additional: NeMoGymResponseUsage | None
) -> NeMoGymResponseUsage | None:
    """Add two usages, either of which may be missing."""
    first, second = (usage.model_dump() if usage is not None else None for usage in (total, additional))
    summed = sum_usage(first, second)  # type: ignore[arg-type] # dumps of the models have this form
    return None if summed is None else NeMoGymResponseUsage.model_validate(summed)


class NeMoGymResponse(ResponsePart):
    """A Responses object. Fields are in the order of the contract."""

    id: str
    created_at: float
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | NeMoGymResponseInput | None = None
    metadata: Metadata | None = None
    model: str
    object: Literal["response"]
    output: list[NeMoGymResponseOutputItem]
    parallel_tool_calls: bool
    temperature: float | None = None
    tool_choice: ToolChoice
    tools: list[AnyResponseTool]
    top_p: float | None = None
    background: bool | None = None
    conversation: ResponsePart | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    previous_response_id: str | None = None
    prompt: ResponsePart | None = None
    prompt_cache_key: str | None = None
    reasoning: Reasoning | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    status: Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"] | None = None
    text: ResponseText | None = None
    top_logprobs: int | None = None
    truncation: str | None = None
    usage: NeMoGymResponseUsage | None = None
    user: str | None = None

    @property
    def output_text(self) -> str:
        parts = [part for item in self.output if getattr(item, "type", None) == "message" for part in _parts(item)]
        return "".join([part.text for part in parts if getattr(part, "type", None) == "output_text"])


def _parts(item: Any) -> list[Any]:
    return item.content if isinstance(item.content, list) else []


class NeMoGymResponseCreateParamsNonStreaming(BaseModel):
    """A request to a model. Unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid")
    background: bool | None = None
    include: list[str] | None = None
    input: str | NeMoGymResponseInput
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: Metadata | None = None
    model: str | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    store: bool | None = None
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: ToolChoice = "auto"
    tools: list[ToolParam] = Field(default_factory=list)
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    stream: Literal[False] | None = None
