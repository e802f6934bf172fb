"""`nemo_gym.responses_converter`: converts between Responses and Chat Completions, by the rules of the contract."""

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import uuid4  # tests of model servers replace it here

from pydantic import BaseModel

from gymnast.compat.nemo_gym.chat_types import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionToolParam,
    NeMoGymChoice,
)
from gymnast.compat.nemo_gym.item_types import TOKEN_METADATA_FIELDS, NeMoGymResponseOutputItem
from gymnast.compat.nemo_gym.response_types import (
    NeMoGymFunctionToolParam,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.types.responses import message_text, reasoning_texts
from gymnast.wire.dialects.chat_replies import completion_to_response, message_to_items, split_thinking
from gymnast.wire.dialects.chat_requests import NotConvertible, chat_to_params, params_to_chat, wrap_thinking
from gymnast.wire.validate import validate_items


@dataclass(slots=True)
class ResponsesConverterState:
    """A conversation while it is converted: the finished messages and the assistant turn in progress."""

    return_token_id_information: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)
    content_buffer: str = ""
    tool_calls_buffer: list[dict[str, Any]] = field(default_factory=list)
    token_information: dict[str, Any] = field(default_factory=dict)
    in_assistant_turn: bool = False

    def flush_assistant(self) -> None:
        if not self.in_assistant_turn:
            return
        message: dict[str, Any] = {"role": "assistant", "content": self.content_buffer or None}
        if self.tool_calls_buffer:
            message["tool_calls"] = self.tool_calls_buffer
        self.messages.append(message | self.token_information)
        self.content_buffer, self.tool_calls_buffer, self.token_information = "", [], {}
        self.in_assistant_turn = False

    def take_tokens(self, item: dict[str, Any]) -> None:
        """Keep the tokens of an item: those on the last item with any belong to the turn."""
        tokens = {name: item[name] for name in TOKEN_METADATA_FIELDS if item.get(name) is not None}
        if self.return_token_id_information and tokens:
            self.token_information = tokens


class ResponsesConverter(BaseModel):
    """Converts requests and replies."""

    return_token_id_information: bool
    uses_reasoning_parser: bool = True
    THINK_TAG_PATTERN: ClassVar[re.Pattern[str]] = re.compile(r"<think>(.*?)</think>", re.DOTALL)

    @staticmethod
    def _wrap_reasoning_in_think_tags(texts: list[str]) -> str:
        return "".join(wrap_thinking(text) for text in texts)

    @classmethod
    def _parse_think_tags(cls, content: str) -> tuple[list[str], str]:
        return split_thinking(content)

    def _extract_reasoning_from_content(self, content: str) -> tuple[list[str], str]:
        return self._parse_think_tags(content)

    # --- requests ----------------------------------------------------------------------------------------------------

    def responses_to_chat_completion_create_params(
        self, responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymChatCompletionCreateParamsNonStreaming:
        """Convert a Responses request to a chat request."""
        params = responses_create_params.model_dump(mode="json", exclude_unset=True)
        value = params["input"]
        items = (
            [{"role": "user", "content": [{"type": "input_text", "text": value}]}] if isinstance(value, str) else value
        )
        state = ResponsesConverterState(self.return_token_id_information)
        for item in items:
            self._format_item(item, state)
        state.flush_assistant()
        body, _ = params_to_chat({**params, "input": "", "instructions": params.get("instructions")})  # type: ignore[typeddict-item] # validated by the model
        leading = body["messages"][:-1]  # what the instructions became, without the empty input
        body["messages"] = _with_leading(leading, state.messages)
        return NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(body)

    def _format_item(self, item: dict[str, Any], state: ResponsesConverterState) -> None:
        match item.get("type") or "message":
            case "message":
                self._format_message(item, state)
            case "reasoning":
                self._format_reasoning(item, state)
            case "function_call":
                self._format_function_call(item, state)
            case "function_call_output":
                self._format_function_call_output(item, state)
            case other:
                raise NotImplementedError(f"items of type '{other}' have no counterpart in Chat Completions")

    def _format_function_call_output(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        state.flush_assistant()
        state.messages += _as_messages(m)

    def _format_message(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        if m["role"] != "assistant":
            state.flush_assistant()
            state.messages += _as_messages(m)
            return
        state.in_assistant_turn = True
        state.content_buffer += m["content"] if isinstance(m["content"], str) else message_text(m)
        state.take_tokens(m)

    def _format_reasoning(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        state.in_assistant_turn = True
        state.content_buffer += self._wrap_reasoning_in_think_tags(reasoning_texts(m))
        state.take_tokens(m)

    def _format_function_call(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        state.in_assistant_turn = True
        function = {"name": m["name"], "arguments": m["arguments"]}
        state.tool_calls_buffer.append({"id": m["call_id"], "function": function, "type": "function"})
        state.take_tokens(m)

    def _chat_completion_to_responses_tools(
        self, chat_completions_tools: list[NeMoGymChatCompletionToolParam] | None
    ) -> list[NeMoGymFunctionToolParam]:
        tools: list[NeMoGymFunctionToolParam] = []
        for tool in chat_completions_tools or ():
            function: dict[str, Any] = dict(tool["function"])
            tools.append(
                {
                    "type": "function",
                    "name": function["name"],
                    "description": function.get("description"),
                    "parameters": function.get("parameters"),
                    "strict": function.get("strict"),
                }
            )
        return tools

    def chat_completion_to_responses_create_params(
        self, chat_completion_create_params: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> NeMoGymResponseCreateParamsNonStreaming:
        """Convert a chat request to a Responses request."""
        params = chat_to_params(chat_completion_create_params.model_dump(mode="json", exclude_none=True))
        return NeMoGymResponseCreateParamsNonStreaming.model_validate(params)

    # --- replies -----------------------------------------------------------------------------------------------------

    def postprocess_chat_response(self, choice: NeMoGymChoice) -> list[NeMoGymResponseOutputItem]:
        return self.postprocess_assistant_message_dict(choice.message.model_dump(mode="json"))

    def postprocess_assistant_message_dict(self, message_dict: dict[str, Any]) -> list[NeMoGymResponseOutputItem]:
        """Convert an assistant message to output items; the last one gets the tokens."""
        items: list[Any] = message_to_items(message_dict, new_id=_new_id, parse_thinking=self.uses_reasoning_parser)
        tokens = {name: message_dict[name] for name in TOKEN_METADATA_FIELDS if message_dict.get(name) is not None}
        if self.return_token_id_information and tokens:
            items[-1] = {**items[-1], **tokens}
        return _models(items)

    def chat_completions_messages_to_responses_items(
        self, messages: list[dict[str, Any]]
    ) -> list[NeMoGymResponseOutputItem]:
        items: list[NeMoGymResponseOutputItem] = []
        for message in messages:
            if message["role"] == "assistant":
                items += self.postprocess_assistant_message_dict(message)
            else:
                items += _models(chat_to_params({"messages": [message]})["input"])
        return items

    def chat_completion_to_response(
        self,
        responses_create_params: NeMoGymResponseCreateParamsNonStreaming,
        chat_completion: NeMoGymChatCompletion,
    ) -> NeMoGymResponse:
        params: Any = responses_create_params.model_dump(mode="json", exclude_unset=True)
        completion = chat_completion.model_dump(mode="json")
        response: dict[str, Any] = dict(
            completion_to_response(
                completion, params, model=chat_completion.model, new_id=_new_id, parse_thinking=False
            )
        )
        response["output"] = self.postprocess_chat_response(chat_completion.choices[0])
        return NeMoGymResponse.model_validate(response)


def _new_id(prefix: str) -> str:
    return f"{prefix}{uuid4().hex}"


def _as_messages(item: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        messages: list[dict[str, Any]] = params_to_chat({"input": validate_items([item])})[0]["messages"]
    except NotConvertible as error:
        raise NotImplementedError(str(error)) from error
    return messages


def _with_leading(leading: list[dict[str, Any]], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Prepend the instructions; leading system and developer messages are folded into them."""
    if not leading:
        return messages
    texts, rest = [leading[0]["content"]], list(messages)
    while rest and rest[0]["role"] in {"system", "developer"}:
        content = rest.pop(0)["content"]
        texts.append(content if isinstance(content, str) else "".join(part.get("text", "") for part in content))
    return [{"role": "system", "content": "\n\n".join(texts)}, *rest]


def _models(items: list[Any]) -> list[NeMoGymResponseOutputItem]:
    holder = NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": items})
    assert not isinstance(holder.input, str)
    return holder.input


def split_responses_input_output_items(
    items: list[NeMoGymResponseOutputItem],
) -> tuple[list[NeMoGymResponseOutputItem], list[NeMoGymResponseOutputItem]]:
    """Split a conversation at the first item that the model produced."""
    for index, item in enumerate(items):
        kind = _field(item, "type") or "message"
        if kind in {"reasoning", "function_call"} or (kind == "message" and _field(item, "role") == "assistant"):
            return items[:index], items[index:]
    return items, []


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else getattr(item, name, None)


def _usage_detail(usage: Any, detail_group: str, detail_name: str, *top_level_aliases: str) -> int | None:
    """Read a detail of a usage object of any form; None if it is missing."""
    if usage is None:
        return None
    group = _field(usage, detail_group)
    values = [_field(group, detail_name)] if group is not None else []
    values += [_field(usage, alias) for alias in top_level_aliases]
    return next((int(value) for value in values if value is not None), None)


VLLMConverter = ResponsesConverter
VLLMConverterResponsesToChatCompletionsState = ResponsesConverterState

__getattr__ = missing_from("nemo_gym.responses_converter")
