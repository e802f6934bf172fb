"""The official `openai` and `anthropic` clients, unmodified, against `gymnast serve`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import yaml
from anthropic.types import ToolParam
from openai.types.chat import ChatCompletionToolParam
from openai.types.responses import FunctionToolParam

from tests.helpers.commands import Served, serving

REPLIES: list[Any] = [
    {"when": "weather", "replies": [{"reasoning": "hm", "tool_calls": [{"name": "look", "arguments": {"at": "sky"}}]}]},
    {"when": "long", "replies": [{"text": "cut", "finish": "length"}]},
    {"when": "busy", "replies": [{"status": 429, "body": {"error": {"message": "slow down"}}}]},
    {"when": "broken", "replies": [{"status": 500}]},
    {"replies": [{"reasoning": "thoughts", "text": "Hello.", "usage": {"input_tokens": 3, "output_tokens": 2}}]},
]
SCHEMA: dict[str, object] = {"type": "object", "properties": {"at": {"type": "string"}}, "additionalProperties": False}
CHAT_TOOL: ChatCompletionToolParam = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
TOOL: FunctionToolParam = {"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}
ANTHROPIC_TOOL: ToolParam = {"name": "look", "input_schema": SCHEMA}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, "-c", scripted_config(folder), env={"GYMNAST_TOKEN": ""}) as found:
        yield found


def scripted_config(folder: Path) -> str:
    block = {"entrypoint": "app.py", "replies": REPLIES}
    config = {"policy_model": {"responses_api_models": {"scripted_model": block}}}
    (folder / "policy.yaml").write_text(yaml.safe_dump(config))
    return "policy.yaml"


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url('policy_model')}/v1", api_key="unused", max_retries=0) as found:
        yield found


@pytest.fixture
def claude(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url("policy_model"), api_key="unused", max_retries=0) as found:
        yield found


# --- openai: chat completions ----------------------------------------------------------------------------------------


def test_chat_completions(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert found.choices[0].message.content == "<think>thoughts</think>Hello."
    assert found.usage is not None
    assert found.usage.total_tokens == 5


def test_a_chat_stream_is_read_to_its_end(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "<think>thoughts</think>Hello."
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 5


def test_the_chat_stream_helper_assembles_calls(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="m", messages=[{"role": "user", "content": "weather"}], tools=[CHAT_TOOL]
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "chunk" in kinds
    assert final.choices[0].finish_reason == "tool_calls"
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert (calls[0].function.name, calls[0].function.arguments) == ("look", '{"at":"sky"}')


def test_a_chat_conversation_goes_on_from_what_was_said(client: openai.OpenAI) -> None:
    user: Any = {"role": "user", "content": "weather"}
    first = client.chat.completions.create(model="m", messages=[user], tools=[CHAT_TOOL])
    said = first.choices[0].message
    assert said.tool_calls
    answer: Any = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "blue"}
    history: Any = [user, said.model_dump(exclude_none=True), answer]
    second = client.chat.completions.create(model="m", messages=history, tools=[CHAT_TOOL])
    assert second.choices[0].finish_reason == "tool_calls"  # the script answers the last user message


# --- openai: responses -----------------------------------------------------------------------------------------------


def test_responses(client: openai.OpenAI) -> None:
    response = client.responses.create(model="m", input="hi")
    assert response.output_text == "Hello."
    assert [item.type for item in response.output] == ["reasoning", "message"]


def test_a_responses_stream_is_read_to_its_end(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="m", input="hi", stream=True))
    kinds = [event.type for event in events]
    assert (kinds[0], kinds.count("response.output_item.done")) == ("response.created", 2)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello."
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "Hello."


def test_the_responses_stream_helper_gives_the_final_response(client: openai.OpenAI) -> None:
    with client.responses.stream(model="m", input="weather", tools=[TOOL]) as stream:
        final = stream.get_final_response()
    call = final.output[1]
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("look", '{"at":"sky"}')


def test_a_responses_conversation_goes_on_from_what_was_said(client: openai.OpenAI) -> None:
    first = client.responses.create(model="m", input="weather", tools=[TOOL])
    call = first.output[1]
    assert call.type == "function_call"
    history: Any = [{"role": "user", "content": "hi"}, *(item.model_dump() for item in first.output)]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "blue"})
    for stream in (False, True):
        found: Any = client.responses.create(model="m", input=history, tools=[TOOL], stream=stream)
        response = list(found)[-1].response if stream else found
        assert response.output_text == "Hello."


def test_a_failure_in_a_responses_stream_is_an_event(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="m", input="broken", stream=True))
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "server_error"


def test_openai_errors_have_their_class(client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError, match="slow down"):
        client.responses.create(model="m", input="busy")
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "busy"}], stream=True)
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        client.responses.create(model="m", input="hi", extra_body={"top_k": 3})
    assert isinstance(refused.value.body, dict)
    assert refused.value.body["detail"][0]["loc"] == ["body", "top_k"]


async def test_the_async_openai_client(served: Served) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url('policy_model')}/v1", api_key="unused") as client:
        stream = await client.responses.create(model="m", input="hi", stream=True)
        kinds = [event.type async for event in stream]
        assert kinds[-1] == "response.completed"
        assert [model.id async for model in client.models.list()] == ["scripted"]


# --- anthropic -------------------------------------------------------------------------------------------------------


def test_messages(claude: anthropic.Anthropic) -> None:
    found = claude.messages.create(model="m", max_tokens=50, messages=[{"role": "user", "content": "hi"}])
    thought, text = found.content
    assert thought.type == "thinking"
    assert text.type == "text"
    assert (thought.thinking, text.text, found.stop_reason) == ("thoughts", "Hello.", "end_turn")
    assert (found.usage.input_tokens, found.usage.output_tokens) == (3, 2)


def test_a_messages_stream_is_the_same_message(claude: anthropic.Anthropic) -> None:
    whole = claude.messages.create(model="m", max_tokens=50, messages=[{"role": "user", "content": "hi"}])
    with claude.messages.stream(model="m", max_tokens=50, messages=[{"role": "user", "content": "hi"}]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "Hello."
    # As data: the helper's message is of a class of its own, with a field for parsed output.
    assert [block.to_dict() for block in final.content] == [block.to_dict() for block in whole.content]
    assert (final.stop_reason, final.usage.to_dict()) == (whole.stop_reason, whole.usage.to_dict())
    raw = claude.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "long"}], stream=True)
    events = list(raw)
    assert [event.type for event in events][-2:] == ["message_delta", "message_stop"]
    ended = events[-2]
    assert ended.type == "message_delta"
    assert ended.delta.stop_reason == "max_tokens"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_messages_conversation_with_tools(claude: anthropic.Anthropic, streamed: bool) -> None:  # noqa: FBT001
    arguments: dict[str, Any] = {"model": "m", "max_tokens": 50, "tools": [ANTHROPIC_TOOL]}
    user: Any = {"role": "user", "content": "weather"}
    if streamed:
        with claude.messages.stream(messages=[user], **arguments) as stream:
            content: Any = stream.get_final_message().content
    else:
        content = claude.messages.create(messages=[user], **arguments).content
    thought, call = content
    assert (thought.type, call.type, call.name, call.input) == ("thinking", "tool_use", "look", {"at": "sky"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "blue"}]}
    history: Any = [user, {"role": "assistant", "content": content}]
    history.append({"role": "user", "content": [result, {"type": "text", "text": "thanks"}]})
    final: Any = claude.messages.create(messages=history, **arguments)
    assert final.content[-1].text == "Hello."


def test_anthropic_errors_have_their_class_and_words(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.RateLimitError) as busy:
        claude.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "busy"}])
    assert isinstance(busy.value.body, dict)
    assert busy.value.body["error"]["type"] == "rate_limit_error"
    with pytest.raises(anthropic.InternalServerError):
        claude.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "broken"}], stream=True)
    tool: Any = {"type": "web_search_20250305", "name": "web_search"}
    with pytest.raises(anthropic.UnprocessableEntityError, match="web_search_20250305"):
        claude.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "hi"}], tools=[tool])


def test_what_was_ignored_is_in_the_raw_reply(claude: anthropic.Anthropic) -> None:
    raw = claude.messages.with_raw_response.create(
        model="m",
        max_tokens=2000,
        messages=[{"role": "user", "content": "hi"}],
        thinking={"type": "enabled", "budget_tokens": 1024},
    )
    assert raw.headers["x-gymnast-ignored"] == '["thinking"]'


async def test_the_async_anthropic_client(served: Served) -> None:
    async with anthropic.AsyncAnthropic(base_url=served.url("policy_model"), api_key="unused") as claude:
        async with claude.messages.stream(
            model="m", max_tokens=5, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            final = await stream.get_final_message()
        assert final.content[-1].type == "text"


# --- with a token ----------------------------------------------------------------------------------------------------


def test_the_token_is_the_api_key(tmp_path: Path, serve: Callable[..., Served]) -> None:
    locked = serve("--host", "0.0.0.0", "-c", scripted_config(tmp_path))
    assert locked.token
    url = locked.url("policy_model").replace("0.0.0.0", "127.0.0.1")
    with ExitStack() as stack:
        client = stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key=locked.token))
        assert client.responses.create(model="m", input="hi").output_text == "Hello."
        claude = stack.enter_context(anthropic.Anthropic(base_url=url, api_key=locked.token))
        user: Any = {"role": "user", "content": "hi"}
        assert claude.messages.create(model="m", max_tokens=5, messages=[user]).stop_reason == "end_turn"
        stranger = stack.enter_context(anthropic.Anthropic(base_url=url, api_key="wrong"))
        with pytest.raises(anthropic.AuthenticationError):
            stranger.messages.create(model="m", max_tokens=5, messages=[user])
