"""The embedded policy's promise that its numbers do not depend on the batch, as checks that raise AssertionError.

Run as a program (`python -m tests.helpers.batch_invariance`) they need neither pytest nor hypothesis and take a second,
so that they can be repeated on every BLAS kernel.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from gymnast.builtin.responses_api_models.embedded_model.batching import Batch, Generation
from gymnast.builtin.responses_api_models.embedded_model.cache import Cache, Pool
from gymnast.builtin.responses_api_models.embedded_model.policy import SHIPPED, read_tensors
from gymnast.builtin.responses_api_models.embedded_model.products import RowProducts
from gymnast.builtin.responses_api_models.embedded_model.sampling import log_probabilities
from gymnast.builtin.responses_api_models.embedded_model.transformer import Shape, Transformer
from gymnast.tokens.backend import Sampling
from tests.helpers.small_transformer import SMALL, small_transformer

GOLDEN: Final = Path(__file__).parents[1] / "unit" / "embedded_golden_logprobs.json"
STOP: Final = 3


def check_prompts(transformer: Transformer, sequences: Sequence[list[int]], cut: int) -> None:
    """Logits of prompts are the same alone, together, and cut into calls of `cut` tokens."""
    alone = [logits_of(transformer, ids) for ids in sequences]
    pool = Pool(SMALL)
    together = transformer.forward([(Cache(pool), ids) for ids in sequences])
    np.testing.assert_array_equal(np.stack(alone), together)
    for ids, wanted in zip(sequences, alone, strict=True):
        cache = Cache(Pool(SMALL))
        for start in range(0, len(ids), cut):
            logits = transformer.forward([(cache, ids[start : start + cut])])
        np.testing.assert_array_equal(logits[0], wanted)


def check_rows_multiplied_one_by_one(transformer: Transformer) -> None:
    """As on a BLAS whose rows depend on each other, where tiles have one row."""
    careful = small_transformer()
    careful.products = RowProducts(1)
    sequences = [list(range(40)), list(range(9))]
    pool = Pool(SMALL)
    together = careful.forward([(Cache(pool), ids) for ids in sequences])
    for ids, wanted in zip(sequences, together, strict=True):
        np.testing.assert_array_equal(logits_of(careful, ids), wanted)
        np.testing.assert_allclose(logits_of(transformer, ids), wanted, atol=1e-4)


def check_batched_decoding(transformer: Transformer, batch_sizes: Sequence[int]) -> None:
    """Sampled ids and their logprobs are those of each generation alone, to the bit."""
    alone = random_generations(24)
    for generation in alone:
        finish(Batch(transformer, max_batch=1), generation)
        assert generation.finish == ("stop" if generation.sampled[-1] == STOP else "length")
    for size in batch_sizes:
        together = random_generations(24)
        finish(Batch(transformer, max_batch=size), *together)
        for one, other in zip(alone, together, strict=True):
            assert one.sampled == other.sampled
            assert one.logprobs == other.logprobs
            assert one.finish == other.finish


def check_decoding_equals_one_pass(transformer: Transformer) -> None:
    """Logprobs of decoding, over two turns of which the first is reused, are those of one pass over the whole."""
    batch = Batch(transformer, max_batch=4)
    first = Generation(list(range(40)), Sampling(), 1, 30)
    finish(batch, first)
    history = [*range(40), *first.sampled, 5, 6, 7]
    second = Generation(history, Sampling(), 2, 20)
    finish(batch, second)
    assert second.reused == 69  # all but the last sampled token, whose keys were never needed
    ids = [*history, *second.sampled]
    passed = log_probabilities(transformer.forward([(Cache(Pool(SMALL)), ids)], every=True))
    assert second.logprobs == [passed[place - 1, ids[place]] for place in range(len(history), len(ids))]


def check_forgotten_caches(transformer: Transformer) -> None:
    """Whether earlier computations are kept or forgotten changes no number."""
    for kept_bytes in (0, 200_000):
        batch = Batch(transformer, max_batch=2, cache_bytes=kept_bytes)
        for seed in range(6):
            in_batch, alone = (Generation([*range(60), seed], Sampling(), seed, 9) for _ in range(2))
            finish(batch, in_batch)
            finish(Batch(transformer, max_batch=1), alone)
            assert (in_batch.sampled, in_batch.logprobs) == (alone.sampled, alone.logprobs)
        assert (in_batch.reused > 0) == (kept_bytes > 0)


def check_golden_logprobs() -> None:
    """The shipped weights give the logprobs of the torch implementation."""
    shape = Shape.from_config(json.loads((SHIPPED / "config.json").read_text()))
    model = Transformer(shape, read_tensors(SHIPPED / "model.safetensors"))
    for case in json.loads(GOLDEN.read_text()):
        ids = case["ids"]
        logprobs = log_probabilities(model.forward([(Cache(Pool(shape)), ids)], every=True))
        np.testing.assert_allclose(logprobs[np.arange(len(ids) - 1), ids[1:]], case["logprobs"], atol=1e-4)


def logits_of(transformer: Transformer, ids: list[int]) -> Any:
    """Those after the last of these tokens, computed alone."""
    return transformer.forward([(Cache(Pool(SMALL)), ids)])[0]


def random_generations(count: int, seed: int = 0) -> list[Generation]:
    chance = random.Random(seed)
    return [
        Generation(
            [chance.randrange(96) for _ in range(chance.randrange(1, 200))],
            Sampling(
                temperature=chance.choice((0.0, 0.7, 1.0)), top_p=chance.choice((0.9, 1.0)), stop_token_ids=(STOP,)
            ),
            seed=chance.getrandbits(64),
            max_tokens=chance.randrange(1, 40),
        )
        for _ in range(count)
    ]


def finish(batch: Batch, *generations: Generation) -> None:
    """Run generations to their end."""
    for generation in generations:
        batch.add(generation)
    while not batch.is_idle:
        batch.step()


def main() -> None:
    transformer, chance = small_transformer(), random.Random(1)
    for cut in (1, 3, 4, 17, 64, 200):
        lengths = [1, 5, chance.randrange(2, 300), chance.randrange(2, 300)]
        check_prompts(transformer, [[chance.randrange(96) for _ in range(length)] for length in lengths], cut)
    check_rows_multiplied_one_by_one(transformer)
    check_batched_decoding(transformer, (1, 5, 32))
    check_decoding_equals_one_pass(transformer)
    check_forgotten_caches(transformer)
    check_golden_logprobs()


if __name__ == "__main__":
    main()
