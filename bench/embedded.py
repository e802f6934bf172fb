"""Tokens per second of CPU of the embedded policy's decoding on one core, and the ratio to its bare matrix products.

    python bench/embedded.py [--batch 32] [--prompt 96] [--tokens 96] [--json]

The yardstick multiplies matrices of the same shapes as a decoding step and does nothing else. The same products in the
small tiles that make a row's numbers independent of its batch say what that costs; OPENBLAS_CORETYPE chooses another
kernel. Bar: at least 1,000 tokens/s at batch 32.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from gymnast.builtin.responses_api_models.embedded_model.batching import Batch, Generation
from gymnast.builtin.responses_api_models.embedded_model.policy import SHIPPED, read_tensors
from gymnast.builtin.responses_api_models.embedded_model.products import Floats
from gymnast.builtin.responses_api_models.embedded_model.transformer import Shape, Transformer
from gymnast.tokens.backend import Sampling


def products_per_s(shape: Shape, batch: int, steps: int, multiply: Callable[[Floats, Floats], Floats]) -> float:
    """Rows per second of a step's matrix products alone."""
    heads = shape.heads + 2 * shape.kv_heads
    mixed = shape.heads * shape.head_width
    sizes = [
        (shape.width, heads * shape.head_width),
        (mixed, shape.width),
        (shape.width, 2 * shape.inner_width),
        (shape.inner_width, shape.width),
    ] * shape.layers + [(shape.width, shape.vocabulary)]
    pairs = [(np.ones((batch, inner), np.float32), np.ones((inner, outer), np.float32)) for inner, outer in sizes]
    started = time.process_time()
    for _ in range(steps):
        for left, right in pairs:
            multiply(left, right)
    return batch * steps / (time.process_time() - started)


def decoded_per_s(transformer: Transformer, batch: int, prompt: int, tokens: int) -> tuple[float, float]:
    """Prompt tokens and sampled tokens per second, with sampling at temperature 1."""
    core, rng = Batch(transformer, max_batch=batch), np.random.default_rng(0)
    for seed in range(batch):
        ids = rng.integers(0, transformer.shape.vocabulary, prompt).tolist()
        core.add(Generation(ids, Sampling(), seed, tokens))
    started, prefilled = time.process_time(), 0.0
    for _ in range(-(-batch * prompt // 512)):
        core.step()
    prefilled = time.process_time()
    while not core.is_idle:
        core.step()
    return batch * prompt / (prefilled - started), batch * (tokens - 1) / (time.process_time() - prefilled)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=96)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, {0})
    shape = Shape.from_config(json.loads((SHIPPED / "config.json").read_text()))
    transformer = Transformer(shape, read_tensors(SHIPPED / "model.safetensors"))
    rounds = [
        (
            products_per_s(shape, options.batch, 20, np.matmul),
            products_per_s(shape, transformer.products.padded_count(options.batch), 20, transformer.products.multiply),
        )
        for _ in range(5)
    ]
    yardstick, tiled = (max(column) for column in zip(*rounds, strict=True))
    runs = [decoded_per_s(transformer, options.batch, options.prompt, options.tokens) for _ in range(3)]
    prefill, decoding = max(run[0] for run in runs), max(run[1] for run in runs)
    found = {
        "batch": options.batch,
        "prompt_tokens_per_s": round(prefill),
        "tokens_per_s": round(decoding),
        "matrix_products_per_s": round(yardstick),
        "ratio": round(decoding / yardstick, 3),
        "invariant_products_ratio": round(yardstick / tiled, 2),
    }
    if options.json:
        print(json.dumps(found))
    else:
        print(f"embedded policy, batch {options.batch}, one core: {decoding:,.0f} tokens/s (bar 1,000)")
        print(f"  prompts {prefill:,.0f} tokens/s; {found['ratio']} of the bare matrix products")
        print(f"  products in tiles, for numbers that no batch changes: {found['invariant_products_ratio']} x the time")


if __name__ == "__main__":
    main()
