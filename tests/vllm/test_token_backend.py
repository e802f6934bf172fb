"""The token backend on a real vLLM, both ways of asking: what is sampled, its logprobs, its ends, its weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from gymnast.errors import CallError
from gymnast.tokens.backend import ContextOverflow, GeneratedTokens, Sampling, WeightSpan
from gymnast.wire.http_client import HttpClient
from tests.helpers.caller import Caller
from tests.vllm.asking import Asking, all_of, random_prompts
from tests.vllm.conftest import CONTEXT, Model

pytestmark = pytest.mark.timeout(600)
BOTH = pytest.mark.parametrize("use_generate", [True, False], ids=["generate", "completions"])
Way = bool
"""Whether /inference/v1/generate is asked, or /v1/completions."""
PROMPTS = random_prompts(8, 12, 1900)


@pytest.fixture
def asking(tiny: Model, http: HttpClient) -> Asking:
    return Asking(tiny, http)


async def test_generate_is_found_where_it_is_offered(asking: Asking) -> None:
    backend = asking.backend()
    await backend.generate(PROMPTS[0], Sampling(max_tokens=1), Caller())
    assert backend.use_generate is True


async def test_both_ways_sample_the_same_with_the_same_seed(asking: Asking) -> None:
    async def twice(prompt: list[int], seed: int) -> None:
        options: dict[str, Any] = {"max_tokens": 24, "seed": seed, "temperature": 0.8, "top_p": 0.95}
        one, other = [await asking.sample(prompt, use_generate=way, **options) for way in (True, False)]
        assert list(one.token_ids) == list(other.token_ids)
        assert list(one.logprobs) == pytest.approx(list(other.logprobs), abs=1e-4)
        assert one.finish == other.finish

    await all_of(*(twice(prompt, seed) for seed, prompt in enumerate(PROMPTS)))


@BOTH
async def test_a_seed_decides_and_without_one_it_differs(asking: Asking, use_generate: Way) -> None:
    async def sample(seed: int | None) -> list[int]:
        got = await asking.sample(PROMPTS[0], use_generate=use_generate, max_tokens=12, seed=seed)
        return list(got.token_ids)

    assert await sample(5) == await sample(5)
    assert await sample(5) != await sample(6)
    assert await sample(None) != await sample(None)


@BOTH
@pytest.mark.parametrize("temperature", [1.0, 1.5])
async def test_sampled_logprobs_are_those_of_prefilling(
    asking: Asking, figures: Callable[..., None], use_generate: Way, temperature: float
) -> None:
    """Raw logprobs are of the model's own distribution, whatever the temperature."""
    worst = await _worst_difference(asking, PROMPTS, use_generate=use_generate, temperature=temperature, max_tokens=48)
    figures(worst_logprob_difference=worst)
    assert worst < 1e-3


@BOTH
async def test_sampled_logprobs_of_smollm2(
    smollm2: Model, http: HttpClient, figures: Callable[..., None], use_generate: Way
) -> None:
    asking = Asking(smollm2, http)
    prompts = random_prompts(2, 8, 40000)
    worst = await _worst_difference(asking, prompts, use_generate=use_generate, max_tokens=32)
    figures(worst_logprob_difference=worst)
    assert worst < 1e-3


async def _worst_difference(asking: Asking, prompts: list[list[int]], **options: Any) -> float:
    async def difference(prompt: list[int], seed: int) -> float:
        got = await asking.sample(prompt, seed=seed, **options)
        again = await asking.prefilled(prompt, got.token_ids)
        return max(abs(sampled - prefilled) for sampled, prefilled in zip(got.logprobs, again, strict=True))

    return float(max(await all_of(*(difference(prompt, seed) for seed, prompt in enumerate(prompts)))))


@BOTH
async def test_the_stop_token_is_part_of_what_was_sampled(asking: Asking, use_generate: Way) -> None:
    whole = await asking.sample(PROMPTS[1], use_generate=use_generate, max_tokens=16, seed=1)
    assert (whole.finish, len(whole.token_ids)) == ("length", 16)
    stop = whole.token_ids[7]
    first = list(whole.token_ids).index(stop)
    cut = await asking.sample(PROMPTS[1], use_generate=use_generate, max_tokens=16, seed=1, stop_token_ids=(stop, 1))
    assert cut.finish == "stop"
    assert list(cut.token_ids) == list(whole.token_ids)[: first + 1]
    assert len(cut.logprobs) == first + 1


@BOTH
async def test_the_models_own_end_token_is_part_of_it_too(asking: Asking, use_generate: Way) -> None:
    end = _end_token(asking)
    got = await asking.sample(
        PROMPTS[2], use_generate=use_generate, max_tokens=8, extra={"allowed_token_ids": [end, end - 1]}
    )
    assert set(got.token_ids) <= {end, end - 1}
    if got.finish == "stop":
        assert got.token_ids[-1] == end
    certain = await asking.sample(
        PROMPTS[2], use_generate=use_generate, max_tokens=8, extra={"allowed_token_ids": [end]}
    )
    assert (certain.finish, list(certain.token_ids)) == ("stop", [end])


def _end_token(asking: Asking) -> int:
    return int(json.loads((asking.model.folder / "generation_config.json").read_text())["eos_token_id"][0])


@BOTH
async def test_top_k_and_min_p_reach_the_sampler(asking: Asking, use_generate: Way) -> None:
    async def sample(**options: Any) -> list[int]:
        got = await asking.sample(PROMPTS[3], use_generate=use_generate, max_tokens=12, **options)
        return list(got.token_ids)

    greedy = await sample(temperature=0.0)
    assert await sample(top_k=1) == greedy
    assert await sample(min_p=1.0) == greedy
    assert await sample(seed=3) != greedy


async def test_raw_logprobs_are_of_what_a_grammar_leaves(asking: Asking) -> None:
    """So they are not those of prefilling: whoever trains on constrained output has to know."""
    forced = {"structured_outputs": {"regex": "ab"}}
    got = await asking.sample(PROMPTS[5], max_tokens=8, extra=forced)
    again = await asking.prefilled(PROMPTS[5], got.token_ids)
    assert max(got.logprobs) > max(again)


@BOTH
async def test_without_a_limit_the_context_is_filled(asking: Asking, use_generate: Way) -> None:
    prompt = random_prompts(1, CONTEXT - 40, 1900)[0]
    got = await asking.sample(prompt, use_generate=use_generate, seed=2, extra={"ignore_eos": True})
    assert (got.finish, len(got.token_ids)) == ("length", 40)
    again = await asking.sample(prompt, use_generate=use_generate, max_tokens=1)
    assert again.cached_tokens is not None
    assert again.cached_tokens > CONTEXT // 2


@BOTH
async def test_a_limit_beyond_the_context_is_not_an_error(asking: Asking, use_generate: Way) -> None:
    prompt = random_prompts(1, CONTEXT - 10, 1900)[0]
    got = await asking.sample(prompt, use_generate=use_generate, max_tokens=CONTEXT + 1, extra={"ignore_eos": True})
    assert (got.finish, len(got.token_ids)) == ("length", 10)


@BOTH
@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 52])
async def test_a_prompt_without_room_is_an_overflow(asking: Asking, use_generate: Way, length: int) -> None:
    prompt = random_prompts(1, length, 1900)[0]
    for limit in (None, 4):
        with pytest.raises(ContextOverflow):
            await asking.sample(prompt, use_generate=use_generate, max_tokens=limit)
    last = await asking.sample(prompt[: CONTEXT - 1], use_generate=use_generate, max_tokens=4)
    assert len(last.token_ids) == 1


@BOTH
async def test_a_refused_request_is_not_an_overflow(asking: Asking, use_generate: Way) -> None:
    with pytest.raises(CallError) as caught:
        await asking.sample(PROMPTS[0], use_generate=use_generate, max_tokens=4, min_p=2.0)
    assert caught.value.detail.kind == "model_misconfigured"  # a parameter out of its range


# --- weights change while a request runs ------------------------------------------------------------------------------


async def _midway(asking: Asking, mode: str, version: str, *, use_generate: Way = True) -> GeneratedTokens:
    """A generation during which the engine was paused and its weights got another name."""
    running = asyncio.create_task(
        asking.sample(PROMPTS[4], use_generate=use_generate, max_tokens=1200, extra={"ignore_eos": True})
    )
    await asyncio.sleep(0.7)
    async with asking.paused(mode):
        await asking.post("/update_weight_version", {"new_version": version})
    return await running


async def test_new_weights_in_the_middle_give_two_spans(asking: Asking) -> None:
    await asking.post("/update_weight_version", {"new_version": "step-1"})
    got = await _midway(asking, "keep", "step-2")
    assert (got.finish, len(got.token_ids)) == ("length", 1200)
    first, second = got.weight_versions
    assert (first, second) == (WeightSpan("step-1", 0, first.end), WeightSpan("step-2", first.end, 1200))
    assert 0 < first.end < 1200
    worst = max(
        abs(a - b) for a, b in zip(got.logprobs, await asking.prefilled(PROMPTS[4], got.token_ids), strict=True)
    )
    assert worst < 1e-3


@BOTH
async def test_an_abort_ends_with_what_was_sampled_so_far(asking: Asking, use_generate: Way) -> None:
    await asking.post("/update_weight_version", {"new_version": "step-3"})
    got = await _midway(asking, "abort", "step-4", use_generate=use_generate)
    assert got.finish == "abort"
    assert 0 < len(got.token_ids) < 1200
    assert got.weight_versions == ((WeightSpan("step-3", 0, len(got.token_ids)),) if use_generate else ())
    rest = await asking.sample([*PROMPTS[4], *got.token_ids], use_generate=use_generate, max_tokens=5)
    assert rest.weight_versions == ((WeightSpan("step-4", 0, 5),) if use_generate else ())
