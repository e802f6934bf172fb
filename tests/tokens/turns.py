"""What a well-behaved model of each family samples for an assistant's message, written down independently."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gymnast.tokens.template import TemplateRenderer
from gymnast.tokens.tokenizer import Tokenizer

Message = dict[str, Any]


@dataclass(frozen=True)
class Manners:
    """How a pair's model speaks, and what its template can say at all."""

    write: Callable[[Message], str]
    stop: Callable[[Message, Message | None], str]
    tools: bool = True
    """The template has a place for tools."""
    calls: bool = True
    several_calls: bool = True
    words_with_calls: bool = True
    thoughts: bool = False
    always_thinks: bool = False


def _calls(message: Message) -> list[tuple[str, str, dict[str, Any], str]]:
    return [
        (call["function"]["name"], call["function"]["arguments"], json.loads(call["function"]["arguments"]), call["id"])
        for call in message.get("tool_calls", ())
    ]


def _always(stop: str) -> Callable[[Message, Message | None], str]:
    return lambda *_: stop


def write_hermes(message: Message) -> str:
    thought = message.get("reasoning_content")
    text = f"<think>\n{thought}\n</think>\n\n" if thought else ""
    calls = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {text}}}\n</tool_call>' for name, text, _, _ in _calls(message)
    ]
    return text + "\n".join(([message["content"]] if message["content"] else []) + calls)


def write_qwen3_training(message: Message) -> str:
    """This template keeps every thought and writes empty ones."""
    return ("" if message.get("reasoning_content") else "<think>\n\n</think>\n\n") + write_hermes(message)


def write_smollm2(message: Message) -> str:
    listed = ", ".join(f'{{"name": "{name}", "arguments": {text}}}' for name, text, _, _ in _calls(message))
    if not listed:
        return str(message["content"])
    return (message["content"] + "\n" if message["content"] else "") + f"<tool_call>[{listed}]</tool_call>"


def write_llama(message: Message) -> str:
    for name, text, _, _ in _calls(message):
        return f'{{"name": "{name}", "parameters": {text}}}'
    return str(message["content"])


def write_words(message: Message) -> str:
    return str(message["content"])


def write_deepseek(message: Message) -> str:
    calls = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{text}\n```<｜tool▁call▁end｜>"
        for name, text, _, _ in _calls(message)
    ]
    if not calls:
        return str(message["content"])
    return (message["content"] or "") + "<｜tool▁calls▁begin｜>" + "\n".join(calls) + "<｜tool▁calls▁end｜>"


def write_deepseek_thought(message: Message) -> str:
    """The prompt has opened the thought, and the template forgets it."""
    return f"{message['reasoning_content']}\n</think>\n\n" + write_deepseek(message)


def write_mistral(message: Message) -> str:
    listed = ", ".join(
        f'{{"name": "{name}", "arguments": {text}, "id": "{given}"}}' for name, text, _, given in _calls(message)
    )
    return f"[TOOL_CALLS][{listed}]" if listed else str(message["content"])


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def write_glm(message: Message) -> str:
    text = f"\n<think>{message.get('reasoning_content') or ''}</think>" + (
        f"\n{message['content']}" if message["content"] else ""
    )
    for name, _, arguments, _ in _calls(message):
        text += f"\n<tool_call>{name}\n"
        for key, value in arguments.items():
            text += f"<arg_key>{key}</arg_key>\n<arg_value>{_value(value)}</arg_value>\n"
        text += "</tool_call>"
    return text


def write_glm_nothink(message: Message) -> str:
    return write_glm({**message, "reasoning_content": None}).removeprefix("\n<think></think>")


def glm_stop(message: Message, following: Message | None) -> str:
    return "<|observation|>" if following is not None and following["role"] == "tool" else "<|user|>"


def write_harmony(message: Message) -> str:
    thought = message.get("reasoning_content")
    text = f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant" if thought else ""
    for name, arguments, _, _ in _calls(message):
        return text + f" to=functions.{name}<|channel|>commentary json<|message|>{arguments}"
    return text + f"<|channel|>final<|message|>{message['content']}"


def harmony_stop(message: Message, following: Message | None) -> str:
    return "<|call|>" if message.get("tool_calls") else "<|return|>"


def write_nemotron(message: Message) -> str:
    """The prompt has opened the thought."""
    return f"{message['reasoning_content']}\n</think>\n" + _nemotron_words(message)


def _nemotron_words(message: Message) -> str:
    text = message["content"] or ""
    calls = ""
    for name, _, arguments, _ in _calls(message):
        inside = "".join(f"<parameter={key}>\n{_value(value)}\n</parameter>\n" for key, value in arguments.items())
        calls += f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>\n"
    return text + ("\n" if text and calls else "") + calls


def write_nemotron_nothink(message: Message) -> str:
    """The prompt has written an empty thought."""
    words = _nemotron_words(message)
    return words if message["content"] or not message.get("tool_calls") else "\n" + words


_CHATML = _always("<|im_end|>")
_EOT = _always("<|eot_id|>")
MANNERS: dict[str, Manners] = {
    "qwen3": Manners(write_hermes, _CHATML, thoughts=True),
    "qwen3_trl": Manners(write_hermes, _CHATML, thoughts=True),
    "qwen3_training": Manners(write_qwen3_training, _CHATML, thoughts=True),
    "qwen3_nothink": Manners(write_hermes, _CHATML),
    "qwen3_instruct": Manners(write_hermes, _CHATML),
    "qwen2_5": Manners(write_hermes, _CHATML),
    "llama3_1": Manners(write_words, _EOT, tools=False, calls=False),
    "llama3_2": Manners(write_llama, _EOT, several_calls=False, words_with_calls=False),
    "llama3_1_tools": Manners(write_llama, _EOT, several_calls=False, words_with_calls=False),
    "gemma3": Manners(write_words, _always("<end_of_turn>"), tools=False, calls=False),
    "deepseek_v3": Manners(write_deepseek, _always("<｜end▁of▁sentence｜>"), tools=False, words_with_calls=False),
    "deepseek_v3_trl": Manners(
        write_deepseek_thought, _always("<｜end▁of▁sentence｜>"), tools=False, thoughts=True, always_thinks=True
    ),
    "mistral_nemo": Manners(write_mistral, _always("</s>"), words_with_calls=False),
    "glm4_5": Manners(write_glm, glm_stop, thoughts=True),
    "glm4_5_nothink": Manners(write_glm_nothink, glm_stop),
    "gpt_oss": Manners(write_harmony, harmony_stop, several_calls=False, words_with_calls=False, thoughts=True),
    "nemotron3_nano": Manners(write_nemotron, _CHATML, thoughts=True, always_thinks=True),
    "nemotron3_super": Manners(write_nemotron_nothink, _CHATML),
    "smollm2": Manners(write_words, _CHATML, tools=False, calls=False),
    "smollm2_tools": Manners(write_smollm2, _CHATML),
}


def ids_of(renderer: TemplateRenderer, text: str, chance: random.Random | None = None) -> list[int]:
    """Ids as sampled: control tokens where they are spelled. With `chance`, text is cut into odd pieces first."""
    ids: list[int] = []
    for piece, control in renderer._splitter._pieces(text):
        ids += encode_oddly(renderer.tokenizer, piece, chance) if chance else renderer.tokenizer.encode(piece)
        ids += [control] if control is not None else []
    return ids


def encode_oddly(tokenizer: Tokenizer, text: str, chance: random.Random) -> list[int]:
    """Valid tokens of a text that the tokenizer itself would not have chosen."""
    ids: list[int] = []
    while text:
        size = chance.randint(1, 4)
        ids += tokenizer.encode(text[:size])
        text = text[size:]
    return ids


def texts(renderer: TemplateRenderer, *runs: Sequence[int]) -> str:
    """Ids as one text."""
    return renderer.tokenizer.decode([token_id for run in runs for token_id in run])
