"""A chat server that re-tokenises histories, and continues tokens that come with a message, as NeMo RL's servers do.

It samples one token per character and renders two per token where it can, so a rendered history is never the sampled
one. Its parser drops whitespace around texts and calls.
"""

from __future__ import annotations

import json
import re
from typing import Any

from gymnast.wire.asgi import AsgiScope, Receive, Send, read_body, send_reply
from gymnast.wire.message import Reply

EOS = 0
_PAIRS = 10_000_000
_CALL = re.compile(r"<call>(\w+) (.*?)</call>", re.DOTALL)
FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


def sample_ids(text: str) -> list[int]:
    return [ord(character) for character in text]


def render_ids(text: str) -> list[int]:
    """Two characters per token where both are letters."""
    ids: list[int] = []
    index = 0
    while index < len(text):
        if text[index : index + 2].isalpha() and len(text) > index + 1:
            ids.append(_PAIRS + ord(text[index]) * 1_200_000 + ord(text[index + 1]))
            index += 2
        else:
            ids.append(ord(text[index]))
            index += 1
    return ids


def text_of(ids: list[int]) -> str:
    """The text behind ids, whichever way they were made."""
    texts = []
    for token in ids:
        pair = token - _PAIRS
        texts.append(
            "¶" if token == EOS else chr(token) if pair < 0 else chr(pair // 1_200_000) + chr(pair % 1_200_000)
        )
    return "".join(texts)


class DriftingEngine:
    """Answers with the texts it was given, in order. "…" at the end cuts a turn off; with "" a turn ends at once.

    Of such a turn no token is reported, as by servers that leave out end tokens.
    """

    def __init__(self, *texts: str, via_tokenize: bool = False) -> None:
        self.texts = list(texts)
        self.requests: list[dict[str, Any]] = []
        self.prompts: list[list[int]] = []
        self._via_tokenize = via_tokenize
        """Report sampled tokens only, as engines without prompt ids do: the prompt comes from /tokenize."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        body = json.loads(await read_body(receive))
        if scope["path"].endswith("/tokenize"):
            return await send_reply(send, Reply(200, {"tokens": self.prompt(body)}))
        self.requests.append(body)
        await send_reply(send, Reply(200, self._complete(body)))
        return None

    @property
    def carried(self) -> list[bool]:
        """Of each request: whether its last assistant message had tokens."""
        return [any(FIELDS[0] in message for message in request["messages"]) for request in self.requests]

    def prompt(self, body: dict[str, Any]) -> list[int]:
        messages = body["messages"]
        tools = render_ids(json.dumps(body.get("tools") or [], sort_keys=True))
        rendered = tools + [token for message in messages for token in _render(message)] + render_ids("bot:")
        last = max((place for place, message in enumerate(messages) if FIELDS[0] in message), default=None)
        if last is None:
            return rendered
        start: list[int] = messages[last]["prompt_token_ids"] + messages[last]["generation_token_ids"]
        start = start[:-1] if start[-1] == EOS else start
        wanted = [*tools, *(token for message in messages[: last + 1] for token in _render(message))].count(EOS)
        ends = [place for place, token in enumerate(rendered) if token == EOS]
        return start + rendered[ends[wanted - 1] :]

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        text = self.texts.pop(0)
        cut = text.endswith("…")
        prompt, sampled = self.prompt(body), sample_ids(text) + ([] if cut or not text else [EOS])
        self.prompts.append(prompt)
        message = _parse(text)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if cut else "stop", "message": message}
        logprobs = [-0.5] * len(sampled)
        if self._via_tokenize:
            entries = [{"token": f"token_id:{token}", "logprob": -0.5} for token in sampled]
            choice["logprobs"] = {"content": entries}
        else:
            message |= dict(zip(FIELDS, (prompt, sampled, logprobs), strict=True))
        return {"id": "c", "object": "chat.completion", "created": 9, "model": "m", "choices": [choice]}


def _render(message: dict[str, Any]) -> list[int]:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part.get("text", "[image]") for part in content)
    calls = "".join(
        f"<call>{call['function']['name']} {call['function']['arguments']}</call>"
        for call in message.get("tool_calls") or ()
    )
    thought = message.get("reasoning_content")
    thinking = f"<think>{thought}</think>" if thought else ""
    return [*render_ids(f"{message['role']}:{thinking}{text}{calls}"), EOS]


def _parse(text: str) -> dict[str, Any]:
    thought, _, rest = text.rpartition("</think>")
    calls = _CALL.findall(rest)
    message: dict[str, Any] = {"role": "assistant", "content": _CALL.sub("", rest).strip() or None}
    if thought:
        message["reasoning_content"] = thought.removeprefix("<think>").strip()
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": arguments.strip()}}
            for place, (name, arguments) in enumerate(calls)
        ]
    return message
