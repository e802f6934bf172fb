"""Renders the fixed conversations with transformers and writes what came out, for comparison.

python -m tests.tokens.make_golden          in an environment with transformers; reads the cache of fetch.py
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.tokens.conversations import FIXED, TOOLS
from tests.tokens.pairs import CLOCK, PAIRS, Pair, definition

GOLDEN = Path(__file__).parent / "golden.json"


def digest(value: Any) -> str:
    """Short, and the same everywhere."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


class _StoppedClock:
    """Stands in for the datetime class."""

    @staticmethod
    def now() -> datetime:
        return CLOCK


def _forms(messages: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """With arguments as objects or texts, and content empty or none, as one or the other template wants it."""
    forms = []
    for empty in ("", None):
        for load in (json.loads, str):
            form = json.loads(json.dumps(messages))
            for message in form:
                for call in message.get("tool_calls", ()):
                    call["function"]["arguments"] = load(call["function"]["arguments"])
                    message["content"] = message["content"] or empty
            forms.append(form)
    return forms


def rendered(pair: Pair, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str | None:
    """The text of the first form that the template writes whole."""
    chat_template_utils: Any = import_module("transformers.utils.chat_template_utils")  # not in our environment
    chat_template_utils.datetime = _StoppedClock
    needed = [call["function"]["name"] for message in messages for call in message.get("tool_calls", ())]
    needed += ["omega"] if any("omega" in str(message) for message in messages) else []
    needed += [tool["function"]["name"] for tool in tools or ()]
    needed += [message["content"].strip() for message in messages if message["role"] == "user"]
    for form in _forms(messages):
        try:
            texts, _ = chat_template_utils.render_jinja_template(
                conversations=[form],
                tools=tools,
                chat_template=pair.source(),
                add_generation_prompt=True,
                **{**pair.variables(), **pair.args},
            )
        except Exception:
            continue
        if all(text in texts[0] for text in needed):
            return str(texts[0])
    return None


def main() -> None:
    from tokenizers import AddedToken, Tokenizer

    golden: dict[str, Any] = {}
    for pair in PAIRS:
        backend = Tokenizer.from_str(json.dumps(definition(pair.vocabulary)))
        backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in pair.extra])
        for name, messages in FIXED.items():
            for tools in (None, TOOLS):
                text = rendered(pair, messages, tools)
                ids = backend.encode(text, add_special_tokens=False).ids if text is not None else None
                key = f"{pair.name} / {name} / {'tools' if tools else 'no tools'}"
                golden[key] = [digest(text), digest(ids), len(ids)] if ids is not None else None
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items())
    GOLDEN.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
