"""What a turn costs in the token ledger, as a share of what others do each turn: render and encode everything again.

    python bench/rendering.py [--turns 128] [--tokens 64000] [--tokenizer FOLDER] [--json]

Without a folder the vocabulary is trained on the spot, so that nothing has to be fetched. The yardstick is the bare
template and the bare tokenizer, without shield and sources. Bar: under 2% at the end of 128 turns and 64k tokens.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gymnast.tokens.backend import GeneratedTokens, Sampling
from gymnast.tokens.chat_template import ChatTemplate
from gymnast.tokens.conversation import TokenConversation
from gymnast.tokens.hf_tokenizer import read_model_files
from gymnast.tokens.load import load_renderer
from gymnast.tokens.rendering import Extension, ForkReason
from gymnast.tokens.template import TemplateRenderer

WORDS = [
    "the",
    "river",
    "opens",
    "slowly",
    "toward",
    "a",
    "wide",
    "delta",
    "where",
    "42",
    "boats",
    "wait",
    "until",
    "dawn",
]
TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' + (messages[0].content if messages[0].role == 'system' else '') + '\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages if message.role != 'system' %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Does what its name says, and says what it did. " * 4,
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
    for number in range(8)
]


def trained(folder: Path) -> TemplateRenderer:
    """A byte-level vocabulary of a few thousand tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    rng = random.Random(0)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    controls = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
    trainer = trainers.BpeTrainer(
        vocab_size=4000,
        special_tokens=controls,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text(rng, 400) for _ in range(200)], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return load_renderer(folder, chat_template=TEMPLATE, family="qwen2_5")


def text(rng: random.Random, words: int) -> str:
    """So many words."""
    return " ".join(rng.choice(WORDS) for _ in range(words))


def conversation(renderer: TemplateRenderer, turns: int, tokens: int) -> list[dict[str, Any]]:
    """A tool loop of so many turns and, all in all, about so many tokens."""
    rng = random.Random(1)
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]
    size = len(renderer.tokenizer.encode(text(rng, 1000))) / 1000
    words = max(1, int(tokens / turns / size) - 40)
    for turn in range(turns):
        function = {"name": f"tool_{turn % 8}", "arguments": json.dumps({"query": text(rng, 4)})}
        call = {"id": f"call{turn:05d}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": text(rng, words // 3), "tool_calls": [call]})
        result = text(rng, words - words // 3)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return messages


def seconds(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median of several runs each, in turns: a busy machine slows all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            started = time.process_time()
            work()
            taken[name].append(time.process_time() - started)
    return {name: statistics.median(times) for name, times in taken.items()}


def last_turn(renderer: TemplateRenderer, messages: list[dict[str, Any]]) -> Callable[[], object]:
    """A whole turn of the ledger, at the end of the conversation: history matched, bridge, what was sampled kept."""
    session = TokenConversation(renderer, "model")

    def sampled(answer: dict[str, Any]) -> GeneratedTokens:
        ids = [*renderer.tokenizer.encode(answer["content"]), renderer.stop_token_ids[0]]
        return GeneratedTokens(ids, [-1.0] * len(ids), "stop")

    def turn(end: int, answer: dict[str, Any], made: GeneratedTokens) -> None:
        session.finish(session.begin(messages[:end], TOOLS, {}), Sampling(), made, answer)

    for end in range(2, len(messages), 2):
        turn(end, messages[end], sampled(messages[end]))
    assert {call.reason for call in session.ledger().calls} == {ForkReason.FIRST, ForkReason.EXTENDS}
    last = {"role": "assistant", "content": messages[2]["content"]}
    made = sampled(last)
    return lambda: turn(len(messages), last, made)


def measure(renderer: TemplateRenderer, folder: Path, source: str, turns: int, tokens: int) -> dict[str, float]:
    """The last turn of a long conversation, bridged and rendered again."""
    from tokenizers import Tokenizer

    messages = conversation(renderer, turns, tokens)
    history, new = messages[:-1], messages[-1:]
    sampled = [*renderer.tokenizer.encode(messages[-2]["content"]), renderer.stop_token_ids[0]]
    assert isinstance(renderer.bridge(history, sampled, new, TOOLS, {}), Extension)
    backend, template = Tokenizer.from_file(str(folder / "tokenizer.json")), ChatTemplate(source)
    works: dict[str, Callable[[], object]] = {
        "yardstick": lambda: backend.encode(template.render(messages, TOOLS, {}, add_generation_prompt=True)).ids,
        "prompt": lambda: renderer.prompt(messages, TOOLS, {}),
        "bridge": lambda: renderer.bridge(history, sampled, new, TOOLS, {}),
        "ledger": last_turn(renderer, messages),
    }
    found = seconds(works, 15)
    figures = {f"{name}_ms": round(taken * 1000, 3) for name, taken in found.items()}
    ratio = round(found["ledger"] / found["yardstick"], 5)
    return {"prompt_tokens": len(renderer.prompt(messages, TOOLS, {}).ids), **figures, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64_000)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.tokenizer or Path(scratch)
        renderer = load_renderer(folder) if options.tokenizer else trained(folder)
        source = (read_model_files(folder).chat_template or TEMPLATE) if options.tokenizer else TEMPLATE
        found = measure(renderer, folder, source, options.turns, options.tokens)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{found['prompt_tokens']:.0f} tokens after {options.turns} turns")
    print(f"bare re-render {found['yardstick_ms']} ms, our prompt {found['prompt_ms']} ms")
    print(
        f"bridge {found['bridge_ms']} ms, a turn of the ledger {found['ledger_ms']} ms: {found['ratio']:.2%} (bar 2%)"
    )


if __name__ == "__main__":
    main()
