"""The table of endpoint errors: messages from elsewhere, numbers in messages, quoted rows, hidden errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.types.failure import KINDS, FailureDetail, FailureKind, Recovery, Stage
from gymnast.wire.endpoint_errors import (
    MEANINGS,
    Cause,
    Certainty,
    cause_of,
    diagnose,
    diagnose_transport,
    find_error,
    is_context_overflow,
    mask_quoted,
    with_cause,
)
from gymnast.wire.endpoint_errors.signature import PRECEDENCE
from gymnast.wire.endpoint_errors.signatures import SIGNATURES
from gymnast.wire.endpoint_errors.words import WORDS
from tests.helpers.endpoint_messages import MESSAGES
from tests.helpers.endpoint_messages_later import read_later_messages


def test_messages_that_were_collected_later_are_understood() -> None:
    messages = read_later_messages()
    wrong = [
        (message.source, message.body[:120], diagnosis.cause, diagnosis.certainty)
        for message in messages
        if (diagnosis := diagnose(message.status, message.body)).cause not in message.causes
    ]
    assert len(wrong) <= 0.03 * len(messages), wrong
    assert [entry for entry in wrong if entry[3] is Certainty.KNOWN] == []


def test_every_cause_has_a_meaning_and_what_is_never_healed_is_not_retried() -> None:
    assert set(MEANINGS) == set(Cause)
    for cause in (Cause.QUOTA, Cause.CONTENT_FILTER, Cause.TLS_UNTRUSTED, Cause.PARAMETER_REFUSED, Cause.REDIRECT):
        kind = MEANINGS[cause].kind
        assert kind is not None
        assert KINDS[kind].recovery is Recovery.FIX


def test_no_sentence_names_a_status() -> None:
    texts = [text for meaning in MEANINGS.values() for text in (meaning.symptom, meaning.reason, meaning.action)]
    assert [text for text in texts if any(str(status) in text for status in range(300, 531))] == []


def test_every_cause_of_a_signature_has_a_rank_and_every_signature_a_source() -> None:
    assert {signature.cause for signature in (*SIGNATURES, *WORDS)} <= set(PRECEDENCE)
    assert all(signature.source for signature in SIGNATURES)


@pytest.mark.parametrize(
    ("body", "maximum", "requested"),
    [
        ("This model's maximum context length is 4096 tokens. However, you requested 5120 tokens (…)", 4096, 5120),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200000, 210000),
        ('{"error":{"type":"exceed_context_size_error","n_prompt_tokens":4390,"n_ctx":4096}}', 4096, 4390),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1048576, 1200000),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 4096, 5000),
    ],
)
def test_numbers_are_read(body: str, maximum: int, requested: int) -> None:
    diagnosis = diagnose(400, body)
    assert diagnosis.cause is Cause.CONTEXT_OVERFLOW
    assert (diagnosis.max_tokens, diagnosis.requested_tokens) == (maximum, requested)


def test_zero_tokens_that_were_asked_for_are_not_an_overflow() -> None:
    message = "max_tokens must be at least 1, got 0."
    assert diagnose(400, message, request={"max_tokens": 0}).cause is Cause.PARAMETER_REFUSED
    assert diagnose(400, message, request={"max_tokens": None}).cause is Cause.CONTEXT_OVERFLOW


@pytest.mark.parametrize("status", [None, 400])
def test_only_what_a_server_is_known_for_counts_as_a_full_context(status: int | None) -> None:
    message = "your text is a bit too long for the context window of this thing"
    detail = FailureDetail(FailureKind.MODEL_REJECTED, Stage.MODEL, message, status=status, body=message)
    assert not is_context_overflow(detail)
    known = FailureDetail(
        FailureKind.MODEL_REJECTED, Stage.MODEL, "", status=400, body="maximum context length is 10 tokens"
    )
    assert is_context_overflow(known)
    assert cause_of(with_cause(known)).cause is Cause.CONTEXT_OVERFLOW


@given(st.text(min_size=30, max_size=200), st.sampled_from(MESSAGES))
def test_a_row_does_not_change_what_a_message_means(row: str, message: Any) -> None:
    """Whatever the row says, the server's own words decide."""
    request = {"messages": [{"role": "user", "content": row}]}
    if message.status == 200 or any(part in message.body for part in (row[:24], row[-24:])):
        return
    assert diagnose(message.status, message.body, path=message.path, request=request).cause is message.cause


@given(st.sampled_from(MESSAGES), st.sampled_from(["'", '"', "`", ""]))
def test_a_row_that_quotes_an_error_is_masked(message: Any, quote: str) -> None:
    request = {"input": [{"role": "user", "content": message.body}]}
    text = f"cannot read {quote}{message.body}{quote}"
    if len(message.body) >= 24:
        assert message.body not in mask_quoted(text, request)


def test_masking_a_text_that_repeats_itself_takes_linear_time() -> None:
    assert mask_quoted("a" * 16_000, {"messages": [{"content": "a" * 200_000}]}).count("a") < 16_000


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ({"error": {"message": "x", "code": 502}}, (502, True)),
        ({"error": {"message": "x", "code": "429"}}, (429, True)),
        ({"error": "x"}, (None, True)),
        ({"status": "failed", "error": {"code": "server_error", "message": "x"}, "output": []}, (None, True)),
        ({"choices": [{"error": {"code": 503, "message": "x"}, "finish_reason": "error"}]}, (503, True)),
        ({"choices": [{"message": {"content": "hi"}}], "error": None}, (None, False)),
        ({"output": [{"type": "message"}], "error": None, "status": "completed"}, (None, False)),
        ([], (None, False)),
    ],
)
def test_errors_in_good_replies_are_found(reply: Any, expected: tuple[int | None, bool]) -> None:
    assert find_error(reply) == expected


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("certificate verify failed for h:443: self-signed certificate; set SSL_CERT_FILE", Cause.TLS_UNTRUSTED),
        ("cannot connect to h:80: [SSL: WRONG_VERSION_NUMBER] wrong version number", Cause.TLS_ON_PLAIN),
        ("the proxy http://p:3128 answered 407 to a connection to h:443", Cause.PROXY_REFUSED),
        ("cannot connect to h:80: Name or service not known", Cause.NAME_UNRESOLVED),
        ("cannot connect to h:80: Connection refused", Cause.CONNECTION_REFUSED),
        ("the connection broke in the middle of the reply", Cause.CONNECTION_LOST),
    ],
)
def test_calls_without_a_reply(text: str, cause: Cause) -> None:
    assert diagnose_transport(text).cause is cause


def test_bodies_of_every_form_are_read() -> None:
    for body in (
        "",
        "null",
        "[]",
        "3",
        '"x"',
        "{",
        "<",
        "<p>",
        json.dumps({"a": [None, {"b": "{"}]}),
        "\0",
        "é" * 20_000,
    ):
        for status in (0, 100, 200, 302, 400, 401, 404, 429, 500, 599):
            assert diagnose(status, body).cause in Cause


@pytest.mark.parametrize("part", ["the context", "the tools", "a template", "the model 'x'", "a parameter"])
def test_a_refusal_that_only_names_a_part_of_the_request_is_a_plain_rejection(part: str) -> None:
    diagnosis = diagnose(400, f'{{"error": {{"message": "something about {part}"}}}}')
    assert diagnosis.kind is FailureKind.MODEL_REJECTED
    assert diagnosis.certainty is not Certainty.KNOWN
