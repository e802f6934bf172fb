"""What a chat template can say, found by rendering tiny conversations with it, and messages put as it wants them."""

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


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a template writes, and in which form it wants tool calls."""

    tools: bool
    calls: bool
    arguments_as_text: bool = False
    """Arguments are passed as the JSON text they are, else as an object."""
    none_for_no_words: bool = False
    """A call without words has content None, else an empty text."""


def probe(template: ChatTemplate, family: Family) -> Abilities:
    """Tries what matters."""
    asked: list[JsonObject] = [{"role": "user", "content": "gymnastprobeask"}]
    with_tools = _rendered(template, asked, [DUMMY_TOOL])
    tools = with_tools is not None and DUMMY_TOOL["function"]["name"] in with_tools
    forms = {
        (content, as_text): _called(template, family, asked, content, _ARGUMENTS if not as_text else _text())
        for content in ("", None)
        for as_text in (False, True)
    }
    for content in ("", None):
        as_object, as_text = forms[content, False], forms[content, True]
        if as_object is not None or as_text is not None:
            # Where both give the same, the text is better: it is what the model wrote.
            return Abilities(tools, True, as_object is None or as_object == as_text, content is None)  # noqa: FBT003
    return Abilities(tools=tools, calls=False)


def prepared(messages: Sequence[JsonObject], abilities: Abilities, family: Family) -> list[JsonObject]:
    """Messages as the template wants them. Raises NotRenderable for calls that it cannot write."""
    return family.prepare([_prepared(message, abilities) for message in messages])


def _prepared(message: JsonObject, abilities: Abilities) -> JsonObject:
    kept = {
        key: value for key, value in message.items() if value is not None and not (key == "tool_calls" and not value)
    }
    kept.setdefault("content", "")
    if "role" not in kept:
        raise NotRenderable("a message without a role")
    if kept["role"] != "assistant":
        return kept
    if kept.get("reasoning_content") is not None:
        kept.setdefault("thinking", kept["reasoning_content"])  # the older name, which some templates read
    if "tool_calls" in kept:
        if not abilities.calls:
            raise NotRenderable("the chat template has no way to write tool calls")
        kept["tool_calls"] = [_call(call, abilities) for call in kept["tool_calls"]]
        if not kept["content"] and abilities.none_for_no_words:
            kept["content"] = None
    return kept


def _call(call: JsonObject, abilities: Abilities) -> JsonObject:
    function = call["function"]
    arguments: Any = function.get("arguments")
    if abilities.arguments_as_text:
        given: Any = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    elif isinstance(arguments, str):
        given = _object_of(arguments, function.get("name"))
    else:
        given = arguments or {}
    return {"type": "function", **call, "function": {**function, "arguments": given}}


def _object_of(text: str, name: Any) -> JsonObject:
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise NotRenderable(f"the arguments of a call to '{name}' are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NotRenderable(f"the arguments of a call to '{name}' are not a JSON object")
    return value


def _called(
    template: ChatTemplate, family: Family, asked: list[JsonObject], content: str | None, arguments: Any
) -> str | None:
    """A conversation with a call and its result, if all of it is written."""
    call = {"id": "gymnast01", "type": "function", "function": {"name": _NAME, "arguments": arguments}}
    said: list[JsonObject] = [
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "gymnast01", "content": "gymnastproberesult"},
    ]
    text = _rendered(template, family.prepare([*asked, *said]), [DUMMY_TOOL])
    if text is None or any(part not in text for part in (_NAME, _VALUE, "gymnastproberesult")):
        return None
    return text


def _text() -> str:
    return json.dumps(_ARGUMENTS)


def _rendered(template: ChatTemplate, messages: list[JsonObject], tools: list[JsonObject]) -> str | None:
    try:
        return template.render(messages, tools, {}, to_generate=True)
    except NotRenderable:
        return None
