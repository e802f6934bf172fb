"""Weights from GGUF files: every block type, the order of rotated rows, and SmolLM2's way to cut text."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from gymnast.builtin.responses_api_models.embedded_model.cache import Cache, Pool
from gymnast.builtin.responses_api_models.embedded_model.gguf import GgufFile
from gymnast.builtin.responses_api_models.embedded_model.smollm2 import pieces, read_gguf_policy
from gymnast.builtin.responses_api_models.embedded_model.tokenizer import byte_characters
from gymnast.builtin.responses_api_models.embedded_model.transformer import Transformer
from gymnast.errors import DataError
from tests.helpers.small_transformer import SMALL, random_weights

F32, F16, Q4_0, Q4_1, Q8_0, Q6_K = 0, 1, 2, 3, 8, 14
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
Stored = tuple[tuple[int, ...], int, bytes]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def typed(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    kinds = {str: (8, text), int: (5, lambda number: struct.pack("<i", number))}
    kind, write = kinds[type(value[0])]
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(write, value))


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(name) + typed(value) for name, value in metadata.items())
    body = b""
    for name, (shape, kind, content) in tensors.items():
        sizes = b"".join(struct.pack("<Q", size) for size in reversed(shape))
        head += text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, len(body))
        body += content + bytes(-len(content) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + body)


def test_blocks_of_every_type_are_decoded(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    scale, low = np.float16(0.25), np.float16(-1.5)
    nibbles, signed = chance.integers(0, 16, 32), chance.integers(-128, 128, 32)
    packed = bytes(int(nibbles[place]) | int(nibbles[place + 16]) << 4 for place in range(16))
    plain = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensors: dict[str, Stored] = {
        "f32": ((2, 3), F32, plain.tobytes()),
        "f16": ((2, 3), F16, plain.astype(np.float16).tobytes()),
        "q4_0": ((1, 32), Q4_0, scale.tobytes() + packed),
        "q4_1": ((1, 32), Q4_1, scale.tobytes() + low.tobytes() + packed),
        "q8_0": ((1, 32), Q8_0, scale.tobytes() + signed.astype(np.int8).tobytes()),
        "q6_k": ((1, 256), Q6_K, bytes(210)),
    }
    write_gguf(tmp_path / "x.gguf", {"general.name": "x", "a.list": ["b", "c"]}, tensors)
    file = GgufFile(tmp_path / "x.gguf")
    assert file.metadata == {"general.name": "x", "a.list": ["b", "c"]}
    np.testing.assert_array_equal(file.tensor("f32"), plain)
    np.testing.assert_array_equal(file.tensor("f16"), plain)
    np.testing.assert_array_equal(file.tensor("q4_0")[0], (nibbles - 8) * 0.25)
    np.testing.assert_array_equal(file.tensor("q4_1")[0], nibbles * 0.25 - 1.5)
    np.testing.assert_array_equal(file.tensor("q8_0")[0], signed * 0.25)
    with pytest.raises(DataError, match="tensor q6_k has unsupported type 14"):
        file.tensor("q6_k")
    (tmp_path / "y.gguf").write_bytes(b"not such a file at all, sorry")
    with pytest.raises(DataError, match="not a GGUF file"):
        GgufFile(tmp_path / "y.gguf")


def paired(weights: np.ndarray[Any, Any], head_width: int) -> np.ndarray[Any, Any]:
    """Rows as llama.cpp stores them: those that are turned against each other are neighbours."""
    outer, inner = weights.shape
    halves = weights.reshape(outer // head_width, 2, head_width // 2, inner)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(outer, inner)


def test_a_model_reads_the_same_from_a_gguf_file(tmp_path: Path) -> None:
    weights = random_weights(SMALL)
    stored: dict[str, Stored] = {}
    for name, tensor in weights.items():
        if name.startswith("model.layers."):
            _, _, layer, kind = name.removesuffix(".weight").split(".", 3)
            turned = paired(tensor, SMALL.head_width) if kind.endswith(("q_proj", "k_proj")) else tensor
            stored[f"blk.{layer}.{NAMES[kind]}.weight"] = (tensor.shape, F16, turned.tobytes())
    embedding, norm = weights["model.embed_tokens.weight"], weights["model.norm.weight"]
    stored["token_embd.weight"] = (embedding.shape, F16, embedding.tobytes())
    stored["output_norm.weight"] = (norm.shape, F32, norm.astype(np.float32).tobytes())
    tokens = ["<|im_start|>", *byte_characters()[33:127], "ab"]
    metadata = {
        "llama.attention.head_count": SMALL.heads,
        "llama.attention.head_count_kv": SMALL.kv_heads,
        "llama.embedding_length": SMALL.width,
        "llama.feed_forward_length": SMALL.inner_width,
        "llama.block_count": SMALL.layers,
        "llama.context_length": SMALL.context,
        "llama.rope.freq_base": SMALL.rope_theta,
        "llama.attention.layer_norm_rms_epsilon": SMALL.norm_eps,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, *[1] * 95],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.chat_template": "…",
    }
    write_gguf(tmp_path / "Tiny-1M.Q4_1.gguf", metadata, stored)
    policy = read_gguf_policy(tmp_path / "Tiny-1M.Q4_1.gguf")
    assert policy.name == "Tiny-1M"
    ids = policy.tokenizer.encode("abc<|im_start|>")
    assert policy.tokenizer.decode(ids) == "abc<|im_start|>"
    assert ids[0] == 95
    assert 0 not in ids
    found = policy.transformer.forward([(Cache(Pool(SMALL)), ids)], every=True)
    wanted = Transformer(SMALL, weights).forward([(Cache(Pool(SMALL)), ids)], every=True)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@given(st.text(st.sampled_from("ab Z9½三٣Ⅷ\t\n\x1c\u3000 é'slld_.-ɐ\u0301😀") | st.characters(max_codepoint=0x17F)))
def test_text_is_cut_as_the_tokenizers_library_does(given_text: str) -> None:
    digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    cut = [span for _, span in pre_tokenizers.Sequence([digits, words]).pre_tokenize_str(given_text)]
    assert [given_text[start:end] for start, end in cut] == list(pieces(given_text))
