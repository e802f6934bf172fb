"""Error replies as real serving stacks send them: status, headers, body, and the cause that each one means.

Texts come from the sources of the named packages and from public issue trackers; `source` says which.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from gymnast.wire.endpoint_errors import Cause as C  # noqa: N817 - a table of it

HTML = "text/html"


@dataclass(frozen=True, slots=True)
class Message:
    """One error reply."""

    stack: str
    source: str
    cause: C
    status: int
    body: str
    path: str = "/chat/completions"
    headers: dict[str, str] = field(default_factory=dict)


def _openai(message: str, kind: str | None = "invalid_request_error", code: Any = None, param: Any = None) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def _flat(message: str, kind: str = "BadRequestError", code: int = 400, param: Any = None) -> str:
    """SGLang's, TensorRT-LLM's and early vLLM's form."""
    return json.dumps({"object": "error", "message": message, "type": kind, "param": param, "code": code})


def _anthropic(kind: str, message: str) -> str:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011C"})


def _google(code: int, status: str, message: str, details: list[Any] | None = None) -> str:
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    return json.dumps([{"error": {**error, "details": details} if details else error}])


def _page(title: str, by: str) -> str:
    return (
        f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n"
        f"<hr><center>{by}</center>\r\n</body>\r\n</html>\r\n"
    )


def _vllm(cause: C, message: str, status: int = 400, kind: str = "BadRequestError", param: Any = None) -> Message:
    return Message("vllm", "vllm 0.32.0", cause, status, _openai(message, kind, status, param))


VLLM = (
    _vllm(
        C.CONTEXT_OVERFLOW,
        "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens, "
        "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.",
        param="input_tokens",
    ),
    _vllm(
        C.CONTEXT_OVERFLOW,
        "This model's maximum context length is 2048 tokens. However, your prompt contains 90000 characters (more than "
        "32768 characters, which is the upper bound for 2048 input tokens). Please reduce the length of the input "
        "prompt.",
        param="input_text",
    ),
    Message(
        *("vllm", "vllm 0.6", C.CONTEXT_OVERFLOW, 400),
        _flat(
            "This model's maximum context length is 4096 tokens. However, you requested 5120 tokens (4608 in the "
            "messages, 512 in the completion). Please reduce the length of the messages or completion."
        ),
    ),
    Message(
        *("vllm", "vllm 0.10", C.CONTEXT_OVERFLOW, 400),
        _openai(
            "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 32768 "
            "tokens and your request has 30000 input tokens (4096 > 32768 - 30000). None",
            "BadRequestError",
            400,
        ),
    ),
    Message(
        *("vllm", "vllm 0.10", C.OUTPUT_LIMIT, 400),
        _openai(
            "'max_tokens' or 'max_completion_tokens' is too large: 32768. This model's maximum context length is 32768 "
            "tokens and your request has 43 input tokens (32768 > 32768 - 43). None",
            "BadRequestError",
            400,
        ),
    ),
    _vllm(
        C.CONTEXT_OVERFLOW,
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens.",
    ),
    _vllm(
        C.CONTEXT_OVERFLOW,
        "The decoder prompt (length 4096) plus the number of requested output tokens (at least 1) is longer than the "
        "maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens "
        "(prompt + requested output tokens).",
    ),
    _vllm(C.CONTEXT_OVERFLOW, "Input length (5000) exceeds model's maximum context length (4096)."),
    _vllm(
        C.CONTEXT_OVERFLOW,
        "The engine prompt length 5000 exceeds the max_model_len 4096. Please reduce prompt.",
        kind="invalid_request_error",
        param="input",
    ),
    Message(
        *("vllm", "vllm 0.8", C.CONTEXT_OVERFLOW, 400),
        _flat("max_tokens must be at least 1, got -512.", param="max_tokens"),
    ),
    Message(
        *("vllm", "vllm 0.10", C.TOOL_PARSER_MISSING, 400),
        _openai(
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            "BadRequestError",
            400,
        ),
    ),
    Message(
        *("vllm", "vllm 0.11", C.TOOL_PARSER_MISSING, 400),
        _openai('tool_choice="required" requires --tool-call-parser to be set', "BadRequestError", 400),
    ),
    _vllm(
        C.MODEL_NAME,
        "The model `qwen3` does not exist. Valid aliases: Qwen/Qwen3-8B.",
        404,
        "NotFoundError",
        "model",
    ),
    Message(
        *("vllm", "vllm 0.8", C.MODEL_NAME, 404),
        _flat("The model `default` does not exist.", "NotFoundError", 404),
    ),
    Message("vllm", "vllm 0.32.0", C.KEY_REFUSED, 401, '{"error":"Unauthorized"}'),
    _vllm(
        C.CHAT_TEMPLATE,
        "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if "
        "the tokenizer does not define one.",
    ),
    _vllm(
        C.CHAT_TEMPLATE,
        "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with "
        "untrusted chat template.",
    ),
    _vllm(C.IMAGE_UNSUPPORTED, "Qwen/Qwen3-8B is not a multimodal model"),
    _vllm(C.IMAGE_UNSUPPORTED, "At most 1 image(s) may be provided in one prompt."),
    _vllm(C.HISTORY_REFUSED, "Conversation roles must alternate user/assistant/user/assistant/..."),
    _vllm(C.TOOL_SCHEMA, "Failed to transform json schema into a grammar: [13:05:11] unsupported type"),
    _vllm(C.TOOL_SCHEMA, "The provided JSON schema contains features not supported by xgrammar."),
    _vllm(C.TOOL_SCHEMA, "Invalid grammar specification."),
    _vllm(
        C.ENGINE_DIED,
        "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        500,
        "InternalServerError",
    ),
    _vllm(
        C.PARAMETER_REFUSED,
        "Requested sample logprobs of 20, which is greater than max allowed: 5",
        param="logprobs",
    ),
    _vllm(C.PARAMETER_REFUSED, "temperature must be non-negative, got -1.0.", param="temperature"),
    Message("vllm", "vllm 0.32.0 (FastAPI)", C.NO_SUCH_PATH, 404, '{"detail":"Not Found"}'),
    Message("vllm", "vllm 0.9 (FastAPI)", C.NO_RESPONSES_API, 404, '{"detail":"Not Found"}', "/responses"),
    _vllm(
        C.WRONG_DIALECT,
        "[{'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required', 'input': {'prompt': 'hi'}}]",
    ),
    _vllm(
        C.PARAMETER_REFUSED,
        "[{'type': 'extra_forbidden', 'loc': ('body', 'guided'), 'msg': 'Extra inputs are not permitted', "
        "'input': 'x'}]",
    ),
    Message(
        *("vllm", "vllm 0.8", C.WRONG_DIALECT, 400),
        _flat("The model does not support Chat Completions API"),
    ),
    Message("vllm", "vllm 0.32.0 (Starlette)", C.SERVER_ERROR, 500, "Internal Server Error"),
)


def _sglang(cause: C, message: str, status: int = 400) -> Message:
    return Message("sglang", "sglang 0.5.23", cause, status, _flat(message, code=status))


SGLANG = (
    _sglang(C.CONTEXT_OVERFLOW, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
    _sglang(
        C.CONTEXT_OVERFLOW,
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
        "5120 tokens: 4096 tokens from the input messages and 1024 tokens for the completion. Please reduce the number "
        "of tokens in the input messages or the completion to fit within the limit.",
    ),
    _sglang(
        C.CONTEXT_OVERFLOW,
        "Input length (5000 tokens) exceeds the maximum allowed length (4090 tokens). Use a shorter input or enable "
        "--allow-auto-truncate.",
    ),
    _sglang(C.OVERLOADED, "The request queue is full.", 503),
    _sglang(
        C.LORA,
        "LoRA adapter 'math' was requested, but LoRA is not enabled. Please launch the server with --enable-lora flag "
        "and preload adapters using --lora-paths or /load_lora_adapter endpoint.",
    ),
    _sglang(C.LORA, "Got LoRA adapter that has never been loaded: math\nAll loaded adapters: dict_keys([])."),
    Message(
        *("sglang", "sglang 0.5.23", C.MODEL_NAME, 404),
        _openai("The model 'qwen3' does not exist", code="model_not_found", param="model"),
    ),
    _sglang(C.TOOL_SCHEMA, "Tool 0 function has invalid 'parameters' schema: 'strin' is not valid under any schema"),
    _sglang(C.IMAGE_UNSUPPORTED, "image input is not supported for this model"),
    _sglang(C.PARAMETER_REFUSED, "Tools cannot be empty if tool choice is set to required."),
    Message("sglang", "sglang 0.5.23", C.KEY_REFUSED, 401, '{"error":"Unauthorized"}'),
)

TENSORRT = (
    Message(
        *("tensorrt_llm", "TensorRT-LLM #9277", C.CONTEXT_OVERFLOW, 400),
        _flat("The sum of prompt length (9351.0), query length (0) should not exceed max_num_tokens (8192)"),
    ),
    Message(
        *("tensorrt_llm", "tensorrtllm_backend #141", C.CONTEXT_OVERFLOW, 400),
        _flat("Cannot process new request: Prompt length (5056) exceeds maximum sequence length (2048)"),
    ),
    Message(
        *("tensorrt_llm", "tensorrtllm_backend #565", C.CONTEXT_OVERFLOW, 500),
        _flat(
            "Encountered an error when fetching new request: Prompt length (200) exceeds maximum input length (1)",
            "InternalServerError",
            500,
        ),
    ),
    Message(
        *("tensorrt_llm", "TensorRT-LLM 1.0", C.CONTEXT_OVERFLOW, 400),
        _flat(
            "`default_max_tokens` (-904) must be greater than 0, `default_max_tokens` (-904) = max_seq_len (4096) - "
            "`splited_prompt_len` (5000) - `query_token_len` (0)"
        ),
    ),
    Message(
        *("tensorrt_llm", "TensorRT-LLM 1.0", C.CONTEXT_OVERFLOW, 400),
        _flat(
            "The sum of prompt length (3900), query length (0) and max_tokens (512) should not exceed "
            "max_seq_len (4096)"
        ),
    ),
)

LLAMA_CPP = (
    Message(
        *("llama.cpp", "llama.cpp #19774 (build 8064)", C.CONTEXT_OVERFLOW, 400),
        '{"error":{"code":400,"message":"request (4390 tokens) exceeds the available context size (4096 tokens), try '
        'increasing it","type":"exceed_context_size_error","n_prompt_tokens":4390,"n_ctx":4096}}',
    ),
    Message(
        *("llama.cpp", "llama.cpp #15780", C.CONTEXT_OVERFLOW, 500),
        '{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the context '
        'size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}',
    ),
    Message(
        *("llama.cpp", "llama.cpp #19774 (build 8064)", C.CONTEXT_OVERFLOW, 500),
        '{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}',
    ),
    Message(
        *("llama.cpp", "llama.cpp server", C.LOADING, 503),
        '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
    ),
    Message(
        *("llama.cpp", "llama.cpp server", C.KEY_REFUSED, 401),
        '{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}',
    ),
    Message(
        *("llama.cpp", "llama.cpp server", C.TOOL_PARSER_MISSING, 500),
        '{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}',
    ),
    Message(
        *("llama.cpp", "llama.cpp server", C.IMAGE_UNSUPPORTED, 500),
        '{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to '
        'provide the mmproj","type":"server_error"}}',
    ),
    Message(
        *("llama.cpp", "llama.cpp server", C.NO_SUCH_PATH, 404),
        '{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}',
    ),
    Message(
        *("llama.cpp", "llama.cpp server", C.TOOL_SCHEMA, 400),
        '{"error":{"code":400,"message":"Failed to parse grammar","type":"invalid_request_error"}}',
    ),
    Message(
        *("llama.cpp", "llama.cpp server", C.HISTORY_REFUSED, 500),
        '{"error":{"code":500,"message":"After the optional system message, conversation roles must alternate '
        'user/assistant/user/assistant/... at row 12, column 5","type":"server_error"}}',
    ),
    Message(
        *("llama.cpp", "llama-cpp-python 0.2 #416", C.CONTEXT_OVERFLOW, 500),
        '{"error":{"message":"Requested tokens (2285) exceed context window of 2048","type":"internal_server_error",'
        '"param":null,"code":null}}',
    ),
)


def _ollama(cause: C, message: str, status: int, kind: str = "api_error") -> Message:
    return Message("ollama", "ollama 0.13", cause, status, _openai(message, kind))


OLLAMA = (
    _ollama(C.MODEL_NAME, 'model "llama9" not found, try pulling it first', 404, "not_found_error"),
    _ollama(C.MODEL_NAME, "model 'llama9' not found", 404, "not_found_error"),
    _ollama(C.TOOLS_UNSUPPORTED, "registry.ollama.ai/library/gemma3:4b does not support tools", 400),
    _ollama(C.PARAMETER_REFUSED, '"gemma3:4b" does not support thinking', 400),
    _ollama(C.OUT_OF_MEMORY, "model requires more system memory (5.6 GiB) than is available (3.1 GiB)", 500),
    _ollama(C.ENGINE_DIED, "llama runner process has terminated: exit status 2", 500),
    _ollama(C.OVERLOADED, "server busy, please try again.  maximum pending requests exceeded", 503),
    _ollama(
        C.ENGINE_DIED,
        "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, check "
        "ollama server logs for details",
        500,
    ),
    _ollama(C.LOADING, "timed out waiting for llama runner to start - progress 0.00 - ", 500),
    _ollama(C.CONTEXT_OVERFLOW, "the input length exceeds the context length", 400),
    Message("ollama", "ollama 0.13", C.KEY_REFUSED, 401, '{"error":"unauthorized"}'),
)


def _oa(cause: C, status: int, message: str, code: Any = None, kind: str = "invalid_request_error") -> Message:
    return Message("openai", "OpenAI API, openai 3.49.0", cause, status, _openai(message, kind, code))


OPENAI = (
    _oa(
        *(C.KEY_REFUSED, 401),
        "Incorrect API key provided: sk-abc. You can find your API key at "
        "https://platform.openai.com/account/api-keys.",
        "invalid_api_key",
    ),
    _oa(
        *(C.KEY_REFUSED, 401),
        "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth.",
    ),
    _oa(
        *(C.QUOTA, 429),
        "You exceeded your current quota, please check your plan and billing details. For more information on this "
        "error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
        "insufficient_quota",
        "insufficient_quota",
    ),
    _oa(C.QUOTA, 400, "Billing hard limit has been reached", "billing_hard_limit_reached"),
    _oa(C.QUOTA, 429, "Your account is not active, please check your billing details.", "billing_not_active"),
    _oa(
        *(C.RATE_LIMIT, 429),
        "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, "
        "Requested 2000. Please try again in 2s.",
        "rate_limit_exceeded",
        "tokens",
    ),
    _oa(
        *(C.REQUEST_TOO_LARGE, 429),
        "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 45000. The "
        "input or output tokens must be reduced in order to run successfully.",
        "rate_limit_exceeded",
        "tokens",
    ),
    _oa(
        *(C.MODEL_NAME, 404),
        "The model `gpt-9` does not exist or you do not have access to it.",
        "model_not_found",
    ),
    _oa(C.MODEL_NAME, 403, "Project `proj_x` does not have access to model `gpt-4o`", "model_not_found"),
    _oa(
        *(C.CONTEXT_OVERFLOW, 400),
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. Please "
        "reduce the length of the messages.",
        "context_length_exceeded",
    ),
    _oa(
        *(C.CONTEXT_OVERFLOW, 400),
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "context_length_exceeded",
    ),
    _oa(
        *(C.CONTEXT_OVERFLOW, 400),
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens. Please "
        "reduce the length of the messages.",
        "context_length_exceeded",
    ),
    _oa(
        *(C.PARAMETER_REFUSED, 400),
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "unsupported_parameter",
    ),
    _oa(
        *(C.PARAMETER_REFUSED, 400),
        "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is "
        "supported.",
        "unsupported_value",
    ),
    _oa(C.PARAMETER_REFUSED, 400, "Unrecognized request argument supplied: guided_json"),
    _oa(C.PARAMETER_REFUSED, 400, "Unknown parameter: 'chat_template_kwargs'.", "unknown_parameter"),
    _oa(
        *(C.OUTPUT_LIMIT, 400),
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided "
        "100000.",
        "invalid_value",
    ),
    _oa(
        *(C.CONTENT_FILTER, 400),
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a "
        "different prompt: https://platform.openai.com/docs/guides/reasoning#advice-on-prompting",
        "invalid_prompt",
    ),
    _oa(
        *(C.TOOL_SCHEMA, 400),
        "Invalid schema for function 'look_up': In context=(), 'additionalProperties' is required to be supplied and "
        "to be false.",
        "invalid_function_parameters",
    ),
    _oa(
        *(C.HISTORY_REFUSED, 400),
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    ),
    _oa(
        *(C.HISTORY_REFUSED, 400),
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        "The following tool_call_ids did not have response messages: call_1",
    ),
    _oa(
        *(C.ACCESS_DENIED, 403),
        "Country, region, or territory not supported",
        "unsupported_country_region_territory",
        "request_forbidden",
    ),
    _oa(C.OVERLOADED, 503, "The engine is currently overloaded, please try again later", None, "server_error"),
    _oa(
        C.SERVER_ERROR,
        500,
        "The server had an error while processing your request. Sorry about that!",
        None,
        "server_error",
    ),
    _oa(C.NO_SUCH_PATH, 404, "Invalid URL (POST /v1/v1/chat/completions)"),
    _oa(
        *(C.WRONG_DIALECT, 404),
        "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use "
        "v1/completions?",
    ),
    _oa(C.IMAGE_UNSUPPORTED, 400, "Invalid content type. image_url is only supported by certain models."),
)


def _azure(cause: C, status: int, code: str, message: str, **more: Any) -> Message:
    body = json.dumps({"error": {"code": code, "message": message, **more}})
    return Message("azure", "Azure OpenAI 2024-10-21", cause, status, body)


AZURE = (
    _azure(
        *(C.MODEL_NAME, 404, "DeploymentNotFound"),
        "The API deployment for this resource does not exist. If you created the deployment within the last 5 minutes, "
        "please wait a moment and try again.",
    ),
    _azure(
        *(C.KEY_REFUSED, 401, "401"),
        "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for an "
        "active subscription and use a correct regional API endpoint for your resource.",
    ),
    _azure(
        *(C.CONTENT_FILTER, 400, "content_filter"),
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please "
        "modify your prompt and retry.",
        param="prompt",
        innererror={"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"jailbreak": {"filtered": True}}},
    ),
    _azure(
        *(C.RATE_LIMIT, 429, "429"),
        "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-02-01 "
        "have exceeded token "
        "rate limit of your current OpenAI S0 pricing tier. Please retry after 59 seconds.",
    ),
    _azure(C.NO_SUCH_PATH, 404, "404", "Resource not found"),
    _azure(C.PARAMETER_REFUSED, 400, "BadRequest", "API version not supported"),
    _azure(
        *(C.WRONG_DIALECT, 400, "OperationNotSupported"),
        "The chatCompletion operation does not work with the specified model, o1-pro. Please choose different model "
        "and try again.",
    ),
    _azure(C.ACCESS_DENIED, 403, "AccessDenied", "Public access is disabled. Please configure private endpoint."),
    _azure(C.TIMEOUT, 408, "Timeout", "The operation was timeout."),
)


def _claude(cause: C, status: int, kind: str, message: str) -> Message:
    body = _anthropic(kind, message)
    return Message("anthropic", "Anthropic API, anthropic 2.8.0", cause, status, body, "/messages")


ANTHROPIC = (
    _claude(C.CONTEXT_OVERFLOW, 400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
    _claude(
        *(C.CONTEXT_OVERFLOW, 400, "invalid_request_error"),
        "input length and `max_tokens` exceed context limit: 198000 + 8192 > 200000, decrease input length or "
        "`max_tokens` and try again",
    ),
    _claude(
        *(C.OUTPUT_LIMIT, 400, "invalid_request_error"),
        "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5",
    ),
    _claude(C.KEY_REFUSED, 401, "authentication_error", "invalid x-api-key"),
    _claude(C.KEY_REFUSED, 401, "authentication_error", "x-api-key header is required"),
    _claude(C.MODEL_NAME, 404, "not_found_error", "model: claude-9"),
    _claude(C.REQUEST_TOO_LARGE, 413, "request_too_large", "Request exceeds the maximum size"),
    _claude(
        *(C.RATE_LIMIT, 429, "rate_limit_error"),
        "This request would exceed your organization's rate limit of 30,000 input tokens per minute.",
    ),
    _claude(C.OVERLOADED, 529, "overloaded_error", "Overloaded"),
    _claude(
        *(C.QUOTA, 400, "invalid_request_error"),
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or "
        "purchase credits.",
    ),
    _claude(
        *(C.QUOTA, 400, "invalid_request_error"),
        "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
    ),
    _claude(C.CONTENT_FILTER, 400, "invalid_request_error", "Output blocked by content filtering policy"),
    _claude(
        *(C.HISTORY_REFUSED, 400, "invalid_request_error"),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01.",
    ),
    _claude(
        *(C.TOOL_SCHEMA, 400, "invalid_request_error"),
        "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
    ),
    _claude(
        *(C.PARAMETER_REFUSED, 400, "invalid_request_error"),
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
    ),
    _claude(C.SERVER_ERROR, 500, "api_error", "Internal server error"),
    _claude(
        *(C.ACCESS_DENIED, 403, "permission_error"),
        "Your API key does not have permission to use the specified resource.",
    ),
)


def _gemini(cause: C, code: int, status: str, message: str, details: list[Any] | None = None) -> Message:
    return Message("gemini", "Gemini API v1beta/openai", cause, code, _google(code, status, message, details))


def _quota(metric: str) -> list[Any]:
    return [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": metric}]}]


_GEMINI_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more information on this error, "
    "head to: https://ai.google.dev/gemini-api/docs/rate-limits."
)
GEMINI = (
    _gemini(
        *(C.CONTEXT_OVERFLOW, 400, "INVALID_ARGUMENT"),
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    _gemini(
        *(C.CONTEXT_OVERFLOW, 400, "INVALID_ARGUMENT"),
        "The input token count exceeds the maximum number of tokens allowed 1048576.",
    ),
    _gemini(
        *(C.RATE_LIMIT, 429, "RESOURCE_EXHAUSTED"),
        f"{_GEMINI_QUOTA} \n* Quota exceeded for metric: generativelanguage.googleapis.com/"
        "generate_content_paid_tier_input_token_count, limit: 1000000, model: gemini-3-pro\nPlease retry in 33.8s.",
        _quota("GenerateContentPaidTierInputTokensPerModelPerMinute"),
    ),
    _gemini(
        *(C.QUOTA, 429, "RESOURCE_EXHAUSTED"),
        f"{_GEMINI_QUOTA} \n* Quota exceeded for metric: generativelanguage.googleapis.com/"
        "generate_content_free_tier_requests, limit: 0, model: gemini-2.5-pro\nPlease retry in 11.1s.",
    ),
    _gemini(
        *(C.QUOTA, 429, "RESOURCE_EXHAUSTED"),
        f"{_GEMINI_QUOTA} \n* Quota exceeded for metric: generativelanguage.googleapis.com/"
        "generate_content_free_tier_requests, limit: 250",
        _quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"),
    ),
    _gemini(C.RATE_LIMIT, 429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    _gemini(C.KEY_REFUSED, 400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    _gemini(
        *(C.KEY_REFUSED, 403, "PERMISSION_DENIED"),
        "Method doesn't allow unregistered callers (callers without established identity). Please use API Key.",
    ),
    _gemini(
        *(C.MODEL_NAME, 404, "NOT_FOUND"),
        "models/gemini-9 is not found for API version v1main, or is not supported for generateContent. Call ListModels "
        "to see the list of available models and their supported methods.",
    ),
    _gemini(C.OVERLOADED, 503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    _gemini(C.ACCESS_DENIED, 400, "FAILED_PRECONDITION", "User location is not supported for the API use."),
    _gemini(
        *(C.PARAMETER_REFUSED, 400, "INVALID_ARGUMENT"),
        'Invalid JSON payload received. Unknown name "parallel_tool_calls": Cannot find field.',
    ),
    _gemini(
        *(C.TOOL_SCHEMA, 400, "INVALID_ARGUMENT"),
        'Invalid JSON payload received. Unknown name "additionalProperties" at '
        "'tools[0].function_declarations[0].parameters': Cannot find field.",
    ),
    _gemini(
        *(C.HISTORY_REFUSED, 400, "INVALID_ARGUMENT"),
        "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
    ),
)


def _router(cause: C, code: int, message: str, status: int | None = None, **more: Any) -> Message:
    body = json.dumps({"error": {"message": message, "code": code, **more}, "user_id": "user_1"})
    return Message("openrouter", "OpenRouter API v1", cause, code if status is None else status, body)


OPENROUTER = (
    _router(C.QUOTA, 402, "Insufficient credits. Add more using https://openrouter.ai/settings/credits"),
    _router(
        *(C.QUOTA, 402),
        "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only "
        "afford 4000. To increase, visit https://openrouter.ai/settings/credits and upgrade to a paid account",
    ),
    _router(
        *(C.TOOLS_UNSUPPORTED, 404),
        "No endpoints found that support tool use. To learn more about provider routing, visit: "
        "https://openrouter.ai/docs/provider-routing",
    ),
    _router(
        *(C.TOOLS_UNSUPPORTED, 404),
        "No endpoints found that support the provided 'tool_choice' value. To learn more about provider routing, "
        "visit: https://openrouter.ai/docs/provider-routing",
    ),
    _router(C.IMAGE_UNSUPPORTED, 404, "No endpoints found that support image input"),
    _router(C.MODEL_NAME, 404, "No endpoints found for nousresearch/hermes-3-llama-3.1-405b:free."),
    _router(C.MODEL_NAME, 400, "qwen/qwen9 is not a valid model ID"),
    _router(
        *(C.QUOTA, 429),
        "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day",
    ),
    _router(C.RATE_LIMIT, 429, "Rate limit exceeded: free-models-per-min. "),
    _router(
        *(C.RATE_LIMIT, 429, "Provider returned error"),
        metadata={
            "raw": "qwen/qwen3-8b:free is temporarily rate-limited upstream. Please retry shortly.",
            "provider_name": "Chutes",
        },
    ),
    _router(
        *(C.CONTENT_FILTER, 403),
        'Your chosen model requires moderation and your input was flagged for "violence". No credits were charged.',
        metadata={"reasons": ["violence"], "flagged_input": "…"},
    ),
    _router(
        *(C.CONTEXT_OVERFLOW, 400),
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (139000 "
        "of text input, 1000 in the output). Please reduce the length of either one.",
    ),
    _router(C.KEY_REFUSED, 401, "No auth credentials found"),
    _router(C.KEY_REFUSED, 401, "User not found."),
    _router(
        C.GATEWAY_DOWN, 502, "Provider returned error", 200, metadata={"raw": "upstream error", "provider_name": "X"}
    ),
    _router(C.RATE_LIMIT, 429, "Provider returned error", 200, metadata={"raw": '{"message":"Too many requests"}'}),
)


def _litellm(cause: C, status: int, message: str, kind: str | None = None) -> Message:
    return Message("litellm", "litellm 1.108.4", cause, status, _openai(message, kind, str(status)))


LITELLM = (
    _litellm(
        *(C.CONTEXT_OVERFLOW, 400),
        "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - "
        "Error code: 400 - {'object': 'error', 'message': \"This model's maximum context length is 4096 tokens. "
        'However, you requested 4300 tokens (4200 in the messages, 100 in the completion)."}',
    ),
    _litellm(
        *(C.CONTENT_FILTER, 400),
        "litellm.ContentPolicyViolationError: litellm.BadRequestError: AzureException - The response was filtered due "
        "to the prompt triggering Azure OpenAI's content management policy.",
    ),
    _litellm(C.RATE_LIMIT, 429, "litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached"),
    _litellm(
        *(C.QUOTA, 429),
        "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota, please check your "
        "plan and billing details.",
    ),
    _litellm(
        *(C.QUOTA, 400),
        "Budget has been exceeded! Key=a1b2 Current cost: 1.2, Max budget: 1.0",
        "budget_exceeded",
    ),
    _litellm(C.QUOTA, 400, "ExceededBudget: User=u1 over budget. Spend=3.0, Budget=2.0", "budget_exceeded"),
    _litellm(
        *(C.KEY_REFUSED, 401),
        "Authentication Error, Invalid proxy server token passed. Received API Key = sk-...abcd, Key Hash (Token) "
        "=a1b2. Unable to find token in cache or `LiteLLM_VerificationTokenTable`",
        "token_not_found_in_db",
    ),
    _litellm(C.KEY_REFUSED, 401, "Authentication Error, No api key passed in.", "auth_error"),
    Message(
        *("litellm", "litellm 1.108.4", C.MODEL_NAME, 400),
        '{"error":{"message":"{\'error\': \'/chat/completions: Invalid model name passed in model=foo. Call '
        '`/v1/models` to view available models for your key.\'}","type":"None","param":"None","code":"400"}}',
    ),
    _litellm(
        *(C.OVERLOADED, 429),
        "No deployments available for selected model, Try again in 5 seconds. Passed model=qwen. pre-call-checks=False",
    ),
    _litellm(
        *(C.ACCESS_DENIED, 401),
        "key not allowed to access model. This key can only access models=['gpt-4o']. Tried to access qwen",
        "key_model_access_denied",
    ),
    _litellm(
        *(C.PARAMETER_REFUSED, 400),
        "litellm.UnsupportedParamsError: anthropic does not support parameters: ['logprobs'], for "
        "model=claude. To drop "
        "these, set `litellm.drop_params=True` or for proxy: `litellm_settings: drop_params: true`",
    ),
    _litellm(
        *(C.MODEL_NAME, 400),
        "litellm.BadRequestError: LLM Provider NOT provided. Pass in the LLM provider you are trying to call. You "
        "passed model=qwen",
    ),
    _litellm(C.TIMEOUT, 408, "litellm.Timeout: APITimeoutError - Request timed out. Error_str: Request timed out."),
    _litellm(
        *(C.OVERLOADED, 500),
        'litellm.InternalServerError: AnthropicException - {"type":"error","error":{"type":"overloaded_error",'
        '"message":"Overloaded"}}',
    ),
    _litellm(
        *(C.GATEWAY_DOWN, 500),
        "litellm.APIConnectionError: OpenAIException - Cannot connect to host vllm:8000 ssl:default "
        "[Connect call failed]",
    ),
)

OTHERS = (
    Message(
        *("together", "Together API", C.CONTEXT_OVERFLOW, 422),
        _openai(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens "
            "and 512 `max_new_tokens`",
            param="max_tokens",
        ),
    ),
    Message(
        *("together", "Together API", C.MODEL_NAME, 404),
        _openai(
            "Unable to access model qwen9. Please visit https://api.together.ai/models to view the list of supported "
            "models.",
            code="model_not_available",
        ),
    ),
    Message(
        "together", "Together API", C.QUOTA, 402, _openai("Credit limit exceeded, please add credits.", "credit_limit")
    ),
    Message(
        *("fireworks", "Fireworks API", C.MODEL_NAME, 404),
        '{"error":{"object":"error","type":"invalid_request_error","code":"NOT_FOUND","message":"Model not found, '
        'inaccessible, and/or not deployed"}}',
    ),
    Message(
        *("fireworks", "Fireworks API", C.QUOTA, 412),
        '{"error":"Account x is suspended, possibly due to reaching the monthly spending limit or failure to pay past '
        'invoices. Please go to https://fireworks.ai/billing for more information."}',
    ),
    Message(
        *("fireworks", "Fireworks API", C.CONTEXT_OVERFLOW, 400),
        '{"error":{"object":"error","type":"invalid_request_error","message":"The prompt is too long: 140000, model '
        'maximum context length: 131071"}}',
    ),
    Message(
        *("groq", "Groq API", C.REQUEST_TOO_LARGE, 413),
        _openai(
            "Request too large for model `llama-3.3-70b` in organization `org` service tier `on_demand` on tokens per "
            "minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.",
            "tokens",
            "rate_limit_exceeded",
        ),
    ),
    Message(
        *("groq", "Groq API", C.BAD_TOOL_CALL, 400),
        '{"error":{"message":"Failed to call a function. Please adjust your prompt. See \'failed_generation\' for more '
        'details.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"CUDA out of memory"}}',
    ),
    Message(
        "deepseek",
        "DeepSeek API",
        C.QUOTA,
        402,
        _openai("Insufficient Balance", "unknown_error", "invalid_request_error"),
    ),
    Message(
        *("mistral", "Mistral API", C.RATE_LIMIT, 429),
        '{"object":"error","message":"Service tier capacity exceeded for this model.","type":'
        '"service_tier_capacity_exceeded","param":null,"code":"3505"}',
    ),
    Message(
        *("mistral", "Mistral API", C.CONTEXT_OVERFLOW, 400),
        _flat("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"),
    ),
    Message(
        *("xai", "xAI API", C.QUOTA, 403),
        '{"code":"The caller does not have permission to execute the specified operation","error":"Your team abc has '
        'either used all available credits or reached its monthly spending limit."}',
    ),
    Message(
        *("xai", "xAI API", C.CONTEXT_OVERFLOW, 400),
        '{"code":"Client specified an invalid argument","error":"This model\'s maximum prompt length is 131072 but the '
        'request contains 140000 tokens."}',
    ),
    Message(
        *("tgi", "TGI 3.3", C.CONTEXT_OVERFLOW, 422),
        '{"error":"Input validation error: `inputs` must have less than 4096 tokens. Given: 5000","error_type":'
        '"validation"}',
    ),
    Message("tgi", "TGI 3.3", C.OVERLOADED, 429, '{"error":"Model is overloaded","error_type":"overloaded"}'),
    Message(
        *("tgi", "TGI 3.3", C.OUT_OF_MEMORY, 424),
        '{"error":"Request failed during generation: Server error: CUDA out of memory","error_type":"generation"}',
    ),
    Message(
        *("tgi", "TGI 3.3", C.CHAT_TEMPLATE, 422),
        '{"error":"Template error: template not found","error_type":"template_error"}',
    ),
    Message(
        *("huggingface", "HF inference", C.LOADING, 503),
        '{"error":"Model Qwen/Qwen3-8B is currently loading","estimated_time":20.0}',
    ),
    Message(
        *("huggingface", "HF inference providers", C.QUOTA, 402),
        '{"error":"You have exceeded your monthly included credits for Inference Providers. Subscribe '
        "to PRO to get 20x "
        'more monthly included credits."}',
    ),
)

_NGINX = {"server": "nginx/1.24.0", "content-type": HTML}
_CLOUDFLARE = {"server": "cloudflare", "content-type": HTML}
GATEWAYS = (
    Message("nginx", "nginx 1.24.0", C.GATEWAY_DOWN, 502, _page("502 Bad Gateway", "nginx/1.24.0"), headers=_NGINX),
    Message("nginx", "nginx 1.24.0", C.TIMEOUT, 504, _page("504 Gateway Time-out", "nginx/1.24.0"), headers=_NGINX),
    Message("nginx", "nginx 1.24.0", C.NO_SUCH_PATH, 404, _page("404 Not Found", "nginx/1.24.0"), headers=_NGINX),
    Message(
        *("nginx", "nginx 1.24.0", C.REQUEST_TOO_LARGE, 413),
        _page("413 Request Entity Too Large", "nginx/1.24.0"),
        headers=_NGINX,
    ),
    Message(
        *("nginx", "nginx 1.24.0", C.PLAIN_ON_TLS, 400),
        _page("400 The plain HTTP request was sent to HTTPS port", "nginx/1.24.0"),
        headers=_NGINX,
    ),
    Message(
        *("nginx", "nginx 1.24.0", C.REDIRECT, 301),
        _page("301 Moved Permanently", "nginx/1.24.0"),
        headers={**_NGINX, "location": "https://llm.example.com/v1/chat/completions"},
    ),
    Message("nginx", "nginx 1.24.0", C.KEY_REFUSED, 401, _page("401 Authorization Required", "nginx"), headers=_NGINX),
    Message("go", "net/http", C.PLAIN_ON_TLS, 400, "Client sent an HTTP request to an HTTPS server.\n"),
    Message(
        *("apache", "httpd 2.4", C.PLAIN_ON_TLS, 400),
        "<!DOCTYPE HTML><html><head><title>400 Bad Request</title></head><body><h1>Bad "
        "Request</h1><p>Your browser sent "
        "a request that this server could not understand.<br />Reason: You're speaking plain HTTP to an SSL-enabled "
        "server port.<br /></p></body></html>",
        headers={"content-type": HTML},
    ),
    Message(
        *("envoy", "envoy 1.30", C.GATEWAY_DOWN, 503),
        "upstream connect error or disconnect/reset before headers. reset reason: connection failure, "
        "transport failure "
        "reason: delayed connect error: Connection refused",
    ),
    Message("envoy", "envoy 1.30", C.GATEWAY_DOWN, 503, "no healthy upstream"),
    Message("envoy", "envoy 1.30", C.TIMEOUT, 504, "upstream request timeout"),
    Message("envoy", "istio 1.22", C.ACCESS_DENIED, 403, "RBAC: access denied"),
    Message("traefik", "traefik 3", C.NO_SUCH_PATH, 404, "404 page not found\n"),
    Message("traefik", "traefik 3", C.GATEWAY_DOWN, 502, "Bad Gateway"),
    Message("kubernetes", "ingress-nginx", C.NO_SUCH_PATH, 404, "default backend - 404"),
    Message(
        *("cloudflare", "Cloudflare", C.TIMEOUT, 524),
        "<!DOCTYPE html><html><head><title>llm.example.com | 524: A timeout "
        "occurred</title></head><body></body></html>",
        headers=_CLOUDFLARE,
    ),
    Message(
        *("cloudflare", "Cloudflare", C.GATEWAY_DOWN, 521),
        "<!DOCTYPE html><html><head><title>llm.example.com | 521: Web server is down</title></head></html>",
        headers=_CLOUDFLARE,
    ),
    Message(
        *("cloudflare", "Cloudflare", C.ACCESS_DENIED, 403),
        "<!DOCTYPE html><html><head><title>Attention Required! | Cloudflare</title></head><body>Sorry, you have been "
        "blocked</body></html>",
        headers=_CLOUDFLARE,
    ),
    Message("cloudflare", "Cloudflare", C.ACCESS_DENIED, 403, "error code: 1010", headers=_CLOUDFLARE),
    Message("cloudflare", "Cloudflare tunnel", C.GATEWAY_DOWN, 530, "error code: 1033", headers=_CLOUDFLARE),
    Message(
        *("login", "OAuth2 Proxy", C.REDIRECT, 302),
        '<a href="https://sso.example.com/login?rd=x">Found</a>.',
        headers={"location": "https://sso.example.com/login?rd=x", "content-type": HTML},
    ),
    Message(
        *("login", "a web page in front", C.HTML_BODY, 200),
        "<!doctype html><html><head><title>Sign in</title></head><body></body></html>",
        headers={"content-type": HTML},
    ),
    Message("proxy", "a proxy that drops the reply", C.EMPTY_BODY, 200, ""),
    Message("proxy", "a proxy that drops the reply", C.SERVER_ERROR, 500, ""),
)

MESSAGES = (
    *VLLM,
    *SGLANG,
    *TENSORRT,
    *LLAMA_CPP,
    *OLLAMA,
    *OPENAI,
    *AZURE,
    *ANTHROPIC,
    *GEMINI,
    *OPENROUTER,
    *LITELLM,
    *OTHERS,
    *GATEWAYS,
)
