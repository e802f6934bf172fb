"""The embedded policy's parts: tokenizer, template, transformer, sampling, batching and the backend's thread."""

from __future__ import annotations

import asyncio
import importlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from gymnast.builtin.responses_api_models.embedded_model.backend import EmbeddedBackend
from gymnast.builtin.responses_api_models.embedded_model.cache import BLOCK, Cache, Pool
from gymnast.builtin.responses_api_models.embedded_model.policy import SHIPPED, read_tensors, write_tensors
from gymnast.builtin.responses_api_models.embedded_model.sampling import choose, log_probabilities
from gymnast.builtin.responses_api_models.embedded_model.tokenizer import ByteLevelTokenizer
from gymnast.tokens.backend import BadGeneration, ContextOverflow, Sampling, check_generation
from tests.helpers.batch_invariance import (
    check_batched_decoding,
    check_decoding_equals_one_pass,
    check_forgotten_caches,
    check_golden_logprobs,
    check_prompts,
    check_rows_multiplied_one_by_one,
)
from tests.helpers.caller import Caller
from tests.helpers.small_transformer import SMALL, small_transformer

TRAINING = Path(__file__).parents[2] / "training" / "embedded"
TOKENIZER = ByteLevelTokenizer.read(SHIPPED / "tokenizer.json")
TRANSFORMER = small_transformer()


@given(st.text())
def test_text_comes_back_and_never_becomes_control(text: str) -> None:
    text = text.encode(errors="replace").decode()
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert not set(ids) & set(TOKENIZER.control_tokens.values())


def test_control_strings_stay_text_and_digits_are_single() -> None:
    ids = TOKENIZER.encode("<|im_end|>\n<|im_start|>system<tool_call>")
    assert not set(ids) & set(TOKENIZER.control_tokens.values())
    assert len(TOKENIZER.encode("1234567890")) == 10
    assert TOKENIZER.decode([*TOKENIZER.encode("a"), TOKENIZER.control_tokens["<|im_end|>"]]) == "a<|im_end|>"
    assert TOKENIZER.decode(TOKENIZER.encode("é")[:1]) == "�"


@given(st.text(st.sampled_from("ab zA19\n\t.,'{}\"<|é日 -_")))
def test_the_tokenizers_library_gives_the_same_ids(text: str) -> None:
    other = tokenizers.Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
    assert other.encode(text).ids == TOKENIZER.encode(text) or "<|" in text


def training_module(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TRAINING))
    return importlib.import_module(name)


def test_training_transcripts_are_what_the_template_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    solutions, transcript = (training_module(name, monkeypatch) for name in ("solutions", "transcript"))
    template = json.loads((SHIPPED / "tokenizer_config.json").read_text())["chat_template"]
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    compiled = environment.from_string(template)
    chance = random.Random(5)
    for solve, generator in solutions.TEACHERS.values():
        for level in range(1, generator.levels + 1):
            talk = solve(chance, level)
            for messages in (talk.messages, [{"role": "system", "content": "Be brief."}, *talk.messages]):
                written = compiled.render(messages=messages, tools=talk.tools, add_generation_prompt=True)
                writing = transcript.write(TOKENIZER, messages, talk.tools, prompt=True)
                assert TOKENIZER.decode(writing.ids) == written
                own = [token for token, sampled in zip(writing.ids, writing.sampled, strict=True) if sampled]
                turns = sum(message["role"] == "assistant" for message in messages)
                assert own.count(TOKENIZER.control_tokens["<|im_end|>"]) == turns


def test_tensors_are_written_and_read(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.ones((), np.float32)}
    write_tensors(tmp_path / "t.safetensors", tensors)
    found = read_tensors(tmp_path / "t.safetensors")
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"a": [[0, 1, 2], [3, 4, 5]], "b": 1.0}


# --- the batch changes no number: tests/integration/test_blas_kernels.py repeats this on other BLAS kernels ----------


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(0, 95), min_size=1, max_size=300), min_size=1, max_size=6), st.integers(1, 200))
def test_however_tokens_are_cut_into_calls_the_numbers_agree(sequences: list[list[int]], cut: int) -> None:
    check_prompts(TRANSFORMER, sequences, cut)


def test_rows_that_are_multiplied_one_by_one_keep_the_promise() -> None:
    check_rows_multiplied_one_by_one(TRANSFORMER)


def test_batched_equals_unbatched() -> None:
    check_batched_decoding(TRANSFORMER, (1, 5, 32))


def test_logprobs_are_those_of_one_pass_and_turns_are_reused() -> None:
    check_decoding_equals_one_pass(TRANSFORMER)


def test_what_was_computed_before_may_be_forgotten() -> None:
    check_forgotten_caches(TRANSFORMER)


def test_logprobs_are_those_of_the_torch_implementation() -> None:
    check_golden_logprobs()


# --- the parts -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 300)), max_size=40))
def test_blocks_in_use_lie_together_and_keep_their_contents(steps: list[tuple[int, int]]) -> None:
    pool = Pool(SMALL)
    caches = [Cache(pool) for _ in range(6)]
    for name, count in steps:
        cache = caches[name]
        if not count:
            cache.free()
        cache.grow(count)
        pool.keys[:, cache.blocks] = name
        blocks = sorted(block for each in caches for block in each.blocks)
        assert blocks == list(range(len(pool.owners)))
        for other, each in enumerate(caches):
            assert len(each.blocks) == -(-each.length // BLOCK)
            assert (pool.keys[:, each.blocks] == other).all()


def test_sampling_follows_the_distribution_and_its_limits() -> None:
    logprobs = log_probabilities(np.log(np.array([[0.5, 0.3, 0.15, 0.05]], np.float32)))[0]
    places = (np.arange(2000) + 0.5) / 2000

    def shares(sampling: Sampling) -> list[float]:
        counts = Counter(choose(logprobs, sampling, float(place)) for place in places)
        return [round(counts[token] / 2000, 2) for token in range(4)]

    assert shares(Sampling()) == [0.5, 0.3, 0.15, 0.05]
    assert shares(Sampling(temperature=0)) == [1, 0, 0, 0]
    assert shares(Sampling(top_k=2)) == [0.62, 0.38, 0, 0]
    assert shares(Sampling(top_p=0.79)) == [0.62, 0.38, 0, 0]
    assert shares(Sampling(top_p=0.01)) == [1, 0, 0, 0]
    assert shares(Sampling(min_p=0.25)) == [0.53, 0.32, 0.16, 0]
    assert shares(Sampling(temperature=0.5)) == [0.69, 0.25, 0.06, 0.01]


async def test_the_engine_serves_many_at_once_and_lets_go_of_the_cancelled() -> None:
    backend = EmbeddedBackend(TRANSFORMER, max_batch=4, seed=7)
    try:
        asked = [backend.generate([1, 2, place], Sampling(max_tokens=20), Caller()) for place in range(10)]
        cancelled = asyncio.ensure_future(backend.generate([9], Sampling(max_tokens=400), Caller()))
        replies = await asyncio.gather(*asked)
        cancelled.cancel()
        again = await backend.generate([1, 2, 0], Sampling(max_tokens=20), Caller())
    finally:
        await backend.stop()
    for reply in replies:
        assert len(check_generation(reply).token_ids) == 20
        assert reply.finish == "length"
    assert again.token_ids == replies[0].token_ids
    assert len({tuple(reply.token_ids) for reply in replies}) == 10


async def test_the_engine_refuses_what_it_cannot_do() -> None:
    backend = EmbeddedBackend(TRANSFORMER, max_context=64)
    with pytest.raises(ContextOverflow, match="64 tokens"):
        await backend.generate([1] * 64, Sampling(), Caller())
    with pytest.raises(BadGeneration, match="logit_bias"):
        await backend.generate([1], Sampling(extra={"logit_bias": {}}), Caller())
    with pytest.raises(BadGeneration, match="outside"):
        await backend.generate([96], Sampling(), Caller())
    reply = await backend.generate([1] * 60, Sampling(), Caller())
    await backend.stop()
    assert len(reply.token_ids) == 4
