"""Asking a served model in tests: the token backend in front of it, and the server's own pages."""

from __future__ import annotations

import asyncio
import random
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

from gymnast.builtin.responses_api_models.vllm_model.token_backend import VLLMTokenBackend
from gymnast.endpoints.upstream import EndpointSettings, Upstream
from gymnast.tokens.backend import GeneratedTokens, Sampling
from gymnast.wire.calls import Calls
from gymnast.wire.http_client import HttpClient, parse_target
from gymnast.wire.server import ServerContext
from tests.helpers.caller import Caller
from tests.vllm.conftest import Model


class Asking:
    """One served model."""

    def __init__(self, model: Model, http: HttpClient) -> None:
        self.model = model
        self._http = http
        context = ServerContext(Calls({}), http)
        self.upstream = Upstream(model.name, model.root, context, EndpointSettings(), api_key="", headers={})

    def backend(self, *, use_generate: bool | None = None) -> VLLMTokenBackend:
        return VLLMTokenBackend(self.upstream, self.model.name, use_generate=use_generate)

    async def sample(
        self, prompt: Sequence[int], *, use_generate: bool | None = None, **sampling: Any
    ) -> GeneratedTokens:
        return await self.backend(use_generate=use_generate).generate(prompt, Sampling(**sampling), Caller())

    async def post(self, path: str, body: Any = None) -> Any:
        headers = (("content-type", "application/json"),)
        target = parse_target(self.model.root + path)
        reply = await self._http.request("POST", target, headers, orjson.dumps(body or {}))
        assert reply.status == 200, reply.body
        return orjson.loads(reply.body)

    async def prefilled(self, prompt: Sequence[int], generated: Sequence[int]) -> list[float]:
        """The logprobs of generated tokens when the whole sequence is given as a prompt."""
        asked = {"model": self.model.name, "prompt": [*prompt, *generated], "max_tokens": 1, "prompt_logprobs": 0}
        found = (await self.post("/v1/completions", asked))["choices"][0]["prompt_logprobs"]
        places = range(len(prompt), len(prompt) + len(generated))
        return [found[place][str(generated[place - len(prompt)])]["logprob"] for place in places]

    @asynccontextmanager
    async def paused(self, mode: str) -> AsyncIterator[None]:
        await self.post(f"/pause?mode={mode}")
        try:
            yield
        finally:
            await self.post("/resume")


def is_paused(model: Model) -> bool:
    with urllib.request.urlopen(f"{model.root}/is_paused", timeout=30) as reply:
        return bool(orjson.loads(reply.read())["is_paused"])


def random_prompts(number: int, length: int, vocabulary: int, seed: int = 0) -> list[list[int]]:
    """Prompts of ids that no tokenizer would write."""
    chance = random.Random(seed)
    return [[chance.randrange(vocabulary) for _ in range(length)] for _ in range(number)]


async def all_of(*tasks: Any) -> list[Any]:
    """Everything at once."""
    return list(await asyncio.gather(*tasks))
