"""A Llama-shaped transformer in numpy: RMS norms, rotary positions, grouped key and value heads, gated feed-forward.

One function, `forward`, takes new tokens of several sequences together, each with its own cache: prompts, single tokens
to decode, and mixtures of both. The result of a token is bit-identical however tokens are split into calls and whatever
else is in a call (`products` explains how).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .attention import DecodingLayout, PromptLayout
from .cache import BLOCK, Cache
from .products import Floats, RowProducts


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model."""

    vocabulary: int
    width: int
    inner_width: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    context: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Shape:
        """Read from a Hugging Face `config.json`."""
        heads = config["num_attention_heads"]
        return cls(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            inner_width=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_width=config.get("head_dim") or config["hidden_size"] // heads,
            context=config["max_position_embeddings"],
            rope_theta=config.get("rope_theta") or 10_000.0,
            norm_eps=config.get("rms_norm_eps") or 1e-5,
        )


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights as (in, out), norms multiplied in."""

    qkv: Floats
    out: Floats
    gate_up: Floats
    down: Floats


class Transformer:
    """The model: weights and computation, without state of any sequence."""

    def __init__(self, shape: Shape, tensors: Mapping[str, NDArray[np.floating[Any]]]) -> None:
        self.shape = shape
        embedding = _f32(tensors["model.embed_tokens.weight"])
        own_head = tensors.get("lm_head.weight")
        self._head = np.ascontiguousarray((embedding if own_head is None else _f32(own_head)).T)
        self._embedding = self._head.T if own_head is None else embedding  # large: not stored twice
        self._last_norm = _f32(tensors["model.norm.weight"])
        self._layers = [_read_layer(tensors, index, shape) for index in range(shape.layers)]
        frequencies = shape.rope_theta ** (-np.arange(0, shape.head_width, 2) / shape.head_width)
        angles = np.outer(np.arange(shape.context), frequencies)
        self._cos: Floats = np.cos(angles).astype(np.float32)[:, None]
        self._sin: Floats = np.sin(angles).astype(np.float32)[:, None]
        self.products = RowProducts.for_shapes(self._product_shapes())

    def forward(
        self, batch: Sequence[tuple[Cache, Sequence[int]]], *, decoding: int = 0, every: bool = False
    ) -> Floats:
        """The logits after the last new token of each sequence, or after `every` token; extends the caches.

        The first `decoding` sequences add one token each; the others are prompts.
        """
        counts = [len(ids) for _, ids in batch]
        starts = [cache.length for cache, _ in batch]
        for (cache, _), count in zip(batch, counts, strict=True):
            cache.grow(count)
        rows = sum(counts)
        padded = self.products.padded_count(rows)
        tokens = np.zeros(padded, np.intp)
        positions = np.zeros(padded, np.intp)
        tokens[:rows] = np.concatenate([np.asarray(ids, np.intp) for _, ids in batch])
        positions[:rows] = np.concatenate(
            [np.arange(start, start + count) for start, count in zip(starts, counts, strict=True)]
        )
        step = _Step(self.products, [cache for cache, _ in batch], counts, decoding)
        hidden = self._compute_hidden(tokens, positions, step)
        selected = hidden[:rows] if every else hidden[np.cumsum(counts) - 1]
        return self._logits(selected)

    def _compute_hidden(self, tokens: NDArray[np.intp], positions: NDArray[np.intp], step: _Step) -> Floats:
        eps, multiply = self.shape.norm_eps, self.products.multiply
        rotation = self._cos[positions], self._sin[positions]
        hidden = self._embedding[tokens]
        for index, layer in enumerate(self._layers):
            mixed = self._attention(index, multiply(_normalize(hidden, eps), layer.qkv), rotation, step)
            hidden = hidden + multiply(mixed, layer.out)
            gate_up = multiply(_normalize(hidden, eps), layer.gate_up)
            hidden += multiply(_apply_gate(gate_up, self.shape.inner_width), layer.down)
        return _normalize(hidden, eps) * self._last_norm

    def _attention(self, index: int, qkv: Floats, rotation: tuple[Floats, Floats], step: _Step) -> Floats:
        shape = self.shape
        rotated = shape.heads + shape.kv_heads
        split = qkv.reshape(len(qkv), rotated + shape.kv_heads, shape.head_width)
        turned = _rotate(split[:, :rotated], *rotation)
        queries = turned[:, : shape.heads].reshape(
            len(qkv), shape.kv_heads, shape.heads // shape.kv_heads, shape.head_width
        )
        mixed = step.attend(index, queries, turned[:, shape.heads :], split[:, rotated:])
        return mixed.reshape(len(qkv), shape.heads * shape.head_width)

    def _logits(self, hidden: Floats) -> Floats:
        return self.products.multiply(self.products.pad(hidden), self._head)[: len(hidden)]

    def _product_shapes(self) -> list[tuple[int, int]]:
        """(inner, outer) of every product: with the weights, and with the keys and values of a block."""
        layer = self._layers[0]
        weights = (layer.qkv, layer.out, layer.gate_up, layer.down, self._head)
        width = self.shape.head_width
        return [*((len(each), each.shape[1]) for each in weights), (width, BLOCK), (BLOCK, width)]


class _Step:
    """The sequences of one step: those that decode, then prompts."""

    def __init__(self, products: RowProducts, caches: Sequence[Cache], counts: Sequence[int], decoding: int) -> None:
        self._pool = caches[0].pool
        self._decoding = decoding
        self._layout = DecodingLayout(products, caches[:decoding]) if decoding else None
        prompts = zip(caches[decoding:], counts[decoding:], strict=True)
        self._prompts = [PromptLayout(products, cache, count) for cache, count in prompts]

    def attend(self, layer: int, queries: Floats, new_keys: Floats, new_values: Floats) -> Floats:
        """Store the new keys and values, (row, key-value head, width), and attend to all of them."""
        keys, values = self._pool.keys[layer], self._pool.values[layer]
        mixed = np.zeros(queries.shape, np.float32)
        first = self._decoding
        if self._layout is not None:
            keys[self._layout.index], values[self._layout.index] = new_keys[:first], new_values[:first]
            mixed[:first] = self._layout.attend(queries[:first], keys, values)
        for prompt in self._prompts:
            last = first + prompt.count
            keys[prompt.index], values[prompt.index] = new_keys[first:last], new_values[first:last]
            mixed[first:last] = prompt.attend(queries[first:last], keys, values)
            first = last
        return mixed


def _rotate(vectors: Floats, cos: Floats, sin: Floats) -> Floats:
    half = vectors.shape[-1] // 2
    first, second = vectors[..., :half], vectors[..., half:]
    turned = np.empty_like(vectors)
    turned[..., :half] = first * cos - second * sin
    turned[..., half:] = second * cos + first * sin
    return turned


def _normalize(hidden: Floats, eps: float) -> Floats:
    size = np.einsum("ij,ij->i", hidden, hidden)[:, None] / np.float32(hidden.shape[1])
    normed: Floats = hidden / np.sqrt(size + np.float32(eps))
    return normed


def _apply_gate(gate_up: Floats, width: int) -> Floats:
    gate, up = gate_up[:, :width], gate_up[:, width:]
    with np.errstate(over="ignore"):  # exp of a large number is infinite, which correctly gives zero
        gated: Floats = gate / (1 + np.exp(-gate)) * up
    return gated


def _read_layer(tensors: Mapping[str, NDArray[np.floating[Any]]], index: int, shape: Shape) -> _Layer:
    def tensor(name: str) -> Floats:
        return _f32(tensors[f"model.layers.{index}.{name}.weight"])

    query = tensor("self_attn.q_proj") * np.float32(shape.head_width**-0.5)
    qkv = np.concatenate([query, tensor("self_attn.k_proj"), tensor("self_attn.v_proj")])
    gate_up = np.concatenate([tensor("mlp.gate_proj"), tensor("mlp.up_proj")])
    return _Layer(
        qkv=_weights(tensor("input_layernorm"), qkv),
        out=np.ascontiguousarray(tensor("self_attn.o_proj").T),
        gate_up=_weights(tensor("post_attention_layernorm"), gate_up),
        down=np.ascontiguousarray(tensor("mlp.down_proj").T),
    )


def _weights(norm: Floats, weights: Floats) -> Floats:
    """Weights (out, in), multiplied by the preceding norm, as (in, out)."""
    return np.ascontiguousarray((weights * norm).T)


def _f32(tensor: NDArray[np.floating[Any]]) -> Floats:
    return tensor.astype(np.float32, copy=False)
