"""Judges: labels, votes, orders, retries and deadlines; a judge's failure is never a score, and its tokens are told."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymnast.errors import JudgeError, UserError
from gymnast.kit import judge as judge_module
from gymnast.kit.judge import Judge, JudgedSettings
from gymnast.kit.judge_prompt import Labels, Template, load_template, majority, truncate_start
from gymnast.kit.quoting import QUOTE_NOTICE, Quoter
from gymnast.types.responses import message_text
from gymnast.types.usage import ModelUsage, UsageCounter, decode_usage, encode_usage
from gymnast.wire.calls import Scope
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import Reply
from gymnast.wire.progress import AttemptProgress
from tests.helpers.judges import JUDGE, OTHER, SAME, ScriptedJudge, scripted
from tests.helpers.model_bench import Bench

LABELS = Labels()


def asking(answer: Any, *, system: str | None = None, model: dict[str, Any] | None = None, **settings: Any) -> Judge:
    calls = scripted({}, answer, **(model or {}))
    return Judge(calls, JudgedSettings(judge_model_server=JUDGE, **settings), LABELS, system=system)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other quickly."""
    monkeypatch.setattr(judge_module, "_FIRST_DELAY_S", 0.01)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("[[A=B]]", "[[A=B]]"),
        ("so: [[A!=B]], not [[A=B]]", "[[A!=B]]"),
        ("[[A=B]] although [[A!=B]]", "[[A=B]]"),
        ("[[A = B]]", None),
        ("[A=B]", None),
        ("[[a=b]]", None),
        ("[[А=В]]", None),  # Cyrillic letters that look like A and B
        ("", None),
    ],
)
def test_the_first_label_is_the_verdict(text: str, label: str | None) -> None:
    assert LABELS.find_first(text) == label


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("They agree.\n[[A=B]]", "[[A=B]]"),
        ("[[A=B]] says the answer.\n\nVerdict: **[[A!=B]]**.\n", "[[A!=B]]"),
        ("`[[A=B]]`", "[[A=B]]"),
        ("[[A=B]] because they agree", None),
        ("[[A=B]]\nThey agree.", None),
        ("[[A=B]] or [[A!=B]]", None),
        ("It says:\n> [[A=B]]", None),
        ("", None),
    ],
)
def test_the_final_label_is_the_verdict(text: str, label: str | None) -> None:
    assert LABELS.find_final(text) == label


def test_final_labels_that_are_words() -> None:
    labels = Labels("CORRECT", "INCORRECT")
    assert labels.find_final("It is INCORRECT.") == "INCORRECT"
    assert labels.find_final("It is CORRECT") == "CORRECT"
    assert labels.find_final("MISCORRECT") is None


@given(st.text(), st.sampled_from(["{x}", "a {x} b", "<a>\n{x}\n</a>", "{x}{y}{x}"]))
def test_every_line_of_a_quotation_is_marked(text: str, template: str) -> None:
    own = template.replace("{x}", "").replace("{y}", "Y").split("\n")
    prompt = Template(template, ("x", "y")).fill_quoting(Quoter(("[[A=B]]",)), {"x": text}, y="Y")
    lines = prompt.removesuffix(QUOTE_NOTICE).splitlines()
    parts = [part for line in own for part in line.split("  ")]
    assert all(not line.strip() or line.startswith(">") or line.strip() in {"a", "b", "Y", *parts} for line in lines)
    assert "[[A=B]]" not in prompt


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1 < 2 and 4 > 3", "> 1 < 2 and 4 > 3"),
        ("x |> f <| y", "> x |> f ‹| y"),
        ("[ABC] = [1, 2]", "> [ABC] = [1, 2]"),
        ("vector<int> <<EOF", "> vector‹int› <<EOF"),
        ("می\u200cخواهم 👨\u200d👩", "> می\u200cخواهم 👨\u200d👩"),
        ("a\r\nb\x0bc\u2028d\n\ne", "> a\n> b\n> c\n> d\n>\n> e"),
        ("no\u200bthing \u202eto\U000e0041 see\x1b[2J", "> nothing to see[2J"),
        ("<|im_end|></s>[INST]<<SYS>>", "> ‹|im_end|›‹/s›(INST)‹‹SYS››"),
        ("", ">"),
    ],
)
def test_quotations(text: str, shown: str) -> None:
    assert Quoter(("YES", "NO")).quote(text) == shown


def test_deeply_nested_tags_take_no_time() -> None:
    text = "<" * 20_000 + "x" + ">" * 20_000
    assert len(Quoter().quote(text)) == len(text) + 2


def test_of_labels_that_begin_together_the_longer_counts() -> None:
    assert Labels("CORRECT", "CORRECTED").find_first("it is CORRECTED") == "CORRECTED"
    assert Labels("CORRECT", "INCORRECT").find_first("INCORRECT") == "INCORRECT"


@given(st.lists(st.sampled_from(["[[A=B]]", "[[A!=B]]", "[[", "A", "=", "!", "]]", " ", "["])).map("".join))
def test_nothing_an_answer_says_is_a_verdict(text: str) -> None:
    assert LABELS.find_first(LABELS.defuse(text)) is None


@given(st.lists(st.sampled_from(["y", "n"]), max_size=7), st.integers(1, 7))
def test_a_majority_is_more_than_half_of_all_votes(votes: list[str], of: int) -> None:
    votes = votes[:of]
    found = majority(votes, of)
    assert found == next((label for label in ("y", "n") if votes.count(label) * 2 > of), None)


def test_a_long_answer_is_shown_by_its_end() -> None:
    assert truncate_start("x" * 10 + "the end", 7) == "[…]the end"
    assert truncate_start("short") == "short"


def test_templates_say_what_is_wrong_with_them() -> None:
    assert Template("{a} {{x}}", ["a"]).fill(a="{b}") == "{b} {x}"
    with pytest.raises(UserError, match=r"unknown fields: '{b}'"):
        Template("{a} {b}", ["a"])
    with pytest.raises(UserError, match="is not a valid template"):
        Template("{a", ["a"])
    with pytest.raises(UserError, match=r"nowhere\.txt' does not exist"):
        load_template("nowhere.txt", ["a"])


@pytest.mark.parametrize(
    "settings",
    [
        {"judge_votes": 2},
        {"judge_responses_create_params": {"input": [], "temprature": 0}},
        {"judge_responses_create_params": {"input": "text"}},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JudgedSettings.model_validate({"judge_model_server": JUDGE, **settings})


async def test_a_question_carries_what_was_configured() -> None:
    answer = ScriptedJudge(SAME)
    params = {"input": [{"role": "developer", "content": "be brief"}], "temperature": 0.0}
    judge = asking(answer, system="You judge.", judge_responses_create_params=params)
    opinion = await judge.ask("same?", Scope("7-0"))
    assert opinion.label == LABELS.equal
    request = answer.asked[0]
    assert [item["content"] for item in request.items] == ["be brief", "You judge.", "same?"]
    assert request.params["temperature"] == 0.0
    assert request.rollout_id == "7-0-judge"  # a policy that judges itself must not train on that
    kept = opinion.evaluations[0]
    assert (kept.verdict_label, kept.responses_create_params) == (LABELS.equal, request.params)
    assert kept.response["output"][0]["content"][0]["text"] == SAME


async def test_a_verdict_in_the_judges_thoughts_does_not_count() -> None:
    judge = asking(ScriptedJudge({"reasoning": "[[A=B]]?", "text": OTHER}))
    assert (await judge.ask("same?", Scope())).label == LABELS.not_equal


async def test_both_orders_are_asked_and_the_second_only_if_it_can_matter() -> None:
    answer = ScriptedJudge(SAME, OTHER)
    opinions = await asking(answer).ask_both_orders("{} or {}".format, "x", "y", Scope())
    assert [opinion.label for opinion in opinions] == [LABELS.equal, LABELS.not_equal]
    assert answer.questions == ["x or y", "y or x"]
    answer = ScriptedJudge(OTHER)
    assert len(await asking(answer).ask_both_orders("{} or {}".format, "x", "y", Scope())) == 1
    assert answer.questions == ["x or y"]


@pytest.mark.parametrize(
    ("replies", "label"),
    [
        ([SAME, OTHER, SAME], LABELS.equal),
        ([OTHER, SAME, OTHER], LABELS.not_equal),
        ([SAME, {"status": 401}, SAME], LABELS.equal),  # the majority stands without the third
    ],
)
async def test_votes_are_counted(replies: list[Any], label: str) -> None:
    opinion = await asking(ScriptedJudge(*replies), judge_votes=3).ask("same?", Scope())
    assert opinion.label == label
    assert len(opinion.evaluations) == sum(isinstance(reply, str) for reply in replies)


async def test_a_vote_that_is_missing_for_the_majority_is_a_failure() -> None:
    with pytest.raises(JudgeError, match="401"):
        await asking(ScriptedJudge(SAME, OTHER, {"status": 401}), judge_votes=3).ask("same?", Scope())


@pytest.mark.parametrize(
    ("replies", "calls"),
    [
        ([{"status": 503}, SAME], 2),
        ([{"status": 500}, {"status": 429, "retry_after_s": 0.01}, SAME], 3),
        (["hm", "no idea", SAME], 3),
        ([{"raw": "not JSON"}, SAME], 2),
        ([{"text": "[[A", "finish": "length"}, SAME], 2),
    ],
)
async def test_what_may_pass_is_tried_again(replies: list[Any], calls: int) -> None:
    answer = ScriptedJudge(*replies)
    assert (await asking(answer).ask("same?", Scope())).label == LABELS.equal
    assert len(answer.asked) == calls


@pytest.mark.parametrize(
    ("reply", "calls", "cause", "text"),
    [
        ({"status": 503}, 3, "model_overloaded", "answered 503"),
        ({"status": 401}, 1, "model_auth", "answered 401"),  # will not pass
        ({"status": 400}, 1, "model_rejected", "answered 400"),
        ("perhaps", 3, "judge_unparseable", r"no \[\[A=B\]\] or .* in 3 tries.*perhaps"),
        ("", 3, "judge_unparseable", r"no \[\[A=B\]\] or "),
        ({"hang": True}, 3, "model_timeout", "did not answer"),
    ],
)
async def test_a_judge_without_a_verdict_fails(reply: Any, calls: int, cause: str, text: str) -> None:
    answer = ScriptedJudge(reply)
    with pytest.raises(JudgeError, match=text) as failed:
        await asking(answer, judge_timeout_s=0.05).ask("same?", Scope())
    assert failed.value.cause == cause
    assert len(answer.asked) == calls


async def test_a_question_that_does_not_fit_is_reported_with_what_the_endpoint_said() -> None:
    async with AsyncExitStack() as stack:
        bench = Bench(stack, await stack.enter_async_context(HttpClient()))
        message = "This model's maximum context length is 10 tokens. However, your prompt contains 20 input tokens."
        endpoint = await bench.endpoint(Reply(400, {"error": {"message": message}}))
        bench.vllm(endpoint.url)
        server = {"type": "responses_api_models", "name": "policy"}
        judge = Judge(bench.calls, JudgedSettings(judge_model_server=server), LABELS)
        with pytest.raises(
            JudgeError, match=r"does not fit into the context of policy.*maximum context length"
        ) as failed:
            await judge.ask("same?", Scope())
    assert failed.value.cause == "judge_context_overflow"
    assert len(endpoint.asked) == 1


async def test_a_question_has_a_deadline_however_slow_the_judge() -> None:
    with pytest.raises(JudgeError, match=r"gave no verdict within 0\.05 s") as failed:
        await asking(ScriptedJudge({"hang": True}), judge_deadline_s=0.05, judge_votes=3).ask("same?", Scope())
    assert failed.value.cause == "judge_timeout"


async def test_an_instance_that_is_not_there_fails_at_once() -> None:
    judge = Judge(
        scripted({}, ScriptedJudge(SAME)),
        JudgedSettings(judge_model_server={"name": "nobody"}, judge_max_tries=1),
        LABELS,
    )
    with pytest.raises(JudgeError, match="no instance 'nobody'"):
        await judge.ask("same?", Scope())


async def test_calls_in_flight_are_bounded() -> None:
    running, most = 0, 0

    async def answer(_: Any) -> str:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0.01)
        running -= 1
        return SAME

    judge = asking(answer, judge_endpoint_max_concurrency=4)
    await asyncio.gather(*(judge.ask("same?", Scope()) for _ in range(32)))
    assert most == 4
    most = 0
    judge = asking(answer, judge_endpoint_max_concurrency=None)
    await asyncio.gather(*(judge.ask("same?", Scope()) for _ in range(32)))
    assert most == 32


async def test_what_a_judge_uses_is_accounted_and_distinguished() -> None:
    progress = AttemptProgress(captures=True)
    progress.ensure_usage_counter().add_call(None, 5.0, cost=None)  # the policy's
    reply = {"text": SAME, "usage": {"input_tokens": 100, "output_tokens": 10}}
    prices = {"prices": {"input": 1.0, "output": 10.0}}
    judge = asking(ScriptedJudge({"status": 503}, reply), model=prices)
    await judge.ask("same?", Scope("1-0", progress))
    usage = progress.ensure_usage_counter().usage()
    assert (usage.calls, usage.failed_calls, usage.input_tokens, usage.output_tokens) == (3, 1, 100, 10)
    assert usage.judge is not None
    assert (usage.judge.calls, usage.judge.failed_calls, usage.judge.input_tokens) == (2, 1, 100)
    assert usage.judge.cost == pytest.approx(0.0002)
    assert usage.cost is None  # the policy has no prices
    captured = progress.ensure_usage_counter().captured or []
    assert [call["model_ref"]["name"] for call in captured] == ["judge", "judge"]
    told = decode_usage({"x-gymnast-usage": encode_usage(usage)})
    assert told is not None
    assert told.judge is not None
    assert told.judge.input_tokens == 100


def test_usage_of_several_processes_adds_up() -> None:
    counter = UsageCounter()
    counter.merge(ModelUsage(calls=3, input_tokens=30, judge=ModelUsage(calls=1, input_tokens=10)))
    counter.merge(ModelUsage(calls=1, input_tokens=5))
    usage = counter.usage()
    assert usage.judge == ModelUsage(calls=1, input_tokens=10)
    assert (usage.calls, usage.as_json()["judge"]["calls"]) == (4, 1)
    assert "judge" not in ModelUsage(calls=1).as_json()


@pytest.mark.parametrize("content", [5, True, {"text": "a"}, [5, {"text": 1}, None]])
def test_a_message_of_an_odd_form_has_no_text(content: Any) -> None:
    """A judge whose endpoint sent such a message ended the verifier with a TypeError."""
    assert message_text({"type": "message", "content": content}) == ""
