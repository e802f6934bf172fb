"""The causes of endpoint errors: for each the failure kind, what it means, and what to do. Data only.

The values of `Cause` are written to files that other programs read: add causes, never rename them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gymnast.types.failure import FailureKind


class Cause(StrEnum):
    """Why an endpoint did not answer a request."""

    CONTEXT_OVERFLOW = "context_overflow"
    OUTPUT_LIMIT = "output_limit"
    REQUEST_TOO_LARGE = "request_too_large"
    TOOL_PARSER_MISSING = "tool_parser_missing"
    TOOLS_UNSUPPORTED = "tools_unsupported"
    TOOL_SCHEMA = "tool_schema"
    BAD_TOOL_CALL = "bad_tool_call"
    CHAT_TEMPLATE = "chat_template"
    HISTORY_REFUSED = "history_refused"
    LORA = "lora"
    IMAGE_UNSUPPORTED = "image_unsupported"
    PARAMETER_REFUSED = "parameter_refused"
    WRONG_DIALECT = "wrong_dialect"
    NO_RESPONSES_API = "no_responses_api"
    NO_SUCH_PATH = "no_such_path"
    MODEL_NAME = "model_name"
    OTHER_MODEL = "other_model"
    KEY_REFUSED = "key_refused"
    ACCESS_DENIED = "access_denied"
    QUOTA = "quota"
    RATE_LIMIT = "rate_limit"
    CONTENT_FILTER = "content_filter"
    REDIRECT = "redirect"
    TLS_UNTRUSTED = "tls_untrusted"
    TLS_ON_PLAIN = "tls_on_plain"
    PLAIN_ON_TLS = "plain_on_tls"
    PROXY_REFUSED = "proxy_refused"
    CONNECTION_REFUSED = "connection_refused"
    NAME_UNRESOLVED = "name_unresolved"
    CONNECTION_LOST = "connection_lost"
    OVERLOADED = "overloaded"
    LOADING = "loading"
    GATEWAY_DOWN = "gateway_down"
    TIMEOUT = "timeout"
    ENGINE_DIED = "engine_died"
    OUT_OF_MEMORY = "out_of_memory"
    SERVER_ERROR = "server_error"
    EMPTY_BODY = "empty_body"
    HTML_BODY = "html_body"
    NOT_AN_ANSWER = "not_an_answer"
    UNRECOGNISED = "unrecognised"


@dataclass(frozen=True, slots=True)
class Meaning:
    """A row of the table. `{endpoint}` in its texts stands for the endpoint's base URL."""

    kind: FailureKind | None
    """None: the status decides."""
    symptom: str
    reason: str
    action: str


_K = FailureKind

MEANINGS: Final = {
    Cause.CONTEXT_OVERFLOW: Meaning(
        _K.MODEL_REJECTED,
        "requests are refused because they do not fit into the context",
        "prompt and max_output_tokens together are longer than the model's context",
        "lower max_output_tokens or the number of turns, or serve the model with a larger --max-model-len",
    ),
    Cause.OUTPUT_LIMIT: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the endpoint {endpoint} refuses max_output_tokens",
        "max_output_tokens is larger than the model can generate, however short the prompt is",
        "lower max_output_tokens (++responses_create_params.max_output_tokens=N) below the limit in the message",
    ),
    Cause.REQUEST_TOO_LARGE: Meaning(
        _K.MODEL_REJECTED,
        "the endpoint {endpoint} refuses requests of this size",
        "one request is larger than the endpoint, its proxy or your rate limit ever accepts: waiting does not help",
        "shorten the prompts, or raise the limit (nginx: client_max_body_size; an account: its tokens per minute)",
    ),
    Cause.TOOL_PARSER_MISSING: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the endpoint {endpoint} was started without support for tools",
        "the server lacks the flags for tool calls",
        "restart it with tools: vLLM --enable-auto-tool-choice --tool-call-parser NAME, SGLang --tool-call-parser "
        "NAME, llama.cpp --jinja; then collect again",
    ),
    Cause.TOOLS_UNSUPPORTED: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the model at {endpoint} does not support tools",
        "the rows have tools, but this model or provider cannot call them",
        "use a model that supports tools, or rows without tools",
    ),
    Cause.TOOL_SCHEMA: Meaning(
        _K.MODEL_REJECTED,
        "requests with tools are refused before anything is generated",
        "the endpoint does not accept the JSON schema of a tool or of the response format",
        "gymnast check tools DATA.jsonl lists the schemas; correct them before changing the server or the agent",
    ),
    Cause.BAD_TOOL_CALL: Meaning(
        _K.MODEL_ERROR,
        "the endpoint {endpoint} discards replies whose tool call it cannot parse",
        "the model wrote an invalid tool call, and this endpoint returns an error instead of the text",
        "lower the temperature, or use an endpoint that returns the text; such replies are never scored",
    ),
    Cause.CHAT_TEMPLATE: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the endpoint {endpoint} has no usable chat template",
        "the model has no chat template, e.g. because it is a base model, or the server refuses the one in the request",
        "restart the server with --chat-template FILE, or serve the instruct version of the model",
    ),
    Cause.HISTORY_REFUSED: Meaning(
        _K.MODEL_REJECTED,
        "the endpoint {endpoint} refuses the order of the messages",
        "the chat template or the API does not allow this sequence of roles, tool calls and tool results",
        "correct the rows' messages, or set replace_developer_role_with_system if a role is not supported",
    ),
    Cause.LORA: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the endpoint {endpoint} does not serve the LoRA adapter",
        "the server was started without LoRA, or the adapter is not loaded",
        "restart it with --enable-lora and the adapter (vLLM --lora-modules, SGLang --lora-paths), then collect again",
    ),
    Cause.IMAGE_UNSUPPORTED: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the model at {endpoint} does not accept the images of the rows",
        "the rows have images, but this model takes none, or fewer in one prompt",
        "use a multimodal model (llama.cpp: --mmproj; vLLM: --limit-mm-per-prompt), or rows without images",
    ),
    Cause.PARAMETER_REFUSED: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the endpoint {endpoint} refuses a parameter of the request",
        "this model or server does not support the parameter, or not with this value; its message names it",
        "remove it from the rows, extra_body or the overrides (++responses_create_params), then collect again",
    ),
    Cause.WRONG_DIALECT: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the endpoint {endpoint} does not speak the API that the run uses",
        "the request reached a server with another API, or a model that is not served by this one",
        "choose the model type that matches (--model-type openai_model, vllm_model or anthropic_model)",
    ),
    Cause.NO_RESPONSES_API: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the endpoint {endpoint} has no Responses API",
        "the model type sends requests to /responses, which this server does not offer",
        "use Chat Completions: --model-type vllm_model (with is_responses_native: false); then collect again",
    ),
    Cause.NO_SUCH_PATH: Meaning(
        _K.MODEL_NOT_FOUND,
        "there is no model API at {endpoint}",
        "the base URL does not lead to an OpenAI-compatible API: /v1 is missing or doubled, or it is another service",
        "correct --model-url (it usually ends in /v1): curl {endpoint}/models must list models; then collect again",
    ),
    Cause.MODEL_NAME: Meaning(
        _K.MODEL_NOT_FOUND,
        "the endpoint {endpoint} does not know the model",
        "it does not serve the model that the run asks for (policy_model_name, -m), or not to you",
        "use a name that curl {endpoint}/models lists (-m NAME; doctor --probe lists them), then collect again",
    ),
    Cause.OTHER_MODEL: Meaning(
        _K.MODEL_MISCONFIGURED,
        "a gateway at {endpoint} answers with another model",
        "the reply names a different model than the request",
        "correct the gateway's routes, or set policy_model_name to the model that answers",
    ),
    Cause.KEY_REFUSED: Meaning(
        _K.MODEL_AUTH,
        "the endpoint {endpoint} rejects the API key",
        "policy_api_key is missing, wrong or expired",
        "set the right key (policy_api_key in env.yaml, or ++policy_api_key=…), then --resume --retry-failed",
    ),
    Cause.ACCESS_DENIED: Meaning(
        _K.MODEL_AUTH,
        "the endpoint {endpoint} denies access",
        "the server, or a firewall in front of it, refuses this client: its key's rights, its region or its network; "
        "the reply says which",
        "have access granted to the key, the region or this network (a firewall page: ask its operator), then --resume "
        "--retry-failed",
    ),
    Cause.QUOTA: Meaning(
        _K.MODEL_QUOTA,
        "the account at {endpoint} has no quota left",
        "credits, budget or the quota of the plan are used up: this is not a rate limit, so waiting does not help",
        "add credits or raise the budget of the account, then run again with --resume --retry-failed",
    ),
    Cause.RATE_LIMIT: Meaning(
        _K.MODEL_RATE_LIMITED,
        "the endpoint {endpoint} rate-limits requests",
        "the run sends more requests than your rate limit allows",
        "lower --concurrency (or set the model's max_concurrent_requests); then run again with --resume",
    ),
    Cause.CONTENT_FILTER: Meaning(
        _K.MODEL_REJECTED,
        "a content filter of {endpoint} blocks prompts or replies",
        "the provider's moderation refused the text; the model did not answer, so nothing is scored",
        "remove these rows, or use an endpoint without the filter",
    ),
    Cause.REDIRECT: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the endpoint {endpoint} redirects requests to another address",
        "the URL is not the API's own: http instead of https, an old host, or a login page in front of it",
        "set --model-url to the address that the redirect names, or pass the login page's credentials as headers",
    ),
    Cause.TLS_UNTRUSTED: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the certificate of {endpoint} is not trusted here",
        "the certificate is self-signed or of a private authority, expired, or for another host name",
        "set SSL_CERT_FILE to a file with the authority's certificate (for a self-signed one: the certificate itself)",
    ),
    Cause.TLS_ON_PLAIN: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the URL {endpoint} says https, but the server speaks http",
        "the port does not speak TLS",
        "write http:// in --model-url, or use the server's TLS port",
    ),
    Cause.PLAIN_ON_TLS: Meaning(
        _K.MODEL_MISCONFIGURED,
        "the URL {endpoint} says http, but the server speaks https",
        "a plain HTTP request reached a port that expects TLS",
        "write https:// in --model-url",
    ),
    Cause.PROXY_REFUSED: Meaning(
        _K.MODEL_UNREACHABLE,
        "the proxy does not connect to {endpoint}",
        "HTTPS_PROXY or HTTP_PROXY is set, and that proxy refuses the connection or its credentials",
        "add the endpoint's host to NO_PROXY, or correct the proxy's address and credentials",
    ),
    Cause.CONNECTION_REFUSED: Meaning(
        _K.MODEL_UNREACHABLE,
        "the policy endpoint {endpoint} cannot be reached",
        "nothing answers there: the model server is not running, or the URL is wrong",
        "check that it runs and the URL is correct: curl {endpoint}/models; then run again with --resume",
    ),
    Cause.NAME_UNRESOLVED: Meaning(
        _K.MODEL_UNREACHABLE,
        "the host name of {endpoint} does not resolve",
        "the host name is wrong, or this node has no name server for it",
        "check the URL's host from the node itself (getent hosts NAME); then run again with --resume",
    ),
    Cause.CONNECTION_LOST: Meaning(
        _K.MODEL_UNREACHABLE,
        "the endpoint {endpoint} closes connections before it has replied",
        "the server died or was restarted in the middle of requests, or a proxy cuts long ones",
        "read the server's log at that time; check the timeouts of proxies in between; then run again with --resume",
    ),
    Cause.OVERLOADED: Meaning(
        _K.MODEL_OVERLOADED,
        "the endpoint {endpoint} is overloaded",
        "the server has no capacity for more requests now",
        "lower --concurrency or add replicas, then run again with --resume",
    ),
    Cause.LOADING: Meaning(
        _K.MODEL_OVERLOADED,
        "the endpoint {endpoint} is still loading its model",
        "the server answers, but the model is not ready",
        "wait until curl {endpoint}/models answers, then run again with --resume",
    ),
    Cause.GATEWAY_DOWN: Meaning(
        _K.MODEL_OVERLOADED,
        "the gateway at {endpoint} cannot reach the model server behind it",
        "the proxy or gateway answers, but it has no live backend",
        "check the model server behind the gateway and the gateway's log, then run again with --resume",
    ),
    Cause.TIMEOUT: Meaning(
        None,
        "requests to {endpoint} time out on the server's side",
        "the server, or the proxy in front of it, gave up before the reply was complete",
        "raise the proxy's timeout (proxy_read_timeout of nginx), or lower --concurrency or max_output_tokens",
    ),
    Cause.ENGINE_DIED: Meaning(
        _K.MODEL_ERROR,
        "the engine of the server at {endpoint} died",
        "the API still answers, but the inference process behind it crashed",
        "read the first error in the server's log, fix it, restart the server, then run again with --resume",
    ),
    Cause.OUT_OF_MEMORY: Meaning(
        _K.MODEL_ERROR,
        "the server at {endpoint} ran out of memory",
        "the model, or this request, does not fit into the server's memory",
        "lower --max-model-len or the batch size of the server, use a smaller model, or add memory; then --resume",
    ),
    Cause.SERVER_ERROR: Meaning(
        _K.MODEL_ERROR,
        "the endpoint {endpoint} returns an internal error",
        "the model server fails on these requests; its message is quoted below",
        "read the model server's own log at the times of these attempts, fix the error, then run again with --resume",
    ),
    Cause.EMPTY_BODY: Meaning(
        _K.MODEL_BAD_REPLY,
        "the endpoint {endpoint} returns an empty body",
        "a proxy or the provider drops the reply",
        "call the endpoint without any proxy: curl -i {endpoint}/chat/completions …; then check the provider's log",
    ),
    Cause.HTML_BODY: Meaning(
        _K.MODEL_BAD_REPLY,
        "the endpoint {endpoint} returns a web page",
        "the URL leads to a web page, a login or a proxy, not to the API",
        "correct the base URL (--model-url; it usually ends in /v1): curl {endpoint}/models must return JSON",
    ),
    Cause.NOT_AN_ANSWER: Meaning(
        _K.MODEL_BAD_REPLY,
        "the endpoint {endpoint} returns something other than an answer",
        "the reply is not in the format of the API that the run uses",
        "check the base URL and the model type (--model-type); gymnast check endpoint shows the reply",
    ),
    Cause.UNRECOGNISED: Meaning(
        None,
        "the endpoint {endpoint} refuses requests",
        "its message is not one that Gymnast knows; it is quoted below",
        "correct what the message names (gymnast check endpoint sends a small request the same way)",
    ),
}
"""What each cause means."""
