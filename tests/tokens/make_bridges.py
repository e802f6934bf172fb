"""Bridges random conversations with the PyPI package `renderers` and writes what came out, for comparison.

    python -m tests.tokens.make_bridges         in an environment with renderers==0.1.12; reads the cache of fetch.py

Each line of `bridges.json` is one turn: whether it was cut off, and the length and digest of the next prompt, or null
where the package refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.tokens.conversations import TOOLS, random_conversations
from tests.tokens.fetch import CACHE
from tests.tokens.make_golden import digest
from tests.tokens.turns import write_hermes

BRIDGES = Path(__file__).parent / "bridges.json"
SEED, COUNT = 5, 60


def turns() -> Iterator[tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]], bool]]:
    """What was said before, the assistant's message, what is new after it, and whether sampling was cut off."""
    for number, messages in enumerate(random_conversations(SEED, COUNT)):
        places = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
        for at, following in zip(places, [*places[1:], len(messages)], strict=True):
            if messages[at + 1 : following]:
                yield messages[:at], messages[at], messages[at + 1 : following], (number + at) % 3 == 0


def main() -> None:
    transformers: Any = import_module("transformers")
    renderers: Any = import_module("renderers.qwen3")
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(CACHE / "qwen3")
    theirs = renderers.Qwen3Renderer(tokenizer)
    lines = []
    for before, message, new, is_cut_off in turns():
        prompt = theirs.render_ids(before, tools=TOOLS, add_generation_prompt=True)
        sampled = tokenizer.encode(write_hermes(message) + ("" if is_cut_off else "<|im_end|>"))
        bridged = theirs.bridge_to_next_turn(prompt, sampled, new, tools=TOOLS)
        ids = list(bridged.token_ids) if bridged is not None else None
        lines.append(json.dumps([is_cut_off, len(ids), digest(ids)] if ids is not None else None))
    BRIDGES.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
