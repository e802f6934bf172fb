"""gpt-oss: messages in channels. Analysis is thought, a recipient makes a call, final and commentary are words."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.tokens.families.family import Context, Parsed, Script, Tag, written
from gymnast.tokens.families.hermes import as_json
from gymnast.tokens.rendering import NotRenderable, Said, SaidCall

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
        found = _CHANNEL.search(self.header)
        return found["name"] if found is not None else ""

    @property
    def whole(self) -> str:
        return self.header + (MESSAGE if self.has_body else "") + self.body


def parse_harmony(script: Script, context: Context) -> Parsed:  # noqa: ARG001 - all parsers have one
    """Thought, words, calls."""
    thoughts: list[str] = []
    words: list[str] = []
    calls: list[SaidCall] = []
    malformed: list[str] = []
    messages = _messages(script)
    for message in messages:
        recipient = _RECIPIENT.search(message.header)
        call = _call(recipient["name"], message.body) if recipient is not None else None
        if isinstance(call, SaidCall):
            calls.append(call)
        elif call is not None or message.channel not in {"analysis", "commentary", "final"}:
            malformed.append(call or "a message without a channel")
            words.append(message.whole)
        elif message.channel == "analysis":
            thoughts.append(message.body)
        else:
            words.append(message.body)
    is_open = bool(messages) and messages[-1].channel == "analysis" and not messages[-1].is_closed
    said = Said("\n".join(words), "\n".join(thoughts) if thoughts else None, tuple(calls), tuple(malformed))
    return Parsed(said, is_open)


def _messages(script: Script) -> list[_Message]:
    """Header, body and end of each; the first follows the prompt's own `<|start|>assistant`."""
    messages: list[_Message] = []
    header: Script = []
    body: Script | None = None
    for piece in script:
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


def _message(header: Script, body: Script | None, *, is_closed: bool) -> _Message:
    told = written(header).removeprefix("assistant") if body is not None else written(header)
    return _Message(told, written(body or []), body is not None, is_closed)


def _call(name: str, body: str) -> SaidCall | str:
    try:
        arguments = json.loads(body or "{}")
    except ValueError:
        return f"the arguments of '{name}' are not JSON"
    if not isinstance(arguments, dict):
        return f"the arguments of '{name}' are not an object"
    return SaidCall(name, as_json(arguments))


def with_one_thought(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The template takes a thought or words before a call, not both: words before a call are written as thought."""
    return [_with_one_thought(message) for message in messages]


def _with_one_thought(message: JsonObject) -> JsonObject:
    if len(message.get("tool_calls") or ()) > 1:
        raise NotRenderable("gpt-oss writes one tool call a turn; its template would drop the others")
    if not message.get("tool_calls") or not message.get("content") or not message.get("thinking"):
        return message
    return {**message, "content": "", "thinking": f"{message['thinking']}\n\n{message['content']}"}
