"""From an endpoint's reply, or the lack of one, to the cause. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from html import unescape
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.wire.classify import kind_of_reply
from gymnast.wire.endpoint_errors.causes import MEANINGS, Cause
from gymnast.wire.endpoint_errors.quoting import is_echo, mask_quoted
from gymnast.wire.endpoint_errors.signature import PRECEDENCE
from gymnast.wire.endpoint_errors.signatures import SIGNATURES
from gymnast.wire.endpoint_errors.words import NOUNS, WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.wire.endpoint_errors.signature import Signature

_MAX_BODY: Final = 16_384
_MAX_DEPTH: Final = 6
_RANK: Final = {cause: rank for rank, cause in enumerate(PRECEDENCE)}


class Certainty(StrEnum):
    """How much a diagnosis rests on."""

    KNOWN = "known"
    """The words of a known server."""
    WORDS = "words"
    """Words that many servers share."""
    STATUS = "status"
    """Nothing but the status."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why an endpoint did not answer."""

    cause: Cause
    kind: FailureKind
    certainty: Certainty
    stack: str = ""
    max_tokens: int | None = None
    """The size of the context in tokens, if the message says so."""
    requested_tokens: int | None = None
    """What was asked for, if the message says so."""


def diagnose(
    status: int,
    body: str,
    *,
    path: str = "",
    request: Any = None,
) -> Diagnosis:
    """The cause of an error reply. What it quotes of `request`, the decoded body that was sent, is ignored."""
    if 300 <= status < 400:
        return _diagnosis(Cause.REDIRECT, status, Certainty.KNOWN)
    text = read_error(body[:_MAX_BODY], request)
    match = _best(SIGNATURES, text, status)
    if match is not None and match.cause is Cause.CONTEXT_OVERFLOW and _wants_no_output(request):
        return _diagnosis(Cause.PARAMETER_REFUSED, status, Certainty.KNOWN, match.stack)
    if match is not None:
        return _with_numbers(match, text, status, path, Certainty.KNOWN)
    plain = _by_form(status, body, text, path)
    if plain is not None:
        return plain
    match = _best(WORDS, text, status)
    if match is not None:
        return _with_numbers(match, text, status, path, Certainty.WORDS)
    return _by_part(status, text) or _diagnosis(_by_status(status), status, Certainty.STATUS)


def _by_part(status: int, text: str) -> Diagnosis | None:
    """A refused request by the part of it that the message names: too little to decide what kind of failure it is."""
    match = _best(NOUNS, text, status) if status in _REFUSALS else None
    if match is None or (status == 404 and match.cause is not Cause.MODEL_NAME):
        return None
    return Diagnosis(match.cause, kind_of_reply(Stage.MODEL, status), Certainty.WORDS, match.stack)


_REFUSALS: Final = frozenset({400, 404, 422})
"""Statuses of requests that the endpoint does not accept as they are."""


def _wants_no_output(request: Any) -> bool:
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return isinstance(request, dict) and any(request.get(name) == 0 for name in names)


def read_error(body: str, request: Any = None) -> str:
    """The server's own words in an error body: one `key: value` a line, without markup and without quoted data."""
    try:
        parsed: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = _strip_markup(body) if body.lstrip().startswith("<") else body
    else:
        text = "\n".join(_lines("", parsed, 0))
    return mask_quoted(text, request)


def error_message(body: str) -> str:
    """The sentence in an error body that is meant for people, or an empty string."""
    lines = read_error(body[:_MAX_BODY]).splitlines()
    messages = [line.partition(": ")[2] for line in lines if line.startswith(_MESSAGE_KEYS)]
    if messages:
        return messages[0].strip()
    return lines[0].strip() if lines and not body.lstrip().startswith("{") else ""


_MESSAGE_KEYS: Final = ("message: ", "msg: ", "detail: ", "error: ", "error_description: ", "reason: ")


def with_cause(detail: FailureDetail, request: Any = None, *, path: str = "") -> FailureDetail:
    """A failure with the cause that its status and body mean."""
    diagnosis = diagnose(detail.status or 0, detail.body or "", path=path, request=request)
    return msgspec.structs.replace(
        detail, kind=diagnosis.kind, cause=diagnosis.cause.value, certainty=diagnosis.certainty.value
    )


def cause_of(detail: FailureDetail) -> Diagnosis:
    """The diagnosis of a recorded failure: the recorded cause, else what its body means."""
    diagnosis = diagnose(detail.status or 0, detail.body or detail.message)
    if detail.cause is None or detail.cause == diagnosis.cause or detail.cause not in _CAUSES:
        return diagnosis
    return Diagnosis(Cause(detail.cause), detail.kind, Certainty(detail.certainty or Certainty.STATUS))


def is_context_overflow(detail: FailureDetail) -> bool:
    """Whether an endpoint refused a request because it does not fit into the context.

    That is an outcome of the policy, not a failure, so words that many servers share are not enough.
    """
    if detail.status is None:
        return False
    diagnosis = cause_of(detail)
    return diagnosis.cause is Cause.CONTEXT_OVERFLOW and diagnosis.certainty is Certainty.KNOWN


_CAUSES: Final = frozenset(Cause)


def find_error(reply: Any) -> tuple[int | None, bool]:
    """Whether a reply with a good status is an error: the status that it names, and True if it is one."""
    if not isinstance(reply, dict):
        return None, False
    error = reply.get("error")
    if not error:
        choice = next(iter(reply.get("choices") or ()), None)
        error = choice.get("error") if isinstance(choice, dict) else None
        if not error:
            return None, False
    elif reply.get("choices") or (reply.get("output") and reply.get("status") != "failed"):
        return None, False
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and code.isdecimal():
        code = int(code)
    return (code if isinstance(code, int) and 400 <= code < 600 else None), True


def diagnose_transport(text: str) -> Diagnosis:
    """The cause of a call that got no reply, from the message of our HTTP client."""
    cause = next((cause for pattern, cause in _TRANSPORT if pattern.search(text)), Cause.CONNECTION_REFUSED)
    kind = MEANINGS[cause].kind
    assert kind is not None
    return Diagnosis(cause, kind, Certainty.KNOWN)


_TRANSPORT: Final = (
    (re.compile(r"certificate verify failed|CERTIFICATE_VERIFY_FAILED"), Cause.TLS_UNTRUSTED),
    (re.compile(r"(?i)wrong[ _]version[ _]number|record layer failure|unknown protocol"), Cause.TLS_ON_PLAIN),
    (re.compile(r"expects TLS"), Cause.PLAIN_ON_TLS),
    (
        re.compile(r"the proxy .* answered|PROXY cannot be used|is not an address of a proxy|proxy .* closed"),
        Cause.PROXY_REFUSED,
    ),
    (
        re.compile(r"(?i)name or service not known|name resolution|nodename nor servname|no address"),
        Cause.NAME_UNRESOLVED,
    ),
    (
        re.compile(r"closed the connection|connection broke|reset by peer|decompressed|is not HTTP"),
        Cause.CONNECTION_LOST,
    ),
)


def _lines(key: str, value: Any, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name, entry in value.items():
            if not is_echo(name, entry):
                yield from _lines(name, entry, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            yield from _lines(key, entry, depth + 1)
    elif isinstance(value, str):
        nested = _parse_nested(value)
        if nested is None:
            yield f"{key}: {value}" if key else value
        else:
            yield from _lines(key, nested, depth + 1)
    elif value is not None:
        yield f"{key}: {value}"


def _parse_nested(text: str) -> Any:
    """The JSON object in a string, as gateways put the error of another server into their own."""
    start = text.find("{")
    if start < 0 or not text.rstrip().endswith(("}", "]")):
        return None
    try:
        value: Any = orjson.loads(text[start:])
    except orjson.JSONDecodeError:
        return None
    return [text[:start], value] if text[:start].strip() else value


def _strip_markup(body: str) -> str:
    text = re.sub(r"(?is)<(script|style)\b.*?</\1>", " ", body)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


def _best(signatures: Sequence[Signature], text: str, status: int) -> Signature | None:
    matches = [signature for signature in signatures if signature.pattern.search(text)]
    matches = [match for match in matches if _fits(match, text, status)]
    return min(matches, key=lambda match: _RANK[match.cause], default=None)


def _fits(match: Signature, text: str, status: int) -> bool:
    """Whether a cause can have the status. Words that many servers share need a status that agrees with them."""
    cause = match.cause
    if status in _OF_STATUS:
        allowed = _OF_STATUS[status]
    elif match.stack == WORDS[0].stack:
        allowed = _BY_WORDS.get(status, _ANY - _NEVER_500 if status >= 500 else _ANY)
        if cause is Cause.ACCESS_DENIED and status == 400:
            return "not allowed" in text
    else:
        return True
    is_temporary = status == 429 and match.stack == WORDS[0].stack and _SOON.search(text) is not None
    return cause in allowed and not (cause is Cause.QUOTA and is_temporary)


_SOON: Final = re.compile(r"(?i)(?:again|retry|reset\w*|wait)(?: in| after| for)? [\d.]+ ?(?:ms|s|m)")
_ANY: Final = frozenset(PRECEDENCE)
_NEVER_500: Final = frozenset({Cause.QUOTA, Cause.ACCESS_DENIED})
_OF_STATUS: Final = {
    401: frozenset({Cause.KEY_REFUSED, Cause.ACCESS_DENIED, Cause.MODEL_NAME}),
    402: frozenset({Cause.QUOTA}),
    429: frozenset({Cause.QUOTA, Cause.RATE_LIMIT, Cause.OVERLOADED, Cause.LOADING, Cause.REQUEST_TOO_LARGE}),
}
"""What a client got wrong is never a 401, 402 or 429, whatever the words are."""
_BY_WORDS: Final = {
    403: frozenset({Cause.KEY_REFUSED, Cause.ACCESS_DENIED, Cause.QUOTA, Cause.CONTENT_FILTER, Cause.MODEL_NAME}),
    404: frozenset(
        {
            *(
                Cause.MODEL_NAME,
                Cause.NO_SUCH_PATH,
                Cause.WRONG_DIALECT,
                Cause.TOOLS_UNSUPPORTED,
                Cause.IMAGE_UNSUPPORTED,
            ),
            *(Cause.LORA, Cause.GATEWAY_DOWN, Cause.HISTORY_REFUSED),
        }
    ),
}


_FIELD_NAMES: Final = re.compile(
    r"(?i)[\W_]+|\b(?:detail|error|message|type|code|object|status|notfounderror|none|null|\d+)\b"
)


def _by_form(status: int, body: str, text: str, path: str) -> Diagnosis | None:
    """Replies that say nothing but their form does: an empty body, a bare Not Found, a page."""
    bare = _FIELD_NAMES.sub("", text).lower()
    if status in {404, 405} and bare in {"", "notfound", "methodnotallowed", "pagenotfound"}:
        return _path_diagnosis(status, path)
    if status >= 500 and bare in {"", "internalservererror", "serviceunavailable", "servererror"}:
        return _diagnosis(_by_status(status), status, Certainty.STATUS)
    if 200 <= status < 300 and not body.strip():
        return _diagnosis(Cause.EMPTY_BODY, status, Certainty.KNOWN)
    if 200 <= status < 300 and body.lstrip().startswith("<"):
        return _diagnosis(Cause.HTML_BODY, status, Certainty.KNOWN)
    cause = {401: Cause.KEY_REFUSED, 402: Cause.QUOTA}.get(status)
    return None if cause is None else _diagnosis(cause, status, Certainty.KNOWN)


def _path_diagnosis(status: int, path: str) -> Diagnosis:
    cause = Cause.NO_RESPONSES_API if path.endswith("/responses") else Cause.NO_SUCH_PATH
    return _diagnosis(cause, status, Certainty.KNOWN)


def _by_status(status: int) -> Cause:
    if status in _STATUS_CAUSES:
        return _STATUS_CAUSES[status]
    if status >= 500:
        return Cause.SERVER_ERROR
    return Cause.NOT_AN_ANSWER if status < 300 else Cause.UNRECOGNISED


_STATUS_CAUSES: Final = {
    401: Cause.KEY_REFUSED,
    402: Cause.QUOTA,
    403: Cause.ACCESS_DENIED,
    404: Cause.NO_SUCH_PATH,
    405: Cause.NO_SUCH_PATH,
    408: Cause.TIMEOUT,
    413: Cause.REQUEST_TOO_LARGE,
    429: Cause.RATE_LIMIT,
    502: Cause.GATEWAY_DOWN,
    503: Cause.OVERLOADED,
    504: Cause.TIMEOUT,
    520: Cause.GATEWAY_DOWN,
    521: Cause.GATEWAY_DOWN,
    522: Cause.GATEWAY_DOWN,
    523: Cause.GATEWAY_DOWN,
    524: Cause.TIMEOUT,
    525: Cause.GATEWAY_DOWN,
    526: Cause.GATEWAY_DOWN,
    529: Cause.OVERLOADED,
    530: Cause.GATEWAY_DOWN,
}


def _diagnosis(cause: Cause, status: int, certainty: Certainty, stack: str = "") -> Diagnosis:
    kind = MEANINGS[cause].kind or kind_of_reply(Stage.MODEL, status)
    return Diagnosis(cause, kind, certainty, stack)


_WINDOW: Final = re.compile(
    r"(?is)(?:context (?:length|size|window)(?: of| is)?|max_(?:model_len|seq_len|num_tokens|total_tokens)[ =]*|n_ctx:"
    r"|maximum model length of|maximum (?:prompt|input|sequence) length(?: is)?|tokens allowed|must be <=|less than"
    r"|configured limit of|limit is|token limit:)[ (:]*(\d{2,})|> (\d{3,})(?: maximum|,)|with (\d+) maximum context"
)
_REQUESTED: Final = re.compile(
    r"(?is)(?:requested(?: a total of| about)?|resulted in|contains(?: at least)?|prompt \(length|prompt length"
    r"|The input \(|Input length|token count|n_prompt_tokens:|request \(|Given:|\bhas|too long:|requested:"
    r"|Requested tokens|n_keep)[ (]*(\d+)"
)
_OUTPUT: Final = re.compile(
    r"(?i)is too large: (\d+)|max_tokens \((\d+)\)|max_tokens=(\d+)|and (\d+) tokens for the completion"
    r"|, (\d+) in the completion"
)


def _first_number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return None if match is None else int(next(group for group in match.groups() if group is not None))


def _with_numbers(match: Signature, text: str, status: int, path: str, certainty: Certainty) -> Diagnosis:
    if match.cause is Cause.NO_SUCH_PATH and path.endswith("/responses"):
        return _diagnosis(Cause.NO_RESPONSES_API, status, certainty, match.stack)
    if match.cause not in {Cause.CONTEXT_OVERFLOW, Cause.OUTPUT_LIMIT}:
        return _diagnosis(match.cause, status, certainty, match.stack)
    window, output = _first_number(_WINDOW, text), _first_number(_OUTPUT, text)
    cause = Cause.OUTPUT_LIMIT if window is not None and output is not None and output >= window else match.cause
    requested = _first_number(_REQUESTED, text)
    if window is not None and requested is not None and requested >= window:
        certainty = Certainty.KNOWN  # the numbers agree with the words
    kind = MEANINGS[cause].kind
    assert kind is not None
    return Diagnosis(cause, kind, certainty, match.stack, window, requested)
