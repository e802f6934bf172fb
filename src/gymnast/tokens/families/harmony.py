"""gpt-oss: messages in channels. Analysis is thought, a message to a recipient a call, final and commentary content."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.tokens.families.family import ParseContext, ParseResult, Tag, TaggedText, to_text
from gymnast.tokens.families.hermes import make_call
from gymnast.tokens.rendering import NotRenderable, ParsedCall, ParsedTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.types.json import JsonObject

START: Final = "<|start|>"
CHANNEL: Final = "<|channel|>"
MESSAGE: Final = "<|message|>"
CONSTRAIN: Final = "<|constrain|>"
END: Final = "<|end|>"
CALL: Final = "<|call|>"
RETURN: Final = "<|return|>"
TAGS: Final = (START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN)

_RECIPIENT: Final = re.compile(r"\bto=functions\.(?P<name>[^\s<]+)")
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(?P<name>\w+)")
_ENDS: Final = (Tag(END), Tag(CALL), Tag(RETURN), Tag(START))


@dataclass(frozen=True, slots=True)
class _Message:
    header: str
    body: str
    has_body: bool
    is_closed: bool

    @property
    def channel(self) -> str:
        match = _CHANNEL.search(self.header)
        return match["name"] if match is not None else ""

    @property
    def whole(self) -> str:
        return self.header + (MESSAGE if self.has_body else "") + self.body


def parse_harmony(pieces: TaggedText, context: ParseContext) -> ParseResult:  # noqa: ARG001 - all parsers have one
    """Parse thought, content and calls."""
    thoughts: list[str] = []
    texts: list[str] = []
    calls: list[ParsedCall] = []
    malformed: list[str] = []
    messages = _messages(pieces)
    for message in messages:
        recipient = _RECIPIENT.search(message.header)
        call = make_call(recipient["name"], message.body or "{}") if recipient is not None else None
        if isinstance(call, ParsedCall):
            calls.append(call)
        elif call is not None or message.channel not in {"analysis", "commentary", "final"}:
            malformed.append(call or "a message without a channel")
            texts.append(message.whole)
        elif message.channel == "analysis":
            thoughts.append(message.body)
        else:
            texts.append(message.body)
    is_open = bool(messages) and messages[-1].channel == "analysis" and not messages[-1].is_closed
    turn = ParsedTurn("\n".join(texts), "\n".join(thoughts) if thoughts else None, tuple(calls), tuple(malformed))
    return ParseResult(turn, is_open)


def _messages(pieces: TaggedText) -> list[_Message]:
    """Split into messages; the first one follows the prompt's `<|start|>assistant`."""
    messages: list[_Message] = []
    header: TaggedText = []
    body: TaggedText | None = None
    for piece in pieces:
        if piece in _ENDS:
            if header or body:
                messages.append(_message(header, body, is_closed=True))
            header, body = [], None
        elif piece == Tag(MESSAGE) and body is None:
            body = []
        elif body is not None:
            body.append(piece)
        else:
            header.append(piece)
    if header or body:
        messages.append(_message(header, body, is_closed=False))
    return messages


def _message(header: TaggedText, body: TaggedText | None, *, is_closed: bool) -> _Message:
    text = to_text(header).removeprefix("assistant") if body is not None else to_text(header)
    return _Message(text, to_text(body or []), body is not None, is_closed)


def merge_content_into_thought(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Move content before a call into the thought: the template accepts only one of them before a call."""
    return [_merge(message) for message in messages]


def _merge(message: JsonObject) -> JsonObject:
    if len(message.get("tool_calls") or ()) > 1:
        raise NotRenderable("gpt-oss supports one tool call per turn; its template would drop the others")
    if not message.get("tool_calls") or not message.get("content") or not message.get("thinking"):
        return message
    return {**message, "content": "", "thinking": f"{message['thinking']}\n\n{message['content']}"}
