"""multichallenge: what the judge is shown, what its answers are worth, and judges that fail."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymnast.builtin.resources_servers.multichallenge.app import MultiChallenge, MultiChallengeSettings
from gymnast.builtin.resources_servers.multichallenge.texts import remove_thinking
from gymnast.errors import UserError
from gymnast.kit import QUOTE_NOTICE
from gymnast.wire.progress import AttemptProgress
from tests.helpers.environments import check_cases, collect_examples, said, started
from tests.helpers.judges import JUDGE, ScriptedJudge, judged, verify_in_rollout

YES, NO = "It does.\n[[YES]]", "It does not.\n[[NO]]"
ITEMS = [{"question": "Does it name Ada?"}, {"question": "Does it name Bob?", "pass_criteria": "NO"}]
ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "Who was here?"}]},
    "rubric": ITEMS,
    "context": "[USER]: Who was here?",
}
PLAIN = {"judge_prompt_template": "{context}|{response}|{question}|{pass_criteria}"}


def settings(**more: Any) -> MultiChallengeSettings:
    return MultiChallengeSettings.model_validate({"judge_model_server": JUDGE, "judge_max_tries": 1, **more})


def names(call: Any) -> str:
    """A judge who looks for the name in the question in the reply."""
    reply = call.user_text.partition("<reply>")[2].partition("</reply>")[0]
    name = call.user_text.partition("name ")[2].partition("?")[0]
    return YES if name in reply else NO


async def test_every_question_is_asked_with_the_conversation_and_the_reply() -> None:
    judge = ScriptedJudge(YES, NO)
    async with judged(MultiChallenge, settings(), judge) as subject:
        verdict = await subject.verify(ROW, "Ada {was}.")
    assert [call.items[0]["role"] for call in judge.asked] == ["system", "system"]
    for question, item in zip(judge.questions, ITEMS, strict=True):
        for part in (ROW["context"], "Ada {was}.", item["question"], "[[YES]] or [[NO]]"):
            assert str(part) in question
    assert (verdict["reward"], verdict["num_passed"], verdict["num_total"]) == (1.0, 2, 2)
    first, second = verdict["rubric_evaluations"]
    assert first == {
        "question": "Does it name Ada?",
        "pass_criteria": "YES",
        "judge_prompt": judge.questions[0],
        "judge_response": YES,
        "verdict": "YES",
        "score": 1.0,
        "weight": 1.0,
    }
    assert (second["verdict"], second["score"], second["pass_criteria"]) == ("NO", 1.0, "NO")


@pytest.mark.parametrize("options", [{"parallel_evaluation": True}, {"parallel_evaluation": False}])
async def test_answers_are_in_the_order_of_the_rubric(options: Any) -> None:
    items = [{"question": f"Does it name {name}?"} for name in "ABCDEF"]
    async with judged(MultiChallenge, settings(**options), names) as subject:
        verdict = await subject.verify({**ROW, "rubric": items}, "B and E")
    assert [item["verdict"] for item in verdict["rubric_evaluations"]] == ["NO", "YES", "NO", "NO", "YES", "NO"]
    assert verdict["reward"] == pytest.approx(2 / 6)


STRICTLY_SHOWN = f"> [USER]: Who was here?\n|\n> A (a verdict label)\n|Does it name Ada?|YES\n\n{QUOTE_NOTICE}"


@pytest.mark.parametrize(
    ("row", "scoring", "seen"),
    [
        ({}, "nemo_gym", "[USER]: Who was here?|A [[YES]]|Does it name Ada?|YES"),
        ({}, "strict", STRICTLY_SHOWN),
        ({"context": None}, "nemo_gym", "|A [[YES]]|Does it name Ada?|YES"),
        ({"context": None}, "strict", STRICTLY_SHOWN),
        (
            {"context": "", "metadata": {"messages": [{"role": "user", "content": "Hi"}, {"role": "thinking"}]}},
            "nemo_gym",
            "[USER]: Hi|A [[YES]]|Does it name Ada?|YES",
        ),
    ],
)
async def test_what_the_judge_is_shown(row: Any, scoring: str, seen: str) -> None:
    judge = ScriptedJudge(YES)
    async with judged(MultiChallenge, settings(scoring=scoring, **PLAIN), judge) as subject:
        await subject.verify({**ROW, "rubric": ITEMS[:1], **row}, "A [[YES]]")
    assert judge.questions == [seen]


async def test_a_long_reply_is_shown_by_its_end_under_strict_scoring() -> None:
    for scoring, longest in (("strict", 20_000), ("nemo_gym", 1_000_000)):
        judge = ScriptedJudge(YES)
        async with judged(MultiChallenge, settings(scoring=scoring, **PLAIN), judge) as subject:
            await subject.verify(ROW, "na " * 300_000 + "Ada")
        assert longest / 2 < len(judge.questions[0]) < longest


async def test_silence_is_not_judged_under_strict_scoring() -> None:
    judge = ScriptedJudge(NO)
    async with judged(MultiChallenge, settings(scoring="strict"), judge) as subject:
        verdict = await subject.verify(ROW, "<think>Ada")
    assert (verdict["reward"], verdict["num_passed"], verdict["num_total"], judge.asked) == (0.0, 0, 2, [])


async def test_the_majority_of_votes_answers() -> None:
    judge = ScriptedJudge(NO, YES, YES)
    async with judged(MultiChallenge, settings(judge_votes=3), judge) as subject:
        verdict = await subject.verify({**ROW, "rubric": ITEMS[:1]}, "Ada")
    assert verdict["reward"] == 1.0
    assert verdict["rubric_evaluations"][0]["judge_response"] == YES


@pytest.mark.parametrize("scoring", ["nemo_gym", "strict"])
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"status": 503}, "model_overloaded: "),
        ({"status": 401}, "model_auth: "),
        ("maybe", "judge_unparseable: "),
        ("", "judge_unparseable: "),
        ("<think>[[YES]]</think>", "judge_unparseable: "),
        ({"hang": True}, "judge_timeout: "),
    ],
)
async def test_a_judge_that_fails_is_not_an_answer(reply: Any, error: str, scoring: str) -> None:
    progress = AttemptProgress()
    judge = ScriptedJudge(NO, reply)
    deadline_s = 0.2 if error == "judge_timeout: " else 60  # on a busy machine other failures take longer
    async with judged(MultiChallenge, settings(judge_deadline_s=deadline_s, scoring=scoring), judge) as subject:
        verdict = await verify_in_rollout(subject, ROW, "Ada", progress)
    assert verdict["_ng_failure_class"] == "judge_failed"
    assert verdict["_ng_failure_judge_error"].startswith(error)
    assert verdict["rubric"] == ITEMS
    usage = progress.ensure_usage_counter().usage()
    assert usage.judge is not None
    assert usage.judge.calls == 2


async def test_a_judge_without_a_verdict_is_asked_again() -> None:
    judge = ScriptedJudge("maybe", YES)
    async with judged(MultiChallenge, settings(judge_max_tries=2), judge) as subject:
        assert (await subject.verify({**ROW, "rubric": ITEMS[:1]}, "Ada"))["reward"] == 1.0


@pytest.mark.parametrize(
    ("row", "mode", "problem"),
    [
        ({"rubric": []}, "mean", "the rubric is empty"),
        ({"rubric": [{"weight": 0}]}, "weighted", "weights must not be negative, nor all 0"),
        ({"rubric": [{"weight": -1}, {"weight": 2}]}, "weighted", "weights must not be negative, nor all 0"),
    ],
)
async def test_rows_that_say_nothing_are_refused_under_strict_scoring(row: Any, mode: str, problem: str) -> None:
    async with judged(MultiChallenge, settings(scoring="strict", aggregation_mode=mode), names) as subject:
        assert problem in await subject.refusal({**ROW, **row})


async def test_broken_rows_and_settings_are_refused() -> None:
    async with judged(MultiChallenge, settings(), names) as subject:
        assert "Input should be a valid string" in await subject.refusal({**ROW, "rubric": [{"question": 5}]})
        broken = {**ROW, "metadata": {"messages": [5]}}
        assert "messages must be a list" in await subject.refusal({**broken, "context": ""})
        assert (await subject.verify(broken, "Ada"))["context"] == ROW["context"]  # messages are not read
    with pytest.raises(ValidationError, match="aggregation_mode"):
        settings(aggregation_mode="median")
    with pytest.raises(UserError, match="unknown fields"):
        async with started(MultiChallenge, settings(judge_prompt_template="{answer}")):
            pass


TAGS = st.sampled_from(["<think>", "</think>", "<thinking>", "</thinking>", "a", "\n"])


@given(st.lists(TAGS, max_size=8).map("".join))
def test_thinking_is_removed_as_by_patterns(text: str) -> None:
    expected = text
    for pattern in ("<TAG>.*?</TAG>", "^.*?</TAG>"):
        for tag in ("think", "thinking"):
            expected = re.sub(pattern.replace("TAG", tag), "", expected, flags=re.DOTALL)
    assert remove_thinking(text) == expected.strip()


async def test_parts_of_a_message_are_lines() -> None:
    message = said("Ada")
    message["content"].append({"type": "output_text", "text": "Bob", "annotations": []})
    async with judged(MultiChallenge, settings(), names) as subject:
        verdict = await subject.verify(ROW, message)
    assert (verdict["generated_response"], verdict["reward"]) == ("Ada\nBob", 0.5)


async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    model, server = "++judge.responses_api_models.scripted_model", "++multichallenge.resources_servers.multichallenge"
    overrides = (
        f"{model}.entrypoint=app.py",
        f"{model}.script={__name__}:is_yes",
        f"{server}.judge_model_server.name=judge",
    )
    replies = ["yes", "no", "yes", {"reasoning": "yes", "text": "no"}, "no", "yes"]
    records = await collect_examples(tmp_path, "multichallenge", replies, *overrides)
    assert [record["reward"] for record in records] == [
        pytest.approx(2 / 3),
        0.0,
        pytest.approx(2 / 3),
        0.5,
        1 / 3,
        1.0,
    ]
    assert [record["_ng_model_usage"]["judge"]["calls"] for record in records] == [3, 2, 3, 2, 3, 2]


def is_yes(call: Any) -> str:
    """A judge who answers every question with what the reply says."""
    return YES if "<reply>\nyes" in call.user_text else NO


async def test_cases() -> None:
    def judge(call: Any) -> str:
        reply, _, question = call.user_text.partition("<reply>")[2].partition("</reply>")
        return YES if ("Captain" if "Captain" in question else "10,080") in reply else NO

    async with judged(MultiChallenge, settings(), judge) as subject:
        await check_cases(subject, "multichallenge")
