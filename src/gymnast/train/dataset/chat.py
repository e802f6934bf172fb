"""Rollouts as chat messages, copied from the record as JSON: texts are neither decoded nor encoded again.

One class of choices (`ChatStyle`) covers what readers expect: arguments of tool calls as objects or as texts, reasoning
as a field, inline or left out, images as the Chat Completions API or transformers write them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple

import msgspec
import orjson

Reasoning = Literal["field", "inline", "drop"]

_CACHED: Final = 2048
_EMPTY: Final = b'""'


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: msgspec.Raw = msgspec.Raw()
    refusal: msgspec.Raw = msgspec.Raw()
    image_url: msgspec.Raw = msgspec.Raw()
    detail: msgspec.Raw = msgspec.Raw()


class _Item(msgspec.Struct, gc=False):
    type: str | None = "message"
    role: str | None = None
    content: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()
    arguments: msgspec.Raw = msgspec.Raw()
    call_id: msgspec.Raw = msgspec.Raw()
    output: msgspec.Raw = msgspec.Raw()
    summary: msgspec.Raw = msgspec.Raw()


class _Params(msgspec.Struct, gc=False):
    input: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()


class _Response(msgspec.Struct, gc=False):
    output: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()


class _Record(msgspec.Struct, gc=False):
    params: _Params | None = msgspec.field(name="responses_create_params", default=None)
    response: _Response | None = None


_PARTS: Final = msgspec.json.Decoder(list[_Part]).decode
_ITEMS: Final = msgspec.json.Decoder(list[_Item]).decode
_RECORD: Final = msgspec.json.Decoder(_Record).decode
_TEXT: Final = msgspec.json.Decoder(str).decode


class NotChatError(Exception):
    """A rollout that chat messages cannot express; the argument is the reason, as a short name."""


@dataclass(frozen=True, slots=True)
class ChatStyle:
    """What the reader of the messages expects."""

    arguments: Literal["object", "text"] = "object"
    reasoning: Reasoning = "field"
    tool_names: bool = True
    """Whether tool messages have the name of the tool."""
    images: Literal["chat", "transformers"] = "chat"
    escaped_tools: bool = False
    """Each tool as a text with JSON, for typed columns."""
    escaped_content: bool = False
    """The content of each message as a text with JSON: some have a list of parts."""


class Chat(NamedTuple):
    """A rollout as chat. Messages are JSON objects joined by commas."""

    prompt: bytes
    completion: bytes
    tools: bytes
    """A JSON list."""
    prompt_digest: bytes
    """Of its content, without ids."""
    completion_parts: list[bytes]
    """What the model wrote and saw, without ids."""
    prompt_messages: int
    completion_messages: int
    dropped_reasoning: bool

    @property
    def size_bytes(self) -> int:
        return len(self.prompt) + len(self.completion)

    @property
    def completion_digest(self) -> bytes:
        return _digest(self.completion_parts)


class _Turns(NamedTuple):
    messages: list[bytes]
    roles: list[str]
    parts: list[bytes]
    dropped_reasoning: bool


class _Prompt(NamedTuple):
    messages: list[bytes]
    digest: bytes
    dropped_reasoning: bool


class ChatReader:
    """Converts records. Prompts and tools repeat within a run, so their conversions are cached."""

    def __init__(self, style: ChatStyle) -> None:
        self.style = style
        self._prompts: dict[tuple[bytes, bytes], _Prompt] = {}
        self._tools: dict[bytes, bytes] = {}

    def read(self, line: bytes) -> Chat:
        """The chat of a record. Raises NotChatError with the reason."""
        try:
            record = _RECORD(line)
            params, response = record.params or _Params(), record.response
            if response is None or not _starts(response.output, b"["):
                raise NotChatError("no_transcript")
            prompt = self._prompt(bytes(params.input), _first(params.instructions, response.instructions))
            turns = self._turns(_ITEMS(response.output))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NotChatError("unusual_transcript") from error
        roles = turns.roles
        count = len(roles)
        while count and roles[count - 1] != "assistant":  # what follows the last turn of the model is not trained on
            count -= 1
        if not count:
            raise NotChatError("no_assistant_turn")
        return Chat(
            b",".join(prompt.messages),
            b",".join(turns.messages[:count]),
            self._convert_tools(_first(params.tools, response.tools)),
            prompt.digest,
            turns.parts,
            len(prompt.messages),
            count,
            prompt.dropped_reasoning or turns.dropped_reasoning,
        )

    def prompt_of(self, line: bytes) -> tuple[bytes, bytes]:
        """The prompt's messages of a row, and its tools."""
        try:
            params = _RECORD(line).params or _Params()
            prompt = self._prompt(bytes(params.input), _first(params.instructions))
            return b",".join(prompt.messages), self._convert_tools(_first(params.tools))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NotChatError("unusual_transcript") from error

    def _prompt(self, items: bytes, instructions: bytes) -> _Prompt:
        known = self._prompts.get((items, instructions))
        if known is None:
            if len(self._prompts) >= _CACHED:
                self._prompts.clear()
            known = self._prompts[items, instructions] = self._convert_prompt(items, instructions)
        return known

    def _convert_prompt(self, items: bytes, instructions: bytes) -> _Prompt:
        if items[:1] == b'"':
            turns = self._turns([_Item("message", "user", msgspec.Raw(items))])
        elif items[:1] == b"[":
            turns = self._turns(_ITEMS(items))
        else:
            raise NotChatError("no_prompt")
        messages = turns.messages
        if instructions[:1] == b'"' and instructions != _EMPTY:
            messages = [b'{"role":"system","content":' + self._escape(instructions) + b"}", *messages]
        if not messages:
            raise NotChatError("no_prompt")
        return _Prompt(messages, _digest([instructions, *turns.parts]), turns.dropped_reasoning)

    def _turns(self, items: list[_Item]) -> _Turns:
        messages: list[bytes] = []
        roles: list[str] = []
        seen: list[bytes] = []
        names: dict[bytes, bytes] = {}
        dropped = False
        for is_model, group in groupby(items, _is_model_turn):
            if is_model:
                message, was_dropped = self._assistant(group, seen, names)
                dropped |= was_dropped
                messages.append(message)
                roles.append("assistant")
                continue
            for item in group:
                role, message = self._other(item, seen, names)
                messages.append(message)
                roles.append(role)
        return _Turns(messages, roles, seen, dropped)

    def _assistant(self, items: Any, seen: list[bytes], names: dict[bytes, bytes]) -> tuple[bytes, bool]:
        texts: list[bytes] = []
        reasons: list[bytes] = []
        calls: list[bytes] = []
        for item in items:
            if item.type == "function_call":
                call_id, name, arguments = bytes(item.call_id), bytes(item.name), bytes(item.arguments)
                if name[:1] != b'"':
                    raise NotChatError("unusual_transcript")
                call_id = call_id if call_id[:1] == b'"' else b'"call_%d"' % len(names)
                names[call_id] = name
                arguments = self._arguments(arguments)
                seen += (b"call", name, arguments)
                head = b'{"id":' + call_id + b',"type":"function","function":{"name":' + name
                calls.append(head + b',"arguments":' + arguments + b"}}")
            elif item.type == "reasoning":
                reasons += _texts(item.summary) or _texts(item.content)
            else:
                texts += _texts(item.content) or _texts(item.content, refusal=True)
        text, reasoning = _join(texts), _join(reasons)
        seen += (b"assistant", text, reasoning)
        has_reasoning = reasoning != _EMPTY
        if has_reasoning and self.style.reasoning == "inline":
            text = b'"<think>' + reasoning[1:-1] + b"</think>" + text[1:]
        message = b'{"role":"assistant","content":' + self._escape(text)
        if has_reasoning and self.style.reasoning == "field":
            message += b',"reasoning_content":' + reasoning
        if calls:
            message += b',"tool_calls":[' + b",".join(calls) + b"]"
        return message + b"}", has_reasoning and self.style.reasoning == "drop"

    def _arguments(self, raw: bytes) -> bytes:
        """The arguments of a call; those that are not a JSON object stay the text that the model wrote."""
        if raw[:1] != b'"':  # not the contract's text: keep the value
            return raw if self.style.arguments == "object" or not raw else orjson.dumps(raw.decode())
        if self.style.arguments == "text":
            return raw
        text = _TEXT(raw).strip() or "{}"
        if not text.startswith("{"):
            return raw
        try:
            return msgspec.json.format(text.encode(), indent=-1)  # numbers of any size stay as written
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            return raw

    def _other(self, item: _Item, seen: list[bytes], names: dict[bytes, bytes]) -> tuple[str, bytes]:
        if item.type == "function_call_output":
            content, call_id = self._content(item.output), bytes(item.call_id)
            seen += (b"tool", content)
            call_id = call_id if call_id[:1] == b'"' else _EMPTY
            name = names.get(call_id)
            named = b',"name":' + name if name is not None and self.style.tool_names else b""
            return "tool", b'{"role":"tool","tool_call_id":' + call_id + named + b',"content":' + self._escape(
                content
            ) + b"}"
        if item.type not in (None, "message"):
            raise NotChatError(f"item_{item.type}")
        role = "system" if item.role == "developer" else item.role or "user"
        if role not in {"system", "user", "assistant", "tool"}:
            raise NotChatError("unusual_role")
        content = self._content(item.content)
        seen += (role.encode(), content)
        return role, b'{"role":"' + role.encode() + b'","content":' + self._escape(content) + b"}"

    def _content(self, raw: msgspec.Raw) -> bytes:
        """Text as a JSON string, also if it comes in parts; with images, the list of parts."""
        data = bytes(raw)
        if data[:1] == b'"':
            return data
        if data[:1] != b"[":
            return _EMPTY if data in (b"", b"null") else orjson.dumps(data.decode())
        parts = _PARTS(data)
        if all(part.text for part in parts):
            return _join([bytes(part.text) for part in parts])
        return b"[" + b",".join(map(self._part, parts)) + b"]"

    def _escape(self, content: bytes) -> bytes:
        return orjson.dumps(content.decode()) if self.style.escaped_content else content

    def _part(self, part: _Part) -> bytes:
        if part.text:
            return b'{"type":"text","text":' + bytes(part.text) + b"}"
        url = bytes(part.image_url)
        if part.type != "input_image" or url[:1] != b'"':
            raise NotChatError(f"part_{part.type or 'unknown'}")
        if self.style.images == "transformers":
            return b'{"type":"image","image":' + url + b"}"
        detail = bytes(part.detail)
        more = b',"detail":' + detail if detail[:1] == b'"' else b""
        return b'{"type":"image_url","image_url":{"url":' + url + more + b"}}"

    def _convert_tools(self, raw: bytes) -> bytes:
        known = self._tools.get(raw)
        if known is None:
            if len(self._tools) >= _CACHED:
                self._tools.clear()
            known = self._tools[raw] = self._list_tools(raw)
        return known

    def _list_tools(self, raw: bytes) -> bytes:
        tools = msgspec.json.decode(raw, type=list[dict[str, msgspec.Raw]]) if raw[:1] == b"[" else []
        converted = []
        for tool in tools:
            if bytes(tool.get("type", b'"function"')) != b'"function"':
                raise NotChatError("hosted_tool")
            nested = tool.get("function")  # as in Chat Completions
            own = msgspec.json.decode(nested, type=dict[str, msgspec.Raw]) if nested is not None else tool
            wanted = {name: own[name] for name in ("name", "description", "parameters") if name in own}
            function = {name: value for name, value in wanted.items() if bytes(value) != b"null"}
            converted.append(msgspec.json.encode({"type": "function", "function": function}))
        if self.style.escaped_tools:
            converted = [orjson.dumps(tool.decode()) for tool in converted]
        return b"[" + b",".join(converted) + b"]"


def _is_model_turn(item: _Item) -> bool:
    return item.type in ("function_call", "reasoning") or (item.role == "assistant" and item.type in (None, "message"))


def _texts(raw: msgspec.Raw, *, refusal: bool = False) -> list[bytes]:
    """The texts of content as JSON strings."""
    data = bytes(raw)
    if data[:1] == b'"':
        return [data] if not refusal else []
    if data[:1] != b"[":
        return []
    values = (part.refusal if refusal else part.text for part in _PARTS(data))
    return [text for text in map(bytes, values) if text[:1] == b'"']


def _join(texts: list[bytes]) -> bytes:
    if len(texts) == 1:
        return texts[0]
    return b'"' + b"".join([text[1:-1] for text in texts]) + b'"'


def _first(*values: msgspec.Raw) -> bytes:
    """The first value that is not missing, null or an empty list."""
    for value in values:
        data = bytes(value)
        if data not in (b"", b"null", b"[]"):
            return data
    return b""


def _starts(raw: msgspec.Raw, start: bytes) -> bool:
    return bytes(memoryview(raw)[:1]) == start


def _digest(parts: list[bytes]) -> bytes:
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()
