"""Conversations as ids: what the chat template writes, and which of the ids are the assistant's own.

A plain Python twin of `chat_template.jinja` (a test compares the two), because rendering millions of transcripts with
jinja is slow and does not say who wrote what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gymnast.builtin.responses_api_models.embedded_model.tokenizer import ByteLevelTokenizer

Message = dict[str, Any]


@dataclass(slots=True)
class Writing:
    """Ids as they are written, and for each whether the assistant wrote it."""

    tokenizer: ByteLevelTokenizer
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)

    def text(self, text: str, *, sampled: bool = False) -> None:
        self._add(self.tokenizer.encode(text), sampled=sampled)

    def control(self, token: str, *, sampled: bool = False) -> None:
        self._add([self.tokenizer.control_tokens[token]], sampled=sampled)

    def turn(self, role: str, text: str) -> None:
        self.control("<|im_start|>")
        self.text(f"{role}\n{text}")
        self.end()

    def begin_assistant(self) -> None:
        self.control("<|im_start|>")
        self.text("assistant\n")

    def assistant(self, message: Message) -> None:
        self.begin_assistant()
        content, calls = message.get("content") or "", message.get("tool_calls") or []
        self.text(content + ("\n" if content and calls else ""), sampled=True)
        for index, call in enumerate(calls):
            function = call["function"]
            if index:
                self.text("\n", sampled=True)
            self.control("<tool_call>", sampled=True)
            self.text(f'{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}', sampled=True)
            self.control("</tool_call>", sampled=True)
        self.end(sampled=True)

    def end(self, *, sampled: bool = False) -> None:
        self.control("<|im_end|>", sampled=sampled)
        self.text("\n")

    def _add(self, ids: list[int], *, sampled: bool) -> None:
        self.ids += ids
        self.sampled += [sampled] * len(ids)


def write(
    tokenizer: ByteLevelTokenizer, messages: Sequence[Message], tools: Sequence[Message], *, prompt: bool = False
) -> Writing:
    """The whole conversation; with `prompt` up to where the assistant speaks next."""
    writing = Writing(tokenizer)
    lead = messages[0]["content"] if messages and messages[0]["role"] in {"system", "developer"} else None
    listed = "Tools:" + "".join(f"\n{declared(tool)}" for tool in tools) if tools else None
    if lead is not None or listed is not None:
        writing.turn("system", "\n".join(text for text in (lead, listed) if text is not None))
    for message in messages[lead is not None :]:
        if message["role"] == "assistant":
            writing.assistant(message)
        else:
            writing.turn("system" if message["role"] == "developer" else message["role"], message["content"] or "")
    if prompt:
        writing.begin_assistant()
    return writing


def declared(tool: Message) -> str:
    """A tool as one line: its name and its arguments."""
    function = tool.get("function", tool)
    arguments = (function.get("parameters") or {}).get("properties") or {}
    return f"{function['name']}({', '.join(arguments)})"
