"""Weight updates of a real vLLM as a trainer makes them: requests go on, tokens are labelled, caches are dropped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymnast.train import PolicyVersions, VllmWeights, WeightUpdateError
from gymnast.train.vllm_weights import PauseMode
from gymnast.wire.http_client import HttpClient
from tests.vllm.asking import Asking, is_paused, random_prompts
from tests.vllm.conftest import Model

PROMPT = random_prompts(1, 300, 200, seed=11)[0]


@pytest.fixture
def asking(tiny: Model, http: HttpClient) -> Asking:
    return Asking(tiny, http)


async def cached_tokens(asking: Asking) -> int:
    """How much of the prompt did not have to be computed."""
    asked = {"model": asking.model.name, "prompt": PROMPT, "max_tokens": 1}
    usage: dict[str, Any] = (await asking.post("/v1/completions", asked))["usage"]
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


@pytest.mark.parametrize("mode", ["keep", "abort", "wait"])
async def test_an_update_while_a_generation_runs(
    asking: Asking, tiny: Model, http: HttpClient, mode: PauseMode
) -> None:
    old, new = f"{mode}-0", f"{mode}-1"
    versions = PolicyVersions([old])
    weights = VllmWeights(http, [tiny.base_url], versions=versions, mode=mode, timeout_s=300)
    await weights.label(old)
    running = asyncio.create_task(asking.sample(PROMPT, use_generate=True, max_tokens=1000, extra={"ignore_eos": True}))
    await asyncio.sleep(0.7)
    async with weights.updating(new):
        assert is_paused(tiny)
    assert not is_paused(tiny)
    got = await running
    told = [span.version for span in got.weight_versions]
    ended = {"keep": ("length", [old, new]), "abort": ("abort", [old]), "wait": ("length", [old])}
    assert (got.finish, told) == ended[mode]
    assert (await asking.sample(PROMPT, use_generate=True, max_tokens=2)).weight_versions[0].version == new
    assert versions.current == new


@pytest.mark.parametrize("mode", ["keep", "abort", "wait"])
async def test_what_old_weights_computed_is_not_used_by_new_ones(
    asking: Asking, tiny: Model, http: HttpClient, mode: PauseMode
) -> None:
    await cached_tokens(asking)
    assert await cached_tokens(asking) > 0
    async with VllmWeights(http, [tiny.base_url], mode=mode).updating("other"):
        pass
    assert await cached_tokens(asking) == 0


async def test_a_server_that_is_gone_is_reported(http: HttpClient, tiny: Model) -> None:
    weights = VllmWeights(http, [tiny.base_url, "http://127.0.0.1:1/v1"])
    with pytest.raises(WeightUpdateError, match="1 of 2 servers failed"):
        async with weights.updating("never"):
            pass
    assert not is_paused(tiny)
