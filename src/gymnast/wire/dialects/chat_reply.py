"""Replies: a chat completion to a Responses object, and back. Pure functions; ids come in as an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.types.responses import message_text, reasoning_texts, response_object
from gymnast.wire.dialects.chat_request import think_block

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.types.items import CreateParams, Item, Response, Usage
    from gymnast.types.json import JsonObject

_TRAINING_FIELDS: Final = frozenset({"prompt_token_ids", "generation_token_ids", "generation_log_probs"})
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


class BadCompletion(ValueError):  # noqa: N818 - the endpoint's mistake, named where it is seen
    """A chat completion that is none."""


def split_thinking(content: str) -> tuple[list[str], str]:
    """The reasoning in `<think>` blocks, and the text without them."""
    if "<think>" not in content:
        return [], content
    thoughts: list[str] = []
    texts: list[str] = []
    position = 0
    # By hand: a regular expression takes ten times as long, and thoughts are long.
    while (start := content.find("<think>", position)) >= 0 and (end := content.find("</think>", start)) >= 0:
        texts.append(content[position:start])
        thoughts.append(content[start + len("<think>") : end])
        position = end + len("</think>")
    return thoughts, "".join(texts) + content[position:]


def response_of_completion(
    completion: JsonObject, params: CreateParams, *, model: str, new_id: Callable[[str], str], parse_thinking: bool
) -> Response:
    """The first choice of a chat completion as a response object."""
    try:
        return _first_choice(completion, params, model, new_id, parse_thinking=parse_thinking)
    except BadCompletion:
        raise
    except (AttributeError, TypeError, ValueError) as error:  # a list where a text belongs, a text where a number does
        raise BadCompletion(f"the reply is no chat completion: {error}") from error


def _first_choice(
    completion: JsonObject, params: CreateParams, model: str, new_id: Callable[[str], str], *, parse_thinking: bool
) -> Response:
    try:
        choice = completion["choices"][0]
        message = choice["message"]
    except (KeyError, IndexError, TypeError) as error:
        raise BadCompletion("the reply has no choices[0].message") from error
    reason = _INCOMPLETE.get(choice.get("finish_reason") or "")
    return response_object(
        params,
        items_of_message(message, new_id=new_id, parse_thinking=parse_thinking),
        response_id=new_id("resp_"),
        created_at=float(completion.get("created") or 0),
        model=model,
        usage=usage_of_completion(completion.get("usage")),
        incomplete={"reason": reason} if reason else None,
    )


def items_of_message(message: JsonObject, *, new_id: Callable[[str], str], parse_thinking: bool) -> list[Item]:
    """Reasoning, text and calls of an assistant message as output items."""
    content = _content_text(message.get("content"))
    thoughts, text = split_thinking(content) if parse_thinking else ([], content)
    return output_items(thoughts, text, message.get("tool_calls") or [], new_id)


def output_items(thoughts: list[str], text: str, calls: list[JsonObject], new_id: Callable[[str], str]) -> list[Item]:
    """What a model said in one turn as items: reasoning, a message, calls. Saying nothing is an empty message."""
    output: list[Item] = []
    if thoughts:
        summary = [{"type": "summary_text", "text": thought} for thought in thoughts]
        output.append({"id": new_id("rs_"), "summary": summary, "type": "reasoning", "encrypted_content": None})
    if text or not (thoughts or calls):
        part: JsonObject = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
        output.append(
            {"id": new_id("msg_"), "content": [part], "role": "assistant", "status": "completed", "type": "message"}
        )
    output += [_function_call(call, new_id) for call in calls]
    return output


def usage_of_completion(usage: JsonObject | None) -> Usage | None:
    """Chat usage as Responses usage; details that are not reported are unknown, not zero."""
    if not usage:
        return None
    given, made = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens", "cached_input_tokens", "cache_read_input_tokens")
    thought = _detail(usage, "completion_tokens_details", "reasoning_tokens", "reasoning_output_tokens")
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": usage.get("total_tokens") or given + made,
    }


def completion_of_response(response: JsonObject, *, new_id: Callable[[str], str]) -> JsonObject:
    """A response object as a chat completion."""
    content = ""
    calls: list[JsonObject] = []
    for item in response["output"]:
        kind = item.get("type", "message")
        if kind == "reasoning":
            content += "".join(think_block(text) for text in reasoning_texts(item))
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            calls.append({"id": item["call_id"], "type": "function", "function": function})
        elif kind == "message":
            content += message_text(item)
    message: JsonObject = {"role": "assistant", "content": content or None, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    if response["output"]:
        message |= {key: value for key, value in response["output"][-1].items() if key in _TRAINING_FIELDS}
    reason = (response.get("incomplete_details") or {}).get("reason")
    finish = {"max_output_tokens": "length", "content_filter": "content_filter"}.get(reason or "")
    return {
        "id": new_id("chatcmpl-"),
        "object": "chat.completion",
        "created": int(response["created_at"]),
        "model": response["model"],
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish or ("tool_calls" if calls else "stop"),
                "logprobs": None,
            }
        ],
        "usage": _chat_usage(response.get("usage")),
    }


def _function_call(call: JsonObject, new_id: Callable[[str], str]) -> Item:
    function = call.get("function") or {}
    call_id = call.get("id") or new_id("call_")
    arguments = function.get("arguments")
    return {
        "arguments": arguments if isinstance(arguments, str) else "{}",
        "call_id": call_id,
        "name": function.get("name") or "",
        "type": "function_call",
        "id": call_id,
        "status": "completed",
    }


def _content_text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadCompletion(f"the message's content is {type(content).__name__}, neither a text nor a list of parts")
    return "".join(part.get("text") or "" for part in content)


def _detail(usage: JsonObject, group: str, name: str, *aliases: str) -> int | None:
    details = usage.get(group)
    if isinstance(details, dict) and details.get(name) is not None:
        return int(details[name])
    return next((int(usage[alias]) for alias in aliases if usage.get(alias) is not None), None)


def _chat_usage(usage: JsonObject | None) -> JsonObject | None:
    if not usage:
        return None
    body = {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }
    cached = usage["input_tokens_details"]["cached_tokens"]
    if cached is not None:
        body["prompt_tokens_details"] = {"cached_tokens": cached}
    thought = usage["output_tokens_details"]["reasoning_tokens"]
    if thought is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": thought}
    return body
