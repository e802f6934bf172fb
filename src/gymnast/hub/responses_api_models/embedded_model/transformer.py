"""A Llama-shaped transformer in numpy: RMS norms, rotary positions, grouped key and value heads, gated feed-forward.

One function, `forward`, takes new tokens of several sequences at once, each with its own cache, whatever their numbers:
prefill, decoding and mixtures of both. Attention is computed for each sequence by itself, so that its numbers do not
depend on what else runs. Matrix products are shared, with padded rows: measured on OpenBLAS, a row's result then does
not depend on the other rows either, and batched equals unbatched to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

BLOCK: Final = 128
"""Positions that attention sums at once."""
_ROWS: Final = 4
"""Matrix products have a multiple of this many rows."""


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
    def of_config(cls, config: Mapping[str, Any]) -> Shape:
        """From a Hugging Face `config.json`."""
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


class Cache:
    """The keys and values of one sequence, growing by blocks."""

    __slots__ = ("keys", "length", "values")

    def __init__(self, shape: Shape, blocks: int = 1) -> None:
        size = (shape.layers, shape.kv_heads, blocks * BLOCK, shape.head_width)
        self.keys: Floats = np.zeros(size, np.float32)
        self.values: Floats = np.zeros(size, np.float32)
        self.length = 0

    def reserve(self, length: int) -> None:
        """Make room for `length` positions."""
        have = self.keys.shape[2]
        if length <= have:
            return
        want = max(2 * have, -(-length // BLOCK) * BLOCK)
        self.keys, self.values = _grown(self.keys, want), _grown(self.values, want)

    def prefix(self, length: int, shape: Shape) -> Cache:
        """A copy of the first positions."""
        copied = Cache(shape, -(-length // BLOCK))
        copied.keys[:, :, :length] = self.keys[:, :, :length]
        copied.values[:, :, :length] = self.values[:, :, :length]
        copied.length = length
        return copied


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights as (in, out), norms multiplied in."""

    qkv: Floats
    out: Floats
    gate_up: Floats
    down: Floats


class Transformer:
    """The model: weights and their use. It holds no state of any sequence."""

    def __init__(self, shape: Shape, tensors: Mapping[str, NDArray[np.floating[Any]]]) -> None:
        self.shape = shape
        self._embedding: Floats = _f32(tensors["model.embed_tokens.weight"])
        own_head = tensors.get("lm_head.weight")
        self._head = self._embedding if own_head is None else _f32(own_head)
        self._last_norm = _f32(tensors["model.norm.weight"])
        self._layers = [_read_layer(tensors, index, shape) for index in range(shape.layers)]
        frequencies = shape.rope_theta ** (-np.arange(0, shape.head_width, 2) / shape.head_width)
        angles = np.outer(np.arange(shape.context), frequencies)
        self._cos: Floats = np.cos(angles).astype(np.float32)[:, None]
        self._sin: Floats = np.sin(angles).astype(np.float32)[:, None]

    def forward(self, batch: Sequence[tuple[Cache, Sequence[int]]], *, every: bool = False) -> Floats:
        """The logits after the last new token of each sequence (or after every one); the caches grow by the tokens."""
        counts = [len(ids) for _, ids in batch]
        starts = [cache.length for cache, _ in batch]
        for (cache, _), start, count in zip(batch, starts, counts, strict=True):
            cache.reserve(start + count)
            cache.length = start + count
        rows = sum(counts)
        padded = -(-rows // _ROWS) * _ROWS
        tokens = np.zeros(padded, np.intp)
        positions = np.zeros(padded, np.intp)
        tokens[:rows] = np.concatenate([np.asarray(ids, np.intp) for _, ids in batch])
        positions[:rows] = np.concatenate(
            [np.arange(start, start + count) for start, count in zip(starts, counts, strict=True)]
        )
        hidden = self._hidden(tokens, positions, [cache for cache, _ in batch], counts)
        wanted = hidden[:rows] if every else hidden[np.cumsum(counts) - 1]
        return self._logits(wanted)

    def _hidden(
        self, tokens: NDArray[np.intp], positions: NDArray[np.intp], caches: Sequence[Cache], counts: Sequence[int]
    ) -> Floats:
        eps = self.shape.norm_eps
        rotation = self._cos[positions], self._sin[positions]
        hidden = self._embedding[tokens]
        for index, layer in enumerate(self._layers):
            mixed = self._attention(index, _normed(hidden, eps) @ layer.qkv, rotation, caches, counts)
            hidden = hidden + mixed @ layer.out
            gate_up = _normed(hidden, eps) @ layer.gate_up
            hidden += _gated(gate_up, self.shape.inner_width) @ layer.down
        return _normed(hidden, eps) * self._last_norm

    def _attention(
        self,
        index: int,
        qkv: Floats,
        rotation: tuple[Floats, Floats],
        caches: Sequence[Cache],
        counts: Sequence[int],
    ) -> Floats:
        shape = self.shape
        rotated = shape.heads + shape.kv_heads
        split = qkv.reshape(len(qkv), rotated + shape.kv_heads, shape.head_width)
        turned = _rotated(split[:, :rotated], *rotation)
        mixed = np.zeros((len(qkv), shape.heads * shape.head_width), np.float32)
        first = 0
        for cache, count in zip(caches, counts, strict=True):
            last, start = first + count, cache.length - count
            keys, values = cache.keys[index], cache.values[index]
            keys[:, start : cache.length] = turned[first:last, shape.heads :].swapaxes(0, 1)
            values[:, start : cache.length] = split[first:last, rotated:].swapaxes(0, 1)
            mixed[first:last] = _attend(turned[first:last, : shape.heads], keys, values, cache.length)
            first = last
        return mixed

    def _logits(self, hidden: Floats) -> Floats:
        rows = len(hidden)
        padded = np.zeros((-(-rows // _ROWS) * _ROWS, hidden.shape[1]), np.float32)
        padded[:rows] = hidden
        logits: Floats = (padded @ self._head.T)[:rows]
        return logits


def _attend(queries: Floats, keys: Floats, values: Floats, length: int) -> Floats:
    """What the last `len(queries)` positions of a sequence of `length` see."""
    count, heads, width = queries.shape
    kv_heads, group = len(keys), heads // len(keys)
    blocks = -(-length // BLOCK)
    asked = queries.reshape(count, kv_heads, group, width).swapaxes(0, 1).reshape(kv_heads, count * group, width)
    scores = asked @ keys[:, : blocks * BLOCK].swapaxes(1, 2)
    if count == 1:
        scores[:, :, length:] = -np.inf
    else:
        future = np.arange(blocks * BLOCK) > np.arange(length - count, length)[:, None]
        scores[:, np.repeat(future, group, axis=0)] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    parts = scores.reshape(kv_heads, count * group, blocks, BLOCK)
    seen = parts.swapaxes(1, 2) @ values[:, : blocks * BLOCK].reshape(kv_heads, blocks, BLOCK, width)
    weight = parts.sum(axis=-1).cumsum(axis=-1)[:, :, -1:]  # one block after the other, however many follow
    mixed = seen.sum(axis=1) / weight
    merged: Floats = mixed.reshape(kv_heads, count, group, width).swapaxes(0, 1).reshape(count, heads * width)
    return merged


def _rotated(vectors: Floats, cos: Floats, sin: Floats) -> Floats:
    half = vectors.shape[-1] // 2
    first, second = vectors[..., :half], vectors[..., half:]
    turned = np.empty_like(vectors)
    turned[..., :half] = first * cos - second * sin
    turned[..., half:] = second * cos + first * sin
    return turned


def _normed(hidden: Floats, eps: float) -> Floats:
    size = np.einsum("ij,ij->i", hidden, hidden)[:, None] / np.float32(hidden.shape[1])
    normed: Floats = hidden / np.sqrt(size + np.float32(eps))
    return normed


def _gated(gate_up: Floats, width: int) -> Floats:
    gate, up = gate_up[:, :width], gate_up[:, width:]
    with np.errstate(over="ignore"):  # exp of a large number is infinite, and the gate then rightly zero
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
    """Weights (out, in) with the norm before them multiplied in, as (in, out)."""
    return np.ascontiguousarray((weights * norm).T)


def _f32(tensor: NDArray[np.floating[Any]]) -> Floats:
    return tensor.astype(np.float32, copy=False)


def _grown(array: Floats, length: int) -> Floats:
    layers, heads, have, width = array.shape
    grown: Floats = np.zeros((layers, heads, length, width), np.float32)
    grown[:, :, :have] = array
    return grown
