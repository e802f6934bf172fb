"""Round trips of random conversations: Responses, Chat and Messages say the same, whole or streamed."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gymnast.types.responses import make_response, message_text
from gymnast.wire.dialects.chat_replies import completion_to_response, make_chat_stream, response_to_completion
from gymnast.wire.dialects.chat_requests import chat_to_params, params_to_chat
from gymnast.wire.dialects.messages_replies import make_message_stream, response_to_message
from gymnast.wire.dialects.messages_requests import messages_to_params
from gymnast.wire.dialects.responses_streams import make_response_stream
from gymnast.wire.validate import validate_items, validate_params, validate_response

Items = list[dict[str, Any]]

# "<" could spell a think block where there is none; chat has no other way to tell text and thoughts apart.
texts = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="<"), max_size=30)
thoughts = st.text(alphabet=st.characters(codec="utf-8"), max_size=30).filter(lambda text: "</think>" not in text)
signatures = st.one_of(st.none(), st.text(alphabet="abc=", min_size=1, max_size=8))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
arguments = st.one_of(
    st.dictionaries(texts, values, max_size=3).map(lambda value: json.dumps(value, ensure_ascii=False)),
    st.sampled_from(["", "{broken", "[1, 2]", '"text"', "null", '{"a": 1}{', '{ "spaced" : 1 }']),
)
call_ids = st.integers(0, 99).map(lambda number: f"call_{number}")


def reasoning(summary: list[str], signature: str | None) -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": "rs", "summary": parts, "encrypted_content": signature}


def said(text: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": None}
    return {"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": [part]}


def called(call_id: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "id": call_id, "call_id": call_id, "name": "f", "arguments": arguments}


thinking = st.builds(reasoning, st.lists(thoughts, min_size=1, max_size=3), signatures)
speaking = st.builds(said, texts)
calling = st.builds(called, call_ids, arguments)
outputs = st.lists(st.one_of(thinking, speaking, calling), max_size=6)
"""A model turn in any order, as Messages can say it."""
chat_outputs = st.builds(
    lambda spoken, calls: [*spoken, *calls],
    st.lists(st.one_of(thinking, speaking), max_size=5),
    st.lists(calling, max_size=3),
)
"""A model turn with its calls at the end, as Chat can say it: thoughts and text are interleaved."""


def response(output: Items) -> dict[str, Any]:
    usage: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    usage |= {"input_tokens_details": {"cached_tokens": None}, "output_tokens_details": {"reasoning_tokens": None}}
    items: Any = output
    return dict(make_response({"input": "x"}, items, response_id="r", created_at=1.0, model="m", usage=usage))


def new_id() -> Any:
    numbers = count()
    return lambda prefix: f"{prefix}{next(numbers)}"


def meaning(items: Items, *, exact_json: bool = True) -> list[tuple[Any, ...]]:
    """What items say, whatever their form: neighbouring texts are one, empty ones are none."""
    found: list[tuple[Any, ...]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "reasoning":
            found += [("thought", part["text"]) for part in item["summary"]]
        elif kind == "function_call":
            found.append(("call", item["call_id"], item["name"], spelled(item["arguments"], exact=exact_json)))
        elif kind == "function_call_output":
            found.append(("output", item["call_id"], item["output"]))
        elif item["role"] != "assistant":
            found.append((item["role"], item["content"]))
        elif found and found[-1][0] == "text":
            found[-1] = ("text", found[-1][1] + message_text(item))
        elif message_text(item):
            found.append(("text", message_text(item)))
    return found


def spelled(arguments: str, *, exact: bool) -> Any:
    """Arguments as text, or what they mean where they are an object: Messages knows no spelling of JSON."""
    if exact:
        return arguments
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


# --- what a client sends back is what the model said ------------------------------------------------------------------


@given(chat_outputs)
def test_a_turn_survives_a_client_of_chat(output: Items) -> None:
    message = response_to_completion(response(output), new_id=new_id())["choices"][0]["message"]
    back = chat_to_params({"messages": [{"role": "user", "content": "q"}, message]})
    validate_params(back)
    assert meaning(back["input"][1:]) == meaning(output)


@given(outputs)
def test_a_turn_survives_a_client_of_messages(output: Items) -> None:
    message = response_to_message(response(output), message_id="m")
    back = messages_to_params({"messages": [{"role": "assistant", "content": message["content"]}]})
    assert not back.ignored
    validate_params(back.params)
    assert meaning(back.params["input"], exact_json=False) == meaning(output, exact_json=False)


@given(st.lists(st.one_of(thinking, st.builds(reasoning, st.just([]), st.just("secret"))), max_size=4))
def test_signatures_survive_a_client_of_messages(output: Items) -> None:
    content = response_to_message(response(output), message_id="m")["content"]
    back = messages_to_params({"messages": [{"role": "assistant", "content": content}]}).params["input"]
    wanted = [item["encrypted_content"] for item in output for _ in item["summary"] or [None]]
    assert [item["encrypted_content"] for item in back] == wanted


@given(st.lists(thoughts, max_size=3), texts, st.booleans())
def test_think_blocks_and_reasoning_content_are_the_same_thought(inner: list[str], text: str, apart: bool) -> None:  # noqa: FBT001
    blocks = "".join(f"<think>{thought}</think>" for thought in inner)
    message: dict[str, Any] = {"role": "assistant", "content": blocks + text}
    if apart and inner and inner[0]:
        rest = "".join(f"<think>{thought}</think>" for thought in inner[1:])
        message |= {"content": rest + text, "reasoning_content": inner[0]}
    found = meaning(chat_to_params({"messages": [message]})["input"])
    assert found == [("thought", thought) for thought in inner] + ([("text", text)] if text else [])


# --- a conversation through all three ---------------------------------------------------------------------------------

user_content = st.one_of(
    texts,
    st.lists(
        st.one_of(
            st.builds(lambda text: {"type": "text", "text": text}, texts),
            st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}),
            st.just({"type": "image", "source": {"type": "url", "url": "http://host/cat.png"}}),
        ),
        min_size=1,
        max_size=3,
    ),
)
tool_result = st.builds(
    lambda call_id, content: {"type": "tool_result", "tool_use_id": call_id, "content": content},
    call_ids,
    st.one_of(texts, st.lists(st.builds(lambda text: {"type": "text", "text": text}, texts), max_size=2)),
)
user_turns = st.one_of(user_content, st.lists(tool_result, min_size=1, max_size=2))
turns = st.lists(
    st.tuples(user_turns, chat_outputs.map(lambda output: response_to_message(response(output), message_id="m"))),
    min_size=1,
    max_size=3,
)


@given(turns, st.one_of(st.none(), texts.filter(bool)), st.floats(0, 2), st.integers(1, 4096), st.integers(1, 50))
def test_a_conversation_survives_messages_responses_chat_and_back(
    pairs: list[tuple[Any, Any]], system: str | None, temperature: float, limit: int, top_k: int
) -> None:
    messages = [
        message
        for user, mine in pairs
        for message in ({"role": "user", "content": user}, {"role": "assistant", "content": mine["content"]})
    ]
    tool = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
    body = {"messages": messages, "system": system, "temperature": temperature, "max_tokens": limit, "top_k": top_k}
    asked = messages_to_params({**body, "tools": [tool], "tool_choice": {"type": "tool", "name": "f"}})
    assert not asked.ignored
    params = validate_params(asked.params)
    chat, lost = params_to_chat(params)
    assert not lost
    back = validate_params(chat_to_params(chat))
    leading = [("system", system)] if system else []
    assert meaning(list(back["input"])) == leading + meaning(asked.params["input"])  # type: ignore[arg-type]
    for name in ("temperature", "max_output_tokens", "tools", "tool_choice", "metadata"):
        assert back[name] == params[name]
    assert back["metadata"] == {"extra_body": f'{{"top_k":{top_k}}}'}


@given(
    st.fixed_dictionaries(
        {"messages": st.just([{"role": "user", "content": "q"}])},
        optional={
            "temperature": st.floats(0, 2),
            "top_p": st.floats(0, 1),
            "max_tokens": st.integers(1, 9),
            "reasoning_effort": st.sampled_from(["low", "high"]),
            "response_format": st.sampled_from(
                [
                    {"type": "json_object"},
                    {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
                ]
            ),
            "top_k": st.integers(1, 9),
            "min_p": st.floats(0, 1),
            "seed": st.integers(0, 9),
            "stop": st.lists(texts, max_size=2),
            "logit_bias": st.just({"5": 1}),
            "metadata": st.dictionaries(st.sampled_from(["a", "b"]), texts),
        },
    )
)
def test_no_parameter_of_chat_is_lost(body: dict[str, Any]) -> None:
    """Each comes back under its own name, or in the extra body that engines lay under the request."""
    back, lost = params_to_chat(validate_params(chat_to_params(body)))
    assert not lost
    metadata = back.pop("metadata", {})
    extra = json.loads(metadata.pop("extra_body", "{}"))
    assert {**extra, **back, **({"metadata": metadata} if "metadata" in body else {})} == body


# --- streams ---------------------------------------------------------------------------------------------------------


def data(stream: str) -> list[Any]:
    found = [block.rpartition("data: ")[2] for block in stream.split("\n\n")[:-1]]
    return [json.loads(text) for text in found if text != "[DONE]"]


@given(chat_outputs)
def test_a_chat_stream_adds_up_to_the_completion(output: Items) -> None:
    completion = response_to_completion(response(output), new_id=new_id())
    message: dict[str, Any] = {"refusal": None, "content": None}
    finish = None
    for chunk in data(make_chat_stream(completion, include_usage=False)):
        message |= chunk["choices"][0]["delta"]
        finish = chunk["choices"][0]["finish_reason"]
    for call in message.get("tool_calls", []):
        del call["index"]
    assert message == completion["choices"][0]["message"]
    assert finish == completion["choices"][0]["finish_reason"]


@given(outputs)
def test_a_responses_stream_adds_up_to_the_response(output: Items) -> None:
    whole = response(output)
    events = data(make_response_stream(whole, {}))
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == output
    assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == "".join(
        part["text"] for item in output if item["type"] == "message" for part in item["content"]
    )
    assert events[-1]["response"] == whole


@given(outputs)
def test_a_messages_stream_adds_up_to_the_message(output: Items) -> None:
    whole = response_to_message(response(output), message_id="m")
    message: dict[str, Any] = {}
    for event in data(make_message_stream(whole)):
        if event["type"] == "message_start":
            message = event["message"]
        elif event["type"] == "content_block_start":
            message["content"].append(event["content_block"])
        elif event["type"] == "content_block_delta":
            add(message["content"][event["index"]], event["delta"])
        elif event["type"] == "message_delta":
            message |= {**event["delta"], "usage": event["usage"]}
    assert message == whole


def add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if delta["type"] == "input_json_delta":
        block["input"] = json.loads(delta["partial_json"])
        return
    name = delta["type"].removesuffix("_delta")
    block[name] += delta[name]


@given(chat_outputs)
def test_what_chat_says_of_a_response_is_a_response_again(output: Items) -> None:
    completion = response_to_completion(response(output), new_id=new_id())
    back = completion_to_response(completion, {"input": "x"}, model="m", new_id=new_id(), parse_thinking=True)
    validate_response(back)
    validate_items(back["output"])
    found: Any = back["output"]
    thought = [entry for entry in meaning(output) if entry[0] == "thought"]
    text = "".join(entry[1] for entry in meaning(output) if entry[0] == "text")
    calls = [entry for entry in meaning(output) if entry[0] == "call"]
    assert meaning(found) == thought + ([("text", text)] if text else []) + calls
