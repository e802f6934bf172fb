"""A transformer of the embedded policy's kind that is small enough for every test, with random weights."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gymnast.builtin.responses_api_models.embedded_model.transformer import Shape, Transformer

SMALL: Final = Shape(vocabulary=96, width=48, inner_width=80, layers=3, heads=6, kv_heads=2, head_width=8, context=512)


def small_transformer() -> Transformer:
    return Transformer(SMALL, random_weights(SMALL))


def random_weights(shape: Shape, seed: int = 0) -> dict[str, Any]:
    """Tensors by the names that they have in a checkpoint."""
    chance = np.random.default_rng(seed)
    kv = shape.kv_heads * shape.head_width
    sizes = {
        "input_layernorm": (shape.width,),
        "self_attn.q_proj": (shape.heads * shape.head_width, shape.width),
        "self_attn.k_proj": (kv, shape.width),
        "self_attn.v_proj": (kv, shape.width),
        "self_attn.o_proj": (shape.width, shape.heads * shape.head_width),
        "post_attention_layernorm": (shape.width,),
        "mlp.gate_proj": (shape.inner_width, shape.width),
        "mlp.up_proj": (shape.inner_width, shape.width),
        "mlp.down_proj": (shape.width, shape.inner_width),
    }
    tensors = {
        f"model.layers.{layer}.{name}.weight": chance.normal(0, 0.2, size).astype(np.float16)
        for layer in range(shape.layers)
        for name, size in sizes.items()
    }
    tensors["model.embed_tokens.weight"] = chance.normal(0, 0.5, (shape.vocabulary, shape.width)).astype(np.float16)
    tensors["model.norm.weight"] = np.ones(shape.width, np.float16)
    return tensors
