"""vLLM as a token backend, against an HTTP server that answers in vLLM's own shapes (as recorded from 0.32)."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from gymnast.builtin.responses_api_models.vllm_model.token_backend import (
    COMPLETIONS,
    GENERATE,
    VLLMTokenBackend,
)
from gymnast.endpoints.upstream import EndpointSettings, Upstream
from gymnast.errors import CallError
from gymnast.runtime.listener import Listener
from gymnast.runtime.ports import bind_socket
from gymnast.tokens.backend import BadGeneration, ContextOverflow, Sampling, WeightSpan
from gymnast.tokens.expert_arrays import dump_array, unpack_experts
from gymnast.train.verl_endpoint import VerlEndpoint
from gymnast.wire.asgi import Receive, Send, read_body, send_reply
from gymnast.wire.calls import Calls
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import Reply
from gymnast.wire.server import ServerContext
from tests.helpers.caller import Caller

PROMPT = [1, 2, 3, 4, 5]
USAGE = {
    "prompt_tokens": 5,
    "total_tokens": 8,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 4, "created_cache_tokens": None, "multimodal_tokens": None},
    "completion_tokens_details": None,
}
GENERATED: dict[str, Any] = {
    "request_id": "generate-tokens-84c1aa4ce4304753", "model": "tiny", "created": 1794734524, "usage": USAGE,
    "prompt_logprobs": None, "prompt_token_id_logprobs": None, "prompt_token_ids": None, "mm_placeholders": None,
    "metrics": None, "kv_transfer_params": None, "ec_transfer_params": None, "output_mode": "tokens",
    "choices": [{
        "index": 0, "finish_reason": "stop", "stop_reason": 263, "token_ids": [493, 667, 263],
        "routed_experts": None, "sampling_mask": None,
        "weight_versions": [{"version": "default", "start": 0, "end": 2}, {"version": "step-7", "start": 2, "end": 3}],
        "logprobs": {"content": [
            {"token_id": token, "logprob": logprob, "rank": 9,
             "top_logprobs": [{"token_id": token, "logprob": logprob, "rank": 9}]}
            for token, logprob in ((493, -9.717846870422363), (667, -7.558934211730957), (263, -5.29005765914917))
        ]},
    }],
}  # fmt: skip
COMPLETED: dict[str, Any] = {
    "id": "cmpl-b0b92f6d343df6c4", "object": "text_completion", "created": 1794734552, "model": "tiny",
    "choices": [{
        "index": 0, "text": " rufeli s",
        "logprobs": {
            "text_offset": [0, 12, 24],
            "token_logprobs": [-9.717846870422363, -7.558934211730957, -5.29005765914917],
            "tokens": ["token_id:493", "token_id:667", "token_id:263"],
            "top_logprobs": [{"token_id:493": -9.7178}, {"token_id:667": -7.5589}, {"token_id:263": -5.29}],
        },
        "finish_reason": "stop", "stop_reason": 263, "token_ids": [493, 667, 263], "prompt_logprobs": None,
        "prompt_token_ids": PROMPT, "routed_experts": None,
    }],
    "service_tier": None, "system_fingerprint": "vllm-0.32.0-782e4956", "usage": USAGE,
    "kv_transfer_params": None, "ec_transfer_params": None, "metrics": None,
}  # fmt: skip
NOT_ENABLED = Reply(403, {"error": {"message": "Scale-out APIs are disabled", "type": "Forbidden", "code": 403}})
TOO_LONG = {
    GENERATE: "The decoder prompt (length 2100) is longer than the maximum model length of 2048. Make sure that "
    "`max_model_len` is no smaller than the number of text tokens.",
    COMPLETIONS: "This model's maximum context length is 2048 tokens. However, your prompt contains 2100 input tokens, "
    "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
    "(parameter=input_tokens, value=2100)",
}


def refused(message: str, status: int = 400) -> Reply:
    return Reply(status, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}})


class Server:
    """Answers each path with what stands in `replies`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.replies: dict[str, Any] = {GENERATE: GENERATED, COMPLETIONS: COMPLETED}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        self.asked.append((scope["path"], json.loads(await read_body(receive))))
        reply = self.replies[scope["path"]]
        await send_reply(send, reply if isinstance(reply, Reply) else Reply(200, reply))

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


class Bench:
    def __init__(self, server: Server, http: HttpClient) -> None:
        self.server = server
        settings = EndpointSettings(max_attempts=1)
        context = ServerContext(Calls({}), http)
        self.upstream = Upstream("policy", server.url, context, settings, api_key="k", headers={})

    def backend(self, **options: Any) -> VLLMTokenBackend:
        return VLLMTokenBackend(self.upstream, "tiny", **options)


@pytest.fixture
async def bench(http: HttpClient) -> AsyncIterator[Bench]:
    server = Server()
    async with Listener(server, bind_socket("127.0.0.1", 0, what="server", hint="")) as listener:
        server.url = listener.url
        yield Bench(server, http)


@pytest.mark.parametrize("use_generate", [True, False])
async def test_what_was_sampled_comes_back(bench: Bench, use_generate: bool) -> None:  # noqa: FBT001
    backend = bench.backend(use_generate=use_generate, logprobs_mode="processed")
    got = await backend.generate(PROMPT, Sampling(), Caller())
    assert list(got.token_ids) == [493, 667, 263]
    assert list(got.logprobs) == [-9.717846870422363, -7.558934211730957, -5.29005765914917]
    assert (got.finish, got.cached_tokens, got.logprob_mode) == ("stop", 4, "processed")
    spans = (WeightSpan("default", 0, 2), WeightSpan("step-7", 2, 3)) if use_generate else ()
    assert got.weight_versions == spans


@pytest.mark.parametrize(("use_generate", "path"), [(True, GENERATE), (False, COMPLETIONS)])
async def test_the_experts_of_a_model_with_experts_come_back(bench: Bench, use_generate: bool, path: str) -> None:  # noqa: FBT001
    experts = np.arange(7 * 2 * 4, dtype=np.uint8).reshape(7, 2, 4)
    reply = copy.deepcopy(bench.server.replies[path])
    reply["choices"][0]["routed_experts"] = dump_array(experts)
    bench.server.replies[path] = reply
    got = await bench.backend(use_generate=use_generate).generate(PROMPT, Sampling(), Caller())
    assert got.experts is not None
    assert unpack_experts(got.experts, 7).tolist() == experts.tolist()
    reply["choices"][0]["routed_experts"] = "none"
    with pytest.raises(BadGeneration, match="the routed experts cannot be read"):
        await bench.backend(use_generate=use_generate).generate(PROMPT, Sampling(), Caller())


async def test_a_prompt_that_does_not_fit_verls_window_is_an_outcome_of_the_policy(http: HttpClient) -> None:
    """The endpoint for verl's servers refused it in words of its own, and the rollout was a failure."""
    unused: Any = None
    async with VerlEndpoint(unused, window=len(PROMPT)) as endpoint:
        root, context = endpoint.url.removesuffix("/v1"), ServerContext(Calls({}), http)
        upstream = Upstream(
            "policy", root, context, EndpointSettings(max_attempts=1), api_key=endpoint.token, headers={}
        )
        with pytest.raises(ContextOverflow):
            await VLLMTokenBackend(upstream, "tiny").generate(PROMPT, Sampling(), Caller())


async def test_every_sampling_parameter_is_reported(bench: Bench) -> None:
    """vLLM takes what is left out from the model's generation_config.json."""
    await bench.backend().generate(PROMPT, Sampling(), Caller())
    path, body = bench.server.asked[0]
    said = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "logprobs": 0}
    assert (path, body) == (GENERATE, {"model": "tiny", "token_ids": PROMPT, "sampling_params": said})
    await bench.backend(use_generate=False).generate(PROMPT, Sampling(), Caller())
    path, body = bench.server.asked[1]
    ids = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    assert (path, body) == (COMPLETIONS, {"model": "tiny", "prompt": PROMPT, "max_tokens": 2**31 - 1, **said, **ids})


async def test_parameters_are_passed_on(bench: Bench) -> None:
    extra = {"min_tokens": 2, "repetition_penalty": 1.1, "cache_salt": "step-7"}
    sampling = Sampling(
        max_tokens=9, temperature=0.5, top_p=0.9, top_k=4, min_p=0.1, seed=3, stop_token_ids=(7, 8), extra=extra
    )
    await bench.backend().generate(PROMPT, sampling, Caller())
    body = bench.server.asked[0][1]
    assert body["cache_salt"] == "step-7"
    assert body["sampling_params"] == {
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "seed": 3, "logprobs": 0,
        "stop_token_ids": [7, 8], "min_tokens": 2, "repetition_penalty": 1.1,
    }  # fmt: skip
    await bench.backend(use_generate=False).generate(PROMPT, sampling, Caller())
    body = bench.server.asked[1][1]
    assert (body["seed"], body["min_tokens"], body["cache_salt"], body["max_tokens"]) == (3, 2, "step-7", 9)


async def test_a_parameter_that_vllm_would_ignore_is_refused(bench: Bench) -> None:
    with pytest.raises(CallError, match="unsupported sampling parameters: nonsense;") as caught:
        await bench.backend().generate(PROMPT, Sampling(extra={"nonsense": 1}), Caller())
    assert caught.value.detail.kind == "model_rejected"
    assert not bench.server.asked


@pytest.mark.parametrize("reply", [NOT_ENABLED, Reply(404, {"detail": "Not Found"})])
async def test_without_scale_out_completions_are_asked_from_then_on(bench: Bench, reply: Reply) -> None:
    bench.server.replies[GENERATE] = reply
    backend = bench.backend()
    for _ in range(2):
        assert len((await backend.generate(PROMPT, Sampling(), Caller())).token_ids) == 3
    assert bench.server.paths == [GENERATE, COMPLETIONS, COMPLETIONS]


async def test_a_wrong_model_name_is_not_a_missing_route(bench: Bench) -> None:
    wrong = refused("The model `nope` does not exist. Valid aliases: tiny.", 404)
    bench.server.replies = {GENERATE: wrong, COMPLETIONS: wrong}
    backend = bench.backend()
    with pytest.raises(CallError) as caught:
        await backend.generate(PROMPT, Sampling(), Caller())
    assert caught.value.detail.kind == "model_not_found"
    bench.server.replies = {GENERATE: GENERATED, COMPLETIONS: COMPLETED}
    await backend.generate(PROMPT, Sampling(), Caller())
    assert bench.server.paths[-1] == GENERATE


@pytest.mark.parametrize("path", [GENERATE, COMPLETIONS])
@pytest.mark.parametrize("said", [*TOO_LONG.values(), "max_tokens must be at least 1, got 0. (parameter=max_tokens)"])
async def test_a_prompt_that_leaves_no_room_is_an_overflow(bench: Bench, path: str, said: str) -> None:
    bench.server.replies[path] = refused(said)
    with pytest.raises(ContextOverflow):
        await bench.backend(use_generate=path == GENERATE).generate(PROMPT, Sampling(), Caller())


async def test_another_refusal_is_not_an_overflow(bench: Bench) -> None:
    bench.server.replies[GENERATE] = refused("min_p must be in [0, 1], got 2.0.")
    with pytest.raises(CallError) as caught:
        await bench.backend().generate(PROMPT, Sampling(), Caller())
    assert (caught.value.detail.kind, caught.value.detail.cause) == ("model_misconfigured", "parameter_refused")


async def test_the_window_of_completions_is_found_out(bench: Bench) -> None:
    """Null would be 16 tokens there, and more than the window is refused."""
    message = "max_tokens=2147483647 cannot be greater than max_model_len=20. Please request fewer output tokens."
    bench.server.replies[COMPLETIONS] = refused(message)
    backend = bench.backend(use_generate=False)
    with pytest.raises(CallError):
        await backend.generate(PROMPT, Sampling(), Caller())
    bench.server.replies[COMPLETIONS] = COMPLETED
    await backend.generate(PROMPT, Sampling(), Caller())
    await backend.generate(PROMPT, Sampling(max_tokens=99), Caller())
    await backend.generate(PROMPT, Sampling(max_tokens=9), Caller())
    assert [body["max_tokens"] for _, body in bench.server.asked] == [2**31 - 1, 15, 15, 15, 9]
    with pytest.raises(ContextOverflow, match="the context holds 20"):
        await backend.generate([1] * 20, Sampling(), Caller())


async def test_an_abort_keeps_what_was_sampled(bench: Bench) -> None:
    reply = copy.deepcopy(GENERATED)
    reply["choices"][0] |= {"finish_reason": "abort", "stop_reason": None}
    bench.server.replies[GENERATE] = reply
    got = await bench.backend().generate(PROMPT, Sampling(), Caller())
    assert (got.finish, len(got.token_ids)) == ("abort", 3)
    reply["choices"][0] |= {"token_ids": [], "logprobs": None, "weight_versions": None}
    got = await bench.backend().generate(PROMPT, Sampling(), Caller())
    assert (got.finish, list(got.token_ids)) == ("abort", [])


def _choice(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda reply: reply["choices"][0].update(changes)


def _nothing_but_text(reply: dict[str, Any]) -> None:
    choice = reply["choices"][0]
    choice |= {"token_ids": None, "logprobs": {**choice["logprobs"], "tokens": [" ru", "feli", " s"]}}


def _stand_in(reply: dict[str, Any]) -> None:
    reply["choices"][0]["logprobs"]["content"][1]["logprob"] = -9999.0


BAD: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    (GENERATE, _choice(logprobs=None), "3 sampled ids but 0 logprobs"),
    (GENERATE, _choice(token_ids=[493, 667]), "for other tokens"),
    (GENERATE, _choice(token_ids=None, logprobs=None, weight_versions=None), "nothing was sampled"),
    (GENERATE, _choice(finish_reason="error"), "finish_reason is 'error'"),
    (GENERATE, _choice(weight_versions=[{"version": "a", "start": 1, "end": 3}]), "do not cover"),
    (GENERATE, _stand_in, "stand-in for NaN"),
    (GENERATE, lambda reply: reply.update(choices=[]), "does not have one choice"),
    (GENERATE, lambda reply: reply.update(choices=["x"]), "unknown format"),
    (GENERATE, lambda reply: reply.update(usage={"prompt_tokens": 4}), "counted 4 prompt tokens"),
    (COMPLETIONS, _choice(prompt_token_ids=[1, 2, 3, 4, 6]), "differs from the one that was sent"),
    (COMPLETIONS, _choice(logprobs=None), "3 sampled ids but 0 logprobs"),
    (COMPLETIONS, _choice(token_ids=[493, 667, 264]), "for other tokens"),
    (COMPLETIONS, _nothing_but_text, "returns no token ids"),
]


@pytest.mark.parametrize(("path", "spoil", "said"), BAD, ids=[said for _, _, said in BAD])
async def test_what_is_not_a_whole_bundle_is_bad(
    bench: Bench, path: str, spoil: Callable[[Any], Any], said: str
) -> None:
    reply = copy.deepcopy(bench.server.replies[path])
    spoil(reply)
    bench.server.replies[path] = reply
    with pytest.raises(BadGeneration, match=said):
        await bench.backend(use_generate=path == GENERATE).generate(PROMPT, Sampling(), Caller())


async def test_an_older_engine_names_ids_only_in_its_logprobs(bench: Bench) -> None:
    reply = copy.deepcopy(COMPLETED)
    del reply["choices"][0]["token_ids"], reply["choices"][0]["prompt_token_ids"]
    bench.server.replies[COMPLETIONS] = reply
    got = await bench.backend(use_generate=False).generate(PROMPT, Sampling(), Caller())
    assert list(got.token_ids) == [493, 667, 263]
