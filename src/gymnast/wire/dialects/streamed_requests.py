"""Requests of clients that stream Responses: with more parameters than create params, and less complete items. Pure.

Parameters without a counterpart are dropped one by one and reported; the request is never rejected for them. Tool
namespaces become plain tools whose names are restored in the response.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gymnast.types.items import CREATE_PARAMS_DEFAULTS, HOSTED_ITEM_TYPES

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.wire.dialects.responses_streams import Namespaces

_STREAM_PARAMS: Final = frozenset({"stream", "stream_options"})
_TOOL_KEYS: Final = frozenset({"type", "name", "description", "parameters", "strict"})
_ITEM_TYPES: Final = frozenset({"message", "function_call", "function_call_output", "reasoning"})


@dataclass(slots=True)
class StreamedRequest:
    """Create params, not validated yet, the names of dropped parameters, and the tools' namespaces."""

    params: JsonObject
    ignored: list[str] = field(default_factory=list)
    namespaces: Namespaces = field(default_factory=dict)


def parse_streamed_request(body: JsonObject, *, hosted_tools: bool) -> StreamedRequest:
    """Parse a request. `hosted_tools`: whether the model server accepts hosted tools and their items."""
    fields = {name: value for name, value in body.items() if value is not None and name not in _STREAM_PARAMS}
    params = {name: value for name, value in fields.items() if name in CREATE_PARAMS_DEFAULTS}
    request = StreamedRequest(params, sorted(fields.keys() - params.keys()))
    tools = list(body.get("tools") or ())
    if isinstance(body.get("input"), list):
        items = []
        for index, item in enumerate(body["input"]):
            if isinstance(item, dict) and item.get("type") == "additional_tools":
                tools += item.get("tools") or ()
            elif _is_known(item, hosted_tools=hosted_tools):
                items.append(_complete_item(item, index))
            else:
                request.ignored.append(f"input.{item['type']}")
        _put_input(params, items)
    flat = [plain for tool in tools for plain in _plain_tools(tool, request, hosted_tools=hosted_tools)]
    if flat or "tools" in params:
        params["tools"] = flat
    return request


def _put_input(params: JsonObject, items: list[Any]) -> None:
    """Turn leading system and developer messages into instructions: servers expect a single system message first."""
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
    """Whether to keep the item. One without a proper type is kept, for validation to report."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if not isinstance(kind, str) or kind in _ITEM_TYPES:
        return True
    return hosted_tools and kind in HOSTED_ITEM_TYPES


def _complete_item(item: Any, index: int) -> Any:
    """Add the fields that clients omit when they send output back as input."""
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


def _plain_tools(tool: Any, request: StreamedRequest, *, hosted_tools: bool) -> list[Any]:
    if not isinstance(tool, dict):
        return [tool]
    kind = tool.get("type", "function")
    if kind == "function":
        request.ignored += [f"tools.{key}" for key in sorted(tool.keys() - _TOOL_KEYS) if tool[key] is not None]
        return [{"parameters": None, "strict": None, **{key: tool[key] for key in tool.keys() & _TOOL_KEYS}}]
    if kind == "namespace":
        return _members(tool, request)
    if hosted_tools:
        return [tool]
    request.ignored.append(f"tools.{kind}")
    return []


def _members(namespace: JsonObject, request: StreamedRequest) -> list[Any]:
    flat: list[Any] = []
    for tool in namespace.get("tools") or ():  # a member that is not an object raises TypeError or AttributeError below
        for plain in _plain_tools(tool, request, hosted_tools=False):
            name = _flat_name(namespace.get("name"), plain.get("name"))
            request.namespaces[name] = (str(namespace.get("name")), str(plain.get("name")))
            flat.append({**plain, "name": name})
    return flat


def _flat_name(namespace: Any, name: Any) -> str:
    return f"{namespace}__{name}"
