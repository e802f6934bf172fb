"""Cookies, failure headers, classification, request-boundary lines, validation: the small parts of the wire."""

from __future__ import annotations

import pickle
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.config.secrets import Scrubber
from gymnast.errors import CallError
from gymnast.types.failure import KINDS, FailureDetail, FailureKind, Stage, bounded, kind_named
from gymnast.types.task import correlation_id, key_of
from gymnast.wire.boundary import MARKER, BoundaryLog
from gymnast.wire.classify import innermost_body, kind_of_exception, kind_of_reply, reply_failure, retry_after_s
from gymnast.wire.cookies import cookie_header, parse_cookie_header, parse_set_cookies, set_cookie_header
from gymnast.wire.failure_header import FAILURE_HEADER, decode_failure, encode_failure
from gymnast.wire.message import PlainText, Reply, Request
from gymnast.wire.validate import InvalidBody, validate_params, validate_response

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,20}", fullmatch=True)
values = st.from_regex(r"[A-Za-z0-9_.=+/-]{1,40}", fullmatch=True)


@given(st.dictionaries(names, values, max_size=4))
def test_cookies_survive_the_round_trip(cookies: dict[str, str]) -> None:
    assert parse_cookie_header(cookie_header(cookies)) == cookies
    assert parse_set_cookies(set_cookie_header(name, value) for name, value in cookies.items()) == cookies


def test_foreign_cookie_values_are_echoed_as_they_are() -> None:
    header = 'session="quoted value"; Path=/; HttpOnly'
    assert cookie_header(parse_set_cookies([header])) == 'session="quoted value"'


@given(st.text(max_size=9000), st.text(max_size=9000), st.lists(st.text(max_size=300), max_size=30))
def test_failure_headers_fit_any_client_and_keep_what_matters(message: str, body: str, chain: list[str]) -> None:
    detail = FailureDetail(
        FailureKind.VERIFIER_ERROR, Stage.VERIFY, message, "mcqa", "http://h", 500, body, 1.5, tuple(chain)
    )
    encoded = encode_failure(detail)
    assert len(encoded) < 8000
    assert encoded.isascii()
    back = decode_failure({FAILURE_HEADER: encoded})
    assert back is not None
    assert (back.kind, back.stage, back.status, back.instance, back.retry_after_s) == (
        *("verifier_error", "verify", 500, "mcqa", 1.5),
    )
    if len(message) < 500 and len(body) < 500 and not chain:
        assert back == detail


@pytest.mark.parametrize("value", ["", "not base64!", "aGVsbG8=", "e30="])
def test_a_failure_header_that_is_none_is_ignored(value: str) -> None:
    assert decode_failure({FAILURE_HEADER: value}) is None


def test_call_errors_cross_process_borders() -> None:
    error = CallError(FailureDetail(FailureKind.MODEL_TIMEOUT, Stage.MODEL, "late", chain=("a", "b")))
    assert pickle.loads(pickle.dumps(error)).detail == error.detail


def test_the_innermost_body_of_nested_errors_is_found() -> None:
    inner = '{"detail":"the judge\'s model is gone"}'
    middle = f"Hit an exception in Env___mcqa calling an inner server: {inner.encode()!r}"
    outer = f"Hit an exception in Agent___a calling an inner server: {middle.encode()!r}"
    assert innermost_body(outer) == inner
    assert innermost_body(f'"{outer}"') == inner
    assert innermost_body("plain") == "plain"
    assert innermost_body("Hit an exception in X calling an inner server: b'unfinished").startswith("Hit an")


@pytest.mark.parametrize(
    ("stage", "status", "kind"),
    [
        (Stage.MODEL, 429, "model_rate_limited"),
        (Stage.MODEL, 401, "model_auth"),
        (Stage.MODEL, 404, "model_not_found"),
        (Stage.MODEL, 400, "model_rejected"),
        (Stage.MODEL, 500, "model_error"),
        (Stage.MODEL, 503, "model_overloaded"),
        (Stage.SEED, 422, "seed_rejected"),
        (Stage.SEED, 500, "seed_error"),
        (Stage.VERIFY, 422, "verify_rejected"),
        (Stage.VERIFY, 500, "verifier_error"),
        (Stage.TOOL, 500, "tool_error"),
        (Stage.AGENT, 422, "agent_rejected"),
        (Stage.AGENT, 500, "agent_error"),
    ],
)
def test_every_bad_status_has_a_kind(stage: Stage, status: int, kind: str) -> None:
    assert kind_of_reply(stage, status) == kind
    assert kind in KINDS


@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize("timed_out", [True, False])
def test_no_answer_always_has_a_kind(stage: Stage, *, timed_out: bool) -> None:
    assert kind_of_exception(stage, timed_out=timed_out) in KINDS


def test_a_structured_failure_beats_the_body_and_gains_a_hop() -> None:
    inner = FailureDetail(FailureKind.JUDGE_FAILED, Stage.VERIFY, "judge", chain=("judge/v1 500",))
    found = reply_failure(
        Reply(500, "text", failure=inner), FailureKind.VERIFIER_ERROR, Stage.VERIFY, "env", "/verify", "http://e"
    )
    assert found.kind == "judge_failed"
    assert found.chain == ("judge/v1 500", "env/verify 500")


def test_retry_after_and_bounds() -> None:
    assert retry_after_s("1.5") == 1.5
    assert retry_after_s("Wed, 21 Oct 2026 07:28:00 GMT") is None
    assert retry_after_s(None) is None
    assert bounded("x" * 5000).endswith("(904 more characters)")
    assert kind_named("never heard of").name == "unknown"


def test_every_kind_has_a_hint_and_a_page() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
    for kind in KINDS.values():
        assert kind.hint
        assert f"### {kind.name}" in page, f"docs/failures.md lacks {kind.name}: run `make docs`"


def test_boundary_lines_are_marked_bounded_and_scrubbed() -> None:
    lines: list[str] = []
    log = BoundaryLog(lines.append, Scrubber({"api_key": "sk-secret"}))
    request = Request("POST", "/verify", {"a": 1}, rollout_id="3-1")
    log.log_reply("mcqa", "http://h", request, Reply(200, {}), 0.0123)
    log.log_reply("mcqa", "http://h", request, Reply(500, "uses sk-secret " + "x" * 9000), 0.5)
    log.log_failure(
        "mcqa", "http://h", request, FailureDetail(FailureKind.ENVIRONMENT_UNREACHABLE, Stage.VERIFY, "refused"), 0.1
    )
    assert all(line.startswith(f"{MARKER} rollout=3-1 to=mcqa POST /verify at=http://h") for line in lines)
    assert "status=200 ms=12.3 sent_bytes=7" in lines[0]
    assert "body=" not in lines[0]
    assert "sk-secret" not in lines[1]
    assert len(lines[1]) < 2500
    assert "failure=environment_unreachable" in lines[2]


def test_reply_text_is_what_goes_over_the_wire() -> None:
    assert Reply(200, {"a": [1, None]}).text() == '{"a":[1,null]}'
    assert Reply(200, PlainText('say "hi"')).text() == 'say "hi"'
    assert Reply(200, "a json string").text() == '"a json string"'


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"_ng_task_index": 3, "_ng_rollout_index": 1}, "3-1"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, "3-1-a2"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 0}, "3-1"),
        ({"_ng_rollout_id": "my.id-7", "_ng_attempt_index": 1}, "my.id-7-a1"),
        ({"_ng_rollout_id": "../evil"}, None),
        ({}, None),
    ],
)
def test_correlation_ids(row: dict[str, object], expected: str | None) -> None:
    assert correlation_id(row) == expected


def test_rows_without_indexes_have_no_key() -> None:
    assert key_of({"_ng_task_index": 1}) is None
    assert str(key_of({"_ng_task_index": 1, "_ng_rollout_index": 2})) == "1:2"


# --- validation ------------------------------------------------------------------------------------------------------

MESSAGE = {"role": "user", "content": "hi"}
ASSISTANT = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "a", "annotations": []}],
}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
BUNDLE = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}


@pytest.mark.parametrize(
    "item",
    [
        MESSAGE,
        {**MESSAGE, "type": "message"},
        {"role": "assistant", "content": "plain text"},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "data:"}],
        },
        {"role": "user", "content": [{"type": "input_video", "video_url": "http://v"}]},
        ASSISTANT,
        {**ASSISTANT, **BUNDLE, "routed_experts": "abc"},
        CALL,
        {**CALL, "id": None, "status": "completed", **BUNDLE},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]},
        {"type": "web_search_call", "id": "w", "anything": {"goes": 1}},
    ],
)
def test_items_that_are_fine(item: dict[str, object]) -> None:
    assert validate_params({"input": [item]})["input"] == [item]


@pytest.mark.parametrize(
    ("item", "loc"),
    [
        ({"role": "bob", "content": "x"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "content"),
        ({**ASSISTANT, "content": [{"type": "output_text", "text": "a"}]}, "annotations"),
        ({key: value for key, value in ASSISTANT.items() if key != "id"}, "id"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "call_id"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, "arguments"),
        ({"type": "telepathy"}, "0"),
        ("text", "0"),
        ({**CALL, "prompt_token_ids": [1]}, "function_call"),
        ({"role": "user", "content": [{"type": "input_video", "video_url": "a", "video": "b"}]}, "input_video"),
    ],
)
def test_items_that_are_not(item: object, loc: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        validate_params({"input": [item]})
    assert loc in [str(step) for step in caught.value.detail[0]["loc"]]


@pytest.mark.parametrize("status", ["failed", None, 3])
@pytest.mark.parametrize("message", [MESSAGE, {"role": "assistant", "content": "x"}, {**ASSISTANT, "content": []}])
def test_an_unknown_status_of_a_message_without_output_is_ignored(message: dict[str, object], status: object) -> None:
    (item,) = cast("list[Any]", validate_params({"input": [{**message, "status": status}]})["input"])
    assert "status" not in item
    assert item["content"] == message["content"]


def test_unknown_keys_of_items_are_dropped_and_of_params_refused() -> None:
    assert validate_params({"input": [{**MESSAGE, "extra": 1}]})["input"] == [MESSAGE]
    with pytest.raises(InvalidBody, match="Extra inputs"):
        validate_params({"input": "x", "top_k": 1})


@pytest.mark.parametrize(
    "params",
    [
        {"input": "x", "tools": None},
        {"input": "x", "stream": True},
        {"input": "x", "metadata": {"a": {"b": 1}}},
        {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {}}]},
        {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": True, "x": 1}]},
        {"input": "x", "tool_choice": "sometimes"},
        {"input": "x", "service_tier": "gold"},
        {},
        {"input": None},
        None,
    ],
)
def test_params_that_are_refused(params: object) -> None:
    with pytest.raises(InvalidBody):
        validate_params(params)


def test_response_extras_are_kept() -> None:
    response = {
        "id": "r",
        "created_at": 1,
        "model": "m",
        "object": "response",
        "output": [ASSISTANT],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "custom": {"kept": True},
    }
    assert validate_response(response)["custom"] == {"kept": True}  # type: ignore[typeddict-item]
    with pytest.raises(InvalidBody, match="output"):
        validate_response({**response, "output": "text"})
