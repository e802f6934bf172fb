"""Conversations: a fixed few that outside implementations have rendered, and random ones."""

from __future__ import annotations

import json
import random
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Looks up a word — été, 東京.",
            "parameters": {
                "type": "object",
                "properties": {
                    "word": {"type": "string", "description": "The word"},
                    "limit": {"type": "integer", "description": "How many"},
                },
                "required": ["word"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "stop", "description": "Stops", "parameters": {"type": "object", "properties": {}}},
    },
]


def call(name: str, number: int = 1, **arguments: Any) -> dict[str, Any]:
    """A tool call with an id that every family takes."""
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": f"callid{number:03d}", "type": "function", "function": function}


def said(content: str | None, *calls: dict[str, Any], thought: str | None = None) -> dict[str, Any]:
    """An assistant's message."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if thought is not None:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = list(calls)
    return message


def result(content: str, number: int = 1) -> dict[str, Any]:
    """A tool's message."""
    return {"role": "tool", "tool_call_id": f"callid{number:03d}", "content": content}


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


SYSTEM = {"role": "system", "content": "You answer briefly.\nAlways."}
FIXED: dict[str, list[dict[str, Any]]] = {
    "one question": [user("What is 2+2?")],
    "with system": [SYSTEM, user("  Hello there,\n\n\nfriend  ")],
    "two rounds": [SYSTEM, user("a"), said("b"), user("Ünïcödé 東京 🙂 {{ x }} {% if %}")],
    "thought": [user("q"), said("answer", thought="let me see"), user("and now?")],
    "one call": [user("find it"), said("", call("look_up", word="naïve", limit=3)), result('{"found": [1, 2]}')],
    "words and call": [user("find"), said("I look.", call("look_up", word="x")), result("none\n")],
    "thought and call": [SYSTEM, user("f"), said("", call("stop"), thought="stop it"), result("done")],
    "two calls": [
        user("both"),
        said("", call("look_up", 1, word="alpha"), call("look_up", 2, word="omega", limit=0)),
        result("A", 1),
        result("B", 2),
    ],
    "long": [
        SYSTEM,
        user("1"),
        said("", call("look_up", 1, word="<b>bold</b>")),
        result("r1", 1),
        said("", call("look_up", 2, word='q"uote')),
        result("r2", 2),
        said("Here."),
        user("2"),
        said("Fine."),
        user("3\n"),
    ],
}


def random_conversations(seed: int, count: int) -> list[list[dict[str, Any]]]:
    """Tool loops with thoughts and users in between, the same for everybody who asks with one seed."""
    chance = random.Random(seed)
    return [_random_conversation(chance) for _ in range(count)]


def _random_conversation(chance: random.Random) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [SYSTEM] if chance.random() < 0.5 else []
    number = 0
    for _ in range(chance.randint(1, 3)):
        messages.append(user(_words(chance)))
        for _ in range(chance.randint(0, 3)):
            number += 1
            thought = _words(chance) if chance.random() < 0.5 else None
            messages.append(said(_words(chance), call("look_up", number, word=_words(chance)), thought=thought))
            messages.append(result(_words(chance), number))
        messages.append(said(_words(chance), thought=_words(chance) if chance.random() < 0.5 else None))
    return messages


def _words(chance: random.Random) -> str:
    known = ["tea", "Ünï", "東京", "🙂", "42", "{x}", "a\nb", "<b>", "it's", "end."]
    return " ".join(chance.choice(known) for _ in range(chance.randint(1, 6)))
