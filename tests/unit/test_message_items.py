"""Which messages of a history are accepted: a dataset's own assistant turns come in several shapes."""

from __future__ import annotations

from typing import Any

import pytest

from gymnast.wire.dialects.chat_requests import params_to_chat
from gymnast.wire.validate import InvalidBody, validate_items, validate_params, validate_response

TYPED: dict[str, Any] = {"type": "input_text", "text": "one"}
SAMPLED: dict[str, Any] = {"type": "output_text", "text": "one", "annotations": []}
IMAGE: dict[str, Any] = {"type": "input_image", "detail": "auto", "image_url": "data:,"}


@pytest.mark.parametrize(
    "message",
    [
        {"content": "one"},
        {"content": [TYPED]},
        {"content": [TYPED, TYPED], "id": "m"},
        {"content": [TYPED, IMAGE]},
        {"content": []},
        {"content": [], "id": "m"},
        {"content": [SAMPLED], "id": "m"},
    ],
)
def test_assistant_messages_that_are_accepted(message: dict[str, Any]) -> None:
    item = {"type": "message", "role": "assistant", **message}
    (accepted,) = validate_items([item])
    assert accepted["content"] == message["content"]  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    "message",
    [
        {"content": [SAMPLED]},
        {"content": [TYPED, SAMPLED], "id": "m"},
        {"content": None, "id": "m"},
        {"content": ["one"], "id": "m"},
        {"content": [{"type": "unheard_of"}], "id": "m"},
    ],
)
def test_assistant_messages_that_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidBody):
        validate_items([{"type": "message", "role": "assistant", **message}])


def test_an_assistant_turn_in_parts_reaches_a_chat_endpoint() -> None:
    history = [{"role": "user", "content": "say one"}, {"role": "assistant", "content": [TYPED]}]
    body, _ = params_to_chat(validate_params({"input": history}))
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("user", "say one"),
        ("assistant", "one"),
    ]


def test_a_part_of_a_reply_without_a_type_is_what_its_field_says() -> None:
    parts = [{"text": "one", "annotations": []}, {"refusal": "no"}, SAMPLED]
    message = {"type": "message", "id": "m", "content": parts}
    body = {"id": "r", "created_at": 1.0, "model": "m", "object": "response", "output": [message]}
    accepted: Any = validate_response({**body, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})
    assert [part["type"] for part in accepted["output"][0]["content"]] == ["output_text", "refusal", "output_text"]


@pytest.mark.parametrize(
    "part", [{"text": "one"}, {"annotations": []}, {"type": None, "text": "", "annotations": []}, {}]
)
def test_a_part_without_a_type_is_refused_if_its_fields_do_not_say_what_it_is(part: dict[str, Any]) -> None:
    with pytest.raises(InvalidBody):
        validate_items([{"type": "message", "role": "assistant", "id": "m", "content": [part]}])
