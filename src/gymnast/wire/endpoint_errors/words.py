"""Words that many servers share: what a message of an unknown server is about.

A match is weaker than a signature of a known server, and the status must agree with it (`diagnosis`).
"""

from __future__ import annotations

from typing import Final

from gymnast.wire.endpoint_errors.causes import Cause as C  # noqa: N817 - a table of it
from gymnast.wire.endpoint_errors.signature import make_table

_LENGTH: Final = (
    r"(?:context|sequence|prompt|input|model token|token)s?[ _-]?(?:length|window|size|limit|count|tokens?)"
)
_OVER: Final = r"(?:exceed|too (?:long|large|many)|longer than|greater than|more than|larger than|over the|overflow|>=)"
_MAX_TOKENS: Final = r"max(?:imum)?[ _](?:completion[ _]|output[ _]|new[ _])?tokens"
_NOT: Final = r"(?:not|n't|cannot|un) ?(?:be |currently |yet )?"
WORDS: Final = make_table(
    "words",
    "words that servers share",
    (
        C.QUOTA,
        r"insufficient (?:quota|credit|balance|fund)",
        r"(?:quota|credits?|(?<!memory )budget|balance)\b.{0,40}(?:exhaust|used up|exceed)",
        r"exceed\w*[^.\n]{0,30}\b(?:quota|credits?|(?<!memory )budget|balance|allowance)|billing|recharge|top[ -]up",
        r"\bpast due|(?:out of|no (?:more )?|not enough|insufficient) (?:credits?|balance|funds|quota)",
        r"payment required",
        r"(?:consumed|used|spent) (?:all |up )?(?:of )?(?:your|this|the) [^.\n]{0,40}\b(?:allowance|quota|credits?)",
        r"(?:daily|weekly|monthly|usage|spend\w*) (?:usage |token |request |spend\w* )?(?:limit|quota|cap)",
        r"account .{0,40}(?:not active|suspended|arrears|overdue|on hold|disabled)|余额|欠费|额度",
        (
            r"(?:credits?|balance|allowance|trial|subscription|token pack\w*)\b.{0,40}(?:expired|ended|depleted|spent"
            r"|consumed|used up|run out|finished)|used up (?:all|your)|run out of (?:credits?|tokens|quota|funds)"
        ),
        r"out of (?:\w+ )?(?:usage|credits?)|usage[_ ]limit|limit[_ ]reached .{0,40}(?:upgrade|plan|billing)",
        r"(?:not|n't) have (?:any |enough |sufficient )?(?:credits?|balance|funds)",
        r"credits? (?:are|is) (?:required|needed)",
    ),
    (
        C.REQUEST_TOO_LARGE,
        r"(?:payload|body|request|file) (?:size |entity |is )?.{0,30}too large|maxLength",
        r"length less than or equal|bytes? .{0,30}exceed|string_above_max_length",
        r"(?:string|content|text|value)\b[^\n]{0,40} too (?:long|large)[^\n]{0,40}maximum length",
    ),
    (
        C.OUTPUT_LIMIT,
        (
            rf"(?:generation|output|completion|response)s?(?: token)?s? (?:length|limit|size|count|budget)"
            rf"[^.\n]{{0,60}}(?:exceed|too (?:long|large)|at most|above|greater|larger)"
            rf"|^(?!.*(?:context|prompt|input|messages)).*{_MAX_TOKENS}.{{0,80}}(?:exceed|at most"
            rf"|too large|less than|lower|larger than|greater than|<=|maximum)"
        ),
    ),
    (
        C.CONTENT_FILTER,
        r"content[ _-]?(?:filter|policy|moderation)|moderation|safety (?:system|filter|policy|settings)",
        r"flagged|inappropriate|sensitive (?:content|words?|information)|data_?inspection|guardrail",
        r"prohibited|PROHIBITED_CONTENT|敏感|违规|不安全|审核",
        r"content .{0,20}risk|risk control|unsafe|violat\w* .{0,60}\bpolic|polic(?:y|ies) violation",
        r"against .{0,30}\bpolic|harmful|disallowed content|not comply with .{0,40}polic",
    ),
    (
        C.TOOL_PARSER_MISSING,
        r"tool[- _]call[- _]parser|enable[- _]auto[- _]tool|tool[- _]parser",
        r"auto(?:matic)?[- _]tool\b.{0,40}(?:\boff\b|disabled|not (?:enabled|configured|available))",
    ),
    (
        C.TOOLS_UNSUPPORTED,
        (
            rf"(?:\btools?\b|function[ _-]?call(?:ing|s)?|tool[_ ](?:choice|use"
            rf"|calling)).{{0,40}}{_NOT}(?:support|available|enabled|used)"
        ),
        rf"{_NOT}support.{{0,30}}(?:tools?\b|function[ _-]?call|tool[_ ](?:choice|use|calling))",
        r"\bmodel\b[^.\n]{0,60}(?:no|without|lacks?) (?:tool|function)[ _-]?call",
        r"only supports? (?:a )?single tool|(?:single|one) tool[- ]calls? at",
    ),
    (
        C.TOOL_SCHEMA,
        r"schema\b.{0,80}(?:invalid|not (?:valid|supported)|unsupported|fail|error)|grammar",
        r"(?:invalid|unsupported|malformed).{0,40}schema|tool names?|function names?",
        r"\btools?(?:\[|\.)\d+|\$ref|\$defs|additionalProperties|function(?:_| )declaration",
        r"\btools?\b\W[^.\n]{0,80}(?:too (?:long|many|large)|at most|maximum|exceed|limit|duplicate)|too many tools",
        r"\bregex\b|structured[ _]outputs?|schema .{0,40}(?:deep|large|complex|many)|guided",
    ),
    (
        C.IMAGE_UNSUPPORTED,
        rf"{_NOT}(?:support|accept|allow).{{0,40}}(?:image|vision|multimodal|video|audio)",
        (
            rf"(?:image|vision|multimodal|audio|video)\S*.{{0,40}}{_NOT}(?:support|allow|accept|available|enabled"
            rf"|understood)"
        ),
        r"(?:image|audio|video)s?\b.{0,40}(?:disabled|unsupported|too (?:large|many|small))|modalit(?:y|ies)",
        r"not a (?:multimodal|vision)|text[- ]only|image_url",
        r"(?:load|decode|fetch|process|download)\w* (?:the )?image|mmproj",
    ),
    (
        C.CONTEXT_OVERFLOW,
        rf"{_LENGTH}.{{0,80}}{_OVER}|{_OVER}.{{0,60}}{_LENGTH}",
        r"(?:prompt|input|messages?|conversation|request|text)s? (?:is|are|was|has) (?:become )?too (?:long|large|big)",
        r"too many (?:input |prompt )?tokens|maximum (?:context|sequence|prompt|input) length",
        r"max_(?:model|seq|input|context|position)\w*_?len|context[ _](?:window|length|size)|n_ctx",
        r"reduce the (?:length|number) of|上下文|超长|最大长度|长度超",
        r"prompt exceeds|exceeds the KV",
        r"range of input length|input length should",
    ),
    (
        C.HISTORY_REFUSED,
        r"\broles?\b.{0,60}\b(?:must|should|cannot|only|not|invalid|alternate|supported|expected|unknown|satisfied)\b",
        (
            r"(?:system|user|assistant|tool|developer|last|first) messages?\b.{0,60}(?:must|should"
            r"|cannot|not|only|required|missing|has no|have no|lacks?|without|expected|empty"
            r"|ends? with|starts? with)"
        ),
        (
            r"(?:reasoning|thinking)[ _](?:content|block|signature)s?\b.{0,60}(?:must|missing|required|expected"
            r"|invalid|not)"
        ),
        r"\bmessages?[.\[]\d+|expected (?:last |first |next )?role|message[_ ]order",
        r"role .{0,20}(?:after|before|followed)|consecutive|messages? .{0,60}\brole\b|No user query",
        r"tool[_ ]calls?\b.{0,60}(?:without|missing|respon|match|must)|tool[_ ](?:call|use)[_ ]ids?",
        r"prefill",
        r"FunctionToolCall|tool[ _]result|response with id|item .{0,60}not found",
        r"message content|empty (?:message|content)",
    ),
    (
        C.CHAT_TEMPLATE,
        r"chat[ _]?template|jinja|prompt template|raise_exception|\{%",
        r"template .{0,30}(?:error|fail|not)",
    ),
    (C.LORA, r"\blora\b|\badapters?\b"),
    (
        C.ENGINE_DIED,
        (
            r"(?:engine|worker|scheduler|runner|subprocess|detokenizer)\w* .{0,40}(?:died|dead|crash"
            r"|not running|terminated|exited|stopped)"
        ),
        r"background loop|illegal memory access|device-side assert|unspecified launch failure",
        r"(?:CUDA|HIP) (?:runtime |driver )?error(?::| in) (?!out of memory)\S|CUBLAS_STATUS_(?!ALLOC)|NCCL error",
    ),
    (
        C.OUT_OF_MEMORY,
        r"out of memory|OutOfMemory|\bOOM\b|cudaErrorMemoryAllocation|failed to allocate",
        r"insufficient memory|not enough (?:GPU )?memory",
        r"cannot be allocated|allocation failed",
    ),
    (
        C.LOADING,
        (
            r"(?:model|server|engine|instance|pod|deployment).{0,40}(?:loading|starting"
            r"|not (?:yet )?ready|warming|initiali[sz]ing|cold start|scaled to zero)"
        ),
        r"still loading|still being (?:loaded|fetched|downloaded|copied|compiled)",
        r"\b\d{1,2} ?% (?:done|loaded|complete)",
    ),
    (
        C.OVERLOADED,
        r"overload|at capacity|no capacity|over capacity|\bbusy\b|\bqueue\b",
        r"high (?:demand|load|traffic)|DEGRADED|temporarily unavailable|service unavailable",
    ),
    (
        C.GATEWAY_DOWN,
        r"connection (?:refused|reset|error)|connect(?:ion)? (?:call )?failed",
        r"no (?:endpoint|backend|worker|replica|instance|target|server)s? (?:(?:are|is) )?(?:available|ready)",
        r"no (?:available|healthy|live)\b|bad gateway|unreachable|upstream|ECONN|Failed to connect",
        r"tunnel|offline",
    ),
    (
        C.RATE_LIMIT,
        r"rate[ _-]?limit|too (?:many|frequent)|throttl|requests per (?:second|minute|hour)",
        r"tokens per (?:second|minute)|\b[TRQ]P[MS]\b|max request|concurren\w+ (?:limit|request)",
        r"quota exceeded|RESOURCE_EXHAUSTED|限流|频率|并发|速率",
    ),
    (C.TIMEOUT, r"timed? ?out|deadline exceeded|took too long"),
    (
        C.WRONG_DIALECT,
        r"'type': 'missing'|type: missing|Field required",
        r"missing (?:required )?(?:field|parameter|key|'?messages)",
        r"(?:messages|prompt|input)\W{0,3} (?:is|are) (?:a )?required",
        r"not (?:supported|available) (?:in|on|by|for|with|via) (?:the |this )?(?:v1/\S+|\S*api\b|\S*endpoint)",
        r"chat completions? .{0,30}not support|use the \S+ (?:api|endpoint)|not accessible via",
        r"parse .{0,30}(?:json|body)|(?:invalid|malformed|bad) .{0,20}(?:json|body|payload)|not valid json|json decode",
        r"media type|content[- ]type\b.{0,40}(?:must|not|unsupported|expected|invalid)|unknown content[- ]type",
        r"unsupported_api|(?:only|not) .{0,40}\bapi versions?\b",
        r"not a (?:chat|completion|text|generat\w+) model",
        r"does not support (?:chat|completions?|generat\w+)",
    ),
    (
        C.SERVER_ERROR,
        r"internal (?:server )?error|\bserver error\b|Traceback \(most recent|exception_type",
        r"segmentation fault|CUDA error|assert\w* failed",
    ),
    (
        C.MODEL_NAME,
        (
            r"(?:\bmodel(?!'s)\w*|deployment|checkpoint|engine id"
            r"|Function ')[^\n]{0,160}(?:not[ _](?:been )?(?:found|exist|available|loaded|supported"
            r"|deployed|recogni[sz]ed|served|valid)|does(?: not|n't) exist|unknown|invalid|unavailable|no longer"
            r"|deprecated|decommissioned|retired|have access)"
        ),
        r"(?:unknown|invalid|no such|unsupported|unrecogni[sz]ed|missing|wrong|no) (?:model|deployment)",
        r"model[ _](?:id|name)|model[ _-]not[ _-]\w+",
        r"(?:could not|cannot|can't|unable to) (?:find|load|resolve|access) .{0,20}model|your model",
        r"模型.{0,10}(?:不存在|不支持|未|没有)",
        r"provider for model",
        r"model has no|no .{0,30}for (?:this |the )?model",
        (
            r"(?:\bmodel|deployment|project|engine|endpoint|snapshot)\b[^\n]{0,80}(?:archived|end[ -]of[ -]life|sunset"
            r"|removed|disabled|deleted|discontinued|paused|unpublished|stopped|shut ?down|expired|not registered)"
        ),
    ),
    (
        C.PARAMETER_REFUSED,
        (
            r"(?:unsupported|unrecogni[sz]ed|unexpected|unknown|invalid|extra|illegal|bad"
            r"|conflicting)[ _].{0,30}(?:param|argument|field|value|key|option|propert|propert|type"
            r"|inputs?)"
        ),
        (
            rf"(?:param\w*|argument|field|inputs?|value|option"
            rf"|propert\w+)s?\b.{{0,80}}(?:{_NOT}(?:support|allow|permit|valid|recogni)|invalid"
            rf"|out of range)"
        ),
        r"extra_forbidden|'loc': \('body'|loc: body|less than the minimum|greater than the maximum",
        r"must be (?:a |an |one of|between|less|greater|>|<|>=|<=|positive|set|true|false|at)",
        r"cannot be used with|response_format",
        (
            r"\b(?:temperature|top_p|top_k|min_p|stop|seed|(?:top_)?logprobs|max_(?:completion_)?tokens"
            r"|stream(?:_options)?|reasoning_effort|reasoning|thinking|tool_choice|parallel_tool_calls"
            r"|n|frequency_penalty|presence_penalty)\b\W.{0,80}(?:must|should|not|unsupported|cannot"
            r"|invalid|only|required)"
        ),
        (
            r"\b(?:temperature|top_p|top_k|min_p|seed|(?:top_)?logprobs|reasoning_effort|tool_choice"
            r"|parallel_tool_calls"
            r"|frequency_penalty|presence_penalty|stream_options|chat_template_kwargs|extra_body)\b"
        ),
        r"Cannot determine type|validation errors?|InvalidParameter|invalid_parameter|literal_error",
        r"enum|参数",
        r"type: BadRequestError|does not support reasoning|disabled by default|rejected by|out of range",
        r"fetch content from the provided URL|must be provided|is not supported by|(?:only|not) one (?:kind )?of",
    ),
    (
        C.KEY_REFUSED,
        (
            r"(?:api[ _-]?key|\b(?:[a-z]+_)?token\b(?! (?:limit|count|budget|ids?))|credential|authorization"
            r"|authentication|bearer|signature|jwt"
            r"|login)\w*\b.{0,60}(?:invalid|incorrect|missing|expired|fail|not|require|wrong|revoked"
            r"|denied|empty)"
        ),
        (
            r"(?:invalid|incorrect|missing|expired|wrong|no|bad|provide|set"
            r"|malformed) .{0,30}(?:api[ _-]?key|auth token|access token|credential|authorization"
            r"|authentication|bearer)"
        ),
        r"unauthori[sz]ed|unauthenticated|sign in|log in|(?:密钥|令牌|鉴权|认证|身份验证)",
    ),
    (
        C.ACCESS_DENIED,
        r"forbidden|access denied|permission|not authori[sz]ed|not allowed (?:to|from|for)|blocked",
        r"(?:organi[sz]ation|account|team|user|workspace)\b.{0,40}(?:disabled|deactivated|suspended|banned|blocked)",
        r"not enabled for|agree to|terms of|gated|region|country|whitelist|allowlist",
    ),
    (
        C.NO_SUCH_PATH,
        r"(?:page|url|path|route|resource|endpoint)\b.{0,60}not (?:be )?found|no (?:such )?route",
        r"no static resource|cannot (?:post|get) |Not Found$",
    ),
    (C.BAD_TOOL_CALL, r"parse .{0,20}(?:tool|function)[ _]?calls?|(?:tool|function)[ _]call arguments"),
    flags="im",
)
NOUNS: Final = make_table(
    "words",
    "things that a refusal names",
    (C.CONTEXT_OVERFLOW, r"\btokens?\b[^\n]{0,80}\d{3,}|\d{3,}[^\n]{0,20} tokens\b|\bkv[ -]?cache|\bcontext\b"),
    (C.IMAGE_UNSUPPORTED, r"\b(?:image|picture|vision|audio|video|multimodal|pixel)"),
    (
        C.HISTORY_REFUSED,
        r"(?:tool|function)[ _]call[ _](?:output|result|id)|matching (?:tool|function)|\broles?\b|\bturns?\b",
    ),
    (C.TOOLS_UNSUPPORTED, r"(?:tool|function)[ _-]?(?:calling|choice|use)|\btools\b"),
    (C.TOOL_SCHEMA, r"\bschema|\bproperties\b|\bparameters\.|of type (?:string|object|array|number|integer|boolean)"),
    (C.CHAT_TEMPLATE, r"template|conversation format|chat format|prompt format"),
    (C.CONTENT_FILTER, r"acceptable use|\bpolic(?:y|ies)\b|guidelines|terms of (?:use|service)|safety"),
    (C.MODEL_NAME, r"\bweights\b|\bcheckpoint\b|model '|model `|model \""),
    (
        C.PARAMETER_REFUSED,
        r"\bparameters?\b|\bsampling|\bpenalty|best_of|\bn ?>|\w+ mode\b|\bsetting|\boption|\bargument|\bfield",
        r"\bproperty|\bmust\b|\bneeds?\b|\brequires?\b",
    ),
    flags="im",
)
"""The last resort for a refused request: which part of it the message names."""
