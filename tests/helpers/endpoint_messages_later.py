"""More error replies from public issue trackers, collected after the table was written: each names the accepted causes.

Where a message fits two causes with the same failure kind or the same remedy, both are accepted.
"""

from __future__ import annotations

import json
from typing import Any

from gymnast.wire.endpoint_errors import Cause as C  # noqa: N817 - a table of it


def _error(message: str, **more: Any) -> str:
    return json.dumps({"error": {"message": message, **more}})


def _plain(**fields: Any) -> str:
    return json.dumps(fields)


_ALGO = "<400> InternalError.Algo"
_JINJA = "Error rendering prompt with jinja template: "
_TEMPLATE = " This is usually an issue with the model's prompt template."
_FUNCTION = "Function '23d4f03a-b8a6-4adb-a183-7daa083a09cc'"

LATER: tuple[tuple[str, int, str, frozenset[C]], ...] = tuple(
    (source, status, body, frozenset(causes))
    for source, status, body, *causes in (
        (
            *("QwenLM/Qwen #938", 400),
            _plain(code="DataInspectionFailed", message="Input data may contain inappropriate content."),
            C.CONTENT_FILTER,
        ),
        (
            *("QwenLM/qwen-code #3145", 400),
            _error(f"{_ALGO}.DataInspectionFailed: Input text data may contain inappropriate content."),
            C.CONTENT_FILTER,
        ),
        (
            *("agentscope-java #613", 400),
            _error(
                f"{_ALGO}.InvalidParameter: The input messages do not contain elements with the role of user",
                code="invalid_parameter_error",
            ),
            C.HISTORY_REFUSED,
        ),
        (
            *("chatgpt-plugin #696", 400),
            _plain(
                code="InvalidParameter",
                message="Role must be user or assistant and Content length must be greater than 0",
            ),
            C.HISTORY_REFUSED,
        ),
        (
            *("chatgpt-plugin #696", 400),
            _plain(code="InvalidParameter", message="Tool names are not allowed to be [search]"),
            C.TOOL_SCHEMA,
            C.PARAMETER_REFUSED,
        ),
        (
            *("agno #5317", 400),
            _error(
                f"{_ALGO}.InvalidParameter: 'messages' must contain the word 'json' in some form, to use "
                "'response_format' of type 'json_object'.",
                code="invalid_parameter_error",
                type="invalid_request_error",
            ),
            C.PARAMETER_REFUSED,
        ),
        ("assessment-generator #2", 400, _plain(message="Input is too long for requested model."), C.CONTEXT_OVERFLOW),
        (
            *("caddy-chatbot #97", 429),
            _plain(
                message="Too many requests, please wait before trying again. You have sent too many requests. Wait "
                "before trying again."
            ),
            C.RATE_LIMIT,
        ),
        (
            *("Amazon-Bedrock-Amazon-RDS-POC #9", 400),
            _plain(
                message="Malformed input request: expected maxLength: 42000, actual: 46735, please reformat your input "
                "and try again."
            ),
            C.CONTEXT_OVERFLOW,
            C.REQUEST_TOO_LARGE,
        ),
        (
            *("bedrock-access-gateway #41", 400),
            _plain(
                detail="An error occurred (ValidationException) when calling the ConverseStream operation: The maximum "
                "tokens you requested exceeds the model limit of 2048. Try again with a maximum tokens value that is "
                "lower than 2048."
            ),
            C.OUTPUT_LIMIT,
        ),
        (
            *("langchain-aws #419", 400),
            _plain(
                message="1 validation error detected: Value at 'body' failed to satisfy constraint: Member must have "
                "length less than or equal to 25000000"
            ),
            C.REQUEST_TOO_LARGE,
        ),
        (
            *("continue #11279", 400),
            _plain(error="Cannot truncate prompt with n_keep (4270) >= n_ctx (4096)"),
            C.CONTEXT_OVERFLOW,
        ),
        (
            *("void #238", 400),
            _plain(error=f'{_JINJA}"Error: Parser Error: Expected closing statement token."'),
            C.CHAT_TEMPLATE,
        ),
        (
            *("lmstudio #842", 400),
            _plain(
                error=f'{_JINJA}"Cannot pass both content and thinking in an assistant message with tool calls! Put the '
                f'analysis message in one or the other, but not both.".{_TEMPLATE}'
            ),
            C.CHAT_TEMPLATE,
            C.HISTORY_REFUSED,
        ),
        (
            *("lmstudio #1586", 400),
            _plain(error=f'{_JINJA}"No user query found in messages.".'),
            C.CHAT_TEMPLATE,
            C.HISTORY_REFUSED,
        ),
        (
            *("opencode #24462", 429),
            _error(
                "Error from provider: Provider returned error",
                code=429,
                metadata={
                    "raw": '{"error":{"message":"Your account org-446a <ak-f817> is suspended due to insufficient '
                    'balance, please recharge your account or check your plan and billing details","type":'
                    '"exceeded_current_quota_error"}}'
                },
            ),
            C.QUOTA,
        ),
        (
            *("Kimi-K2 #5", 403),
            _error(
                "Your account xx> is not active, organization <xx> exceeded current quota, please check your plan and "
                "billing details",
                type="exceeded_current_quota_error",
            ),
            C.QUOTA,
        ),
        (
            *("kimi-cli #901", 429),
            _error(
                "We're receiving too many requests at the moment. Please wait a moment and try again.",
                type="rate_limit_reached_error",
            ),
            C.RATE_LIMIT,
        ),
        (
            *("kimi-cc #41", 429),
            _error(
                "Your account xxxxx / proj-xxxxxx <ak-xxxxx> request reached project TPM rate limit, current: 1410, "
                "limit: 100, see https://platform.moonshot.cn/docs/pricing/limits",
                type="rate_limit_reached_error",
            ),
            C.RATE_LIMIT,
        ),
        (
            *("kimi-cli #2209", 429),
            _error("The engine is currently overloaded, please try again later", type="engine_overloaded_error"),
            C.OVERLOADED,
        ),
        (
            *("MoneyPrinterTurbo #339", 429),
            _error(
                "Your account x request reached max request: 3, please try again after 1 seconds",
                type="rate_limit_reached_error",
            ),
            C.RATE_LIMIT,
        ),
        (
            *("kimi-cli #2011", 400),
            _error(
                "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
                type="invalid_request_error",
            ),
            C.CONTEXT_OVERFLOW,
        ),
        (
            *("Langchain-Chatchat #3728", 400),
            _plain(object="error", message="Only  allowed now, your model local_chatglm3-6b", code=40301),
            C.MODEL_NAME,
        ),
        (
            *("Langchain-Chatchat #2065", 400),
            _plain(object="error", message="0 is less than the minimum of 1 - 'max_tokens'", code=40302),
            C.PARAMETER_REFUSED,
        ),
        (
            *("free-claude-code #1021", 404),
            _plain(
                status=404, title="Not Found", detail=f"{_FUNCTION}: Not found for account 'Qawmu2vUw3rdcREnubcAVq'"
            ),
            C.MODEL_NAME,
        ),
        (
            *("freellmapi #522", 400),
            _plain(
                status=400,
                title="Bad Request",
                detail="Function id '3b9748d8-1d85-40e8-8573-0eeaa63a4b63': DEGRADED function cannot be invoked",
            ),
            C.OVERLOADED,
            C.GATEWAY_DOWN,
        ),
        (
            *("free-claude-code #91", 503),
            _plain(
                detail="503: NVIDIA_NIM_API_KEY is not set. Add it to your .env file. Get a key at "
                "https://build.nvidia.com/settings/api-keys"
            ),
            C.KEY_REFUSED,
        ),
        (
            *("smolagents #1531", 400),
            _error(
                "'messages.0' : for 'role:system' the following must be satisfied[('messages.0.content' : value must "
                "be a string)]",
                type="invalid_request_error",
            ),
            C.HISTORY_REFUSED,
            C.PARAMETER_REFUSED,
        ),
        (
            *("open-chat-studio #2583", 400),
            _error(
                "The following tools cannot be used with reasoning.effort 'minimal': file_search.",
                type="invalid_request_error",
                param="tools",
            ),
            C.PARAMETER_REFUSED,
            C.TOOLS_UNSUPPORTED,
        ),
        (
            *("free-claude-code #1136", 400),
            _plain(
                message="messages.2.assistant.reasoning_content: property 'messages.2.assistant.reasoning_content' is "
                "unsupported",
                type="invalid_request_error",
                param="validation_error",
                code="wrong_api_format",
            ),
            C.PARAMETER_REFUSED,
            C.HISTORY_REFUSED,
        ),
        (
            *("uni-api #41", 400),
            json.dumps(
                [
                    {
                        "error": {
                            "code": 400,
                            "message": "Project `p` is not allowed to use Publisher Model `projects/p/locations/x/publishers/"
                            "anthropic/models/claude-3-sonnet@20240229`",
                            "status": "FAILED_PRECONDITION",
                        }
                    }
                ]
            ),
            C.ACCESS_DENIED,
            C.MODEL_NAME,
        ),
        (
            *("uni-api #41", 429),
            json.dumps(
                [
                    {
                        "error": {
                            "code": 429,
                            "message": "Quota exceeded for aiplatform.googleapis.com/"
                            "online_prediction_requests_per_base_model with base model: anthropic-claude-3-5-sonnet. Please "
                            "submit a quota increase request.",
                            "status": "RESOURCE_EXHAUSTED",
                        }
                    }
                ]
            ),
            C.RATE_LIMIT,
            C.QUOTA,
        ),
        (
            *("CLIProxyAPI #4220", 404),
            _error(
                "Publisher model `google/models/gemini-3.1-flash-lite-preview` was not found or your project does not "
                "have access to it. Ensure you are using a valid model name and that the model is available in the "
                "specified region.",
                code=404,
                status="NOT_FOUND",
            ),
            C.MODEL_NAME,
        ),
        (
            *("truefoundry/models #946", 404),
            _plain(
                status="failure",
                message="vertex error: Publisher Model `projects/x/locations/global/publishers/google/models/gemma4` "
                "was not found or your project does not have access to it. Please ensure you are using a valid model "
                "version.",
            ),
            C.MODEL_NAME,
        ),
        (
            *("Eta #59", 500),
            _error("Jinja Exception: System message must be at the beginning.", code=500, type="server_error"),
            C.HISTORY_REFUSED,
            C.CHAT_TEMPLATE,
        ),
        (
            *("Eta #59", 400),
            _error("Cannot determine type of 'item'", code=400, type="invalid_request_error"),
            C.WRONG_DIALECT,
            C.HISTORY_REFUSED,
            C.PARAMETER_REFUSED,
        ),
        (
            *("jan #6123", 500),
            _error(
                "Value is not callable: null at row 49, column 79:\n                {%- set content = "
                "(m_content.split('</think>')|last).lstrip('\\n') %}",
                code=500,
                type="server_error",
            ),
            C.CHAT_TEMPLATE,
        ),
        (
            *("qwen-code #48", 500),
            _error(
                "Unknown method: keys at row 57, column 46:\n                {%- set handled_keys = ['type', "
                "'description', 'enum', 'required'] %}",
                code=500,
                type="server_error",
            ),
            C.CHAT_TEMPLATE,
        ),
        (
            *("OmniRoute #4982", 400),
            _error(
                "Unable to generate parser for this template. Automatic parser generation failed: \n------------\nWhile "
                "executing CallExpression at line 79, column 24 in source:\n...lti_step_tool %}↵ {{- raise_exception('No "
                "user query found in messages.') }}↵...\nError: Jinja Exception: No user query found in messages.",
                code=400,
                type="invalid_request_error",
            ),
            C.HISTORY_REFUSED,
            C.CHAT_TEMPLATE,
        ),
        (
            *("n8n #18275", 520),
            "<!DOCTYPE html><html><head><title>api.openai.com | 520: Web server is returning an unknown error</title>"
            "</head><body>There is an unknown connection issue between Cloudflare and the origin web server.</body></html>",
            C.GATEWAY_DOWN,
        ),
        ("search2ai #12", 522, "error code: 522", C.GATEWAY_DOWN),
        (
            *("databricks-sdk-py #1263", 400),
            _plain(error_code="BAD_REQUEST", message='Bad request: json: unknown field "inputs"\n'),
            C.PARAMETER_REFUSED,
        ),
        (
            *("n8n #38642", 429),
            _plain(
                error_code="REQUEST_LIMIT_EXCEEDED",
                message="REQUEST_LIMIT_EXCEEDED: Exceeded workspace QPS rate limit for databricks-qwen35-122b-a10b. "
                "Please use a provisioned throughput Foundation Model APIs endpoint for a higher rate limit.",
            ),
            C.RATE_LIMIT,
        ),
        (
            *("databricks-sdk-go #1183", 400),
            _plain(
                error_code="BAD_REQUEST",
                message="Bad request: rpc error: code = InvalidArgument desc = max_tokens (10000) cannot exceed 8192. "
                "Please reduce the length of max output tokens generated.",
            ),
            C.OUTPUT_LIMIT,
        ),
        (
            *("bolt.new #8589", 429),
            _error(
                "This request would exceed the rate limit for your organization (a22cf6e6) of 1,000,000 input tokens "
                "per minute. For details, refer to: https://docs.anthropic.com/en/api/rate-limits. Please reduce the "
                "prompt length or the maximum tokens requested, or try again later.",
                type="rate_limit_error",
            ),
            C.RATE_LIMIT,
        ),
        (
            *("OmniRoute #9731", 503),
            _error(
                "[nvidia/minimaxai/minimax-m3] [503]: Request dropped after exceeding the local rate-limit queue budget "
                "maxWaitMs (15000ms) — this is OmniRoute's request queue, not an upstream timeout."
            ),
            C.OVERLOADED,
            C.RATE_LIMIT,
        ),
    )
)

_INVALID = "invalid_request_error"


def _vertex(message: str) -> str:
    inner = json.dumps({"type": "error", "error": {"type": _INVALID, "message": message}, "request_id": "req_vrtx_1"})
    return _error(inner, code=400, status="INVALID_ARGUMENT")


def _claude(message: str) -> str:
    return _plain(type="error", error={"type": _INVALID, "message": message}, request_id="req_011")


_ORDER = (
    '{"object":"error","message":"Unexpected role \'user\' after role \'tool\'","type":"invalid_request_message_order"}'
)

SECOND: tuple[tuple[str, int, str, frozenset[C]], ...] = tuple(
    (source, status, body, frozenset(causes))
    for source, status, body, *causes in (
        (
            *("Antigravity-Manager #1418", 400),
            _vertex("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"),
            C.PARAMETER_REFUSED,
        ),
        (
            *("antigravity2api-nodejs #150", 400),
            _vertex(
                "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at "
                "https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size"
            ),
            C.PARAMETER_REFUSED,
        ),
        (
            *("claude-code #63314", 400),
            _claude(
                "messages.7.content.12: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot "
                "be modified. These blocks must remain as they were in the original response."
            ),
            C.HISTORY_REFUSED,
        ),
        (
            *("claude-code #56708", 400),
            _claude("messages.23.content.2: Invalid `data` in `redacted_thinking` block"),
            C.HISTORY_REFUSED,
        ),
        (
            *("CLIProxyAPI #714", 400),
            _vertex("messages.13.content.0.thinking.cache_control: Extra inputs are not permitted"),
            C.PARAMETER_REFUSED,
            C.HISTORY_REFUSED,
        ),
        (
            *("CLIProxyAPI #714", 400),
            _claude("messages.1.content.0.thinking.signature: Field required"),
            C.HISTORY_REFUSED,
            C.WRONG_DIALECT,
        ),
        (
            *("claude-code #25597", 400),
            _claude("system.2.cache_control.ephemeral.scope: Extra inputs are not permitted"),
            C.PARAMETER_REFUSED,
        ),
        (
            *("opencode #34048", 400),
            _error("The requested model is not supported.", code="model_not_supported", param="model", type=_INVALID),
            C.MODEL_NAME,
        ),
        (
            *("opencode #34048", 400),
            _error(
                'The requested model is not available for integrator "opencode". Verify the correct '
                "Copilot-Integration-Id header is being sent."
            ),
            C.MODEL_NAME,
            C.ACCESS_DENIED,
        ),
        (
            *("chatwise-releases #1273", 400),
            _error(
                'model "gpt-5.3-codex" is not accessible via the /chat/completions endpoint',
                code="unsupported_api_for_model",
            ),
            C.WRONG_DIALECT,
        ),
        (
            *("llm-gateway #1849", 400),
            _error(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
                "instead.",
                code="invalid_request_body",
            ),
            C.PARAMETER_REFUSED,
        ),
        (
            *("Roo-Code #1885", 400),
            _error(
                "Model is not supported for this request.", param="model", code="model_not_supported", type=_INVALID
            ),
            C.MODEL_NAME,
        ),
        ("codex-router #244", 400, _error("modelCode: does not exist", code="1214"), C.MODEL_NAME),
        (
            *("Langchain-Chatchat #2736", 400),
            _error("[1214][prompt 参数非法。请检查文档。]", type=_INVALID),
            C.PARAMETER_REFUSED,
            C.WRONG_DIALECT,
        ),
        (
            *("ccs #402", 429),
            _error(
                "High concurrency usage of this API, please reduce concurrency or contact customer service to increase "
                "limits",
                code="1302",
            ),
            C.RATE_LIMIT,
        ),
        ("hermes-agent #7475", 400, _error("模型不存在，请检查模型代码。", code="1211"), C.MODEL_NAME),
        (
            *("picoclaw #795", 500),
            _error("网络错误，错误id：202602261029392bc0093d0e944297，请联系客服。", code="1234"),
            C.SERVER_ERROR,
            C.GATEWAY_DOWN,
        ),
        (
            *("GLM-Free-API #3", 403),
            _plain(error={"detail": "Model not available for current user level", "code": 403}),
            C.ACCESS_DENIED,
            C.MODEL_NAME,
        ),
        ("avante.nvim #2695", 400, _ORDER, C.HISTORY_REFUSED),
        (
            *("crush #683", 400),
            _error("Provider returned error", code=400, metadata={"raw": _ORDER, "provider_name": "Mistral"}),
            C.HISTORY_REFUSED,
        ),
        (
            *("litellm #17761", 400),
            _error(f"litellm.BadRequestError: MistralException - {_ORDER}", code="400"),
            C.HISTORY_REFUSED,
        ),
        (
            *("litellm #2418", 400),
            _plain(object="error", message="Unexpected role RoleEnum.assistant", type=_INVALID, param=None, code=None),
            C.HISTORY_REFUSED,
        ),
        (
            *("Roo-Code #10045", 400),
            _plain(
                detail='Invalid request: Invalid request: {"detail":{"object":"error","message":"After the optional '
                "system message, conversation roles must alternate user and assistant roles except for tool calls and "
                'results.","type":"400","param":null,"code":400}}'
            ),
            C.HISTORY_REFUSED,
        ),
        (
            *("AiNiee #641", 400),
            _plain(
                object="error",
                message="Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
                type=_INVALID,
            ),
            C.HISTORY_REFUSED,
        ),
        (
            *("continue #9607", 400),
            _error(
                "Your organization must be verified to generate reasoning summaries. Please go to: "
                "https://platform.openai.com/settings/organization/general and click on Verify Organization.",
                type=_INVALID,
                param="reasoning.summary",
                code="unsupported_value",
            ),
            C.ACCESS_DENIED,
            C.PARAMETER_REFUSED,
        ),
        (
            *("synthetic-data-generator #48", 422),
            _plain(error="Input validation error: `top_p` must be > 0.0 and < 1.0", error_type="validation"),
            C.PARAMETER_REFUSED,
        ),
        (
            *("text-generation-inference #2309", 422),
            _plain(
                error="Input validation error: grammar is not valid: Grammar must have a 'properties' field",
                error_type="validation",
            ),
            C.TOOL_SCHEMA,
        ),
        (
            *("text-generation-inference #1745", 424),
            _plain(error="Request failed during generation: Server error: ", error_type="generation"),
            C.SERVER_ERROR,
            C.ENGINE_DIED,
        ),
        (
            *("Qwen3 #998", 400),
            _plain(object="error", message="name 'Extension' is not defined", type="BadRequestError", code=400),
            C.UNRECOGNISED,
            C.CHAT_TEMPLATE,
            C.SERVER_ERROR,
        ),
        (
            *("browser-use #74", 400),
            _plain(object="error", message="Unknown model type: llama", type="BadRequestError", code=400),
            C.MODEL_NAME,
            C.UNRECOGNISED,
        ),
        (
            *("ollama #12626", 500),
            _error(
                "unable to load model: /root/.ollama/models/blobs/sha256-ed12a4674d727a74ac4816c9", type="api_error"
            ),
            C.ENGINE_DIED,
            C.SERVER_ERROR,
        ),
        (
            *("ollama #13032", 500),
            _error(
                'do load request: Post "http://127.0.0.1:11680/load": read tcp 127.0.0.1:11685->127.0.0.1:11680: wsarecv: '
                "An existing connection was forcibly closed by the remote host.",
                type="api_error",
            ),
            C.ENGINE_DIED,
            C.GATEWAY_DOWN,
            C.SERVER_ERROR,
        ),
        (
            *("modelscope #1691", 429),
            _error("insufficient balance (1008)", http_code="429", type="insufficient_balance_error"),
            C.QUOTA,
        ),
        (
            *("chatbox #1745", 400),
            _error("Model o1 is enabled only for api versions 2024-12-01-preview and later", code="BadRequest"),
            C.PARAMETER_REFUSED,
            C.WRONG_DIALECT,
        ),
        (
            *("agno #3503", 422),
            _plain(
                message="unknown field: parameter 'requires_confirmation' is not a valid field. For proper usage, please "
                "refer to https://docs.cohere.com/reference/chat"
            ),
            C.PARAMETER_REFUSED,
        ),
        (
            *("livekit/agents #3114", 400),
            _plain(
                code="Client specified an invalid argument",
                error="Invalid request content: A tool_choice was set on the request but no tools were specified.",
            ),
            C.PARAMETER_REFUSED,
        ),
        (
            *("crush #386", 400),
            _plain(
                code="Client specified an invalid argument",
                error="Argument not supported on this model: reasoningEffort",
            ),
            C.PARAMETER_REFUSED,
        ),
        (
            *("gemini-cli #14731", 400),
            _plain(
                error={"code": 400, "message": "Request contains an invalid argument.", "status": "INVALID_ARGUMENT"}
            ),
            C.UNRECOGNISED,
            C.PARAMETER_REFUSED,
        ),
        (
            *("laravel/ai #132", 400),
            _error(
                'Invalid JSON payload received. Unknown name "name" at \'request.tools[0].function_declarations[0].'
                "parameters.properties[0].value': Cannot find field."
            ),
            C.TOOL_SCHEMA,
        ),
        ("kserve #3513", 400, _plain(error="Request for unknown model: 'v2' is not found"), C.MODEL_NAME),
        ("pytorch/serve #2993", 503, _plain(error="Model with name mnist is not ready."), C.LOADING),
        (
            *("ollama #13129", 500),
            '<!DOCTYPE html><html class="no-js"><head><title>ollama.ai | 500: Internal server error</title></head><body>'
            "<h1>Internal server error</h1> Error code 500</body></html>",
            C.SERVER_ERROR,
            C.GATEWAY_DOWN,
        ),
    )
)


def _bad(message: str) -> str:
    """vLLM's form."""
    return _error(message, type="BadRequestError", param=None, code=400)


def _flat(message: str, code: int = 400) -> str:
    """SGLang's form."""
    return _plain(object="error", message=message, type="BadRequestError", param=None, code=code)


_VLLM, _SGLANG, _LITELLM = "vllm 0.32.0", "sglang 0.5.23", "litellm 1.108.4"

THIRD: tuple[tuple[str, int, str, frozenset[C]], ...] = tuple(
    (source, status, body, frozenset(causes))
    for source, status, body, *causes in (
        (
            *(_VLLM, 400),
            _bad("Tool choice 'add' is ambiguous: it is defined in more than one namespace (a, b)."),
            C.PARAMETER_REFUSED,
            C.TOOL_SCHEMA,
        ),
        (
            *(_VLLM, 400),
            _bad(
                "Regex uses unsupported feature for structured outputs: lookahead. Only basic matching constructs are "
                "supported—lookarounds, backreferences, and unicode boundaries are not."
            ),
            C.TOOL_SCHEMA,
            C.PARAMETER_REFUSED,
        ),
        (
            *(_VLLM, 400),
            _bad("structured_outputs.grammar cannot be an empty string"),
            C.TOOL_SCHEMA,
            C.PARAMETER_REFUSED,
        ),
        (_VLLM, 400, _bad("When using `tool_choice`, `tools` must be set."), C.PARAMETER_REFUSED),
        (_VLLM, 400, _bad("n must be an int, but is of type <class 'str'>"), C.PARAMETER_REFUSED),
        (
            *(_VLLM, 400),
            _bad("min_tokens must be less than or equal to max_tokens=16, got 32."),
            C.PARAMETER_REFUSED,
        ),
        (_VLLM, 400, _bad("prompt template is not supported"), C.PARAMETER_REFUSED, C.CHAT_TEMPLATE),
        (_VLLM, 400, _bad("Cannot have a FunctionToolCallOutput before FunctionToolCall."), C.HISTORY_REFUSED),
        (
            *(_VLLM, 400),
            _bad("Expected field `name` in `function` in `tool_choice`! Correct usage: `{...}`"),
            C.PARAMETER_REFUSED,
            C.TOOL_SCHEMA,
        ),
        (
            *(_VLLM, 400),
            _bad("The JSON schema is nested too deeply: objects and arrays may nest at most 64 levels"),
            C.TOOL_SCHEMA,
        ),
        (_VLLM, 400, _bad("data_parallel_rank 9 is out of range [0, 8)."), C.PARAMETER_REFUSED),
        (
            *(_VLLM, 400),
            _bad(
                "Per-request mm_processor_kwargs are disabled by default because they can change multimodal "
                "preprocessing resource usage. Start the server with --trust-request-mm-kwargs only when clients are "
                "trusted."
            ),
            C.PARAMETER_REFUSED,
        ),
        (
            *(_VLLM, 400),
            _bad("previous_response_id is not supported by the stateless render endpoint."),
            C.PARAMETER_REFUSED,
            C.WRONG_DIALECT,
        ),
        (
            *(_VLLM, 400),
            _bad("Either prompt or prompt_embeds must be provided and non-empty."),
            C.WRONG_DIALECT,
            C.PARAMETER_REFUSED,
        ),
        (
            *(_VLLM, 400),
            _bad("You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice')."),
            C.PARAMETER_REFUSED,
            C.TOOL_SCHEMA,
        ),
        (_SGLANG, 400, _flat("Harmony does not support reasoning effort minimal"), C.PARAMETER_REFUSED),
        (_SGLANG, 400, _flat("token_ids_logprob must be a flat list of integers."), C.PARAMETER_REFUSED),
        (_SGLANG, 400, _flat("beam_width must be at least 1, got 0."), C.PARAMETER_REFUSED),
        (
            *(_SGLANG, 400),
            _flat("repetition_penalty must be in (0, 2] (1.0 = no penalty), got 3."),
            C.PARAMETER_REFUSED,
        ),
        (_SGLANG, 400, _flat("Failed to render chat template for embedding input: x"), C.CHAT_TEMPLATE),
        (_SGLANG, 500, _flat("Failed to parse reasoning content", 500), C.SERVER_ERROR),
        (_SGLANG, 400, _flat("Request prompt exceeds the KV memory budget: input_len=90000."), C.CONTEXT_OVERFLOW),
        (_SGLANG, 400, _flat("logprobs are not supported with gpt-oss models"), C.PARAMETER_REFUSED),
        (_SGLANG, 400, _flat("logprobs are not supported in streaming mode"), C.PARAMETER_REFUSED),
        (
            *(_SGLANG, 400),
            _flat("built-in tools (web_search, code_interpreter) are not supported with prefill-decode disaggregation"),
            C.TOOLS_UNSUPPORTED,
            C.PARAMETER_REFUSED,
        ),
        (
            *(_SGLANG, 404),
            _flat("Response with id 'resp_7' not found.", 404),
            C.HISTORY_REFUSED,
            C.PARAMETER_REFUSED,
            C.UNRECOGNISED,
        ),
        (
            *(_LITELLM, 400),
            _error("LiteLLM Router: Trying to call specific deployment, but Model ID :x does not exist in Model ID map"),
            C.MODEL_NAME,
        ),
        (
            *(_LITELLM, 400),
            _error("Rejected request: client-side api_base=http://10.0.0.1 is rejected by the SSRF guard (private)."),
            C.PARAMETER_REFUSED,
            C.ACCESS_DENIED,
        ),
        (
            *(_LITELLM, 413),
            _error("Request size is too large. Request size is 7 MB. Max size is 5 MB"),
            C.REQUEST_TOO_LARGE,
        ),
        (
            *(_LITELLM, 403),
            _error("Tool(s) ['search'] are not in the allowed tools list for this key/team."),
            C.ACCESS_DENIED,
            C.TOOLS_UNSUPPORTED,
        ),
        (
            *("litellm #3659", 400),
            _error(
                "VertexAIException - 400 Failed to deserialize the JSON body into the target type: instances[0]: missing "
                "field `inputs` at line 1 column 74"
            ),
            C.WRONG_DIALECT,
        ),
        (
            *("litellm #10182", 500),
            _error(
                "litellm.APIConnectionError: Vertex_ai_betaException - EOF occurred in violation of protocol "
                "(_ssl.c:1007)"
            ),
            C.GATEWAY_DOWN,
        ),
        (
            *("litellm #4874", 500),
            _error(
                "litellm.InternalServerError: VertexAIException InternalServerError - 400 Request contains an invalid "
                "argument.\nReceived Model Group=mistral-large\nAvailable Model Group Fallbacks=None"
            ),
            C.UNRECOGNISED,
            C.SERVER_ERROR,
            C.PARAMETER_REFUSED,
        ),
        (
            *("litellm #17131", 503),
            _error(
                "litellm.ServiceUnavailableError: litellm.MidStreamFallbackError: litellm.BadRequestError: "
                "Vertex_ai_betaException BadRequestError - b'{\\n \"error\": {\\n \"code\": 400,\\n \"message\": \"Cannot "
                "fetch content from the provided URL. Please ensure the URL is valid and accessible by Vertex AI"
            ),
            C.IMAGE_UNSUPPORTED,
            C.PARAMETER_REFUSED,
            C.UNRECOGNISED,
        ),
        (
            *("quotio #158", 400),
            _error("unknown provider for model claude-sonnet-4-5-20250929", type=_INVALID),
            C.MODEL_NAME,
        ),
        (
            *("9router #25", 400),
            _error("No credentials for provider: github", type=_INVALID, code="bad_request"),
            C.KEY_REFUSED,
        ),
        ("joplin #16428", 400, _plain(error="Upstream returned 429"), C.RATE_LIMIT, C.GATEWAY_DOWN),
        (
            *("9router #2578", 400),
            _error(
                "* GenerateContentRequest.tools[0].function_declarations[0].parameters.properties: should be non-empty "
                "for OBJECT type",
                code=400,
            ),
            C.TOOL_SCHEMA,
        ),
        (
            *("text-generation-inference #2526", 503),
            "<html><head><title>x</title></head><body><h1>Application is not available</h1><p>The application is "
            "currently not serving requests at this endpoint. It may not have been started or is still starting.</p>"
            "</body></html>",
            C.OVERLOADED,
            C.GATEWAY_DOWN,
            C.LOADING,
        ),
        (
            *("higress #2474", 503),
            "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
            C.GATEWAY_DOWN,
        ),
        (
            *("higress #2474", 502),
            "<html>\r\n<head><title>502 bad gateway</title></head>\r\n<body>\r\n<center><h1>502 bad gateway</h1></center>"
            "\r\n</body>\r\n</html>\r\n",
            C.GATEWAY_DOWN,
        ),
    )
)

_FIELD = "a public repository"

FOURTH: tuple[tuple[str, int, str, frozenset[C]], ...] = tuple(
    (_FIELD, status, body, frozenset(causes))
    for status, body, *causes in (
        (
            502,
            _error("Your input exceeds the context window.", type=_INVALID, code="context_length_exceeded"),
            C.CONTEXT_OVERFLOW,
        ),
        (400, _claude("You're out of extra usage. Add more at claude.ai/settings/usage and keep going."), C.QUOTA),
        (
            400,
            _error("<html> <title>400 Bad Request</title> <center>cloudflare</center>", type=_INVALID, code=None),
            C.UNRECOGNISED,
            C.ACCESS_DENIED,
            C.GATEWAY_DOWN,
            C.WRONG_DIALECT,
        ),
        (
            400,
            _error("this server has no vision encoder loaded (--mmproj)", type=_INVALID, code="unsupported_content"),
            C.IMAGE_UNSUPPORTED,
        ),
        (
            400,
            _error(
                "This model's maximum context length is 128000 tokens. However, your messages resulted in 137655 tokens "
                "(including 348 in the response_format schemas.). Please reduce the length of the messages or schemas.",
                type=_INVALID,
            ),
            C.CONTEXT_OVERFLOW,
        ),
        (400, _bad("Unexpected role 'user' after role 'tool' Unexpected role 'user' after role 'tool'"), C.HISTORY_REFUSED),
        (
            400,
            _error("Output data may contain inappropriate content.", code="data_inspection_failed"),
            C.CONTENT_FILTER,
        ),
        (
            400,
            _error(
                "Your request was rejected as a result of our safety system. Your prompt may contain text that is not "
                "allowed by our safety system.",
                code="content_policy_violation",
                type=_INVALID,
            ),
            C.CONTENT_FILTER,
        ),
        (400, _error("'function' is a required property, expected an object - 'tools.0'"), C.TOOL_SCHEMA),
        (
            400,
            _error(
                "'response_format.type' : value is not one of the allowed values ['text','json_object']", type=_INVALID
            ),
            C.PARAMETER_REFUSED,
        ),
        (
            400,
            _error(
                'Status Code from provider: 422, Provider response: {"detail":[{"type":"missing","loc":["body",'
                '"filters","value"],"msg":"Field required","input":{"type":"in","key":"version"}}]}',
                code="invalid_value",
            ),
            C.PARAMETER_REFUSED,
            C.WRONG_DIALECT,
        ),
        (429, _error("You have no credits remaining.", code="insufficient_quota"), C.QUOTA),
        (
            429,
            _error(
                "Rate limit reached for model `x` in organization `org_1` service tier `on_demand` on tokens per minute "
                "(TPM): Limit 8000, Used 8000. Please try again in 2.5s.",
                type="tokens",
                code="rate_limit_exceeded",
            ),
            C.RATE_LIMIT,
        ),
        (
            429,
            _error(
                "Your account request reached organization TPD rate limit, current: 1543253, limit: 1500000",
                type="rate_limit_reached_error",
            ),
            C.RATE_LIMIT,
            C.QUOTA,
        ),
        (
            429,
            _error(
                "Rate limit reached for model `llama-3.3-70b-versatile` in organization `org` service tier `on_demand` "
                "on tokens per day (TPD): Limit 100000, Used 94647, Requested 7733. Please try again in 34m16.32s. Need "
                "more tokens? Upgrade to Dev Tier today",
                code="rate_limit_exceeded",
            ),
            C.RATE_LIMIT,
            C.QUOTA,
        ),
        (429, _plain(type="usage_limit_reached", resets_at=1789435433), C.QUOTA),
        (404, _plain(status=404, message="Model 'x' not found."), C.MODEL_NAME),
        (
            404,
            _error(
                "This model is unavailable for free. The paid version is available now - use this slug instead: "
                "google/gemma-3-27b-it",
                code=404,
            ),
            C.MODEL_NAME,
            C.ACCESS_DENIED,
        ),
        (
            404,
            _error("Your organization must be verified to use the model `o3`."),
            C.ACCESS_DENIED,
            C.MODEL_NAME,
        ),
        (
            403,
            _error("You've reached your usage limit for this billing cycle.", type="access_terminated_error"),
            C.QUOTA,
        ),
        (413, _error("Request Entity Too Large", type=_INVALID), C.REQUEST_TOO_LARGE),
        (403, _error("Access denied.", code="access_denied"), C.ACCESS_DENIED),
        (403, _plain(code="AccessDenied", message="x"), C.ACCESS_DENIED),
        (403, _plain(success=False, error="DeepAgent Desktop is not allowed for this API"), C.ACCESS_DENIED),
        (403, _plain(message="Key limit exceeded (total limit)"), C.QUOTA),
        (500, _plain(error="client error: 400, message='Bad Request'"), C.UNRECOGNISED, C.SERVER_ERROR),
        (
            500,
            _error(
                'response_format type must be one of "text" or "json_object", but got: json_schema',
                code=500,
                type="server_error",
            ),
            C.PARAMETER_REFUSED,
        ),
        (
            500,
            _error("Failed to parse tool call arguments as JSON: ...", code=500),
            C.BAD_TOOL_CALL,
            C.HISTORY_REFUSED,
        ),
        (500, _error("memory layout cannot be allocated"), C.OUT_OF_MEMORY),
        (500, _plain(type="api_error"), C.SERVER_ERROR),
        (
            400,
            _error(
                "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length "
                "1048576, but got a string with length 2778531 instead.",
                type=_INVALID,
                param="tools[0].function.description",
                code="string_above_max_length",
            ),
            C.TOOL_SCHEMA,
            C.REQUEST_TOO_LARGE,
            C.PARAMETER_REFUSED,
        ),
        (
            500,
            _error(
                "The server had an error processing your request. Sorry about that! You can retry your request, or "
                "contact us through an Azure support request at: https://go.microsoft.com/fwlink/?linkid=2213926 if you "
                "keep seeing this error."
            ),
            C.SERVER_ERROR,
        ),
        (
            500,
            _error("'ClaudeContentBlockToolResult' object has no attribute 'source'", code="500"),
            C.SERVER_ERROR,
            C.HISTORY_REFUSED,
        ),
        (
            500,
            _error("This model only supports single tool-calls at once! (in tool_use:95)"),
            C.TOOLS_UNSUPPORTED,
            C.CHAT_TEMPLATE,
            C.HISTORY_REFUSED,
        ),
        (404, _plain(type="not_found_error", message="model: claude-3-5-sonnet-20241022"), C.MODEL_NAME),
        (
            429,
            _plain(
                type="error",
                error={
                    "type": "rate_limit_error",
                    "message": "This request would exceed the rate limit for your organization (ca0567f9) of 10,000 "
                    "input tokens per minute.",
                },
            ),
            C.RATE_LIMIT,
        ),
        (400, _plain(error={"type": _INVALID, "code": "new_backend_error"}), C.UNRECOGNISED),
        (400, _error("Request rejected", type=_INVALID), C.UNRECOGNISED, C.PARAMETER_REFUSED),
        (400, _error("This content was flagged for possible cybersecurity risk.", param=None), C.CONTENT_FILTER),
        (
            403,
            _error(
                "litellm.APIError: XaiException - Error code: 403 - {'code': 'permission-denied', 'error': 'Your team has "
                "either used all available credits or reached its monthly spending limit.'}"
            ),
            C.QUOTA,
        ),
    )
)
