"""The pairs of tokenizer and chat template that everything is proved on."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymnast.tokens.families.registry import detect_family, get_family
from gymnast.tokens.families.smollm2 import TOOL_TEMPLATE
from gymnast.tokens.hf_tokenizer import HfTokenizer, read_model_files
from gymnast.tokens.template import TemplateRenderer
from tests.helpers.parts import PARTS
from tests.tokens.fetch import CACHE, TEMPLATES

HARMONY = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")
GLM_ROLES = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
GLM = (*GLM_ROLES, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Pair:
    """A vocabulary, a template, and control tokens that the template needs on top of the vocabulary."""

    name: str
    vocabulary: str
    template: str = "own"
    """`own`: the vocabulary's; else a bundled one, or a text."""
    extra: tuple[str, ...] = ()
    family: str | None = None
    eos: str | None = None
    args: dict[str, Any] = field(default_factory=dict, hash=False)

    def source(self) -> str:
        if self.template == "own":
            text = read_model_files(CACHE / self.vocabulary).chat_template
            assert text is not None
            return text
        return self.template if "{" in self.template else (TEMPLATES / f"{self.template}.jinja").read_text()

    def variables(self) -> dict[str, str]:
        told = dict(read_model_files(CACHE / self.vocabulary).variables)
        return {**told, "eos_token": self.eos} if self.eos else told

    def extra_tokens(self) -> list[dict[str, Any]]:
        known = definition(self.vocabulary)["added_tokens"]
        first = max(token["id"] for token in known) + 1
        return [{"id": first + at, "content": text, "special": True, **_FLAGS} for at, text in enumerate(self.extra)]


_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}

PAIRS = (
    Pair("qwen3", "qwen3"),
    Pair("qwen3_trl", "qwen3", "qwen3"),
    Pair("qwen3_training", "qwen3", "qwen3_training"),
    Pair("qwen3_nothink", "qwen3", args={"enable_thinking": False}),
    Pair("qwen3_instruct", "qwen3", "qwen3_instruct_2507"),
    Pair("qwen2_5", "qwen2_5", family="qwen2_5"),
    Pair("llama3_1", "llama3_1"),
    Pair("llama3_2", "llama3_2"),
    Pair("llama3_1_tools", "llama3_2", "llama3_1"),
    Pair("gemma3", "gemma3"),
    Pair("deepseek_v3", "deepseek_v3"),
    Pair("deepseek_v3_trl", "deepseek_v3", "deepseekv3"),
    Pair("mistral_nemo", "mistral_nemo"),
    Pair("glm4_5", "qwen3", "glm4moe", extra=GLM, eos="<|endoftext|>"),
    Pair("glm4_5_nothink", "qwen3", "glm4moe", extra=GLM, eos="<|endoftext|>", args={"enable_thinking": False}),
    Pair("gpt_oss", "qwen3", "gptoss", extra=HARMONY, eos="<|return|>"),
    Pair("nemotron3_nano", "qwen3", "nemotron_3_nano"),
    Pair("nemotron3_super", "qwen3", "nemotron_3_super", args={"enable_thinking": False}),
    Pair("smollm2", "qwen2_5", SMOLLM2_TEMPLATE, family="smollm2"),
    Pair("smollm2_tools", "qwen2_5", TOOL_TEMPLATE, family="smollm2"),
)
BY_NAME = {pair.name: pair for pair in PAIRS}
CLOCK = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

needs_cache = pytest.mark.skipif(not TEMPLATES.is_dir(), reason=PARTS["real tokenizers"].reason)


@cache
def definition(vocabulary: str) -> dict[str, Any]:
    """tokenizer.json."""
    value: dict[str, Any] = orjson.loads(Path(CACHE / vocabulary / "tokenizer.json").read_bytes())
    return value


@cache
def renderer(name: str) -> TemplateRenderer:
    """The renderer of a pair, loaded once."""
    pair = BY_NAME[name]
    source = pair.source()
    family = get_family(pair.family) if pair.family else detect_family(source)
    assert family is not None
    return TemplateRenderer(
        _tokenizer(pair.vocabulary, pair.extra, name),
        source,
        family,
        variables=pair.variables(),
        stop_tokens=[pair.variables()["eos_token"]],
        clock=lambda: CLOCK,
    )


@cache
def _tokenizer(vocabulary: str, extra: tuple[str, ...], name: str) -> HfTokenizer:
    if not extra and name != vocabulary and vocabulary in BY_NAME:
        return _tokenizer(vocabulary, (), vocabulary)
    return HfTokenizer(definition(vocabulary), BY_NAME[name].extra_tokens(), template=BY_NAME[name].source())
