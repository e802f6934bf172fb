"""Outputs of a model in odd shapes: messages, parts, roles, missing fields, reasoning, tool calls. Seeded, pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from tests.helpers.environments import called, said, thought
from tests.parity.odd_text import mutate_text
from tests.parity.odd_values import mutate_arguments, mutate_value

Output = list[dict[str, Any]]
_MAX_REPEATED: Final = 2000


def mutate_output(output: Output, chance: random.Random, others: list[str]) -> Output:
    """The output with a text, a call or its shape changed."""
    output = [*output]
    places = [at for at, item in enumerate(output) if item.get("type") == "function_call"]
    if places and chance.random() < 0.6:
        at = chance.choice(places)
        output[at] = _mutate_call(output[at], chance)
        return output
    if chance.random() < 0.75:
        output = _mutate_a_text(output, chance, others)
    return mutate_shape(output, chance) if chance.random() < 0.375 else output


def mutate_shape(output: Output, chance: random.Random) -> Output:
    """The output with its shape changed in one way or two."""
    for _ in range(chance.choice((1, 1, 2))):
        output = chance.choice(_SHAPES)(output, chance)
    return output


def _mutate_call(item: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    kind, name = chance.random(), str(item.get("name"))
    if kind < 0.75 and isinstance(item.get("arguments"), str):
        return {**item, "arguments": mutate_arguments(item["arguments"], chance)}
    names = (
        name.upper(),
        f"functions.{name}",
        f"mcp__server__{name}",
        name + " ",
        "",
        mutate_text(name, chance),
        name[:-1],
    )
    return {**item, "name": chance.choice(names)}


def _mutate_a_text(output: Output, chance: random.Random, others: list[str]) -> Output:
    places = [at for at, item in enumerate(output) if _text_parts(item)]
    if not places:
        return [*output, said(mutate_text(chance.choice(others) if others else "", chance))]
    at = chance.choice(places)
    part = chance.choice(_text_parts(output[at]))
    text = str(output[at]["content"][part]["text"])
    if others and chance.random() < 0.15:  # a second answer that contradicts the first one
        text = chance.choice(("{0}\n\n{1}", "{1}\n\n{0}", "{0} or {1}", "{0}\n\nWait, no: {1}")).format(
            text, chance.choice(others)
        )
    if others and chance.random() < 0.1:
        text = _splice(text, chance.choice(others), chance)
    content = [*output[at]["content"]]
    content[part] = {**content[part], "text": mutate_text(text, chance)}
    return [*output[:at], {**output[at], "content": content}, *output[at + 1 :]]


def _text_parts(item: dict[str, Any]) -> list[int]:
    content = item.get("content")
    if not isinstance(content, list):
        return []
    return [at for at, part in enumerate(content) if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _splice(one: str, other: str, chance: random.Random) -> str:
    return one[: chance.randint(0, len(one))] + other[chance.randint(0, len(other)) :]


def _split_parts(output: Output, chance: random.Random) -> Output:
    """A message in two parts."""
    for at, item in enumerate(output):
        if parts := _text_parts(item):
            part = item["content"][parts[0]]
            cut = chance.randint(0, len(part["text"]))
            halves = [{**part, "text": part["text"][:cut]}, {**part, "text": part["text"][cut:]}]
            content = [*item["content"][: parts[0]], *halves, *item["content"][parts[0] + 1 :]]
            return [*output[:at], {**item, "content": content}, *output[at + 1 :]]
    return output


def _split_messages(output: Output, chance: random.Random) -> Output:
    """A message in two messages."""
    for at, item in enumerate(_split_parts(output, chance)):
        if len(_text_parts(item)) > 1:
            first, second = item["content"][:1], item["content"][1:]
            return [*output[:at], {**item, "content": first}, {**item, "content": second}, *output[at + 1 :]]
    return output


def _add_item(output: Output, chance: random.Random) -> Output:
    """Something before, between or after."""
    text = chance.choice(("I do not know.", "", "\\boxed{1}", "A", "Let me check.", "42", "<answer>no</answer>"))
    item = chance.choice(
        (
            *(said(text), thought(text), called("look_up", {"query": text}), {**said(text), "role": "user"}),
            {"type": "function_call_output", "call_id": "c", "output": text},
            {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": text}]},
            {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": []},
            {"type": "message", "role": "assistant", "content": text},
            {**said(text), "content": [{"type": "refusal", "refusal": text}]},
            {"role": "assistant", "content": text},
        )
    )
    at = chance.randint(0, len(output))
    return [*output[:at], item, *output[at:]]


def _change_role(output: Output, chance: random.Random) -> Output:
    role = chance.choice(("assistant", "user", "system", "developer", "tool", "Assistant", None))
    return [{**item, "role": role} if item.get("type") == "message" else item for item in output]


def _drop_field(output: Output, chance: random.Random) -> Output:
    """An item, or a part of it, without one of its fields."""
    if not output:
        return output
    at = chance.randrange(len(output))
    name = chance.choice(("id", "status", "role", "type", "content", "annotations", "call_id", "summary", "arguments"))
    item = {key: value for key, value in output[at].items() if key != name}
    if isinstance(item.get("content"), list):
        item["content"] = [
            {key: value for key, value in part.items() if key != name} if isinstance(part, dict) else part
            for part in item["content"]
        ]
    return [*output[:at], item, *output[at + 1 :]]


def _plain_content(output: Output, _chance: random.Random) -> Output:
    """Messages whose content is a text."""
    return [
        {**item, "content": "".join(str(item["content"][at]["text"]) for at in _text_parts(item))}
        if _text_parts(item)
        else item
        for item in output
    ]


def _change_status(output: Output, chance: random.Random) -> Output:
    status = chance.choice(("incomplete", "in_progress", "completed", "failed", None))
    return [{**item, "status": status} for item in output]


def _change_part_type(output: Output, chance: random.Random) -> Output:
    kind = chance.choice(("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"))
    return [
        {**item, "content": [{**part, "type": kind} if isinstance(part, dict) else part for part in item["content"]]}
        if isinstance(item.get("content"), list)
        else item
        for item in output
    ]


def _reorder(output: Output, chance: random.Random) -> Output:
    return chance.choice((output[::-1], output + output, output[1:], output[:-1], []))


def _think_instead(output: Output, chance: random.Random) -> Output:
    """The text as reasoning, alone or in front of the message."""
    texts = [str(item["content"][at]["text"]) for item in output for at in _text_parts(item)]
    reasoning = thought("".join(texts))
    return chance.choice(([reasoning], [reasoning, *output], [*output, reasoning]))


def _add_tokens(output: Output, _chance: random.Random) -> Output:
    """With the token ids and log-probabilities that a training endpoint adds to its items."""
    tokens = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [4, 5], "generation_log_probs": [-0.5, -1.25]}
    return [{**item, **tokens} for item in output]


def _add_details(output: Output, chance: random.Random) -> Output:
    """With citations, log-probabilities or fields of other dialects in the parts of messages."""
    citation = {"type": "url_citation", "url": "http://a.example", "title": "A", "start_index": 0, "end_index": 1}
    details: dict[str, Any] = chance.choice(
        (
            {"annotations": [citation]},
            {"annotations": None},
            {"logprobs": []},
            {"logprobs": None},
            {"logprobs": [{"token": "B", "bytes": [66], "logprob": -0.1, "top_logprobs": []}]},
            {"parsed": {"answer": "B"}},
            {"cache_control": {"type": "ephemeral"}},
        )
    )
    return [
        {**item, "content": [{**part, **details} if isinstance(part, dict) else part for part in item["content"]]}
        if isinstance(item.get("content"), list)
        else item
        for item in output
    ]


def _think_in_between(output: Output, chance: random.Random) -> Output:
    """Reasoning before each item, with a summary, encrypted, or with contents of its own."""
    reasoning: dict[str, Any] = chance.choice(
        (
            thought("So it is 42, or \\boxed{7}."),
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "gAAAA"},
            {"type": "reasoning", "id": "r", "summary": [], "content": None, "status": "completed"},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "<think>a</think>"}] * 2},
        )
    )
    return [item for one in output for item in (reasoning, one)]


def _use_tools(output: Output, chance: random.Random) -> Output:
    """Tool calls with their outputs before the answer, in order, twice, or without an output."""
    text = chance.choice(("42", "", '{"error": "no such tool"}', "\\boxed{1}", "[]"))
    call = {**called("look_up", {"query": "x"}), "call_id": "c1", "id": "f1", "status": "completed"}
    reply = {"type": "function_call_output", "call_id": "c1", "output": text}
    return chance.choice(
        ([call, reply, *output], [call, call, reply, reply, *output], [call, *output], [*output, call])
    )


def _add_foreign_item(output: Output, chance: random.Random) -> Output:
    """An item of a tool that a provider runs, or of another kind that a response may have."""
    item: dict[str, Any] = chance.choice(
        (
            {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "x"}},
            {
                "type": "mcp_call",
                "id": "m",
                "name": "f",
                "arguments": "{}",
                "server_label": "s",
                "output": "\\boxed{1}",
            },
            {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []},
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
            {
                "type": "code_interpreter_call",
                "id": "i",
                "code": "1",
                "container_id": "c",
                "outputs": [],
                "status": "completed",
            },
            {"type": "file_search_call", "id": "f", "queries": ["x"], "status": "completed", "results": None},
            {"type": "image_generation_call", "id": "g", "result": None, "status": "completed"},
            {"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"type": "exec", "command": []}},
            {"type": "item_reference", "id": "m"},
            {"type": "compaction", "id": "k", "encrypted_content": "x"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "A"}]},
            {"type": "", "id": "e"},
        )
    )
    at = chance.randint(0, len(output))
    return [*output[:at], item, *output[at:]]


def _change_ids(output: Output, chance: random.Random) -> Output:
    """All items with one id, with none, or with another type of it."""
    value = chance.choice(("", "same", None, 7, "é" * 200))
    return [{**item, chance.choice(("id", "call_id")): value} for item in output]


def _add_empty_message(output: Output, chance: random.Random) -> Output:
    """A message without a text that has content of some kind, at an end."""
    contents: tuple[Any, ...] = (
        [],
        "",
        None,
        [{"type": "output_text", "text": "", "annotations": []}],
        [{"type": "refusal", "refusal": ""}],
    )
    message = {
        "type": "message",
        "role": "assistant",
        "id": "m",
        "status": "completed",
        "content": chance.choice(contents),
    }
    return [message, *output] if chance.random() < 0.5 else [*output, message]


def _mix_parts(output: Output, chance: random.Random) -> Output:
    """Parts of other kinds before or after the text of a message."""
    part: dict[str, Any] = chance.choice(
        (
            {"type": "refusal", "refusal": "No."},
            {"type": "input_image", "image_url": "data:,", "detail": "auto"},
            {"type": "output_text", "text": "", "annotations": []},
            {"type": "output_text", "text": "\n", "annotations": [], "logprobs": []},
            {"type": "output_audio", "data": "", "transcript": "A"},
            {"type": "output_text", "text": None, "annotations": []},
            {"text": "A"},
        )
    )
    return [
        {**item, "content": chance.choice(([part, *item["content"]], [*item["content"], part]))}
        if isinstance(item.get("content"), list)
        else item
        for item in output
    ]


def _change_arguments_type(output: Output, chance: random.Random) -> Output:
    """Calls whose arguments are no text, or that say more than others do."""
    more: dict[str, Any] = chance.choice(
        (
            *(
                {"arguments": {}},
                {"arguments": None},
                {"arguments": "[]"},
                {"arguments": "7"},
                {"arguments": '"{}"'},
                {"call_id": ""},
            ),
            *({"namespace": "n"}, {"status": None}, {"parsed_arguments": {}}, {"id": None}, {"name": "F"}),
        )
    )
    return [{**item, **more} if item.get("type") == "function_call" else item for item in output]


def _say_phase(output: Output, chance: random.Random) -> Output:
    """Messages that say whether they are comments or the answer."""
    phase = chance.choice(("commentary", "final_answer", None))
    return [{**item, "phase": phase} if item.get("type") == "message" else item for item in output]


def _repeat_many(output: Output, chance: random.Random) -> Output:
    """Hundreds of items before the last one, if they are short."""
    if len(str(output[:1])) > _MAX_REPEATED:
        return output
    return output[:1] * chance.choice((30, 300)) + output[-1:]


def _think_in_odd_ways(output: Output, chance: random.Random) -> Output:
    """Reasoning whose parts have other types than servers send."""
    text = chance.choice(("so", "<think>", "</think></think>", "\\boxed{2}"))
    reasoning: dict[str, Any] = chance.choice(
        (
            {"type": "reasoning", "id": "r", "summary": text},
            {"type": "reasoning", "id": "r", "summary": None},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]},
            {"type": "reasoning", "id": "r", "summary": [{"text": text}]},
            {"type": "reasoning", "id": "r", "content": [{"type": "reasoning_text", "text": text}]},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}], "role": "assistant"},
        )
    )
    return chance.choice(([reasoning, *output], [*output, reasoning]))


def _change_anything(output: Output, chance: random.Random) -> Output:
    changed = mutate_value(output, chance)
    return changed if isinstance(changed, list) and all(isinstance(item, dict) for item in changed) else output


_SHAPES: Final[tuple[Callable[[Output, random.Random], Output], ...]] = (
    *(_split_parts, _split_messages, _add_item, _add_item, _change_role, _drop_field, _plain_content, _change_status),
    *(_change_part_type, _reorder, _think_instead, _change_anything, _add_tokens, _add_details, _think_in_between),
    *(_use_tools, _add_foreign_item, _change_ids, _add_empty_message, _mix_parts, _change_arguments_type, _say_phase),
    *(_repeat_many, _think_in_odd_ways),
)
