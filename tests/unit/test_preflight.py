"""The preflight: which outcomes of first rollouts end a run, and which let all others start."""

from __future__ import annotations

from typing import Any

import pytest

from gymnast.rollouts.attempt import Failed, Outcome, Scored
from gymnast.rollouts.preflight import Preflight, Suspicion, shows_overflow, shows_refused_judge
from gymnast.rollouts.preflight_probes import check_disk, find_overflow
from gymnast.rollouts.prompt import count_chars, exceeds_context
from gymnast.rollouts.runner import WorkItem
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.types.task import RolloutKey
from gymnast.types.truncation import Truncation
from gymnast.types.usage import Tokens
from gymnast.wire.endpoint_errors import Cause, Certainty
from tests.helpers.jsonl import write_jsonl

SCORED = Scored(b"{}", 1.0, 0.1)


def refused(cause: Cause, kind: FailureKind, certainty: Certainty = Certainty.KNOWN) -> Failed:
    detail = FailureDetail(kind, Stage.MODEL, f"refused: {cause}", cause=cause.value, certainty=certainty.value)
    return Failed(detail, 0.1, 0.0)


NO_KEY = refused(Cause.KEY_REFUSED, FailureKind.MODEL_AUTH)
NO_TOOLS = refused(Cause.TOOLS_UNSUPPORTED, FailureKind.MODEL_MISCONFIGURED)
BUSY = refused(Cause.RATE_LIMIT, FailureKind.MODEL_RATE_LIMITED)
JUDGE_FAILED = Failed(FailureDetail(FailureKind.JUDGE_FAILED, Stage.VERIFY, "no verdict"), 0.1, 0.0)


def fly(preflight: Preflight, *outcomes: Outcome) -> str | None:
    """Start rollouts one after the other; the last reason."""
    reason = None
    for outcome in outcomes:
        assert preflight.may_start("a")
        preflight.record_start("a")
        reason = preflight.record_outcome("a", outcome)
    return reason


def is_open(preflight: Preflight) -> bool:
    """Whether rollouts may start while others are in flight."""
    preflight.record_start("a")
    return preflight.may_start("a")


def item(started: float = 0.0, *, answers: int = 0, failures: int = 0) -> WorkItem:
    work = WorkItem(RolloutKey(0, 0), b"", "a", started=started)
    usage = work.progress.ensure_usage_counter()
    for _ in range(answers):
        usage.add_call(Tokens(1, 1), 1.0, cost=None)
    for _ in range(failures):
        usage.add_failed(1.0)
    return work


def test_one_rollout_runs_at_first_and_all_once_it_is_scored() -> None:
    preflight = Preflight()
    assert preflight.may_start("a")
    preflight.record_start("a")
    assert not preflight.may_start("a")
    assert preflight.may_start("b"), "another agent has its own trial"
    assert preflight.record_outcome("a", SCORED) is None
    assert is_open(preflight)


def test_three_refusals_that_every_request_meets_end_a_run() -> None:
    preflight = Preflight()
    assert fly(preflight, NO_KEY, NO_KEY) is None
    assert "failed on the configuration" in (fly(preflight, NO_KEY) or "")


@pytest.mark.parametrize(
    "outcomes",
    [
        (NO_KEY, NO_KEY, SCORED),
        (BUSY,),
        (JUDGE_FAILED,),
        (refused(Cause.CONTEXT_OVERFLOW, FailureKind.MODEL_REJECTED),),
        (NO_KEY, refused(Cause.SERVER_ERROR, FailureKind.MODEL_ERROR)),
    ],
)
def test_what_others_need_not_meet_lets_them_start(outcomes: tuple[Outcome, ...]) -> None:
    preflight = Preflight()
    assert fly(preflight, *outcomes) is None
    assert is_open(preflight)


@pytest.mark.parametrize("outcome", [NO_TOOLS, refused(Cause.KEY_REFUSED, FailureKind.MODEL_AUTH, Certainty.STATUS)])
def test_refusals_that_may_depend_on_the_row_are_not_enough_but_stay_alone(outcome: Outcome) -> None:
    preflight = Preflight()
    assert fly(preflight, *[outcome] * 4) is None
    assert not is_open(preflight)


@pytest.mark.parametrize(
    ("first", "now", "is_over"),
    [
        (item(answers=1), 0.3, True),
        (item(failures=1), 0.3, False),
        (item(), 0.3, False),
        (item(), 2.1, True),
    ],
)
def test_an_answer_or_a_long_wait_ends_the_trial(first: WorkItem, now: float, *, is_over: bool) -> None:
    preflight = Preflight()
    preflight.record_start("a")
    preflight.review([first], now)
    assert preflight.may_start("a") is is_over


def test_a_suspicion_is_confirmed_by_the_first_rollout() -> None:
    suspicion = Suspicion(frozenset({"a"}), "the judge refuses", shows_refused_judge)
    preflight = Preflight([suspicion])
    preflight.record_start("a")
    preflight.review([item(answers=1)], 5.0)
    assert not preflight.may_start("a"), "an answer of the policy proves nothing about the judge"
    assert preflight.record_outcome("a", JUDGE_FAILED) == "preflight: the judge refuses"
    assert fly(Preflight([suspicion]), SCORED) is None


def test_a_suspicion_is_waited_for_a_minute_at_most() -> None:
    preflight = Preflight([Suspicion(frozenset({"a"}), "", shows_refused_judge)])
    preflight.record_start("a")
    preflight.review([item()], 61.0)
    assert preflight.may_start("a")


def test_an_overflow_is_an_answer_without_tokens() -> None:
    assert shows_overflow(Scored(b"{}", 0.0, 0.1, 9, 0, truncated=Truncation.LENGTH))
    assert not shows_overflow(Scored(b"{}", 0.0, 0.1, 9, 5, truncated=Truncation.LENGTH))
    assert not shows_overflow(SCORED)
    assert shows_overflow(refused(Cause.OUTPUT_LIMIT, FailureKind.MODEL_MISCONFIGURED))


def make_row(content: Any, agent: str = "a", **params: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": content}], **params},
        "agent_ref": {"name": agent},
    }


def test_only_rows_that_all_exceed_the_context_are_suspicious(tmp_path: Any) -> None:
    long, short = make_row("x" * 2000), make_row("x")
    plan = tmp_path / "plan.jsonl"
    assert find_overflow(write_jsonl(plan, [long, long]), {"a": 100})
    assert not find_overflow(write_jsonl(plan, [long, short]), {"a": 100})
    assert not find_overflow(write_jsonl(plan, [long, long]), {"a": 300})
    assert not find_overflow(write_jsonl(plan, [long]), {})
    assert [s.agents for s in find_overflow(write_jsonl(plan, [long, make_row("x", "b")]), {"a": 100, "b": 100})] == [
        frozenset({"a"})
    ]


def test_output_counts_and_images_do_not() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 9000}
    params = make_row([{"type": "input_text", "text": "what?"}, image])["responses_create_params"]
    assert count_chars(params) < 100
    assert not exceeds_context(params, 100)
    assert exceeds_context({**params, "max_output_tokens": 200}, 100)


def test_a_disk_with_room_is_enough(tmp_path: Any) -> None:
    check_disk(tmp_path / "x.jsonl", 1000)
