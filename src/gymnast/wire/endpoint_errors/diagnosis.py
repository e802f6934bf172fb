"""From an endpoint's reply, or the lack of one, to the cause. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from html import unescape
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.types.failure import FailureKind, Stage
from gymnast.wire.classify import kind_of_reply
from gymnast.wire.endpoint_errors.causes import MEANINGS, Cause
from gymnast.wire.endpoint_errors.quoting import is_echo, mask_quoted
from gymnast.wire.endpoint_errors.signatures import GENERIC, PRECEDENCE, SIGNATURES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.wire.endpoint_errors.signatures import Signature

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
    """For a context overflow: the size of the context, if the message says so."""
    requested_tokens: int | None = None


def diagnose(
    status: int,
    body: str,
    *,
    path: str = "",
    location: str | None = None,
    request: Any = None,
) -> Diagnosis:
    """The cause of an error reply. `request` is the decoded body that was sent: what the reply quotes of it is ignored."""
    if 300 <= status < 400:
        return _diagnosis(Cause.REDIRECT, status, Certainty.KNOWN)
    text = read_error(body[:_MAX_BODY], request)
    match = _best(SIGNATURES, text, status)
    if match is not None:
        return _with_numbers(match, text, status, path, Certainty.KNOWN)
    plain = _by_form(status, body, text, path)
    if plain is not None:
        return plain
    match = _best(GENERIC, text, status)
    if match is not None:
        return _with_numbers(match, text, status, path, Certainty.WORDS)
    return _diagnosis(_by_status(status), status, Certainty.STATUS)


def read_error(body: str, request: Any = None) -> str:
    """The server's own words in an error body: one `key: value` a line, without markup and without quoted data."""
    try:
        parsed: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = _strip_markup(body) if body.lstrip().startswith("<") else body
    else:
        text = "\n".join(_lines("", parsed, 0))
    return mask_quoted(text, request)


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
    (re.compile(r"expects TLS|the reply is not HTTP"), Cause.PLAIN_ON_TLS),
    (re.compile(r"the proxy .* answered|PROXY cannot be used|is not an address of a proxy|proxy .* closed"), Cause.PROXY_REFUSED),
    (
        re.compile(r"(?i)name or service not known|name resolution|nodename nor servname|no address"),
        Cause.NAME_UNRESOLVED,
    ),
    (re.compile(r"closed the connection|connection broke|reset by peer|decompressed"), Cause.CONNECTION_LOST),
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
        nested = _nested(value)
        if nested is None:
            yield f"{key}: {value}" if key else value
        else:
            yield from _lines(key, nested, depth + 1)
    elif value is not None:
        yield f"{key}: {value}"


def _nested(text: str) -> Any:
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
    elif match.stack == GENERIC[0].stack:
        allowed = _BY_WORDS.get(status, _ANY - _NEVER_500 if status >= 500 else _ANY)
        if cause is Cause.ACCESS_DENIED and status == 400:
            return "not allowed" in text
    else:
        return True
    is_temporary = status == 429 and match.stack == GENERIC[0].stack and _SOON.search(text) is not None
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
    404: frozenset({
        *(Cause.MODEL_NAME, Cause.NO_SUCH_PATH, Cause.WRONG_DIALECT, Cause.TOOLS_UNSUPPORTED, Cause.IMAGE_UNSUPPORTED),
        *(Cause.LORA, Cause.GATEWAY_DOWN),
    }),
}


def _by_form(status: int, body: str, text: str, path: str) -> Diagnosis | None:
    """Replies that say nothing but their form does: an empty body, a bare Not Found, a page."""
    bare = re.sub(r"[\W_]+|\b(?:detail|error|message|type|code|object|status|notfounderror|none|null|\d+)\b", "", text, flags=re.I)
    if status in {404, 405} and bare.lower() in {"", "notfound", "methodnotallowed", "pagenotfound"}:
        return _path_diagnosis(status, path)
    if status == 401:
        return _diagnosis(Cause.KEY_REFUSED, status, Certainty.KNOWN)
    if status == 402:
        return _diagnosis(Cause.QUOTA, status, Certainty.KNOWN)
    if 200 <= status < 300:
        if not body.strip():
            return _diagnosis(Cause.EMPTY_BODY, status, Certainty.KNOWN)
        if body.lstrip().startswith("<"):
            return _diagnosis(Cause.HTML_BODY, status, Certainty.KNOWN)
    if status >= 500 and bare.lower() in {"", "internalservererror", "serviceunavailable", "servererror"}:
        return _diagnosis(_by_status(status), status, Certainty.STATUS)
    return None


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
    r"(?is)(?:context (?:length|size|window)(?: of| is)?|max_(?:model_len|seq_len|num_tokens)=?|n_ctx:|maximum model length of"
    r"|maximum (?:prompt|input|sequence) length(?: is)?|tokens allowed|must be <=|less than|configured limit of"
    r"|limit is)[ (:]*(\d{2,})|> (\d{3,})(?: maximum|,)|with (\d+) maximum context"
)
_REQUESTED: Final = re.compile(
    r"(?is)(?:requested(?: a total of| about)?|resulted in|contains(?: at least)?|prompt \(length|prompt length|The input \("
    r"|Input length|token count|n_prompt_tokens:|request \(|Given:|has|too long:|Requested tokens)[ (]*(\d+)"
)
_OUTPUT: Final = re.compile(r"(?i)is too large: (\d+)|max_tokens \((\d+)\)|and (\d+) tokens for the completion|, (\d+) in the completion")


def _first_number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return None if match is None else int(next(group for group in match.groups() if group is not None))


def _with_numbers(match: Signature, text: str, status: int, path: str, certainty: Certainty) -> Diagnosis:
    if match.cause is Cause.NO_SUCH_PATH and path.endswith("/responses"):
        return _diagnosis(Cause.NO_RESPONSES_API, status, certainty, match.stack)
    if match.cause is not Cause.CONTEXT_OVERFLOW:
        return _diagnosis(match.cause, status, certainty, match.stack)
    window, output = _first_number(_WINDOW, text), _first_number(_OUTPUT, text)
    cause = Cause.OUTPUT_LIMIT if window is not None and output is not None and output >= window else match.cause
    kind = MEANINGS[cause].kind
    assert kind is not None
    return Diagnosis(cause, kind, certainty, match.stack, window, _first_number(_REQUESTED, text))
