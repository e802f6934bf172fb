"""Responses and Chat Completions: each rule of the conversion, and round trips of random conversations."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.wire.dialects.chat_replies import (
    BadCompletion,
    completion_to_response,
    convert_chat_usage,
    message_to_items,
    response_to_completion,
    split_thinking,
)
from gymnast.wire.dialects.chat_requests import NotConvertible, chat_to_params, params_to_chat
from gymnast.wire.validate import validate_items, validate_params, validate_response

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True, "description": "d"}


def chat(**params: Any) -> dict[str, Any]:
    return params_to_chat({"input": "hi", **params})[0]  # type: ignore[typeddict-item]


def messages(*items: Any, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat(input=list(items), **params)["messages"]
    return found


def new_id() -> Any:
    numbers = count()
    return lambda prefix: f"{prefix}{next(numbers)}"


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_text_input_is_one_user_message_of_one_part() -> None:
    assert chat()["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


def test_content_parts() -> None:
    found = messages(
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:x"},
                {"type": "input_image", "image_url": "data:y", "detail": "low"},
                {"type": "input_video", "video_url": {"url": "http://v"}},
            ],
        }
    )
    assert found[0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:x", "detail": "auto"}},
        {"type": "image_url", "image_url": {"url": "data:y", "detail": "low"}},
        {"type": "video_url", "video_url": {"url": "http://v"}},
    ]


def test_items_of_one_model_turn_become_one_assistant_message() -> None:
    found = messages(
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"role": "assistant", "content": "let me look"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"},
    )
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool", "assistant"]
    assert found[1]["content"] == "<think>hm</think>let me look"
    assert [call["id"] for call in found[1]["tool_calls"]] == ["c1", "c2"]
    assert found[2] == {"role": "tool", "tool_call_id": "c1", "content": "one"}
    assert found[3]["content"] == [{"type": "text", "text": "two"}]
    assert found[4]["content"] is None
    plain = messages({"role": "assistant", "content": "a"})
    assert "tool_calls" not in plain[0]


def test_instructions_lead_and_swallow_the_first_system_messages() -> None:
    found = messages(
        {"role": "developer", "content": "one"},
        {"role": "system", "content": [{"type": "input_text", "text": "two"}]},
        {"role": "user", "content": "q"},
        {"role": "system", "content": "later"},
        instructions="be nice",
    )
    assert found[0] == {"role": "system", "content": "be nice\n\none\n\ntwo"}
    assert [message["role"] for message in found[1:]] == ["user", "system"]


def test_parameters_are_renamed_kept_or_reported() -> None:
    body, lost = params_to_chat(
        {
            "input": "x",
            "max_output_tokens": 7,
            "temperature": 0.5,
            "top_p": None,
            "reasoning": {"effort": "low", "summary": "auto"},
            "metadata": {"k": "v"},
            "truncation": "auto",
            "include": ["logprobs"],
            "max_tool_calls": 3,
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
        }
    )
    assert (body["max_tokens"], body["temperature"], body["reasoning_effort"]) == (7, 0.5, "low")
    assert body["metadata"] == {"k": "v"}
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}},
    }
    assert "top_p" not in body
    assert sorted(lost) == ["include", "max_tool_calls", "reasoning.summary", "text.verbosity", "truncation"]


def test_tools_lose_strict_and_choices_are_nested() -> None:
    body = chat(tools=[TOOL], tool_choice={"type": "function", "name": "f"}, parallel_tool_calls=False)
    function = {"name": "f", "parameters": {"type": "object"}, "description": "d"}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert body["parallel_tool_calls"] is False


def test_without_tools_choice_and_parallel_are_dropped() -> None:
    body = chat(tools=[], tool_choice="auto", parallel_tool_calls=True)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


@pytest.mark.parametrize(
    "params",
    [
        {"tool_choice": "required"},
        {"previous_response_id": "resp_1"},
        {"prompt": {"id": "p"}},
        {"tools": [{"type": "web_search"}]},
        {"input": [{"type": "web_search_call", "id": "w"}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        {
            "input": [
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "x"}]}
            ]
        },
    ],
)
def test_what_chat_cannot_say_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(NotConvertible):
        chat(**params)


# --- replies ---------------------------------------------------------------------------------------------------------


def completion(finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {"created": 5, "choices": [{"finish_reason": finish, "message": {"role": "assistant", **message}}]}


def response(body: dict[str, Any], *, parse_thinking: bool = True, **params: Any) -> Any:
    asked: Any = {"input": "x", **params}
    return completion_to_response(body, asked, model="m", new_id=new_id(), parse_thinking=parse_thinking)


def test_thinking_becomes_reasoning() -> None:
    found = response(completion(content="<think>a\nb</think>say<think>c</think>"))["output"]
    assert [item["type"] for item in found] == ["reasoning", "message"]
    assert [part["text"] for part in found[0]["summary"]] == ["a\nb", "c"]
    assert found[1]["content"][0]["text"] == "say"
    kept = response(completion(content="<think>a</think>say"), parse_thinking=False)["output"]
    assert kept[0]["content"][0]["text"] == "<think>a</think>say"


def test_an_empty_reply_is_an_empty_message() -> None:
    assert [item["type"] for item in response(completion(content=None))["output"]] == ["message"]
    only_thoughts = response(completion(content="<think>a</think>"))["output"]
    assert [item["type"] for item in only_thoughts] == ["reasoning"]


def test_tool_calls_follow_the_text() -> None:
    calls = [{"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}, {"function": {"name": "g"}}]
    found = response(completion("tool_calls", content="doing", tool_calls=calls))["output"]
    assert [item["type"] for item in found] == ["message", "function_call", "function_call"]
    assert (found[1]["call_id"], found[1]["id"], found[1]["arguments"]) == ("c1", "c1", '{"a": 1}')
    assert found[2]["arguments"] == "{}"
    assert found[2]["call_id"].startswith("call_")


@pytest.mark.parametrize(
    ("finish", "reason", "status"),
    [
        ("stop", None, "completed"),
        ("length", "max_output_tokens", "incomplete"),
        ("content_filter", "content_filter", "incomplete"),
        (None, None, "completed"),
    ],
)
def test_finish_reasons(finish: Any, reason: str | None, status: str) -> None:
    found = response(completion(finish, content="x"))
    assert (found["incomplete_details"] or {}).get("reason") == reason
    assert found["status"] == status


def test_the_request_is_echoed_and_ids_are_new() -> None:
    found = response(completion(content="x"), temperature=0.5, tools=[TOOL])
    assert (found["temperature"], found["tools"], found["model"], found["created_at"]) == (0.5, [TOOL], "m", 5.0)
    assert found["id"].startswith("resp_")
    assert found["output"][0]["id"].startswith("msg_")


@pytest.mark.parametrize(
    ("usage", "cached", "thought"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4}, None, None),
        ({"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}, 2, None),
        ({"prompt_tokens": 3, "completion_tokens": 4, "cached_input_tokens": 0}, 0, None),
        ({"prompt_tokens": 3, "completion_tokens": 4, "cache_read_input_tokens": 1}, 1, None),
        ({"prompt_tokens": 3, "completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 2}}, None, 2),
        ({"prompt_tokens": 3, "completion_tokens": 4, "reasoning_output_tokens": 1}, None, 1),
    ],
)
def test_usage(usage: dict[str, Any], cached: int | None, thought: int | None) -> None:
    found = convert_chat_usage(usage)
    assert found is not None
    assert (found["input_tokens"], found["output_tokens"], found["total_tokens"]) == (3, 4, 7)
    assert found["input_tokens_details"]["cached_tokens"] == cached
    assert found["output_tokens_details"]["reasoning_tokens"] == thought
    assert convert_chat_usage(None) is None


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{}]}, {"choices": None}])
def test_a_completion_that_is_none(body: dict[str, Any]) -> None:
    with pytest.raises(BadCompletion):
        response(body)


# --- round trips -----------------------------------------------------------------------------------------------------

texts = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="<>"), min_size=1, max_size=30)
json_texts = st.sampled_from(["{}", '{"a":1}', '{"q":"ü"}', "broken {"])
ids = st.integers(0, 99).map(lambda number: f"call_{number}")


def call_item(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


turns = st.lists(
    st.one_of(
        st.builds(lambda text: [{"type": "message", "role": "user", "content": text}], texts),
        st.builds(lambda text: [{"type": "message", "role": "assistant", "content": text}], texts),
        st.builds(
            lambda call_id, name, arguments, output: [
                call_item(call_id, name, arguments),
                {"type": "function_call_output", "call_id": call_id, "output": output},
            ],
            ids,
            st.sampled_from(["f", "g"]),
            json_texts,
            texts,
        ),
    ),
    min_size=1,
    max_size=6,
).map(lambda found: [item for turn in found for item in turn])


def merged(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring assistant messages are one message in chat."""
    found: list[dict[str, Any]] = []
    for item in items:
        last = found[-1] if found else {}
        if item.get("role") == "assistant" and last.get("role") == "assistant":
            found[-1] = {**last, "content": last["content"] + item["content"]}
        else:
            found.append(item)
    return found


@given(turns, st.floats(0, 2), st.integers(1, 4096))
def test_a_conversation_survives_chat_and_back(items: list[dict[str, Any]], temperature: float, limit: int) -> None:
    params = validate_params({"input": items, "temperature": temperature, "max_output_tokens": limit, "tools": [TOOL]})
    body, lost = params_to_chat(params)
    assert not lost
    back = chat_to_params(body)
    assert back["input"] == merged(items)
    assert (back["temperature"], back["max_output_tokens"]) == (temperature, limit)
    assert back["tools"] == [{**TOOL, "strict": None}]
    validate_params(back)


@given(
    st.one_of(st.none(), texts), st.lists(st.tuples(ids, json_texts), max_size=3), st.sampled_from(["stop", "length"])
)
def test_a_reply_survives_responses_and_back(text: str | None, calls: list[tuple[str, str]], finish: str) -> None:
    made = [
        {"id": call_id, "type": "function", "function": {"name": "f", "arguments": text}} for call_id, text in calls
    ]
    body = completion(finish, content=text, **({"tool_calls": made} if made else {}))
    body["usage"] = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    answered = response(body)
    validate_response(answered)
    validate_items(answered["output"])
    back = response_to_completion(answered, new_id=new_id())
    message = back["choices"][0]["message"]
    assert message["content"] == text
    assert message.get("tool_calls", []) == made
    assert back["choices"][0]["finish_reason"] == ("length" if finish == "length" else "tool_calls" if made else "stop")
    assert back["usage"]["total_tokens"] == 3


@given(st.lists(texts, max_size=3), texts)
def test_thoughts_and_text_are_distinguished(thoughts: list[str], text: str) -> None:
    content = "".join(f"<think>{thought}</think>" for thought in thoughts) + text
    assert split_thinking(content) == (thoughts, text)
    items = message_to_items({"content": content}, new_id=new_id(), parse_thinking=True)
    assert len(items) == (2 if thoughts else 1)


def test_chat_only_parameters_travel_in_extra_body() -> None:
    found = chat_to_params({"messages": [{"role": "user", "content": "x"}], "top_k": 5, "seed": 7, "stream": False})
    assert found["metadata"] == {"extra_body": '{"top_k":5,"seed":7}'}
