"""What serving stacks write in their error bodies, one table per stack, with the versions that the texts are from.

A row is a cause and a pattern of the server's own words. Patterns are searched in the body with one `key: value` per
line, without markup and without what the request contained. If several rows match, `PRECEDENCE` decides. To add one,
add a row here and a message to tests/helpers/endpoint_messages.py.
"""

from __future__ import annotations

from typing import Final

from gymnast.wire.endpoint_errors.causes import Cause as C  # noqa: N817 - a table of it
from gymnast.wire.endpoint_errors.signature import make_table

VLLM: Final = make_table(
    "vllm",
    "vllm 0.6 to 0.32.0",
    (
        C.CONTEXT_OVERFLOW,
        r"maximum context length is \d+(?!.{0,40}supports at most)",
        r"longer than the maximum model length of \d+|longer than the\s+maximum model length",
        r"Input length \(\d+\) exceeds model's maximum context length",
        r"prompt length \d+ exceeds the max_model_len \d+|max_tokens must be at least 1, got (?:0|-\d+)",
    ),
    (
        C.PARAMETER_REFUSED,
        r"Requested (?:sample|prompt) logprobs of \d+",
        r"must be (?:non-negative|in [(\[]|at (?:least|most) )|Found unexpected chat template kwargs",
        r"is not supported with beam search",
    ),
    (
        C.TOOL_PARSER_MISSING,
        r"requires --enable-auto-tool-choice|requires --tool-call-parser|--tool-call-parser to be set",
    ),
    (C.MODEL_NAME, r"The model `[^`]*` does not exist"),
    (C.CHAT_TEMPLATE, r"default chat template is no longer allowed|--trust-request-chat-template is not set"),
    (C.IMAGE_UNSUPPORTED, r"is not a multimodal model|At most \d+ (?:image|video|audio)\S* may be provided"),
    (
        C.TOOL_SCHEMA,
        r"Failed to transform \S.{0,30}into a grammar|not supported by xgrammar",
        r"Invalid (?:JSON )?grammar spec",
    ),
    (C.ENGINE_DIED, r"EngineCore encountered an issue|EngineDeadError|Engine loop is not running|engine is dead"),
    (C.OUTPUT_LIMIT, r"max_(?:output_)?tokens=\d+ ?cannot be greater than"),
    (C.LORA, r"LoRA (?:rank|adapter|request)|max_lora_rank|lora_path"),
    (C.WRONG_DIALECT, r"The model does not support \S.{0,40} API"),
)
SGLANG: Final = make_table(
    "sglang",
    "sglang 0.5.23",
    (
        C.CONTEXT_OVERFLOW,
        r"is longer than the model's context length|exceeds the model's maximum context length",
        r"exceeds the maximum allowed length \(\d+ tokens\)",
    ),
    (C.OVERLOADED, r"The request queue is full"),
    (C.LORA, r"LoRA is not enabled|LoRA adapter that has never been loaded|max loaded loras"),
    (C.MODEL_NAME, r"The model '[^']*' does not exist"),
    (C.TOOL_SCHEMA, r"function has invalid 'parameters' schema"),
    (C.IMAGE_UNSUPPORTED, r"image input is not supported|require a model served with multimodal"),
    (C.PARAMETER_REFUSED, r"Tools cannot be empty if tool choice|is not supported with streaming"),
)
TENSORRT_LLM: Final = make_table(
    "tensorrt_llm",
    "TensorRT-LLM 0.10 to 1.0",
    (
        C.CONTEXT_OVERFLOW,
        r"sum of prompt length .{0,120}should not exceed max_(?:num_tokens|seq_len)",
        r"Prompt length \(\d+\) exceeds maximum (?:input|sequence) length|default_max_tokens`? \(-\d+\)",
    ),
)
LLAMA_CPP: Final = make_table(
    "llama.cpp",
    "llama.cpp builds to 8064, llama-cpp-python 0.2",
    (
        C.CONTEXT_OVERFLOW,
        r"exceed_context_size_error|exceeds? the available context size|Context size has been exceeded",
        r"Requested tokens \(\d+\) exceed context window",
    ),
    (
        C.HISTORY_REFUSED,
        r"Jinja Exception: [^\n]*\b(?:messages?|roles?|conversation|user|assistant|system)\b",
    ),
    (C.LOADING, r"message: Loading model"),
    (C.KEY_REFUSED, r"Invalid API Key"),
    (C.TOOL_PARSER_MISSING, r"requires --jinja"),
    (C.IMAGE_UNSUPPORTED, r"provide the mmproj"),
    (C.NO_SUCH_PATH, r"message: File Not Found"),
    (C.TOOL_SCHEMA, r"Failed to (?:parse|initialize) (?:grammar|samplers)|Cannot use custom grammar constraints"),
)
OLLAMA: Final = make_table(
    "ollama",
    "ollama 0.13",
    (C.MODEL_NAME, r"model ['\"][^'\"]+['\"] not found|try pulling it first"),
    (C.TOOLS_UNSUPPORTED, r"does not support tools"),
    (C.PARAMETER_REFUSED, r"does not support (?:thinking|insert|generate)"),
    (C.OUT_OF_MEMORY, r"requires more system memory"),
    (
        C.ENGINE_DIED,
        r"runner process has terminated|model runner has unexpectedly stopped",
        r"runner process no longer running",
    ),
    (C.OVERLOADED, r"maximum pending requests exceeded"),
    (C.LOADING, r"waiting for llama runner to start"),
    (C.CONTEXT_OVERFLOW, r"input length exceeds (?:the |maximum )?context length"),
)
OPENAI: Final = make_table(
    "openai",
    "OpenAI API, codes as in openai 3.49.0",
    (C.KEY_REFUSED, r"code: invalid_api_key|Incorrect API key provided|didn't provide an API key"),
    (
        C.QUOTA,
        r"(?:code|type): insufficient_quota|billing_hard_limit_reached|billing_not_active",
        r"account_deactivated|exceeded your current quota(?!.*(?:PerMinute|Please retry in))",
    ),
    (C.RATE_LIMIT, r"Rate limit reached for"),
    (C.REQUEST_TOO_LARGE, r"Request too large for"),
    (C.MODEL_NAME, r"code: (?:model_not_found|model_not_available)|does not exist or you do not have access"),
    (
        C.CONTEXT_OVERFLOW,
        r"code: context_length_exceeded|exceeds the context window|Input tokens exceed the configured",
    ),
    (
        C.PARAMETER_REFUSED,
        r"code: (?:unsupported_parameter|unsupported_value|unknown_parameter|invalid_value\b)",
        r"Unrecognized request arguments? supplied|Unsupported (?:parameter|value):|Unknown parameter:",
    ),
    (C.OUTPUT_LIMIT, r"max_(?:completion_|output_)?tokens is too large.{0,80}(?:supports )?at most"),
    (
        C.CONTENT_FILTER,
        r"code: (?:invalid_prompt|content_policy_violation|content_filter|moderation_blocked)",
        r"our usage polic|result of our safety system",
    ),
    (
        C.TOOL_SCHEMA,
        r"Invalid schema for (?:function|response_format)|invalid_function_parameters",
        r"invalid_json_schema",
    ),
    (
        C.HISTORY_REFUSED,
        r"must be a response to a prece\w+ message|must be followed by tool messages",
        r"No tool (?:output|call) found for function call",
    ),
    (C.ACCESS_DENIED, r"unsupported_country_region_territory|must be verified to|ip_not_authorized"),
    (C.OVERLOADED, r"engine is currently overloaded|slow_down"),
    (C.NO_SUCH_PATH, r"Invalid URL \((?:POST|GET) "),
    (C.WRONG_DIALECT, r"is not a chat model|only supported in v1/responses|not supported in the v1/"),
    (C.IMAGE_UNSUPPORTED, r"image_url is only supported|does not support image|Invalid content type\. image"),
)
AZURE: Final = make_table(
    "azure",
    "Azure OpenAI 2024-10-21",
    (C.MODEL_NAME, r"DeploymentNotFound|API deployment for this resource does not exist"),
    (C.KEY_REFUSED, r"invalid subscription key|PermissionDenied.{0,80}Principal does not have access"),
    (C.CONTENT_FILTER, r"ResponsibleAIPolicyViolation|content management policy"),
    (C.RATE_LIMIT, r"exceeded (?:the )?(?:token|call) rate limit"),
    (C.NO_SUCH_PATH, r"message: Resource not found"),
    (C.PARAMETER_REFUSED, r"API version not supported"),
    (C.WRONG_DIALECT, r"OperationNotSupported|operation does not work with the specified model"),
    (C.ACCESS_DENIED, r"Public access is disabled|Virtual Network/Firewall rules"),
    (C.TIMEOUT, r"The operation was timeout"),
)
ANTHROPIC: Final = make_table(
    "anthropic",
    "Anthropic API, types as in anthropic 2.8.0",
    (C.CONTEXT_OVERFLOW, r"prompt is too long|exceed context limit"),
    (C.OUTPUT_LIMIT, r"maximum allowed number of output tokens"),
    (C.KEY_REFUSED, r"type: authentication_error|invalid x-api-key"),
    (C.MODEL_NAME, r"type: not_found_error.{0,200}model: |message: model: "),
    (C.REQUEST_TOO_LARGE, r"type: request_too_large"),
    (C.RATE_LIMIT, r"type: rate_limit_error|would exceed your organization's rate limit"),
    (C.OVERLOADED, r"type: overloaded_error|overloaded_error"),
    (
        C.QUOTA,
        r"credit balance is too low|reached your specified API usage limits|type: billing_error",
        r"enforced_spend_limit_reached",
    ),
    (C.CONTENT_FILTER, r"blocked by content filtering"),
    (C.HISTORY_REFUSED, r"`tool_(?:use|result)`|roles must alternate|final assistant content|text content blocks must"),
    (C.TOOL_SCHEMA, r"tools\.\d+\.\S*input_schema"),
    (
        C.PARAMETER_REFUSED,
        r"cannot both be specified|Extra inputs are not permitted|may only be set to 1 when thinking",
    ),
    (C.ACCESS_DENIED, r"type: permission_error"),
    (C.TIMEOUT, r"type: (?:gateway_)?timeout_error"),
)
GEMINI: Final = make_table(
    "gemini",
    "Gemini API v1beta",
    (C.CONTEXT_OVERFLOW, r"input token count .{0,40}exceeds the maximum number of tokens allowed"),
    (C.QUOTA, r"quotaId: \S*PerDay|Quota exceeded for metric: [^\n]*limit: 0\b"),
    (C.RATE_LIMIT, r"PerMinute|Resource has been exhausted|requests_per_minute|Please retry in [\d.]+m?s"),
    (
        C.KEY_REFUSED,
        r"API key not valid|API_KEY_INVALID|allow unregistered callers|API key expired",
        r"API key not found",
    ),
    (C.MODEL_NAME, r"is not found for API version"),
    (C.OVERLOADED, r"The model is overloaded|status: UNAVAILABLE"),
    (C.ACCESS_DENIED, r"User location is not supported|status: PERMISSION_DENIED"),
    (C.TOOL_SCHEMA, r"Unknown name \"[^\"]*\" at 'tools|function_declarations\S*\.parameters"),
    (C.PARAMETER_REFUSED, r"Unknown name \"[^\"]*\": Cannot find field"),
    (C.HISTORY_REFUSED, r"function (?:call|response) (?:turn|parts)"),
)
OPENROUTER: Final = make_table(
    "openrouter",
    "OpenRouter API v1",
    (C.QUOTA, r"Insufficient credits|requires more credits|free-models-per-day|Key limit exceeded"),
    (C.TOOLS_UNSUPPORTED, r"No endpoints found that support (?:tool use|the provided 'tool_choice')"),
    (C.IMAGE_UNSUPPORTED, r"No endpoints found that support image"),
    (C.PARAMETER_REFUSED, r"No endpoints found that (?:can handle|support) the (?:requested|provided) parameters"),
    (C.ACCESS_DENIED, r"No endpoints (?:found|available) matching your (?:data policy|guardrail)"),
    (C.MODEL_NAME, r"No endpoints found for |is not a valid model ID|No allowed providers are available"),
    (C.RATE_LIMIT, r"free-models-per-min|temporarily rate-limited upstream|Too many requests"),
    (C.CONTENT_FILTER, r"requires moderation and your input was flagged"),
    (C.CONTEXT_OVERFLOW, r"This endpoint's maximum context length"),
    (C.KEY_REFUSED, r"No auth credentials found|No cookie auth|message: User not found"),
)
LITELLM: Final = make_table(
    "litellm",
    "litellm 1.108.4",
    (C.CONTEXT_OVERFLOW, r"ContextWindowExceededError"),
    (C.CONTENT_FILTER, r"ContentPolicyViolationError"),
    (C.RATE_LIMIT, r"litellm\.RateLimitError(?!.*litellm\.\w)|Max parallel request limit reached|Crossed [TR]PM"),
    (
        C.QUOTA,
        r"Budget has been exceeded|ExceededBudget|budget_exceeded|litellm\.PaymentRequiredError(?!.*litellm\.\w)",
    ),
    (
        C.KEY_REFUSED,
        r"Invalid proxy server token|No api key passed in|Expired Key|litellm\.AuthenticationError(?!.*litellm\.\w)",
    ),
    (C.MODEL_NAME, r"Invalid model name passed in|LLM Provider NOT provided|litellm\.NotFoundError(?!.*litellm\.\w)"),
    (C.OVERLOADED, r"No deployments available|No healthy deployment|litellm\.ServiceUnavailableError(?!.*litellm\.\w)"),
    (C.ACCESS_DENIED, r"not allowed to access model|_model_access_denied"),
    (C.PARAMETER_REFUSED, r"UnsupportedParamsError"),
    (C.TIMEOUT, r"litellm\.Timeout(?!.*litellm\.\w)"),
    (C.GATEWAY_DOWN, r"litellm\.APIConnectionError(?!.*litellm\.\w)|litellm\.BadGatewayError(?!.*litellm\.\w)"),
)
PROVIDERS: Final = make_table(
    "providers",
    "Together, Fireworks, Groq, DeepSeek, Mistral, xAI, TGI 3.3, Hugging Face",
    (
        C.CONTEXT_OVERFLOW,
        r"`inputs` tokens \+ `max_new_tokens` must be|`inputs` must have less than \d+ tokens",
        r"model maximum context length: \d+|too large for model with \d+ maximum context",
        r"maximum prompt length is \d+|Current length is \d+ while limit is \d+",
    ),
    (C.MODEL_NAME, r"Unable to access model|Model not found, inaccessible"),
    (
        C.QUOTA,
        r"Credit limit exceeded|is suspended|Insufficient Balance|used all available credits",
        r"spending limit|exceeded your monthly included credits|code: Arrearage",
    ),
    (C.BAD_TOOL_CALL, r"tool_use_failed|Failed to call a function"),
    (C.RATE_LIMIT, r"service_tier_capacity_exceeded|Service tier capacity exceeded"),
    (C.OVERLOADED, r"Model is overloaded|error_type: overloaded"),
    (C.OUT_OF_MEMORY, r"CUDA out of memory|error_type: .{0,40}OutOfMemory"),
    (C.CHAT_TEMPLATE, r"Template error: template not found"),
    (C.LOADING, r"is currently loading"),
)
GATEWAYS: Final = make_table(
    "gateways",
    "nginx 1.24, Envoy 1.30, Traefik 3, Apache 2.4, Go net/http, Cloudflare",
    (
        C.PLAIN_ON_TLS,
        r"plain HTTP request was sent to HTTPS port|speaking plain HTTP to an SSL",
        r"HTTP request to an HTTPS server",
    ),
    (
        C.GATEWAY_DOWN,
        r"upstream connect error|no healthy upstream|Web server is down|error code: 10(?:16|33)\b",
        r"Bad Gateway",
    ),
    (C.TIMEOUT, r"upstream request timeout|Gateway Time-?out|A timeout occurred|error code: 524"),
    (C.REQUEST_TOO_LARGE, r"Request Entity Too Large|Payload Too Large|Content Too Large"),
    (C.ACCESS_DENIED, r"RBAC: access denied|Attention Required! \| Cloudflare|error code: 10(?:06|07|08|09|10|20)\b"),
    (
        C.PROXY_REFUSED,
        (
            r"ERR_ACCESS_DENIED|The requested URL could not be retrieved|\bsquid\b|cache administrator|Zscaler"
            r"|FortiGuard|Blue ?Coat|Proxy Authentication Required"
        ),
        r"proxy (?:server )?(?:denied|refused|blocked)|blocked by (?:the )?(?:\w+ )?(?:proxy|web filter)",
    ),
    (C.KEY_REFUSED, r"Authorization Required"),
    (C.NO_SUCH_PATH, r"default backend - 404|404 page not found|Cannot POST /"),
)
SIGNATURES: Final = (
    *VLLM,
    *SGLANG,
    *TENSORRT_LLM,
    *LLAMA_CPP,
    *OLLAMA,
    *OPENAI,
    *AZURE,
    *ANTHROPIC,
    *GEMINI,
    *OPENROUTER,
    *LITELLM,
    *PROVIDERS,
    *GATEWAYS,
)
