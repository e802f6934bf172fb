"""Types of the surface made of what the openai package has for them, as model servers and tests do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseReasoningItem,
)
from openai.types.chat import ChatCompletion
from openai.types.completion_usage import CompletionUsage
from openai.types.responses import FunctionTool, ResponseFunctionToolCall, ResponseOutputText
from openai.types.responses.response import IncompleteDetails
from openai.types.responses.response_reasoning_item import Summary
from pydantic import ValidationError

from tests.contract.test_nemo_gym_hosting import RESPONSE


def test_parts_of_a_response() -> None:
    tool = FunctionTool(type="function", name="f", parameters={"a": 1}, strict=True)
    call = ResponseFunctionToolCall(type="function_call", call_id="c", name="f", arguments="{}")
    given: Any = {
        **RESPONSE,
        "tools": [tool],
        "output": [call],
        "incomplete_details": IncompleteDetails(reason="max_output_tokens"),
    }
    response = NeMoGymResponse(**given)
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].name == "f"  # type: ignore[union-attr] # a call
    dumped = response.model_dump()["tools"][0]
    assert (dumped["name"], dumped["parameters"]) == ("f", {"a": 1})


def test_parts_of_items() -> None:
    text: Any = ResponseOutputText(type="output_text", text="hi", annotations=[])
    assert NeMoGymResponseOutputMessage(id="m", content=[text]).content[0].text == "hi"  # type: ignore[union-attr] # a text
    summary: Any = Summary(type="summary_text", text="why")
    assert NeMoGymResponseReasoningItem(id="r", summary=[summary]).summary[0].text == "why"


def test_a_chat_completion_and_its_parts() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    base: dict[str, Any] = {"id": "c", "created": 0, "model": "m", "object": "chat.completion"}
    theirs = ChatCompletion.model_validate({**base, "choices": [choice]})
    usage: Any = CompletionUsage(completion_tokens=1, prompt_tokens=2, total_tokens=3)
    choices: Any = theirs.choices
    made = NeMoGymChatCompletion(**base, choices=choices, usage=usage)
    assert made.usage is not None
    assert made.usage.total_tokens == 3
    whole = NeMoGymChatCompletion.model_validate(theirs)
    said: Any = theirs.choices[0].message
    for found in (made.choices[0], whole.choices[0], NeMoGymChoice(index=0, finish_reason="stop", message=said)):
        assert found.message.tool_calls is not None
        assert found.message.tool_calls[0].function.name == "f"  # type: ignore[union-attr] # a function


def test_items_of_hosted_tools_can_be_asked_for_their_type() -> None:
    """Servers look at `item.type` of everything that a model put out."""
    item = {"type": "mcp_call", "id": "1", "arguments": "{}", "name": "f", "server_label": "s"}
    response = NeMoGymResponse.model_validate({**RESPONSE, "output": [item]})
    found: Any = response.output[0]
    assert (found.type, found.name, found["server_label"], found.get("error")) == ("mcp_call", "f", "s", None)
    nothing = {"approval_request_id": None, "error": None, "output": None, "status": None}
    assert response.model_dump()["output"] == [{**item, **nothing}]
    with pytest.raises(KeyError):
        found["nothing"]


TOKENS = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
PARTS = [{"type": "input_text", "text": "x"}]


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"role": "user", "content": "hi"}, "NeMoGymEasyInputMessage"),
        ({"role": "developer", "content": PARTS, "status": "bad"}, "NeMoGymEasyInputMessage"),
        ({"role": "developer", "content": PARTS, "status": "completed"}, "NeMoGymMessage"),
        ({"role": "assistant", "content": "hi", **TOKENS}, "NeMoGymEasyInputMessageForTraining"),
        ({"role": "user", "content": PARTS, "status": "completed", **TOKENS}, "NeMoGymMessageForTraining"),
        (
            {"id": "m", "type": "message", "content": [{"type": "refusal", "refusal": "no"}]},
            "NeMoGymResponseOutputMessage",
        ),
        ({"call_id": "c", "name": "f", "arguments": "{}"}, "NeMoGymResponseFunctionToolCall"),
        ({"call_id": "c", "output": "x"}, "NeMoGymFunctionCallOutput"),
        ({"id": "r", "summary": []}, "NeMoGymResponseReasoningItem"),
        ({"name": "f", "arguments": "{}"}, "NeMoGymResponseMcpCall"),
        ({"role": "user"}, "NeMoGymResponseMcpListTools"),
        ({"role": "tool", "content": "x"}, "NeMoGymResponseMcpListTools"),
        ({"role": "assistant", "content": {"type": "x"}}, "NeMoGymResponseMcpListTools"),
        ({}, "NeMoGymResponseMcpListTools"),
        (
            {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "x"}},
            "NeMoGymResponseFunctionWebSearch",
        ),
        (
            {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}},
            "NeMoGymComputerCallOutput",
        ),
    ],
)
def test_what_kind_of_item_an_object_is(item: dict[str, Any], kind: str) -> None:
    params = NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": [{"role": "user", "content": "q"}, item]})
    assert type(params.input[1]).__name__ == kind


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "user"},
        {"type": "nonsense"},
        {"type": ["message"]},
        {"type": "mcp_call", "id": "1"},
        {"type": "web_search_call", "id": "w", "status": "bad", "action": {"type": "search", "query": "x"}},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "output_text"}]},
        "text",
        None,
    ],
)
def test_objects_that_are_not_an_item(item: Any) -> None:
    with pytest.raises(ValidationError):
        NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": [item]})


@pytest.mark.parametrize("field", [{"status": "bad"}, {"error": {}}, {"tools": [{}]}])
def test_responses_that_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NeMoGymResponse.model_validate({**RESPONSE, **field})


def test_parts_of_a_response_have_all_their_fields() -> None:
    given = {**RESPONSE, "tools": [{"type": "function", "name": "f"}], "text": {}}
    dumped = NeMoGymResponse.model_validate(given).model_dump()
    tool = {"name": "f", "parameters": None, "strict": None, "type": "function", "description": None}
    assert (dumped["tools"], dumped["text"]) == ([tool], {"format": None, "verbosity": None})


def test_to_dict_and_to_json_have_the_fields_that_were_set() -> None:
    message = {"role": "assistant", "content": "hi"}
    data: dict[str, Any] = {"id": "c", "created": 0, "model": "m", "object": "chat.completion", "choices": []}
    data["choices"].append({"index": 0, "finish_reason": "stop", "message": message})
    made, theirs = NeMoGymChatCompletion.model_validate(data), ChatCompletion.model_validate(data)
    assert made.to_dict() == theirs.to_dict() == data
    assert json.loads(made.to_json(indent=None)) == data
    response = NeMoGymResponse(**RESPONSE)
    assert response.to_dict(mode="json", exclude_unset=False) == response.model_dump(mode="json")
