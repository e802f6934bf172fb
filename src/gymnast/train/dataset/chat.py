"""Rollouts as chat messages, copied from the record as JSON: texts are neither decoded nor encoded again.

One class of choices (`ChatStyle`) covers what readers expect: arguments of tool calls as objects or as texts, reasoning
as a field, inline or left out, images as the Chat Completions API or transformers write them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
import orjson

from gymnast.train.dataset.records import Item, Params, Part
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from gymnast.train.dataset.records import Record

Reasoning = Literal["field", "inline", "drop"]

_CACHED: Final = 2048
_EMPTY: Final = b'""'
_MISSING: Final = frozenset({b"", b"null", b"[]"})
_QUOTE: Final = ord('"')
_MESSAGE: Final = frozenset({"message", None})


class _Row(msgspec.Struct, gc=False):
    params: msgspec.Raw = msgspec.field(name=PARAMS, default=msgspec.Raw())


_PARTS: Final = msgspec.json.Decoder(list[Part]).decode
_ITEMS: Final = msgspec.json.Decoder(list[Item]).decode
_PARAMS: Final = msgspec.json.Decoder(Params).decode
_ROW: Final = msgspec.json.Decoder(_Row).decode
_TEXT: Final = msgspec.json.Decoder(str).decode
_RAW: Final = msgspec.json.Decoder(msgspec.Raw).decode
_ASSISTANT: Final = b',{"role":"assistant","content":'
_CONTENT: Final = b',"content":'
_REASONING: Final = b',"reasoning_content":'
_CALLS: Final = b',"tool_calls":[{"id":'


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


class Chat(msgspec.Struct, frozen=True, gc=False):
    """A rollout as chat. Messages are JSON objects joined by commas."""

    prompt: bytes
    completion: bytes
    tools: bytes
    """A JSON list."""
    prompt_digest: bytes
    """Of its content, without ids."""
    completion_digest: bytes
    """Of what the model wrote and saw, without ids; empty unless asked for."""
    prompt_messages: int
    completion_messages: int
    dropped_reasoning: bool

    @property
    def size_bytes(self) -> int:
        return len(self.prompt) + len(self.completion)


class _Prompt(NamedTuple):
    messages: bytes
    message_count: int
    digest: bytes
    tools: bytes
    dropped_reasoning: bool


class _Recent(msgspec.Struct, frozen=True, gc=False):
    """A prompt and what it was converted from."""

    params: msgspec.Raw
    instructions: msgspec.Raw
    tools: msgspec.Raw
    prompt: _Prompt


class _Turns(msgspec.Struct, gc=False):
    """Messages under construction: pieces of JSON that are joined once."""

    seen: list[Any] | None
    """What the messages say, without ids, if they are compared."""
    pieces: list[Any] = []
    tool_heads: dict[bytes, bytes] = {}
    """By the id of a call without a result yet: how the message with its result goes on after the id."""
    later_heads: dict[bytes, list[bytes]] = {}
    """The same for further calls of a turn with the same id."""
    calls: int = 0
    count: int = 0
    last_assistant: int = 0
    through_assistant: int = 0
    dropped_reasoning: bool = False


class ChatReader:
    """Converts records. Prompts and tools repeat within a run, so their conversions are cached.

    With `compares`, chats have digests of their completions.
    """

    def __init__(self, style: ChatStyle, *, compares: bool = False) -> None:
        self.style = style
        self.has_parts = False
        """Whether a message had content that is not text."""
        self._compares = compares
        self._convert_arguments = _arguments_as_text if style.arguments == "text" else _arguments_as_object
        self._escapes = style.escaped_content
        self._reasoning = style.reasoning
        self._recent: dict[int, _Recent] = {}
        self._prompts: dict[tuple[bytes, bytes, bytes], _Prompt] = {}
        self._heads: dict[bytes, tuple[bytes, bytes]] = {}

    def read(self, record: Record) -> Chat:
        """The chat of a record. Raises NotChatError with the reason."""
        response = record.response
        if response is None or response.output is None:
            raise NotChatError("unusual_transcript" if record.is_unusual else "no_transcript")
        try:
            prompt = self._prompt_of_task(record.task, record.params, response.instructions, response.tools)
            turns = self._turns(response.output, compares=self._compares)
        except (msgspec.MsgspecError, UnicodeDecodeError, UnicodeEncodeError) as error:
            raise NotChatError("unusual_transcript") from error
        if not turns.last_assistant:
            raise NotChatError("no_assistant_turn")
        pieces = turns.pieces
        del pieces[turns.through_assistant :]  # what follows the last turn of the model is not trained on
        pieces[0] = pieces[0][1:]  # a comma
        return Chat(
            prompt.messages,
            b"".join(pieces),
            prompt.tools,
            prompt.digest,
            _digest(turns.seen) if turns.seen is not None else b"",
            prompt.message_count,
            turns.last_assistant,
            prompt.dropped_reasoning or turns.dropped_reasoning,
        )

    def prompt_of(self, line: bytes) -> tuple[bytes, bytes]:
        """The prompt's messages of a row, and its tools."""
        try:
            prompt = self._prompt(bytes(_ROW(line).params), b"", b"")
        except (msgspec.MsgspecError, UnicodeDecodeError, UnicodeEncodeError) as error:
            raise NotChatError("unusual_transcript") from error
        return prompt.messages, prompt.tools

    def _prompt_of_task(self, task: int, params: msgspec.Raw, instructions: msgspec.Raw, tools: msgspec.Raw) -> _Prompt:
        """The prompt of a record. Comparing with the task's last one costs less than a hash of all of it."""
        recent = self._recent.get(task)
        if recent is None or recent.params != params or recent.tools != tools or recent.instructions != instructions:
            if len(self._recent) >= _CACHED:
                self._recent.clear()
            prompt = self._prompt(bytes(params), bytes(instructions), bytes(tools))
            recent = _Recent(params.copy(), instructions.copy(), tools.copy(), prompt)  # not views of the record
            self._recent[task] = recent
        return recent.prompt

    def _prompt(self, params: bytes, instructions: bytes, tools: bytes) -> _Prompt:
        """What create params mean; the response repeats the instructions and tools if the params have none."""
        known = self._prompts.get((params, instructions, tools))
        if known is None:
            if len(self._prompts) >= _CACHED:
                self._prompts.clear()
            known = self._convert_prompt(_PARAMS(params or b"{}"), instructions, tools)
            self._prompts[params, instructions, tools] = known
        return known

    def _convert_prompt(self, params: Params, instructions: bytes, tools: bytes) -> _Prompt:
        items, system = bytes(params.input), _first(bytes(params.instructions), instructions)
        if items[:1] not in (b'"', b"["):
            raise NotChatError("no_prompt")
        given = _ITEMS(items) if items[:1] == b"[" else [Item("message", "user", _TEXT(items))]
        turns = self._turns(given, compares=True)
        messages, count = b"".join(turns.pieces)[1:], turns.count
        if system[:1] == b'"' and system != _EMPTY:
            first = b'{"role":"system","content":' + self._escape(system) + b"}"
            messages, count = b",".join([first, messages] if messages else [first]), count + 1
        if not messages:
            raise NotChatError("no_prompt")
        digest = _digest([system, *(turns.seen or ())])
        converted = self._list_tools(_first(bytes(params.tools), tools))
        return _Prompt(messages, count, digest, converted, turns.dropped_reasoning)

    def _turns(self, items: list[Item], *, compares: bool) -> _Turns:
        turns = _Turns([] if compares else None)
        texts: list[Any] = []
        reasons: list[Any] = []
        calls: list[Any] = []
        for item in items:
            kind = item.type
            if kind == "function_call":
                self._add_call(turns, calls, item)
            elif kind == "reasoning":
                summary = item.summary
                if summary and len(summary) == 1 and (text := summary[0].text) and memoryview(text)[0] == _QUOTE:
                    reasons.append(text)
                else:
                    reasons += _texts(summary) or _texts(item.content) or (_EMPTY,)
            elif item.role == "assistant" and kind in _MESSAGE:
                texts += _texts(item.content) or _refusals(item.content) or (_EMPTY,)
            else:
                if calls or texts or reasons:
                    self._add_assistant(turns, texts, reasons, calls)
                    texts, reasons, calls = [], [], []
                if kind == "function_call_output":
                    self._add_tool(turns, item)
                else:
                    self._add_other(turns, item)
        if calls or texts or reasons:
            self._add_assistant(turns, texts, reasons, calls)
        return turns

    def _add_assistant(self, turns: _Turns, texts: list[Any], reasons: list[Any], calls: list[Any]) -> None:
        pieces, seen = turns.pieces, turns.seen
        text = (texts[0] if len(texts) == 1 else _join(texts)) if texts else _EMPTY
        reasoning = (reasons[0] if len(reasons) == 1 else _join(reasons)) if reasons else _EMPTY
        if reasoning is _EMPTY:
            pieces += (_ASSISTANT, self._escape(text) if self._escapes else text)
        elif self._reasoning == "field":
            pieces += (_ASSISTANT, self._escape(text) if self._escapes else text, _REASONING, reasoning)
        else:
            text = self._without_field(turns, text, reasoning)
            pieces += (_ASSISTANT, self._escape(text) if self._escapes else text)
        if calls:
            calls[0] = _CALLS
            pieces += calls
            pieces.append(b"]}")
        else:
            pieces.append(b"}")
        if seen is not None:
            seen += (b"assistant", text, b"" if reasoning is _EMPTY else reasoning, *_without_ids(calls))
        turns.last_assistant = turns.count = turns.count + 1
        turns.through_assistant = len(pieces)

    def _without_field(self, turns: _Turns, text: Any, reasoning: Any) -> Any:
        """The text of a message whose reasoning has no field of its own."""
        if self._reasoning == "inline":
            return b'"<think>' + bytes(reasoning)[1:-1] + b"</think>" + bytes(text)[1:]
        turns.dropped_reasoning = True
        return text

    def _add_call(self, turns: _Turns, calls: list[Any], item: Item) -> None:
        call_id, name = bytes(item.call_id), bytes(item.name)
        call_head, tool_head = self._heads.get(name) or self._make_heads(name)
        if not call_id or call_id[0] != _QUOTE:
            call_id = b'"call_%d"' % turns.calls
        turns.calls += 1
        open_heads = turns.tool_heads
        if call_id in open_heads and call_id in calls[1::5]:
            turns.later_heads.setdefault(call_id, []).append(tool_head)
        else:
            open_heads[call_id] = tool_head
        calls += (b',{"id":', call_id, call_head, self._convert_arguments(item.arguments), b"}}")

    def _make_heads(self, name: bytes) -> tuple[bytes, bytes]:
        """What follows the id in a call of a tool, and in the message with its result."""
        if name[:1] != b'"':
            raise NotChatError("unusual_transcript")
        if len(self._heads) >= _CACHED:
            self._heads.clear()
        tool_head = b',"name":' + name + _CONTENT if self.style.tool_names else _CONTENT
        heads = b',"type":"function","function":{"name":' + name + b',"arguments":', tool_head
        self._heads[name] = heads
        return heads

    def _add_tool(self, turns: _Turns, item: Item) -> None:
        call_id, content = bytes(item.call_id), item.output
        if not call_id or call_id[0] != _QUOTE:
            call_id = _EMPTY
        if not content or self._escapes or memoryview(content)[0] != _QUOTE:
            content = self._escape(self._content(bytes(content)))
        head = turns.tool_heads.pop(call_id, _CONTENT)
        if turns.later_heads and (waiting := turns.later_heads.get(call_id)):
            turns.tool_heads[call_id] = waiting.pop(0)
        turns.pieces += (b',{"role":"tool","tool_call_id":', call_id, head, content, b"}")
        if turns.seen is not None:
            turns.seen += (b"tool", content)
        turns.count += 1

    def _add_other(self, turns: _Turns, item: Item) -> None:
        if item.type not in _MESSAGE:
            raise NotChatError(f"item_{item.type}")
        role = "system" if item.role == "developer" else item.role or "user"
        if role not in {"system", "user"}:
            raise NotChatError("unusual_role")
        content = self._parts(item.content) if isinstance(item.content, list) else orjson.dumps(item.content or "")
        turns.pieces += (b',{"role":"' + role.encode() + b'","content":', self._escape(content), b"}")
        if turns.seen is not None:
            turns.seen += (role.encode(), content)
        turns.count += 1

    def _content(self, data: bytes) -> bytes:
        """Text as a JSON string, also if it comes in parts; with images, the list of parts."""
        if data[:1] == b'"':
            return data
        if data[:1] == b"[":
            return self._parts(_PARTS(data))
        return _EMPTY if data in (b"", b"null") else orjson.dumps(data.decode())

    def _parts(self, parts: list[Part]) -> bytes:
        if all(part.text for part in parts):
            return _join([part.text for part in parts])
        converted = b"[" + b",".join(map(self._part, parts)) + b"]"
        self.has_parts = True
        return converted

    def _escape(self, content: Any) -> Any:
        return orjson.dumps(bytes(content).decode()) if self.style.escaped_content else content

    def _part(self, part: Part) -> bytes:
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


def _arguments_as_text(raw: msgspec.Raw) -> Any:
    """The arguments of a call as a text with JSON."""
    if raw and memoryview(raw)[0] == _QUOTE:
        return raw
    return orjson.dumps(bytes(raw).decode() or "{}")


def _arguments_as_object(raw: msgspec.Raw) -> Any:
    """The arguments of a call; those that are not a JSON object stay the text that the model wrote."""
    if not raw:
        return b"{}"
    try:
        text = _TEXT(raw)
    except msgspec.ValidationError:  # not the contract's text: keep the value
        return raw
    if text[:1] != "{":
        text = text.strip() or "{}"
        if text[0] != "{":
            return raw
    try:
        value = _RAW(text.encode())  # as written, with numbers of any size
        return _compact(value) if "\n" in text or "\r" in text else value
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return raw


def _texts(content: list[Part] | str | None) -> list[Any]:
    """The texts of content, as JSON strings."""
    if not content:
        return []
    if isinstance(content, str):
        return [orjson.dumps(content)]
    if len(content) == 1:  # nearly always
        text = content[0].text
        return [text] if text and memoryview(text)[0] == _QUOTE else []
    return [part.text for part in content if part.text and memoryview(part.text)[0] == _QUOTE]


def _refusals(content: list[Part] | str | None) -> list[Any]:
    parts = content if isinstance(content, list) else ()
    return [part.refusal for part in parts if part.refusal and memoryview(part.refusal)[0] == _QUOTE]


def _join(texts: list[Any]) -> bytes:
    return b'"' + b"".join([bytes(text)[1:-1] for text in texts]) + b'"'


def _first(*values: bytes) -> bytes:
    """The first value that is not missing, null or an empty list."""
    return next((value for value in values if value not in _MISSING), b"")


def _without_ids(calls: list[Any]) -> list[Any]:
    """The names and arguments of calls: each is five pieces, the second of them its id."""
    heads, arguments = calls[2::5], calls[3::5]
    return [*heads, *map(_compact, arguments)]


def _compact(value: Any) -> bytes:
    """JSON without spaces between its values."""
    return msgspec.json.format(bytes(value), indent=-1)


def _digest(parts: list[Any]) -> bytes:
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()
