"""What serving stacks write in their error bodies, one table per stack, with the versions that the texts are from.

A row is a cause and a pattern of the server's own words. Patterns are searched in the body with one `key: value` per
line, without markup and without what the request contained. If several rows match, `PRECEDENCE` decides. To add one,
add a row here and a message to tests/helpers/endpoint_messages.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gymnast.wire.endpoint_errors.causes import Cause as C


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern, the cause it means, and the server that writes it."""

    cause: C
    pattern: re.Pattern[str]
    stack: str
    source: str


def _stack(name: str, source: str, *rows: tuple[C, str]) -> tuple[Signature, ...]:
    return tuple(Signature(cause, re.compile(f"(?is){pattern}"), name, source) for cause, pattern in rows)


VLLM: Final = _stack(
    "vllm",
    "vllm 0.6 to 0.32.0",
    (C.CONTEXT_OVERFLOW, r"maximum context length is \d+ tokens(?!.{0,40}supports at most)"),
    (C.CONTEXT_OVERFLOW, r"longer than the maximum model length of \d+|longer than the\s+maximum model length"),
    (C.CONTEXT_OVERFLOW, r"Input length \(\d+\) exceeds model's maximum context length"),
    (C.CONTEXT_OVERFLOW, r"prompt length \d+ exceeds the max_model_len \d+"),
    (C.CONTEXT_OVERFLOW, r"max_tokens must be at least 1, got -\d+"),
    (C.PARAMETER_REFUSED, r"max_(?:completion_)?tokens must be at least 1, got 0"),
    (C.TOOL_PARSER_MISSING, r"requires --enable-auto-tool-choice|requires --tool-call-parser|--tool-call-parser to be set"),
    (C.MODEL_NAME, r"The model `[^`]*` does not exist"),
    (C.CHAT_TEMPLATE, r"default chat template is no longer allowed|--trust-request-chat-template is not set"),
    (C.IMAGE_UNSUPPORTED, r"is not a multimodal model|At most \d+ (?:image|video|audio)\S* may be provided"),
    (C.TOOL_SCHEMA, r"Failed to transform \S.{0,30}into a grammar|not supported by xgrammar|Invalid (?:JSON )?grammar spec"),
    (C.ENGINE_DIED, r"EngineCore encountered an issue|EngineDeadError|Engine loop is not running|engine is dead"),
    (C.PARAMETER_REFUSED, r"Requested (?:sample|prompt) logprobs of \d+|must be (?:non-negative|in [(\[]|at (?:least|most) )"),
    (C.PARAMETER_REFUSED, r"Found unexpected chat template kwargs|is not supported with beam search"),
    (C.LORA, r"LoRA (?:rank|adapter|request)|max_lora_rank|lora_path"),
    (C.WRONG_DIALECT, r"The model does not support \S.{0,40} API"),
)
SGLANG: Final = _stack(
    "sglang",
    "sglang 0.5.23",
    (C.CONTEXT_OVERFLOW, r"is longer than the model's context length|exceeds the model's maximum context length"),
    (C.CONTEXT_OVERFLOW, r"exceeds the maximum allowed length \(\d+ tokens\)"),
    (C.OVERLOADED, r"The request queue is full"),
    (C.LORA, r"LoRA is not enabled|LoRA adapter that has never been loaded|max loaded loras"),
    (C.MODEL_NAME, r"The model '[^']*' does not exist"),
    (C.TOOL_SCHEMA, r"function has invalid 'parameters' schema"),
    (C.IMAGE_UNSUPPORTED, r"image input is not supported|require a model served with multimodal"),
    (C.PARAMETER_REFUSED, r"Tools cannot be empty if tool choice|is not supported with streaming"),
)
TENSORRT_LLM: Final = _stack(
    "tensorrt_llm",
    "TensorRT-LLM 0.10 to 1.0",
    (C.CONTEXT_OVERFLOW, r"sum of prompt length .{0,120}should not exceed max_(?:num_tokens|seq_len)"),
    (C.CONTEXT_OVERFLOW, r"Prompt length \(\d+\) exceeds maximum (?:input|sequence) length"),
    (C.CONTEXT_OVERFLOW, r"default_max_tokens`? \(-\d+\)"),
)
LLAMA_CPP: Final = _stack(
    "llama.cpp",
    "llama.cpp builds to 8064, llama-cpp-python 0.2",
    (C.CONTEXT_OVERFLOW, r"exceed_context_size_error|exceeds? the available context size|Context size has been exceeded"),
    (C.CONTEXT_OVERFLOW, r"Requested tokens \(\d+\) exceed context window"),
    (C.LOADING, r"message: Loading model"),
    (C.KEY_REFUSED, r"Invalid API Key"),
    (C.TOOL_PARSER_MISSING, r"requires --jinja"),
    (C.IMAGE_UNSUPPORTED, r"provide the mmproj"),
    (C.NO_SUCH_PATH, r"message: File Not Found"),
    (C.TOOL_SCHEMA, r"Failed to (?:parse|initialize) (?:grammar|samplers)|Cannot use custom grammar constraints"),
)
OLLAMA: Final = _stack(
    "ollama",
    "ollama 0.13",
    (C.MODEL_NAME, r"model ['\"][^'\"]+['\"] not found|try pulling it first"),
    (C.TOOLS_UNSUPPORTED, r"does not support tools"),
    (C.PARAMETER_REFUSED, r"does not support (?:thinking|insert|generate)"),
    (C.OUT_OF_MEMORY, r"requires more system memory"),
    (C.ENGINE_DIED, r"runner process has terminated|model runner has unexpectedly stopped|runner process no longer running"),
    (C.OVERLOADED, r"maximum pending requests exceeded"),
    (C.LOADING, r"waiting for llama runner to start"),
    (C.CONTEXT_OVERFLOW, r"input length exceeds (?:the |maximum )?context length"),
)
OPENAI: Final = _stack(
    "openai",
    "OpenAI API, codes as in openai 3.49.0",
    (C.KEY_REFUSED, r"code: invalid_api_key|Incorrect API key provided|didn't provide an API key"),
    (C.QUOTA, r"(?:code|type): insufficient_quota|billing_hard_limit_reached|billing_not_active|account_deactivated"),
    (C.QUOTA, r"exceeded your current quota(?!.*(?:PerMinute|Please retry in))"),
    (C.RATE_LIMIT, r"Rate limit reached for"),
    (C.REQUEST_TOO_LARGE, r"Request too large for"),
    (C.MODEL_NAME, r"code: (?:model_not_found|model_not_available)|does not exist or you do not have access"),
    (C.CONTEXT_OVERFLOW, r"code: context_length_exceeded|exceeds the context window|Input tokens exceed the configured"),
    (C.PARAMETER_REFUSED, r"code: (?:unsupported_parameter|unsupported_value|unknown_parameter|invalid_value\b)"),
    (C.PARAMETER_REFUSED, r"Unrecognized request arguments? supplied|Unsupported (?:parameter|value):|Unknown parameter:"),
    (C.OUTPUT_LIMIT, r"max_(?:completion_|output_)?tokens is too large.{0,80}(?:supports )?at most"),
    (C.CONTENT_FILTER, r"code: (?:invalid_prompt|content_policy_violation|content_filter|moderation_blocked)|our usage polic"),
    (C.CONTENT_FILTER, r"result of our safety system"),
    (C.TOOL_SCHEMA, r"Invalid schema for (?:function|response_format)|invalid_function_parameters|invalid_json_schema"),
    (C.HISTORY_REFUSED, r"must be a response to a prece\w+ message|must be followed by tool messages"),
    (C.HISTORY_REFUSED, r"No tool (?:output|call) found for function call"),
    (C.ACCESS_DENIED, r"unsupported_country_region_territory|must be verified to|ip_not_authorized"),
    (C.OVERLOADED, r"engine is currently overloaded|slow_down"),
    (C.NO_SUCH_PATH, r"Invalid URL \((?:POST|GET) "),
    (C.WRONG_DIALECT, r"is not a chat model|only supported in v1/responses|not supported in the v1/"),
    (C.IMAGE_UNSUPPORTED, r"image_url is only supported|does not support image|Invalid content type\. image"),
)
AZURE: Final = _stack(
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
ANTHROPIC: Final = _stack(
    "anthropic",
    "Anthropic API, types as in anthropic 2.8.0",
    (C.CONTEXT_OVERFLOW, r"prompt is too long|exceed context limit"),
    (C.OUTPUT_LIMIT, r"maximum allowed number of output tokens"),
    (C.KEY_REFUSED, r"type: authentication_error|invalid x-api-key"),
    (C.MODEL_NAME, r"type: not_found_error.{0,200}model: |message: model: "),
    (C.REQUEST_TOO_LARGE, r"type: request_too_large"),
    (C.RATE_LIMIT, r"type: rate_limit_error|would exceed your organization's rate limit"),
    (C.OVERLOADED, r"type: overloaded_error|overloaded_error"),
    (C.QUOTA, r"credit balance is too low|reached your specified API usage limits|type: billing_error"),
    (C.QUOTA, r"enforced_spend_limit_reached"),
    (C.CONTENT_FILTER, r"blocked by content filtering"),
    (C.HISTORY_REFUSED, r"`tool_(?:use|result)`|roles must alternate|final assistant content|text content blocks must"),
    (C.TOOL_SCHEMA, r"tools\.\d+\.\S*input_schema"),
    (C.PARAMETER_REFUSED, r"cannot both be specified|Extra inputs are not permitted|may only be set to 1 when thinking"),
    (C.ACCESS_DENIED, r"type: permission_error"),
    (C.TIMEOUT, r"type: (?:gateway_)?timeout_error"),
)
GEMINI: Final = _stack(
    "gemini",
    "Gemini API v1beta",
    (C.CONTEXT_OVERFLOW, r"input token count .{0,40}exceeds the maximum number of tokens allowed"),
    (C.QUOTA, r"quotaId: \S*PerDay|Quota exceeded for metric: [^\n]*limit: 0\b"),
    (C.RATE_LIMIT, r"PerMinute|Resource has been exhausted|requests_per_minute|Please retry in [\d.]+m?s"),
    (C.KEY_REFUSED, r"API key not valid|API_KEY_INVALID|allow unregistered callers|API key expired|API key not found"),
    (C.MODEL_NAME, r"is not found for API version"),
    (C.OVERLOADED, r"The model is overloaded|status: UNAVAILABLE"),
    (C.ACCESS_DENIED, r"User location is not supported|status: PERMISSION_DENIED"),
    (C.TOOL_SCHEMA, r"Unknown name \"[^\"]*\" at 'tools|function_declarations\S*\.parameters"),
    (C.PARAMETER_REFUSED, r"Unknown name \"[^\"]*\": Cannot find field"),
    (C.HISTORY_REFUSED, r"function (?:call|response) (?:turn|parts)"),
)
OPENROUTER: Final = _stack(
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
LITELLM: Final = _stack(
    "litellm",
    "litellm 1.108.4",
    (C.CONTEXT_OVERFLOW, r"ContextWindowExceededError"),
    (C.CONTENT_FILTER, r"ContentPolicyViolationError"),
    (C.RATE_LIMIT, r"litellm\.RateLimitError|Max parallel request limit reached|Crossed [TR]PM"),
    (C.QUOTA, r"Budget has been exceeded|ExceededBudget|budget_exceeded|litellm\.PaymentRequiredError"),
    (C.KEY_REFUSED, r"Invalid proxy server token|No api key passed in|Expired Key|litellm\.AuthenticationError"),
    (C.MODEL_NAME, r"Invalid model name passed in|LLM Provider NOT provided|litellm\.NotFoundError"),
    (C.OVERLOADED, r"No deployments available|No healthy deployment|litellm\.ServiceUnavailableError"),
    (C.ACCESS_DENIED, r"not allowed to access model|_model_access_denied"),
    (C.PARAMETER_REFUSED, r"UnsupportedParamsError"),
    (C.TIMEOUT, r"litellm\.Timeout"),
    (C.GATEWAY_DOWN, r"litellm\.APIConnectionError|litellm\.BadGatewayError"),
)
PROVIDERS: Final = _stack(
    "providers",
    "Together, Fireworks, Groq, DeepSeek, Mistral, xAI, TGI 3.3, Hugging Face",
    (C.CONTEXT_OVERFLOW, r"`inputs` tokens \+ `max_new_tokens` must be|`inputs` must have less than \d+ tokens"),
    (C.CONTEXT_OVERFLOW, r"model maximum context length: \d+|too large for model with \d+ maximum context"),
    (C.CONTEXT_OVERFLOW, r"maximum prompt length is \d+|Current length is \d+ while limit is \d+"),
    (C.MODEL_NAME, r"Unable to access model|Model not found, inaccessible"),
    (C.QUOTA, r"Credit limit exceeded|is suspended|Insufficient Balance|used all available credits|spending limit"),
    (C.QUOTA, r"exceeded your monthly included credits|code: Arrearage"),
    (C.BAD_TOOL_CALL, r"tool_use_failed|Failed to call a function"),
    (C.RATE_LIMIT, r"service_tier_capacity_exceeded|Service tier capacity exceeded"),
    (C.OVERLOADED, r"Model is overloaded|error_type: overloaded"),
    (C.OUT_OF_MEMORY, r"CUDA out of memory|error_type: .{0,40}OutOfMemory"),
    (C.CHAT_TEMPLATE, r"Template error: template not found"),
    (C.LOADING, r"is currently loading"),
)
GATEWAYS: Final = _stack(
    "gateways",
    "nginx 1.24, Envoy 1.30, Traefik 3, Apache 2.4, Go net/http, Cloudflare",
    (C.PLAIN_ON_TLS, r"plain HTTP request was sent to HTTPS port|speaking plain HTTP to an SSL|HTTP request to an HTTPS server"),
    (C.GATEWAY_DOWN, r"upstream connect error|no healthy upstream|Web server is down|error code: 10(?:16|33)\b|Bad Gateway"),
    (C.TIMEOUT, r"upstream request timeout|Gateway Time-?out|A timeout occurred|error code: 524"),
    (C.REQUEST_TOO_LARGE, r"Request Entity Too Large|Payload Too Large|Content Too Large"),
    (C.ACCESS_DENIED, r"RBAC: access denied|Attention Required! \| Cloudflare|error code: 10(?:06|07|08|09|10|20)\b"),
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
_LENGTH: Final = r"(?:context|sequence|prompt|input|model token|token)s?[ _-]?(?:length|window|size|limit|count|tokens?)"
_OVER: Final = r"(?:exceed|too (?:long|large|many)|longer than|greater than|more than|larger than|over the|overflow|>=)"
_MAX_TOKENS: Final = r"max(?:imum)?[ _](?:completion[ _]|output[ _]|new[ _])?tokens"
_NOT: Final = r"(?:not|n't|cannot|un) ?(?:be |currently |yet )?"
GENERIC: Final = _stack(
    "generic",
    "words that servers share",
    (C.QUOTA, r"insufficient (?:quota|credit|balance|fund)|(?:quota|credits?|budget|balance)\b.{0,40}(?:exhaust|used up|exceed)"),
    (C.QUOTA, r"exceed\w*[^.\n]{0,30}\b(?:quota|credits?|budget|balance|allowance)|billing|recharge|top[ -]up|\bpast due"),
    (C.QUOTA, r"(?:out of|no (?:more )?|not enough|insufficient) (?:credits?|balance|funds|quota)|payment required"),
    (C.QUOTA, r"(?:daily|weekly|monthly|usage|spend\w*) (?:usage |token |request |spend\w* )?(?:limit|quota|cap)|account .{0,40}(?:not active|suspended)"),
    (C.REQUEST_TOO_LARGE, r"(?:payload|body|request|file) (?:size |entity |is )?.{0,30}too large|maxLength|length less than or equal|bytes? .{0,30}exceed"),
    (C.OUTPUT_LIMIT, rf"^(?!.*(?:context|prompt|input|messages)).*{_MAX_TOKENS}.{{0,80}}(?:exceed|at most|too large|less than|lower|larger than|greater than|<=|maximum)"),
    (C.CONTENT_FILTER, r"content[ _-]?(?:filter|policy|moderation)|moderation|safety (?:system|filter|policy|settings)|flagged"),
    (C.CONTENT_FILTER, r"inappropriate|sensitive (?:content|words?|information)|data_?inspection|guardrail|prohibited|PROHIBITED_CONTENT"),
    (C.TOOL_PARSER_MISSING, r"tool[- _]call[- _]parser|enable[- _]auto[- _]tool|tool[- _]parser"),
    (C.TOOLS_UNSUPPORTED, rf"(?:\btools?\b|function[ _-]?call(?:ing|s)?|tool[_ ](?:choice|use|calling)).{{0,40}}{_NOT}(?:support|available|enabled|used)"),
    (C.TOOLS_UNSUPPORTED, rf"{_NOT}support.{{0,30}}(?:tools?\b|function[ _-]?call|tool[_ ](?:choice|use|calling))"),
    (C.TOOL_SCHEMA, r"schema\b.{0,80}(?:invalid|not (?:valid|supported)|unsupported|fail|error)|grammar|(?:invalid|unsupported|malformed).{0,40}schema"),
    (C.TOOL_SCHEMA, r"tool names?|function names?|\btools?(?:\[|\.)\d+|\$ref|\$defs|additionalProperties|function(?:_| )declaration"),
    (C.IMAGE_UNSUPPORTED, rf"{_NOT}(?:support|accept|allow).{{0,40}}(?:image|vision|multimodal|video|audio)|(?:image|vision|multimodal|audio)\S*.{{0,40}}{_NOT}(?:support|allow|accept)"),
    (C.IMAGE_UNSUPPORTED, r"not a (?:multimodal|vision)|text[- ]only|image_url|(?:load|decode|fetch|process|download)\w* (?:the )?image|mmproj"),
    (C.CONTEXT_OVERFLOW, rf"{_LENGTH}.{{0,80}}{_OVER}|{_OVER}.{{0,60}}{_LENGTH}"),
    (C.CONTEXT_OVERFLOW, r"(?:prompt|input|messages?|conversation|request|text)s? (?:is|are|was|has) (?:become )?too (?:long|large|big)|too many (?:input |prompt )?tokens"),
    (C.CONTEXT_OVERFLOW, r"maximum (?:context|sequence|prompt|input) length|max_(?:model|seq|input|context|position)\w*_?len|context[ _](?:window|length|size)|n_ctx|reduce the (?:length|number) of"),
    (C.HISTORY_REFUSED, r"\broles?\b.{0,60}\b(?:must|should|cannot|only|not|invalid|alternate|supported|expected|unknown|satisfied)\b"),
    (C.HISTORY_REFUSED, r"(?:system|user|assistant|tool|developer|last|first) messages?\b.{0,60}(?:must|should|cannot|not|only|required|missing)|\bmessages?[.\[]\d+"),
    (C.HISTORY_REFUSED, r"expected (?:last |first |next )?role|message[_ ]order|role .{0,20}(?:after|before|followed)|consecutive"),
    (C.HISTORY_REFUSED, r"messages? .{0,60}\brole\b|No user query|tool[_ ]calls?\b.{0,60}(?:without|missing|respon|match|must)|tool[_ ](?:call|use)[_ ]ids?|prefill"),
    (C.CHAT_TEMPLATE, r"chat[ _]?template|jinja|prompt template|raise_exception|\{%|template .{0,30}(?:error|fail|not)"),
    (C.LORA, r"\blora\b|\badapters?\b"),
    (C.ENGINE_DIED, r"(?:engine|worker|scheduler|runner|subprocess|detokenizer)\w* .{0,40}(?:died|dead|crash|not running|terminated|exited|stopped)|background loop"),
    (C.OUT_OF_MEMORY, r"out of memory|OutOfMemory|\bOOM\b|cudaErrorMemoryAllocation|failed to allocate|insufficient memory|not enough (?:GPU )?memory"),
    (C.LOADING, r"(?:model|server|engine|instance|pod|deployment).{0,40}(?:loading|starting|not (?:yet )?ready|warming|initiali[sz]ing|cold start|scaled to zero)|still loading"),
    (C.OVERLOADED, r"overload|at capacity|no capacity|over capacity|\bbusy\b|\bqueue\b|high (?:demand|load|traffic)|DEGRADED|temporarily unavailable|service unavailable"),
    (C.GATEWAY_DOWN, r"connection (?:refused|reset|error)|connect(?:ion)? (?:call )?failed|no (?:available|healthy|live)\b|bad gateway|unreachable|upstream|ECONN|Failed to connect|tunnel|offline"),
    (C.RATE_LIMIT, r"rate[ _-]?limit|too (?:many|frequent)|throttl|requests per (?:second|minute|hour)|tokens per (?:second|minute)|\b[TRQ]P[MS]\b|max request"),
    (C.RATE_LIMIT, r"concurren\w+ (?:limit|request)|quota exceeded|RESOURCE_EXHAUSTED"),
    (C.TIMEOUT, r"timed? ?out|deadline exceeded|took too long"),
    (C.WRONG_DIALECT, r"'type': 'missing'|type: missing|Field required|missing (?:required )?(?:field|parameter|key|'?messages)|(?:messages|prompt|input)\W{0,3} (?:is|are) (?:a )?required"),
    (C.WRONG_DIALECT, r"not (?:supported|available) (?:in|on|by|for|with|via) (?:the |this )?(?:v1/\S+|\S*api\b|\S*endpoint)|chat completions? .{0,30}not support|use the \S+ (?:api|endpoint)"),
    (C.WRONG_DIALECT, r"not accessible via|unsupported_api|(?:only|not) .{0,40}\bapi versions?\b|not a (?:chat|completion|text|generat\w+) model|does not support (?:chat|completions?|generat\w+)"),
    (C.SERVER_ERROR, r"internal (?:server )?error|\bserver error\b|Traceback \(most recent|exception_type|segmentation fault|CUDA error|assert\w* failed"),
    (C.MODEL_NAME, rf"(?:\bmodel(?!'s)\w*|deployment|checkpoint|engine id|Function ')[^\n]{{0,160}}(?:not[ _](?:been )?(?:found|exist|available|loaded|supported|deployed|recogni[sz]ed|served|valid)|does(?: not|n't) exist|unknown|invalid|no longer|deprecated|decommissioned|retired|have access)"),
    (C.MODEL_NAME, r"(?:unknown|invalid|no such|unsupported|unrecogni[sz]ed|missing|wrong|no) (?:model|deployment)|model[ _](?:id|name)|model[ _-]not[ _-]\w+|(?:could not|cannot|can't) (?:find|load|resolve|access) .{0,20}model|your model"),
    (C.PARAMETER_REFUSED, r"(?:unsupported|unrecogni[sz]ed|unexpected|unknown|invalid|extra|illegal|bad|conflicting)[ _].{0,30}(?:param|argument|field|value|key|option|propert|propert|type|inputs?)"),
    (C.PARAMETER_REFUSED, rf"(?:param\w*|argument|field|inputs?|value|option|propert\w+)s?\b.{{0,80}}(?:{_NOT}(?:support|allow|permit|valid|recogni)|invalid|out of range)"),
    (C.PARAMETER_REFUSED, r"extra_forbidden|'loc': \('body'|loc: body|less than the minimum|greater than the maximum|must be (?:a |an |one of|between|less|greater|>|<|>=|<=|positive|set|true|false|at)|cannot be used with|response_format"),
    (C.PARAMETER_REFUSED, r"\b(?:temperature|top_p|top_k|min_p|stop|seed|(?:top_)?logprobs|max_(?:completion_)?tokens|stream(?:_options)?|reasoning_effort|reasoning|thinking|tool_choice|parallel_tool_calls|n|frequency_penalty|presence_penalty)\b\W.{0,80}(?:must|should|not|unsupported|cannot|invalid|only|required)"),
    (C.PARAMETER_REFUSED, r"Cannot determine type|validation errors?|InvalidParameter|invalid_parameter|literal_error|enum"),
    (C.KEY_REFUSED, r"(?:api[ _-]?key|token|credential|authorization|authentication|bearer|signature|jwt|login)\w*\b.{0,60}(?:invalid|incorrect|missing|expired|fail|not|require|wrong|revoked|denied|empty)"),
    (C.KEY_REFUSED, r"(?:invalid|incorrect|missing|expired|wrong|no|bad|provide|set|malformed) .{0,30}(?:api[ _-]?key|auth token|access token|credential|authorization|authentication|bearer)|unauthori[sz]ed|unauthenticated|sign in|log in"),
    (C.ACCESS_DENIED, r"forbidden|access denied|permission|not authori[sz]ed|not allowed (?:to|from|for)|blocked|not enabled for|agree to|terms of|gated|region|country|whitelist|allowlist"),
    (C.QUOTA, r"余额|欠费|额度"),
    (C.RATE_LIMIT, r"限流|频率|并发|速率"),
    (C.CONTENT_FILTER, r"敏感|违规|不安全|审核"),
    (C.CONTEXT_OVERFLOW, r"上下文|超长|最大长度|长度超"),
    (C.MODEL_NAME, r"模型.{0,10}(?:不存在|不支持|未|没有)"),
    (C.KEY_REFUSED, r"(?:密钥|令牌|鉴权|认证|身份验证)"),
    (C.PARAMETER_REFUSED, r"参数"),
    (C.NO_SUCH_PATH, r"(?:page|url|path|route|resource|endpoint)\b.{0,60}not (?:be )?found|no (?:such )?route|no static resource|cannot (?:post|get) |Not Found$"),
)
PRECEDENCE: Final = tuple(
    C[name]
    for name in (
        "PLAIN_ON_TLS QUOTA REQUEST_TOO_LARGE OUTPUT_LIMIT BAD_TOOL_CALL CONTENT_FILTER TOOL_PARSER_MISSING "
        "TOOLS_UNSUPPORTED TOOL_SCHEMA IMAGE_UNSUPPORTED CONTEXT_OVERFLOW CHAT_TEMPLATE HISTORY_REFUSED LORA "
        "ENGINE_DIED OUT_OF_MEMORY LOADING OVERLOADED GATEWAY_DOWN RATE_LIMIT TIMEOUT SERVER_ERROR WRONG_DIALECT "
        "KEY_REFUSED ACCESS_DENIED MODEL_NAME PARAMETER_REFUSED NO_SUCH_PATH"
    ).split()
)
"""The earlier one wins: a specific reason stands before the general words that accompany it."""
