"""Types of the surface made of what the openai package has for them, as model servers and tests do."""

from __future__ import annotations

from typing import Any

import pytest
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseReasoningItem,
)
from openai.types.chat import ChatCompletion
from openai.types.completion_usage import CompletionUsage
from openai.types.responses import FunctionTool, ResponseFunctionToolCall, ResponseOutputText
from openai.types.responses.response import IncompleteDetails
from openai.types.responses.response_reasoning_item import Summary

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
        assert found.message.tool_calls[0].function.name == "f"


def test_items_of_hosted_tools_can_be_asked_for_their_type() -> None:
    """Servers look at `item.type` of everything that a model put out."""
    item = {"type": "mcp_call", "id": "1", "arguments": "{}", "name": "f", "server_label": "s"}
    response = NeMoGymResponse.model_validate({**RESPONSE, "output": [item]})
    found: Any = response.output[0]
    assert (found.type, found.name, found["server_label"], found.get("error")) == ("mcp_call", "f", "s", None)
    assert response.model_dump()["output"] == [item]
    with pytest.raises(KeyError):
        found["nothing"]
