"""Probes what a chat template supports by rendering tiny conversations, and prepares messages accordingly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gymnast.tokens.rendering import NotRenderable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.tokens.chat_template import ChatTemplate
    from gymnast.tokens.families.family import Family
    from gymnast.types.json import JsonObject

DUMMY_TOOL: Final[JsonObject] = {
    "type": "function",
    "function": {
        "name": "gymnastprobetool",
        "description": "gymnastprobe",
        "parameters": {"type": "object", "properties": {}},
    },
}
_NAME: Final = "gymnastprobename"
_VALUE: Final = "gymnastprobevalue"
_ARGUMENTS: Final[JsonObject] = {"gymnastprobekey": _VALUE}
_IDS: Final = ("gymnast01", "gymnast02")
_OTHER_IDS: Final = ("gymnast93", "gymnast84")


@dataclass(frozen=True, slots=True)
class TemplateFeatures:
    """What a template supports, and the form of tool calls it expects."""

    tools: bool
    calls: bool
    arguments_as_text: bool = False
    """Whether arguments are passed as JSON text, not as an object."""
    null_content: bool = False
    """Whether a turn with calls only has the content None, not an empty text."""
    writes_ids: bool = True
    """Whether the ids of calls appear in what the template writes."""


def probe_template(template: ChatTemplate, family: Family) -> TemplateFeatures:
    """Find out what a template supports."""
    question: list[JsonObject] = [{"role": "user", "content": "gymnastprobeask"}]
    with_tools = _try_render(template, question, [DUMMY_TOOL])
    tools = with_tools is not None and DUMMY_TOOL["function"]["name"] in with_tools
    for content in ("", None):
        as_object = _render_call(template, family, question, content, _ARGUMENTS)
        as_text = _render_call(template, family, question, content, json.dumps(_ARGUMENTS))
        if as_object is not None or as_text is not None:
            # If both render the same, text is better: it is what the model wrote.
            prefers_text = as_object is None or as_object == as_text
            arguments = json.dumps(_ARGUMENTS) if prefers_text else _ARGUMENTS
            texts = [_render_call(template, family, question, content, arguments, ids) for ids in (_IDS, _OTHER_IDS)]
            return TemplateFeatures(
                tools,
                calls=True,
                arguments_as_text=prefers_text,
                null_content=content is None,
                writes_ids=texts[0] is None or texts[0] != texts[1],
            )
    return TemplateFeatures(tools=tools, calls=False)


def prepare_messages(messages: Sequence[JsonObject], features: TemplateFeatures, family: Family) -> list[JsonObject]:
    """Messages in the form that the template expects. Raises NotRenderable for unsupported tool calls."""
    return family.prepare([_prepare_message(message, features) for message in messages])


def _prepare_message(message: JsonObject, features: TemplateFeatures) -> JsonObject:
    prepared = {
        key: value for key, value in message.items() if value is not None and not (key == "tool_calls" and not value)
    }
    prepared.setdefault("content", "")
    if "role" not in prepared:
        raise NotRenderable("a message without a role")
    if prepared["role"] != "assistant":
        return prepared
    if prepared.get("reasoning_content") is not None:
        prepared.setdefault("thinking", prepared["reasoning_content"])  # the older name, which some templates read
    if "tool_calls" in prepared:
        if not features.calls:
            raise NotRenderable("the chat template does not support tool calls")
        prepared["tool_calls"] = [_prepare_call(call, features) for call in prepared["tool_calls"]]
        if not prepared["content"] and features.null_content:
            prepared["content"] = None
    return prepared


def _prepare_call(call: JsonObject, features: TemplateFeatures) -> JsonObject:
    function = call["function"]
    arguments: Any = function.get("arguments")
    if features.arguments_as_text:
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    elif isinstance(arguments, str):
        arguments = _parse_object(arguments, function.get("name"))
    else:
        arguments = arguments or {}
    return {"type": "function", **call, "function": {**function, "arguments": arguments}}


def _parse_object(text: str, name: Any) -> JsonObject:
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise NotRenderable(f"the arguments of a call to '{name}' are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NotRenderable(f"the arguments of a call to '{name}' are not a JSON object")
    return value


def _render_call(
    template: ChatTemplate,
    family: Family,
    question: list[JsonObject],
    content: str | None,
    arguments: Any,
    ids: Sequence[str] = ("gymnast01",),
) -> str | None:
    """Render calls and their results; None if that is not supported or any part is left out."""
    function = {"name": _NAME, "arguments": arguments}
    turns: list[JsonObject] = [
        {
            "role": "assistant",
            "content": content,
            "tool_calls": [{"id": call_id, "type": "function", "function": function} for call_id in ids],
        },
        *({"role": "tool", "tool_call_id": call_id, "content": "gymnastproberesult"} for call_id in ids),
    ]
    try:
        messages = family.prepare([*question, *turns])
    except NotRenderable:  # a family with one call per turn
        return None
    text = _try_render(template, messages, [DUMMY_TOOL])
    if text is None or any(part not in text for part in (_NAME, _VALUE, "gymnastproberesult")):
        return None
    return text


def _try_render(template: ChatTemplate, messages: list[JsonObject], tools: list[JsonObject]) -> str | None:
    try:
        return template.render(messages, tools, {}, add_generation_prompt=True)
    except NotRenderable:
        return None
