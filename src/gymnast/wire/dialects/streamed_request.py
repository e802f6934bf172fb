"""Requests of clients that stream Responses: they say more than our create params, and less than our items.

What the internal form cannot carry is left out one by one and named, never refused as a whole; groups of tools become
plain tools whose names are restored on the way back. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gymnast.types.items import CREATE_PARAMS_DEFAULTS, HOSTED_ITEM_TYPES

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.wire.dialects.responses_stream import Namespaces

_ABOUT_THE_STREAM: Final = frozenset({"stream", "stream_options"})
_TOOL_KEYS: Final = frozenset({"type", "name", "description", "parameters", "strict"})
_ITEM_TYPES: Final = frozenset({"message", "function_call", "function_call_output", "reasoning"})


@dataclass(slots=True)
class StreamedRequest:
    """Create params still to be validated, what was left out of them, and which tools were in groups."""

    params: JsonObject
    ignored: list[str] = field(default_factory=list)
    namespaces: Namespaces = field(default_factory=dict)


def streamed_request(body: JsonObject, *, hosted_tools: bool) -> StreamedRequest:
    """The request as create params. `hosted_tools`: whether the backend takes tools and items of hosted tools."""
    said = {name: value for name, value in body.items() if value is not None and name not in _ABOUT_THE_STREAM}
    known = {name: value for name, value in said.items() if name in CREATE_PARAMS_DEFAULTS}
    found = StreamedRequest(known, sorted(said.keys() - known.keys()))
    tools = list(body.get("tools") or ())
    if isinstance(body.get("input"), list):
        items = []
        for index, item in enumerate(body["input"]):
            if isinstance(item, dict) and item.get("type") == "additional_tools":
                tools += item.get("tools") or ()
            elif _is_known(item, hosted_tools=hosted_tools):
                items.append(_completed(item, index))
            else:
                found.ignored.append(f"input.{item['type']}")
        _put_input(found.params, items)
    flat = [plain for tool in tools for plain in _plain_tools(tool, found, hosted_tools=hosted_tools)]
    if flat or "tools" in known:
        found.params["tools"] = flat
    return found


def _put_input(params: JsonObject, items: list[Any]) -> None:
    """Leading system and developer messages become instructions, as engines want one system message in front."""
    texts = [params["instructions"]] if isinstance(params.get("instructions"), str) else []
    rest = list(items)
    while rest and (text := _system_text(rest[0])) is not None:
        texts.append(text)
        rest.pop(0)
    params["input"] = rest
    if texts:
        params["instructions"] = "\n\n".join(texts)


def _system_text(item: Any) -> str | None:
    if not isinstance(item, dict) or item.get("role") not in {"system", "developer"}:
        return None
    content = item.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "".join(texts) if len(texts) == len(content) else None


def _is_known(item: Any, *, hosted_tools: bool) -> bool:
    """Whether validation can judge the item; what has no type of an item is left to its error message."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if not isinstance(kind, str) or kind in _ITEM_TYPES:
        return True
    return hosted_tools and kind in HOSTED_ITEM_TYPES


def _completed(item: Any, index: int) -> Any:
    """The item with what clients leave out when they send output back as input."""
    if not isinstance(item, dict):
        return item
    kind = item.get("type", "message")
    if kind == "reasoning":
        return {"summary": [], **item, "id": item.get("id") or f"rs_{index}"}
    if kind == "function_call" and item.get("namespace"):
        return {**item, "name": _flat_name(item["namespace"], item.get("name"))}
    if kind == "message" and item.get("role") == "assistant" and isinstance(item.get("content"), list):
        content = [_completed_part(part) for part in item["content"]]
        defaults = {"type": "message", "status": "completed"}
        return {**defaults, **item, "id": item.get("id") or f"msg_{index}", "content": content}
    return item


def _completed_part(part: Any) -> Any:
    return {"annotations": [], **part} if isinstance(part, dict) and part.get("type") == "output_text" else part


def _plain_tools(tool: Any, found: StreamedRequest, *, hosted_tools: bool) -> list[Any]:
    kind = tool.get("type", "function") if isinstance(tool, dict) else "function"
    if not isinstance(tool, dict):
        return [tool]
    if kind == "function":
        found.ignored += [f"tools.{key}" for key in sorted(tool.keys() - _TOOL_KEYS) if tool[key] is not None]
        return [{"parameters": None, "strict": None, **{key: tool[key] for key in tool.keys() & _TOOL_KEYS}}]
    if kind == "namespace":
        return _members(tool, found)
    if hosted_tools:
        return [tool]
    found.ignored.append(f"tools.{kind}")
    return []


def _members(group: JsonObject, found: StreamedRequest) -> list[Any]:
    flat: list[Any] = []
    for tool in group.get("tools") or ():  # a member that is no object fails below: TypeError, AttributeError
        for plain in _plain_tools(tool, found, hosted_tools=False):
            name = _flat_name(group.get("name"), plain.get("name"))
            found.namespaces[name] = (str(group.get("name")), str(plain.get("name")))
            flat.append({**plain, "name": name})
    return flat


def _flat_name(namespace: Any, name: Any) -> str:
    return f"{namespace}__{name}"
