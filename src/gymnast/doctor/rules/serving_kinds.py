"""Kind rules about the policy endpoint. Data only."""

from __future__ import annotations

from typing import Final

from gymnast.doctor.rules.kind_rule import EMPTY, NON_EMPTY, KindRule
from gymnast.types.failure import FailureKind, Layer

SERVING: Final = (
    KindRule(
        "endpoint_down",
        (FailureKind.MODEL_UNREACHABLE,),
        "the policy endpoint {endpoint} cannot be reached",
        "nothing answers there: the model server is not running, or the URL is wrong",
        "check that it runs and the URL is correct: curl {endpoint}/models; then run again with --resume",
        "Model calls get no reply at all.",
    ),
    KindRule(
        "model_slow",
        (FailureKind.MODEL_TIMEOUT,),
        "model calls to {endpoint} exceed their deadline",
        "the endpoint is too slow for the deadline at this concurrency, or hangs",
        "lower --concurrency, or raise the deadline (the model's timeout_s, the agent's model_timeout_s); then run "
        "again with --resume",
        "Model calls take longer than the model's `timeout_s` or the agent's `model_timeout_s`.",
    ),
    KindRule(
        "rate_limited",
        (FailureKind.MODEL_RATE_LIMITED,),
        "the endpoint {endpoint} rate-limits requests (429)",
        "the run sends more requests than your rate limit allows",
        "lower --concurrency (or set the model's max_concurrent_requests); then run again with --resume",
        "The endpoint returns 429, even after the requested wait.",
    ),
    KindRule(
        "endpoint_overloaded",
        (FailureKind.MODEL_OVERLOADED,),
        "the endpoint {endpoint} is overloaded or still loading (502, 503, 504)",
        "the server, or the proxy in front of it, has no capacity or no live backend",
        "check the server's log and replicas; lower --concurrency or add replicas, then --resume",
        "The endpoint or its proxy returns 502, 503, 504 or 529.",
    ),
    KindRule(
        "endpoint_error",
        (FailureKind.MODEL_ERROR,),
        "the endpoint {endpoint} returns an internal error (500)",
        "the model server fails on these requests; its message is quoted below",
        "read the model server's own log at the times of these attempts, fix the error, then run again with --resume",
        "The endpoint returns 500 with a message.",
        flavors=NON_EMPTY,
    ),
    KindRule(
        "empty_provider_body",
        (FailureKind.MODEL_ERROR,),
        "the endpoint {endpoint} returns 500 without a message",
        "the provider does not say what went wrong, so nothing on this side can know",
        "enable logging on the provider's side (vLLM: --enable-log-requests --uvicorn-log-level debug) and repeat one "
        "request",
        "The endpoint returns 500 with an empty body.",
        flavors=EMPTY,
    ),
    KindRule(
        "empty_body",
        (FailureKind.MODEL_BAD_REPLY,),
        "the endpoint {endpoint} returns 200 with an empty body",
        "a proxy or the provider drops the reply",
        "call the endpoint without any proxy: curl -i {endpoint}/chat/completions …; then check the provider's log",
        "The endpoint returns 200 without a body.",
        flavors=EMPTY,
    ),
    KindRule(
        "not_json",
        (FailureKind.MODEL_BAD_REPLY,),
        "the endpoint {endpoint} does not return a completion as JSON",
        "the URL points to something else (a web page, a proxy), or the server uses another API",
        "check the base URL (it usually ends in /v1) and the model type; gymnast check endpoint shows the reply",
        "The endpoint returns 200 with a web page, or JSON of another shape.",
        flavors=NON_EMPTY,
    ),
    KindRule(
        "reply_cut",
        (FailureKind.MODEL_BAD_REPLY,),
        "replies of the endpoint {endpoint} are cut off",
        "the server died while replying, or a proxy in front of it cuts long or slow replies",
        "check the server's and the proxy's logs (time and size limits); bypass the proxy: gymnast check "
        "endpoint URL; then --resume",
        "The endpoint returns 200 with an incomplete reply.",
        flavors=frozenset({"cut"}),
    ),
    KindRule(
        "key_refused",
        (FailureKind.MODEL_AUTH,),
        "the endpoint {endpoint} rejects the API key (401 or 403)",
        "policy_api_key is missing, wrong or expired",
        "set the right key (policy_api_key in env.yaml, or ++policy_api_key=…), then --resume --retry-failed",
        "The endpoint returns 401 or 403.",
    ),
    KindRule(
        "model_name_wrong",
        (FailureKind.MODEL_NOT_FOUND,),
        "the endpoint {endpoint} does not know the model (404)",
        "the endpoint does not serve a model named policy_model_name",
        "use a name that curl {endpoint}/models lists (-m NAME; doctor --probe lists them), then collect again",
        "The endpoint returns 404 with a message about the model.",
        flavors=frozenset({""}),
    ),
    KindRule(
        "base_url_wrong",
        (FailureKind.MODEL_NOT_FOUND,),
        "there is nothing at {endpoint}/chat/completions (404)",
        "the base URL is not an OpenAI-compatible API: /v1 is missing, or it points to another service",
        "correct --model-url (it usually ends in /v1): curl {endpoint}/models must list models; then collect again",
        "The endpoint returns 404 with nothing but Not Found.",
        flavors=frozenset({"path"}),
    ),
    KindRule(
        "tool_grammar",
        (FailureKind.MODEL_REJECTED, FailureKind.MODEL_ERROR),
        "requests with tools are refused before anything is generated",
        "the inference server's constrained decoding cannot compile a tool's JSON schema",
        "gymnast check tools DATA.jsonl lists the schemas; correct them before changing the server or the agent",
        "The endpoint returns 400 or 500 with a message about grammars or schemas.",
        step=4,
        flavors=frozenset({"grammar"}),
    ),
    KindRule(
        "context_overflow",
        (FailureKind.MODEL_REJECTED,),
        "requests are refused because they do not fit into the context",
        "prompt and max_output_tokens together are longer than the model's context",
        "lower max_output_tokens or the number of turns, or serve the model with a larger --max-model-len",
        "The endpoint returns 400 with a message about the context length, or many rollouts have no output.",
        flavors=frozenset({"overflow"}),
        belongs_to=Layer.CONFIG,
    ),
    KindRule(
        "request_refused",
        (FailureKind.MODEL_REJECTED,),
        "the endpoint {endpoint} refuses requests (400)",
        "the endpoint does not accept a create param or an input item; its message is quoted below",
        "correct the row or the params that it names (gymnast check endpoint sends a small request the same way)",
        "The endpoint returns 400 or another 4xx.",
        step=8,
        flavors=frozenset({""}),
    ),
)
